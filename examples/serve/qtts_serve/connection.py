# SPDX-License-Identifier: LGPL-2.1-or-later
"""Connections under uvicorn, with the limits that it does not have: how many there are, the size and the time of a
header, and the time that reading one of them may take from all others.

    socket ── Connection ── uvicorn's protocols: Http, then Messages for a WebSocket
"""
import asyncio
import collections
import contextlib
import ipaddress
import json
import logging
import time

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from .errors import ApiError
from .extensions import HOLD_NEXT, TRAILERS

log = logging.getLogger("qtts_serve")

HEADER_BYTES = 64 << 10
HEADER_FIELDS = 100
# A line of the header of a WebSocket, which websockets reads again.
HANDSHAKE_LINE = 8000
# Seconds in which what still comes is dropped after an answer; a connection that is closed at once would lose the answer.
LINGER = 5
LAST_CHUNK = b"0\r\n\r\n"
# Bytes that a protocol gets at once. The worst of them, a WebSocket's empty frames, take it some milliseconds.
SLICE = 2 << 10
# Seconds of one turn of the event loop for reading, whatever comes.
TURN = 0.002
# Frames of a WebSocket's message, and bytes of answers to its pings that it does not read.
MOST_FRAMES = 16384
MOST_PONGS = 64 << 10


class Door:
    """Connections of the process: their number, in all and of each address."""

    def __init__(self, settings, metrics):
        self.header_timeout = settings.header_timeout
        self.reader = Reader()
        self._most, self._most_of_address = settings.most_connections, settings.most_connections_of_address
        self._count = 0
        self._of_address = collections.Counter()
        self._metrics = metrics
        metrics.connections.set_function(lambda: self._count)

    def enter(self, address):
        """An ApiError if there are too many connections; leave() has to follow in any case."""
        self._count += 1
        self._of_address[address] += 1
        if self._count > self._most:
            return ApiError(503, f"All {self._most} connections are taken. Try again later.", code="connections", retry_after=1)
        if self._of_address[address] > self._most_of_address:
            return ApiError(429, f"{self._most_of_address} connections of one address are taken. Close some of them.",
                            code="address_connections", retry_after=1)
        return None

    def leave(self, address):
        self._count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def count_refusal(self, error):
        self._metrics.refused_connections.labels(error.code).inc()


def network(peer):
    """The addresses that one client owns: an IPv4 address, 64 bits of an IPv6 address."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:  # none: it is gone already
        return peer
    if address.version == 6:
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return peer


class Reader:
    """Gives connections what has come for them: in slices, one after the other, and in each turn of the event loop for a
    bounded time."""

    def __init__(self, clock=time.perf_counter):
        self._clock = clock
        self._waiting = collections.deque()
        self._spent = 0.0  # in this turn
        self._turn_ends = False  # _next_turn() will be called

    def read(self, connection):
        """`connection` has something to read."""
        if connection.queued:
            return
        connection.queued = True
        self._waiting.append(connection)
        self._run()

    def _run(self):
        while self._waiting and self._spent < TURN:
            connection = self._waiting.popleft()
            begin = self._clock()
            connection.queued = connection.read_slice()
            self._spent += self._clock() - begin
            if connection.queued:
                self._waiting.append(connection)
        if not self._turn_ends:
            self._turn_ends = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self):
        self._spent, self._turn_ends = 0.0, False
        if self._waiting:
            self._run()


class Connection(asyncio.Protocol):
    """Stands between a socket and uvicorn, to which it is both the protocol of the former and, by Transport, the latter.
    One that is lost leaves no cyclic garbage: it is so old by then that only a full collection would find it."""

    def __init__(self, door, **of_uvicorn):
        self._door = door
        self._protocol = Http(self, door, **of_uvicorn)
        self._transport = None
        self._received = bytearray()
        self._held = False  # uvicorn has paused reading
        self._deaf = False  # messages that come are dropped
        self.queued = False  # with the reader

    # --- of the socket

    def connection_made(self, transport):
        self._transport = transport
        self._peer = network((transport.get_extra_info("peername") or ("",))[0])
        error = self._door.enter(self._peer)
        if error is not None:
            self.refuse(error, linger=False)  # it may hold no descriptor any longer
            return
        self._protocol.connection_made(Transport(self, transport))

    def data_received(self, data):
        if self._deaf:
            return
        self._received += data
        if not self._held:
            self._door.reader.read(self)
        if self._received:
            self._transport.pause_reading()

    def eof_received(self):
        self._protocol.eof_received()

    def pause_writing(self):
        self._protocol.pause_writing()

    def resume_writing(self):
        self._protocol.resume_writing()

    def connection_lost(self, error):
        self._door.leave(self._peer)
        self._received.clear()
        protocol, self._protocol = self._protocol, None
        if protocol.transport is not None:
            protocol.connection_lost(error)
        # asyncio's transport refers to itself by this.
        vars(self._transport).pop("_read_ready_cb", None)

    # --- of the reader

    def read_slice(self):
        """Whether there is more to read."""
        if self._held or not self._received or self._transport.is_closing():
            return False
        data = bytes(memoryview(self._received)[:SLICE])
        del self._received[:SLICE]
        try:
            self._protocol.data_received(data)
        except Exception:  # of this connection; those of others are still to be read
            log.exception("a connection failed: a mistake in this program")
            self._transport.abort()
            return False
        if self._received and not self._deaf:
            return not self._held
        if not self._held:
            self._transport.resume_reading()
        return False

    # --- of uvicorn

    @property
    def held(self):
        return self._held

    def hold(self):
        self._held = True
        self._transport.pause_reading()

    def release(self):
        self._held = False
        if self._received:
            self._door.reader.read(self)
        else:
            self._transport.resume_reading()

    def change_protocol(self, protocol):
        self._protocol = protocol

    def refuse(self, error, linger=True):
        """Answers with an error, and ends the connection."""
        if self.closing:
            return
        self._door.count_refusal(error)
        body = json.dumps(error.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **error.headers()}
        self._transport.write(b"".join([STATUS_LINE[error.status], *(f"{name}: {value}\r\n".encode() for name, value in
                                                                    headers.items()), b"\r\n", body]))
        self.close(linger)

    @property
    def closing(self):
        return self._deaf or self._transport.is_closing()

    def close(self, linger=None):
        """Ends the connection when all is written. `linger`: first drops what still comes, as it does by default in the
        midst of a request."""
        if self.closing:
            return
        if not (self._protocol.in_request if linger is None else linger):
            self._transport.close()
            return
        self._deaf = True
        self._received.clear()
        self._transport.resume_reading()
        with contextlib.suppress(OSError):  # the client is gone
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER, self._transport.close)


class Transport:
    """The transport that uvicorn sees: reading is paused above the Connection, and another protocol is put behind it.
    Adds trailers to a chunked answer, and writes a header together with the first of the body, which uvicorn cannot."""

    def __init__(self, connection, transport):
        self.pause_reading, self.resume_reading = connection.hold, connection.release
        self.set_protocol = connection.change_protocol
        self.refuse, self.close = connection.refuse, connection.close
        self._connection, self._transport = connection, transport
        self._trailers = b""
        self._held = None
        self._holds_next = False

    def is_closing(self):
        return self._connection.closing

    def hold_next(self):
        """The next write goes out with the one after it: one system call, and a client that waits for both wakes once."""
        self._holds_next = True

    def end_with(self, trailers):
        """The next write is the last chunk, and has these fields behind it (RFC 9112, 7.1.2)."""
        self._trailers = b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in trailers.items())

    def write(self, data):
        if self._trailers and data == LAST_CHUNK:
            data = LAST_CHUNK[:-2] + self._trailers + b"\r\n"
        self._trailers = b""
        if self._holds_next:
            self._holds_next, self._held = False, data
            return
        if self._held is not None:
            data, self._held = self._held + data, None
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


class Refusal(Exception):
    """Raised for the parser to stop."""

    def __init__(self, error):
        super().__init__(error.message)
        self.error = error


class Http(HttpToolsProtocol):
    """HTTP/1.1 with limits for a header and its time."""

    def __init__(self, connection, door, **of_uvicorn):
        super().__init__(**of_uvicorn)
        self._connection = connection
        self._door = door
        self._in_header = True  # or between requests
        self._unread = 0  # bytes since the last end of a header or piece of a body: also of trailers, and of a chunk's size
        self._fields = 0
        self._refusal = None
        self._header_timer = self._linger_timer = None

    def connection_made(self, transport):
        super().connection_made(transport)
        self._wait_for_header()

    def connection_lost(self, error):
        self._stop(timers=True)
        super().connection_lost(error)
        self._unset_keepalive_if_required()  # which uvicorn does without an error

    def data_received(self, data):
        if self._in_header and self._header_timer is None:
            self._wait_for_header()
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEADER_BYTES:
            self._refuse(431, f"The header of the request has more than {HEADER_BYTES >> 10} KiB.", "header_size")

    @property
    def in_request(self):
        """Whether a body is still to come."""
        return not self._in_header

    # --- of the parser

    def on_message_begin(self):
        super().on_message_begin()
        self.scope["extensions"] = {TRAILERS: self.transport.end_with, HOLD_NEXT: self.transport.hold_next}
        self._in_header = True
        self._fields = 0
        if self._header_timer is None:
            self._wait_for_header()

    def on_header(self, name, value):
        self._fields += 1
        if self._fields > HEADER_FIELDS:
            self._refusal = _error(431, f"The header of the request has more than {HEADER_FIELDS} fields.", "header_fields")
            raise Refusal(self._refusal)
        super().on_header(name, value)

    def on_headers_complete(self):
        self._in_header = False
        self._unread = 0
        self._stop()
        super().on_headers_complete()

    def on_body(self, body):
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self):
        self._in_header = True
        self._unread = 0
        super().on_message_complete()
        if self._linger_timer is not None:  # all of a body that nobody wanted has come
            self._stop(timers=True)
            self._wait_for_header()

    def handle_websocket_upgrade(self):
        if any(len(name) + len(value) > HANDSHAKE_LINE for name, value in self.headers):
            self._refuse(431, f"The header has a line of more than {HANDSHAKE_LINE} bytes.", "header_size")
            return
        # websockets would wait for the body.
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers):
            self._refuse(400, "A WebSocket's handshake has no body.", "invalid_handshake")
            return
        self._stop(timers=True)
        super().handle_websocket_upgrade()
        self.parser = None  # refers to this protocol, which is lost now

    def send_400_response(self, msg):
        error, self._refusal = self._refusal, None
        self._answer(error or _error(400, "The request is not HTTP/1.1.", "invalid_http"))

    def on_response_complete(self):
        super().on_response_complete()
        if self._header_timer is not None:  # the next request had to wait, and has its time from now on
            self._stop()
            self._wait_for_header()
        if self.in_request and not self.transport.is_closing():
            self._linger_timer = self.loop.call_later(LINGER, self._connection.close, False)

    # --- limits

    def _wait_for_header(self):
        self._header_timer = self.loop.call_later(self._door.header_timeout, self._header_is_late)

    def _header_is_late(self):
        self._header_timer = None
        if self._connection.held or self.cycle is not None and not self.cycle.response_complete:
            self._wait_for_header()  # it is the answer to the request before that takes so long
        else:
            self._refuse(408, f"The header did not come to its end within {self._door.header_timeout:g} s.", "header_time")

    def _stop(self, timers=False):
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        if timers and self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _refuse(self, status, message, code):
        self._answer(_error(status, message, code))

    def _answer(self, error):
        self._stop(timers=True)
        self._unset_keepalive_if_required()
        if self.cycle is not None and not self.cycle.response_complete:
            self._door.count_refusal(error)
            self.transport.close()  # in the midst of another answer
        else:
            self._connection.refuse(error)


class Messages(WebSocketsSansIOProtocol):
    """A WebSocket whose memory neither frames without content fill, nor pings of a client that does not read."""

    in_request = False

    def connection_lost(self, error):
        super().connection_lost(error)
        self.conn.parser.close()  # a generator, whose frame refers to the connection

    async def send(self, message):
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # refused; otherwise uvicorn logs that nothing was answered

    def handle_parser_exception(self):
        if self.conn.close_sent is None:
            self.transport.refuse(_error(400, "The WebSocket's handshake is malformed.", "invalid_handshake"))
        else:
            super().handle_parser_exception()

    def handle_cont(self, event):
        if len(self.frames) >= MOST_FRAMES:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message may have {MOST_FRAMES} frames")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self):
        answer = b"".join(self.conn.data_to_send())
        if self.transport.get_write_buffer_size() < MOST_PONGS:
            self.transport.write(answer)


def _error(status, message, code):
    return ApiError(status, message, code=code)
