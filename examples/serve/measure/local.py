# SPDX-License-Identifier: LGPL-2.1-or-later
"""The server, started by a measurement on a free port of the loopback; and the element in this process, to compare."""
import asyncio
import contextlib
import os
import pathlib
import re
import signal
import sys
import time

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401  (GstApp gives appsink its methods)

from . import client, report  # noqa: E402

SERVE = pathlib.Path(__file__).resolve().parents[1]


@contextlib.asynccontextmanager
async def started(*options, environment=None):
    """A server of its own with these options; a client.Server and its report.Process."""
    environment = {**os.environ, "PYTHONPATH": str(SERVE), **(environment or {})}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "qtts_serve", "--port", "0", *options, env=environment,
                                                   stderr=asyncio.subprocess.STDOUT, stdout=asyncio.subprocess.PIPE)
    said = []
    drain = None
    try:
        async with asyncio.timeout(120):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", said[-1] if said else "")):
                line = (await process.stdout.readline()).decode()
                if not line:
                    raise RuntimeError("the server does not start: " + "".join(said))
                said.append(line)
        drain = asyncio.create_task(_drain(process.stdout, said))
        server = client.Server(found.group())
        try:
            await ready(server)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; it said: {''.join(said)}") from None
        yield server, report.Process(process.pid)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        if drain:
            await drain


async def _drain(stream, said):
    while line := await stream.readline():
        said.append(line.decode())


async def ready(server, limit=60.0):
    """Waits until the server speaks."""
    deadline = time.perf_counter() + limit
    while True:
        with contextlib.suppress(OSError, client.Broken):
            if (await server.get("/health/ready")).status == 200:
                return
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{server.url} is not ready after {limit:g} s")
        await asyncio.sleep(0.05)


class InProcess:
    """qttssrc ! appsink in this process, without the silence at the beginning, as the server has it."""

    def __init__(self, model=""):
        Gst.init(None)
        self._pipeline = Gst.parse_launch("qttssrc name=voice idle-mode=wait trim-leading-silence=true ! "
                                          "appsink name=sound sync=false async=false caps=audio/x-raw,format=S16LE")
        self._voice, self._sound = (self._pipeline.get_by_name(name) for name in ("voice", "sound"))
        if model:
            self._voice.set_property("model-path", model)
        self._pipeline.set_state(Gst.State.PLAYING)

    def first_sound(self, text, layout):
        """Seconds from the text to its first frame; the rest is interrupted."""
        begin = time.perf_counter()
        self._voice.emit("speak", text, Gst.Structure.new_from_string(f"params,layout=(string){layout}"))
        if self._sound.try_pull_sample(30 * Gst.SECOND) is None:
            raise RuntimeError("no sound within 30 s")
        took = time.perf_counter() - begin
        self._voice.emit("interrupt")
        while self._sound.try_pull_sample(20 * Gst.MSECOND) is not None:
            pass
        return took

    def speak(self, text, seed):
        """The whole sound of a text, as bytes."""
        self._voice.emit("speak", text, Gst.Structure.new_from_string(f"params,seed=(gint64){seed}"))
        bus, pieces, finished = self._pipeline.get_bus(), [], None
        while finished is None or sum(map(len, pieces)) < 2 * finished:
            sample = self._sound.try_pull_sample(50 * Gst.MSECOND)
            if sample is not None:
                pieces.append(sample.get_buffer().extract_dup(0, sample.get_buffer().get_size()))
            while (message := bus.pop_filtered(Gst.MessageType.ELEMENT)) is not None:
                if message.get_structure().get_name() == "qtts-utterance-finished":
                    finished = message.get_structure().get_value("samples")
        return b"".join(pieces)

    def close(self):
        self._pipeline.set_state(Gst.State.NULL)
