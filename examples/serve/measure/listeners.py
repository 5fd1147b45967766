# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process of listeners for --load: reads its task as JSON from standard input, answers "ready", begins at the time in
the next line, and writes what was heard as JSON.

Hundreds of listeners share this process, and the machine with the server: their protocols are read with no more parsing
than a listener needs.
"""
import asyncio
import gc
import json
import random
import resource
import socket
import sys
import time

from .heard import Heard

# One buffer serves the reads of all connections, which come one after the other.
BUFFER = memoryview(bytearray(1 << 18))
REFUSALS = (429, 503)
# Seconds before a request that arrives at random in which its connection is made.
AHEAD = 0.25
BEAT = 0.05  # seconds between two looks at how late the event loop is


class Broken(Exception):
    """An utterance did not come to its end; the text says why."""


class Refused(Exception):
    """The server had no room. `retry_after`: seconds, None if it told none."""

    def __init__(self, retry_after=None):
        super().__init__()
        self.retry_after = retry_after


class Texts:
    """Texts of whole sentences, of which the last one is cut, with the frames that they may have."""

    def __init__(self, task, seed):
        self._random = random.Random(seed)
        self._sentences = [sentence.split() for sentence in task["sentences"]]
        self._words, self._frames = task["words"], task["frames"]

    def draw(self):
        """Returns words and the most frames; None where the server decides."""
        least, most = self._words
        count = self._random.randint(least, most)
        words = []
        while len(words) < count:
            words += self._random.choice(self._sentences)
        words = words[:count]
        words[-1] = words[-1].rstrip(".,;:?!") + "."
        low, high = self._frames
        share = (count - least) / (most - least) if most > least else 1.0
        return words, round(low + share * (high - low)) or None


class Connection(asyncio.BufferedProtocol):
    """A connection, whatever its protocol: the utterance that is spoken over it, and how that ends."""

    def __init__(self, task):
        self.task = task
        self.transport = None
        self.lost = False
        self.heard = None
        self.ended = None  # a future of the utterance; its result is the server's reason for the end
        self._rest = b""

    @property
    def speaks(self):
        return self.ended is not None and not self.ended.done()

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error):
        self.lost = True
        self.end(Broken("cut off"))

    def get_buffer(self, size):
        return BUFFER

    def buffer_updated(self, size):
        data = bytes(BUFFER[:size])
        try:
            self.feed(time.monotonic(), self._rest + data if self._rest else data)
        except (ValueError, KeyError, IndexError) as error:
            self.end(Broken(f"malformed: {error}"))
            self.transport.abort()

    def feed(self, now, data):
        """Reads `data`, and keeps an incomplete part in `_rest`."""
        raise NotImplementedError

    def begin(self):
        self.ended = asyncio.get_running_loop().create_future()
        self.heard = Heard(self.task["format"], time.monotonic())

    def end(self, result):
        if self.speaks:
            if isinstance(result, Exception):
                self.ended.set_exception(result)
            else:
                self.ended.set_result(result)

    def settings(self, frames):
        """Returns the fields of a request."""
        task = self.task
        fields = {"response_format": task["format"], "pace": task["pace"]}
        if frames:
            fields["max_new_tokens"] = frames
        if task["voice"]:
            fields["voice"] = task["voice"]
        return fields


def read_head(data):
    """Returns the status, the fields and where the body begins; None if it has not come whole."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), fields, end + 4


def refusal(status, fields, body=b""):
    """Returns the exception of an answer without sound."""
    if status in REFUSALS:
        after = fields.get("retry-after", "")
        return Refused(float(after) if after.isdigit() else None)
    try:
        return Broken(f"status {status}: {json.loads(body)['error']['message']}")
    except (ValueError, KeyError, TypeError):
        return Broken(f"status {status}")


class Http(Connection):
    """A request, one at a time, on a connection that is kept."""

    HEAD, SIZE, SOUND, TRAILERS, OTHER = range(5)

    def __init__(self, task):
        super().__init__(task)
        self._part = self.HEAD
        self._left = 0
        self._head = None  # status and fields of an answer

    async def prepare(self, _frames):
        pass

    def speak(self, words, frames):
        body = json.dumps({"input": " ".join(words), **self.settings(frames)}).encode()
        head = (f"POST /v1/audio/speech HTTP/1.1\r\nHost: {self.task['netloc']}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        self._part = self.HEAD
        self.begin()
        self.transport.write(head.encode() + body)

    def feed(self, now, data):
        self._rest = b""
        at = 0
        while at < len(data):
            if self._part == self.SOUND:
                # The chunk, then its line end.
                take = min(self._left, len(data) - at)
                sound = min(take, self._left - 2)
                if sound > 0:
                    self.heard.take(now, data[at:at + sound])
                self._left -= take
                at += take
                if not self._left:
                    self._part = self.SIZE
            elif self._part == self.SIZE:
                end = data.find(b"\r\n", at)
                if end < 0:
                    break
                size = int(data[at:end].partition(b";")[0], 16)
                self._part = self.SOUND if size else self.TRAILERS
                self._left = size + 2
                # The last chunk's line end belongs to the trailers, which it ends if there are none.
                at = end + 2 if size else end
            elif self._part == self.TRAILERS:
                end = data.find(b"\r\n\r\n", at)
                if end < 0:
                    break
                lines = (line.partition(":") for line in data[at:end].decode("latin-1").split("\r\n"))
                trailers = {name.lower(): value.strip() for name, _, value in lines}
                self._part = self.HEAD
                self.end(trailers.get("x-qtts-reason", "not told"))
                at = end + 4
            elif self._part == self.OTHER:
                if len(data) - at < self._left:
                    break
                self._part = self.HEAD
                self.end(refusal(*self._head, data[at:at + self._left]))
                at += self._left
            else:
                head = read_head(data[at:])
                if head is None:
                    break
                status, fields, size = head
                at += size
                self._head = status, fields
                if status == 200 and fields.get("transfer-encoding") == "chunked":
                    self._part = self.SIZE
                else:
                    self._part, self._left = self.OTHER, int(fields.get("content-length", 0))
        self._rest = data[at:]


class WebSocket(Connection):
    """A session, in which one utterance after the other is spoken."""

    TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

    def __init__(self, task):
        super().__init__(task)
        self._opened = asyncio.get_running_loop().create_future()
        self._kind = 0  # of the message, for its continuations
        self._reason = "not told"
        self._error = None
        self._words = None  # not sent yet

    async def prepare(self, frames):
        """Opens the session, and sends the settings of the next utterance."""
        if not self._opened.done():
            head = (f"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: {self.task['netloc']}\r\nUpgrade: websocket\r\n"
                    "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                    "Sec-WebSocket-Version: 13\r\n\r\n")
            self.transport.write(head.encode())
            await asyncio.wait_for(self._opened, self.task["patience"])
        self._reason, self._error = "not told", None
        self._send("session.config", stream_audio=True, **self.settings(frames))

    def speak(self, words, frames):
        self.begin()
        if self.task["protocol"] == "growing":
            self._words = iter(words)
            self._grow(time.monotonic())
        else:
            self._send("input.text", text=" ".join(words))
            self._send("input.done")

    def _grow(self, due):
        """Sends the next word, with the space before it, as language models' tokens have it. Four tokens are three
        words."""
        if self.lost or self.ended.done():
            return
        word = next(self._words, None)
        if word is None or self._error is not None:
            self._send("input.done")
            return
        self._send("input.text", text=f" {word}" if self.heard.pieces else word)
        self.heard.give_piece(time.monotonic())
        due += 4 / 3 / self.task["tokens_per_second"]
        asyncio.get_running_loop().call_at(due, self._grow, due)

    def _send(self, kind, **fields):
        self._frame(self.TEXT, json.dumps({"type": kind, **fields}).encode())

    def _frame(self, kind, payload):
        """Sends a frame. Its mask of zeros is allowed and costs nothing."""
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | kind, 0x80 | size))
        else:
            head = bytes((0x80 | kind, 0x80 | 126)) + size.to_bytes(2, "big")
        self.transport.write(head + b"\0\0\0\0" + payload)

    def connection_lost(self, error):
        super().connection_lost(error)
        if not self._opened.done():
            self._opened.set_exception(Broken("cut off"))

    def feed(self, now, data):
        at = 0
        if not self._opened.done():
            head = read_head(data)
            if head is None:
                self._rest = data
                return
            status, fields, at = head
            if status != 101:
                self._opened.set_exception(refusal(status, fields))
                self.transport.abort()
                return
            self._opened.set_result(None)
        while len(data) - at >= 2:
            size, begin = data[at + 1] & 127, at + 2
            if size > 125:
                width = 2 if size == 126 else 8
                if len(data) - begin < width:
                    break
                size, begin = int.from_bytes(data[begin:begin + width], "big"), begin + width
            if len(data) - begin < size:
                break
            self._take(now, data[at] & 15, data[begin:begin + size])
            at = begin + size
        self._rest = data[at:]

    def _take(self, now, kind, payload):
        if kind == self.PING:
            self._frame(self.PONG, payload)
        elif kind == self.CLOSE:
            self.end(Broken(f"closed with {int.from_bytes(payload[:2], 'big')}"))
            self.transport.abort()
        else:
            kind = self._kind = kind or self._kind
            if kind == self.BINARY:
                self.heard.take(now, payload)
            else:
                self._message(json.loads(payload))

    def _message(self, message):
        kind = message["type"]
        if kind == "error":
            busy = message["code"] == "overloaded"
            self._error = Refused() if busy else Broken(f"{message['code']}: {message['message']}")
            if message["utterance_index"] is None:  # the settings: it would be spoken with others
                self.end(self._error)
                self.transport.abort()
        elif kind == "audio.done":
            self._reason = message["reason"]
        elif kind == "session.done":
            self.end(self._error or self._reason)


class Utterance:
    """One request of a listener, and its outcome."""

    def __init__(self, listener, heard):
        self.listener, self.heard = listener, heard
        self.outcome = None  # the server's reason for the end, "refused" or "broken"; None: it was cut by our end

    def row(self, begin, end):
        """Returns the figures in the order of ROW."""
        heard, player = self.heard, self.heard.player
        times = heard.first_byte, player.first, heard.audible, heard.heard
        grows = heard.pieces and player.first is not None
        return [self.listener, heard.sent - begin, *(None if time is None else time - heard.sent for time in times),
                heard.pieces if grows else None, player.first - heard.last_piece if grows else None, player.gaps, player.long_gaps, player.longest, player.silent, heard.seconds, self.outcome,
                end - heard.sent]


# Figures of an utterance: seconds, but for the listener's number, the numbers of gaps and the outcome. Those from
# `first_byte` to `heard` count from the request; `begin` from the beginning of the measurement; `age` is the time from
# the request to the end of the measurement. `pieces`: those of growing text that were sent before the first sound;
# `from_piece`: from the last of them to that sound.
ROW = ("listener", "begin", "first_byte", "first_sound", "audible", "heard", "pieces", "from_piece", "gaps", "long_gaps",
       "longest", "silent", "sound", "outcome", "age")


def arrivals(task, begin, until):
    """Yields the times at which requests of this process arrive: those of all processes together have the rate."""
    chance = random.Random(f"{task['seed']}-arrivals-{task['process']}")
    when = begin
    while (when := when + chance.expovariate(task["rate"] / task["processes"])) < until:
        yield when


class Listeners:
    """All listeners of this process."""

    def __init__(self, task):
        self.task = task
        self._connections = set()
        self._utterances = []
        self._retry_after, self._broken = [], {}
        self._late = []  # seconds: of the event loop, at its beats
        self._asked = set()  # numbers of listeners whose request was made, or could not be made
        self._marks = []  # seconds of sound and of processor time so far, at both ends of the measured time

    async def run(self, begin):
        """Listens from this time on; returns what was heard, for JSON."""
        task, self._begin = self.task, begin
        from_, until = begin + task["ramp"], begin + task["ramp"] + task["seconds"]
        asyncio.get_running_loop().call_at(from_, self._mark)
        jobs = [asyncio.create_task(self._beat()), asyncio.create_task(self._be_patient())]
        times = list(arrivals(task, begin, until)) if task["rate"] else []
        jobs.append(asyncio.create_task(self._arrive(times)))
        jobs += [asyncio.create_task(self._listen(number)) for number in task["listeners"]]
        await self._sleep_until(until)
        self._mark()
        while times and time.monotonic() < until + task["extra"] and self._is_awaited(len(times)):
            await asyncio.sleep(0.02)
        end = time.monotonic()
        for job in jobs:
            job.cancel()
        for result in await asyncio.gather(*jobs, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        (sound, used), (all_sound, all_used) = self._marks
        spoken = [utterance for utterance in self._utterances if utterance.outcome != "refused"]
        return {"utterances": [utterance.row(begin, end) for utterance in spoken], "retry_after": self._retry_after,
                "broken": self._broken, "late": self._late, "sound": all_sound - sound, "processor": all_used - used,
                "deaf": any(utterance.heard.deaf for utterance in spoken)}

    @staticmethod
    async def _sleep_until(when):
        await asyncio.sleep(max(0.0, when - time.monotonic()))

    def _mark(self):
        self._marks.append((sum(utterance.heard.seconds for utterance in self._utterances), time.process_time()))

    def _is_awaited(self, requests):
        """Returns whether one of so many requests was not made yet, or waits for its first byte."""
        return len(self._asked) < requests or any(
            utterance.outcome is None and utterance.heard.first_byte is None for utterance in self._utterances)

    async def _beat(self):
        """Looks at how late the event loop is: what it hears is late by as much."""
        due = time.monotonic()
        while True:
            due = max(due + BEAT, time.monotonic())
            await self._sleep_until(due)
            self._late.append(time.monotonic() - due)

    async def _be_patient(self):
        """Ends what is silent for too long."""
        patience = self.task["patience"]
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            for connection in self._connections:
                if connection.speaks and now - connection.heard.last > patience:
                    connection.end(Broken(f"silent for {patience:g} s"))

    async def _listen(self, number):
        """A constant listener."""
        texts = Texts(self.task, f"{self.task['seed']}-{number}")
        await self._sleep_until(self._begin + self.task["ramp"] * number / self.task["total"])
        connection = None
        try:
            while True:
                if connection is None or connection.lost:
                    self._drop(connection)
                    connection = await self._connect()
                pause = 1.0
                if connection is not None:
                    pause = await self._one(connection, number, *texts.draw())
                if pause:
                    await asyncio.sleep(pause)
        finally:
            self._drop(connection)

    async def _arrive(self, times):
        """Makes the requests that arrive at random."""
        task = self.task
        texts = Texts(task, f"{task['seed']}-texts-{task['process']}")
        requests = []
        try:
            for number, when in enumerate(times):
                await self._sleep_until(when - AHEAD)
                number = task["process"] + number * task["processes"]
                requests.append(asyncio.create_task(self._request(number, when, *texts.draw())))
            await asyncio.Event().wait()
        finally:
            for request in requests:
                request.cancel()
            for result in await asyncio.gather(*requests, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result

    async def _request(self, number, when, words, frames):
        """One request that arrives at this time."""
        connection = await self._connect()
        try:
            if connection is not None:
                await self._one(connection, number, words, frames, when)
        finally:
            self._asked.add(number)
            self._drop(connection)

    async def _connect(self):
        """Returns a new connection; None if there is none, which is counted."""
        try:
            kind = Http if self.task["protocol"] == "http" else WebSocket
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: kind(self.task), self.task["host"], self.task["port"])
        except OSError as error:
            self._count_broken(f"no connection: {error.strerror or error}")
            return None
        self._connections.add(connection)
        return connection

    def _drop(self, connection):
        if connection is not None:
            self._connections.discard(connection)
            connection.transport.abort()

    def _count_broken(self, why):
        self._broken[why] = self._broken.get(why, 0) + 1

    async def _one(self, connection, number, words, frames, when=0.0):
        """Speaks a text, not before `when`. Returns the seconds to wait before the next request: until all is played,
        or until the server may have room."""
        utterance = None
        try:
            await connection.prepare(frames)
            await self._sleep_until(when)
            connection.speak(words, frames)
            self._asked.add(number)
            utterance = Utterance(number, connection.heard)
            self._utterances.append(utterance)
            utterance.outcome = await connection.ended
            player = connection.heard.player
            played = self.task["pace"] and player.begin and player.plays(connection.heard.seconds)
            return max(0.0, played - time.monotonic())
        except Refused as refused:
            if utterance is not None:
                utterance.outcome = "refused"
            self._retry_after.append(refused.retry_after)
            return refused.retry_after or 1.0
        except (Broken, TimeoutError) as error:
            if utterance is not None:
                utterance.outcome = "broken"
            self._count_broken(str(error) or "the session was not opened in time")
            connection.transport.abort()
            return 1.0


def main():
    task = json.loads(sys.stdin.readline())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A collection would delay all listeners; there are few cycles, and a measurement is short.
    gc.disable()
    print("ready", flush=True)
    begin = float(sys.stdin.readline())
    json.dump(asyncio.run(Listeners(task).run(begin)), sys.stdout)


if __name__ == "__main__":
    main()
