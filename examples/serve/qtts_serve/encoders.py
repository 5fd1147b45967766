# SPDX-License-Identifier: LGPL-2.1-or-later
"""Samples (S16LE, 24 kHz, mono) become bytes of a format, piece by piece.

A compressed format, and any sound at another rate, has an encoder of its own for each utterance, with a state and an end, in
one of the processes that are there for it (encoding.py).
"""
import asyncio
import collections
import itertools
import logging
import os
import pathlib
import socket
import subprocess
import sys

from .encoding import ANSWER, CLOSE, END, OPEN, PUSH, REQUEST
from .errors import ApiError
from .formats import FORMATS, held, wav_header
from .limits import encoding_processes
from .speaker import RATE

LONGEST_END = 5.0  # seconds that a template takes to end

log = logging.getLogger("qtts_serve")


class Plain:
    """pcm and wav at the model's rate."""

    held = 0.0

    def __init__(self, header):
        self._header = header

    async def encode(self, sound):
        header, self._header = self._header, b""
        return header + sound

    async def finish(self):
        return await self.encode(b"")

    def close(self):
        pass


class Encoder:
    """A compressed format, or another rate. `header` comes before all else."""

    def __init__(self, process, name, rate, header):
        self._process = process
        self._header = header
        self.held = held(name, rate)
        self._number = process.open(f"{name} {rate}")
        self._closed = False

    async def encode(self, sound):
        """Returns the bytes that are there once this sound is encoded. ApiError if the encoder failed."""
        header, self._header = self._header, b""
        return header + await self._process.ask(self._number, PUSH, sound)

    async def finish(self):
        """The rest. ApiError if the encoder failed."""
        header, self._header = self._header, b""
        return header + await self._process.ask(self._number, END)

    def close(self):
        if not self._closed:
            self._closed = True
            self._process.close(self._number)


class Template:
    """The process whose forks encode."""

    def __init__(self):
        """OSError if it cannot be started."""
        self._socket, other = socket.socketpair()
        path = os.pathsep.join(filter(None, (str(pathlib.Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
        with other:
            try:
                self._child = subprocess.Popen([sys.executable, "-m", f"{__package__}.encoding"], stdin=other,
                                               stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
            except OSError:
                self._socket.close()
                raise

    @property
    def pid(self):
        return self._child.pid

    def fork(self):
        """The socket of a new process. OSError if the template has ended."""
        own, other = socket.socketpair()
        with other:
            try:
                socket.send_fds(self._socket, [b"f"], [other.fileno()])
            except OSError:
                own.close()
                raise
        return own

    def end(self):
        """Blocks, mostly for some milliseconds."""
        self._socket.close()
        try:
            self._child.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Process(asyncio.Protocol):
    """A process that encodes, seen from the event loop: the protocol of the socket between them."""

    def __init__(self):
        self._numbers = itertools.count()
        self._received = bytearray()
        self._asked = collections.deque()  # futures of the answers, in their order
        self._ends = False  # by end()
        self.utterances = 0
        self.lost = False

    def open(self, what):
        """The number of a new encoder. Its first answer tells if it could not be made."""
        number = next(self._numbers)
        self.utterances += 1
        self._tell(number, OPEN, what.encode())
        return number

    def close(self, number):
        self.utterances -= 1
        self._tell(number, CLOSE)

    async def ask(self, number, what, data=b""):
        """The bytes that an encoder has now. ApiError if it failed."""
        if self.lost:
            raise failed()
        answer = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self._tell(number, what, data)
        return await answer

    def _tell(self, number, what, data=b""):
        if not self.lost:
            self._transport.write(REQUEST.pack(number, what, len(data)) + data)

    def end(self):
        self._ends = True
        self._transport.abort()

    # --- of the socket

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._received += data
        begin, have = 0, len(self._received)
        while begin + ANSWER.size <= have:
            has_failed, size = ANSWER.unpack_from(self._received, begin)
            body = begin + ANSWER.size
            if body + size > have:
                break
            self._answer(has_failed, bytes(memoryview(self._received)[body:body + size]))
            begin = body + size
        del self._received[:begin]

    def _answer(self, has_failed, data):
        future = self._asked.popleft()
        if future.done():  # nobody waits for it any longer
            return
        if has_failed:
            log.error("an encoder failed: %s", data.decode(errors="replace"))
            future.set_exception(failed())
        else:
            future.set_result(data)

    def connection_lost(self, _error):
        self.lost = True
        if not self._ends:
            log.error("a process that encodes has ended, and %d utterances with it", self.utterances)
        while self._asked:
            future = self._asked.popleft()
            if not future.done():
                future.set_exception(failed())


def failed():
    """For the client. The log has the reason."""
    return ApiError(500, "The encoder of this format failed. Try again, or ask for wav.", "response_format", "encoder_failed")


class Encoders:
    """The processes that encode: their template, and as many forks as there were utterances for. On the event loop's thread."""

    def __init__(self):
        self._template = None
        self._processes = []
        self._starting = None  # a task

    def prepare(self):
        """Starts the template, so that no utterance waits for it. RuntimeError if that is not possible."""
        try:
            self._template = Template()
        except OSError as error:
            raise RuntimeError(f"A process that encodes cannot be started: {error}. Free memory, or raise the limits of processes "
                               "(ulimit -u, pids.max of the cgroup) and of open files (ulimit -n).") from None

    async def make(self, name, rate):
        """An encoder for an utterance's sound. ApiError if no process can be started."""
        header = wav_header(rate=rate) if name == "wav" else b""
        if FORMATS[name].elements or FORMATS[name].stream or rate != RATE:
            return Encoder(await self._least_busy(), name, rate, header)
        return Plain(header)

    async def _least_busy(self):
        self._processes = [process for process in self._processes if not process.lost]
        utterances = sum(process.utterances for process in self._processes) + 1
        if self._starting is None and len(self._processes) < encoding_processes(utterances):
            self._starting = asyncio.create_task(self._start())
        if self._starting is not None:
            await asyncio.shield(self._starting)
        if not self._processes:
            raise failed()
        return min(self._processes, key=lambda process: process.utterances)

    async def _start(self):
        try:
            _, process = await asyncio.get_running_loop().create_unix_connection(Process, sock=self._fork())
            self._processes.append(process)
        except (OSError, RuntimeError) as error:
            log.error("%s", error)
        finally:
            self._starting = None

    def _fork(self):
        if self._template is not None:
            try:
                return self._template.fork()
            except OSError:  # it was killed
                self._template.end()
        self.prepare()
        return self._template.fork()

    def close(self):
        """Ends all processes."""
        if self._starting is not None:
            self._starting.cancel()
        for process in self._processes:
            process.end()
        self._processes = []
        if self._template is not None:
            self._template.end()
            self._template = None
