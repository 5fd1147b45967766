# SPDX-License-Identifier: LGPL-2.1-or-later
"""The conformance tests use the server at QTTS_SERVE_ADDRESS (http://HOST:PORT), which must have the bundled voice. If
that is unset, they start a server. The other tests start their own."""
import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

import gi
import pytest

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401
from websockets.sync.client import connect  # noqa: E402

PATIENCE = 300  # seconds; only broken code reaches it
FRAME = 3840  # bytes
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # hostile_recordings.py
GENERATOR = os.environ.get("QTTS_GENERATOR")  # of random models, from the golden tests

needs_generator = pytest.mark.skipif(not GENERATOR, reason="QTTS_GENERATOR is not set: meson test sets it")


class Server:
    """One that this test started, or that runs at `address`."""

    def __init__(self, *options, address=None, environment=None, preexec=None, ready=True):
        self.process = None
        self.faulty = False  # it is expected to tell of mistakes in it
        self.address = address
        if address is None:
            self._log = tempfile.NamedTemporaryFile()  # a full pipe would block the server
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qtts_serve", "--port", "0", "--drain-delay", "0", *options], stdout=subprocess.PIPE,
                stderr=self._log, text=True, env={**os.environ, **(environment or {})}, preexec_fn=preexec)
            line = self.process.stdout.readline()
            self.address = line.partition(": ")[2].strip()
            assert self.address.startswith("http://"), line + self.said()
        parts = urllib.parse.urlsplit(self.address)
        self.host, self.port = parts.hostname, parts.port
        if ready:
            wait_for("the server to be ready", self._is_ready)

    def _is_ready(self):
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}: {self.said()}")
        return self.get("/health/ready")[0] == 200

    def request(self, method, path, body=None, headers=None):
        """Status, headers, body."""
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def connection(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def get(self, path):
        return self.request("GET", path)

    def speech(self, headers=None, **fields):
        """Status, headers, body of POST /v1/audio/speech; by default as bare samples."""
        fields = {"response_format": "pcm", **fields}
        return self.request("POST", "/v1/audio/speech", json.dumps(fields), headers)

    def refusal(self, **fields):
        """Status and error of a request that is refused."""
        status, _, body = self.speech(**fields)
        assert status >= 400
        return status, json.loads(body)["error"]

    def begin(self, **fields):
        """A response whose sound is still to be read. With some seeds a text has no end."""
        connection = self.connection()
        connection.request("POST", "/v1/audio/speech", json.dumps({"response_format": "pcm", "seed": 1, **fields}))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return response

    @contextlib.contextmanager
    def stream(self, **options):
        with connect(f"ws://{self.host}:{self.port}/v1/audio/speech/stream", max_size=None, open_timeout=PATIENCE,
                     compression=None, **options) as socket:
            yield Stream(socket)

    def metric(self, name):
        """The sum over all labels."""
        text = self.get("/metrics")[2].decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def wait_until_idle(self):
        wait_for("all slots to be free", lambda: self.metric("qtts_slots_busy") == 0)
        wait_for("all requests to be over", lambda: self.metric("qtts_sessions") == 0)

    def stop(self, how=signal.SIGTERM):
        """Standard error and the status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE)
        return self.said(), self.process.returncode

    def said(self):
        """Its log so far."""
        return pathlib.Path(self._log.name).read_text(encoding="utf-8")


class Stream:
    """A WebSocket, as a client with vLLM-Omni's messages has it."""

    def __init__(self, socket):
        self.socket = socket

    def send(self, kind, **fields):
        self.socket.send(json.dumps({"type": kind, **fields}))

    def receive(self):
        """A message as a dictionary, or sound as bytes."""
        message = self.socket.recv(timeout=PATIENCE)
        return message if isinstance(message, bytes) else json.loads(message)

    def until(self, kind):
        """The sound, and the messages up to one of this type."""
        sound, messages = [], []
        while not messages or messages[-1]["type"] != kind:
            message = self.receive()
            (sound if isinstance(message, bytes) else messages).append(message)
        return b"".join(sound), messages

    def say(self, *pieces, **config):
        """An utterance with these settings; its sound and messages. One of some eighty seeds has no end."""
        self.send("session.config", **{"response_format": "pcm", "stream_audio": True, "pace": 0, "seed": 1, **config})
        for piece in pieces:
            self.send("input.text", text=piece)
        self.send("input.done")
        return self.until("session.done")


def frames(sound):
    """Frames of 80 ms, of which the last one may be shorter."""
    return -(-len(sound) // FRAME)


def of(messages, kind):
    return [message for message in messages if message["type"] == kind]


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


@functools.lru_cache(maxsize=None)
def element(text, pieces=(), **properties):
    """The samples, as bytes, that qttssrc itself makes of a text, without the silence at its beginning. With `pieces`, of
    growing text."""
    Gst.init(None)
    source = "appsrc name=in caps=text/x-raw,format=utf8 ! " if pieces else ""
    pipeline = Gst.parse_launch(f"{source}qttssrc name=speech ! appsink name=out sync=false caps=audio/x-raw,format=S16LE")
    speech = pipeline.get_by_name("speech")
    for name, value in {"trim_leading_silence": "true", **properties}.items():
        Gst.util_set_object_arg(speech, name.replace("_", "-"), str(value))
    if pieces:
        speech.set_property("segmentation", 3)  # stream
        for piece in pieces:
            pipeline.get_by_name("in").push_buffer(Gst.Buffer.new_wrapped(piece.encode()))
        pipeline.get_by_name("in").end_of_stream()
    else:
        speech.set_property("text", text)
    pipeline.set_state(Gst.State.PLAYING)
    sound = []
    while (sample := pipeline.get_by_name("out").try_pull_sample(PATIENCE * Gst.SECOND)) is not None:
        buffer = sample.get_buffer()
        sound.append(buffer.extract_dup(0, buffer.get_size()))
    pipeline.set_state(Gst.State.NULL)
    return b"".join(sound)


@pytest.fixture(scope="session")
def server():
    """For conformance tests."""
    address = os.environ.get("QTTS_SERVE_ADDRESS")
    started = Server(address=address)
    yield started
    if address is None:
        started.wait_until_idle()
        said, status = started.stop()
        assert status == 0
        assert "Traceback" not in said, said


@pytest.fixture
def model(request, tmp_path):
    """The folder of a random model of this type."""
    folder = tmp_path / request.param
    subprocess.run([GENERATOR, "--preset", request.param, folder], check=True, capture_output=True)
    return str(folder)


@pytest.fixture
def start():
    """Starts servers with options; ends them after the test."""
    servers = []

    def begin(*options, **keywords):
        servers.append(Server(*options, **keywords))
        return servers[-1]

    yield begin
    for started in servers:
        said, _ = started.stop(signal.SIGKILL)
        assert "Traceback" not in said or started.faulty, said
