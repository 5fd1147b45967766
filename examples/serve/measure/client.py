# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients of the front that note when each piece of sound came and cost little, so that hundreds fit beside a server."""
import asyncio
import json
import time
import urllib.parse

import websockets

FRAME_BYTES = 3840  # 80 ms of 16 bits at 24 kHz
FRAME = 0.08


class Broken(Exception):
    """The answer ended before its last piece."""


class Answer(asyncio.Protocol):
    """One request at a time on one connection, and its answer, parsed as it comes.

    `pieces` has a (time, bytes so far) for each piece of the body; `body` is kept only if asked for.
    """

    def __init__(self):
        self.transport = None
        self.closed = None  # when, if the connection is lost
        self._clear(False)

    def _clear(self, keep):
        self.status, self.headers = 0, {}
        self.pieces, self.size, self.body = [], 0, bytearray() if keep else None
        self.whole = False
        self.sent = 0.0
        self._buffer, self._left, self._chunked = bytearray(), None, False
        self.changed = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, _error):
        self.closed = time.perf_counter()
        self.changed.set()

    def ask(self, method, path, host, fields=None, keep=False, headers=None):
        self._clear(keep)
        body = b"" if fields is None else json.dumps(fields).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        if fields is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.sent = time.perf_counter()
        self.transport.write(head.encode() + b"\r\n" + body)

    def data_received(self, data):
        self._buffer += data
        if not self.status and not self._read_head():
            return
        before = self.size
        self._read_body()
        if self.size > before:
            self.pieces.append((time.perf_counter(), self.size))
        self.changed.set()

    def _read_head(self):
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[:end + 4]
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = self.headers.get("transfer-encoding") == "chunked"
        if not self._chunked:
            self._left = int(self.headers.get("content-length", 0))
        return True

    def _read_body(self):
        while not self.whole:
            if self._chunked and self._left is None:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    return
                self._left = int(self._buffer[:end].split(b";")[0], 16)
                del self._buffer[:end + 2]
                if self._left == 0:
                    self.whole = True
                    return
                self._left += 2  # the line end after the chunk
            take = min(self._left, len(self._buffer))
            sound = min(take, self._left - 2) if self._chunked else take
            if sound > 0:
                self.size += sound
                if self.body is not None:
                    self.body += self._buffer[:sound]
            del self._buffer[:take]
            self._left -= take
            if self._left:
                return
            self.whole = not self._chunked
            self._left = None

    async def until(self, condition, limit=30.0):
        """Waits until condition(self); Broken if the connection is lost before, TimeoutError after the limit."""
        deadline = time.perf_counter() + limit
        while not condition(self):
            if self.closed:
                raise Broken(f"after {self.size} bytes")
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), deadline - time.perf_counter())


class Server:
    """Where a server is, and how to ask it."""

    def __init__(self, url):
        self.url = url.rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        self.host, self.port, self._netloc = parts.hostname, parts.port or 80, parts.netloc

    async def connect(self):
        _, answer = await asyncio.get_running_loop().create_connection(Answer, self.host, self.port)
        return answer

    def ask(self, answer, method, path, fields=None, keep=False, headers=None):
        answer.ask(method, path, self._netloc, fields, keep, headers)

    def speak(self, answer, text, keep=False, headers=None, **fields):
        self.ask(answer, "POST", "/v1/audio/speech", {"input": text, "response_format": "pcm", **fields}, keep, headers)

    async def speech(self, text, limit=60.0, **fields):
        """A whole answer on a connection of its own; Broken if it is cut."""
        answer = await self.connect()
        try:
            self.speak(answer, text, keep=True, **fields)
            await answer.until(lambda a: a.whole, limit)
        finally:
            answer.transport.abort()
        return answer

    async def get(self, path, limit=10.0):
        answer = await self.connect()
        try:
            self.ask(answer, "GET", path, keep=True)
            await answer.until(lambda a: a.whole, limit)
        finally:
            answer.transport.abort()
        return answer

    async def gauges(self):
        """The numbers of /metrics that have no labels, by name."""
        return parse_metrics((await self.get("/metrics")).body)

    async def session(self, **settings):
        return await Session.open(self.url.replace("http", "ws", 1) + "/v1/audio/speech/stream", settings)


def parse_metrics(page):
    lines = (line.split() for line in bytes(page).decode().splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value, *_ in lines if "{" not in name}


class Session:
    """A WebSocket session with vLLM-Omni's messages. Each utterance is an Utterance."""

    @classmethod
    async def open(cls, url, settings):
        self = cls()
        self.socket = await websockets.connect(url, compression=None, max_size=None, ping_interval=None)
        await self.send("session.config", response_format="pcm", stream_audio=True, **settings)
        return self

    async def send(self, kind, **fields):
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def begin(self, text, growing=False):
        """Sends a text, whole unless it is growing; the utterance that will answer it."""
        await self.send("input.text", text=text)
        sent = time.perf_counter()
        if not growing:
            await self.send("input.done")
        return Utterance(self, sent)

    async def close(self):
        await self.socket.close()


class Utterance:
    def __init__(self, session, sent):
        self._session = session
        self.sent = sent
        self.start, self.done, self.cancelled = None, None, None
        self.pieces, self.size, self.body = [], 0, bytearray()
        self.after_cancel = 0  # bytes

    async def take(self):
        """Takes the next message."""
        message = await self._session.socket.recv()
        if isinstance(message, bytes):
            self.size += len(message)
            self.body += message
            self.pieces.append((time.perf_counter(), self.size))
            self.after_cancel += len(message) if self.cancelled else 0
            return
        message = json.loads(message)
        kind = message["type"]
        if kind == "error":
            raise RuntimeError(message)
        if kind == "audio.start":
            self.start = message
        elif kind == "audio.cancelled":
            self.cancelled = message
        elif kind == "audio.done":
            self.done = message

    async def until(self, condition, limit=60.0):
        async with asyncio.timeout(limit):
            while not condition(self):
                await self.take()


def lateness(pieces):
    """Seconds by which each frame came after its time, for a listener who begins with the first; below 0 is early."""
    result, frame = [], 0
    for when, size in pieces:
        while frame < size // FRAME_BYTES:
            result.append(when - pieces[0][0] - frame * FRAME)
            frame += 1
    return result
