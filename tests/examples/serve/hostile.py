# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests that are made to harm: each function sends one kind of them to a server, and ends when the server has answered
or ended it, or after a bounded time and amount. test_limits.py checks the answers, tests/nightly/serve-hostile what they
cost."""
import contextlib
import json
import os
import random
import socket
import struct
import time

PATIENCE = 300  # seconds; only a server without the limit reaches it
CHUNK = 64 << 10
RECORDING = 14_000_000  # bytes of a body below the limit


@contextlib.contextmanager
def connected(server):
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as client:
        yield client


def send(client, data):
    """Sends until the server has closed. Returns whether all of it was taken."""
    try:
        client.sendall(data)
        return True
    except OSError:
        return False


def answer(client):
    """All that the server sends until it closes, or goes on with nothing."""
    received = b""
    with contextlib.suppress(OSError):
        while data := client.recv(CHUNK):
            received += data
    return received


def ask(server, request):
    """The first answer to these bytes: its status, 0 if there is none."""
    with connected(server) as client:
        send(client, request)
        received = b""
        with contextlib.suppress(OSError):
            while b"\r\n" not in received and (data := client.recv(CHUNK)):
                received += data
    return status(received)


def status(received):
    return int(received[9:12]) if received.startswith(b"HTTP/1.1 ") else 0


def post(body, more=b""):
    return b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" % (more, len(body), body)


# --- headers

def endless_header(server, most=350 << 20):
    """One field of a header that does not end. Bytes that were taken, and the status."""
    taken = 0
    with connected(server) as client:
        send(client, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        while taken < most and send(client, b"a" * CHUNK):
            taken += CHUNK
        return taken, status(answer(client))


def many_fields(server):
    """60 KiB of a header in fields of five bytes."""
    return ask(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 12000 + b"\r\n")


def half_headers(server, count=50):
    """Connections that begin a request, and end it never. Seconds until the last one was closed, and the statuses."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(count)]
        for number, client in enumerate(clients):
            send(client, (b"", b"GET", b"GET / HTTP/1.1\r\nHost: loc", b"\r\n\r\n")[number % 4])
        begin = time.monotonic()
        statuses = {status(answer(client)) for client in clients}
        return time.monotonic() - begin, statuses


def endless_trailer(server, most=64 << 20):
    """A body in chunks whose trailer does not end."""
    taken = 0
    with connected(server) as client:
        send(client, b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                     b"1\r\n{\r\n0\r\nX-Long: ")
        while taken < most and send(client, b"a" * CHUNK):
            taken += CHUNK
    return taken


# --- bodies

def slow_bodies(server, count=256):
    """Opens connections whose body comes in drops. An ExitStack that closes them, and the sockets."""
    stack = contextlib.ExitStack()
    clients = [stack.enter_context(connected(server)) for _ in range(count)]
    for client in clients:
        client.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    return stack, clients


def millions_of_values(server):
    return ask(server, post(b"[" + b"{}," * (RECORDING // 3) + b"1]"))


def largest_recording(server):
    data = b"data:audio/wav;base64," + b"A" * (10 << 20)
    return ask(server, post(b'{"input": "Hi.", "ref_audio": "%s"}' % data))


def tiny_chunks(server, count=500_000):
    """A body of a byte a chunk."""
    with connected(server) as client:
        send(client, b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                     + b"1\r\n \r\n" * count + b"0\r\n\r\n")
        return status(client.recv(CHUNK))


def slow_form(server):
    """Ends of parts, nearly."""
    body = b'--xx\r\nContent-Disposition: form-data; name="ref_audio"; filename="a"\r\n\r\n' + b"\r\n--x" * 2_000_000 + b"\r\n--xx--\r\n"
    return ask(server, post(body, b"Content-Type: multipart/form-data; boundary=xx\r\n"))


def unwanted_body(server, most=64 << 20):
    """A body that nobody wants, to a route without one, for as long as the server takes it."""
    taken = 0
    with connected(server) as client:
        send(client, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000000\r\n\r\n")
        while taken < most and send(client, b"a" * CHUNK):
            taken += CHUNK
            time.sleep(0.001)
    return taken


def pipelined(server, count=100_000):
    """Requests of which no answer is read, in one piece."""
    with connected(server) as client:
        client.settimeout(2)
        send(client, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)


# --- WebSockets

def handshake(client, *lines, method=b"GET", host=b"localhost", version=b"13", key=b"MDEyMzQ1Njc4OWFiY2RlZg=="):
    """The status of the answer; 101 is a WebSocket."""
    client.sendall(b"\r\n".join([method + b" /v1/audio/speech/stream HTTP/1.1", b"Host: " + host, b"Upgrade: websocket",
                                 b"Connection: Upgrade", b"Sec-WebSocket-Version: " + version, b"Sec-WebSocket-Key: " + key,
                                 *lines, b"", b""]))
    received = b""
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in received and (data := client.recv(CHUNK)):
            received += data
    return status(received)


def frame(opcode, data=b"", fin=True):
    length = struct.pack("!B", 0x80 | len(data)) if len(data) < 126 else struct.pack("!BH", 0xFE, len(data))
    return bytes([0x80 * fin | opcode]) + length + b"\0\0\0\0" + data


def flood(server, frames, most=16 << 20, before=b""):
    """Sends these bytes over a WebSocket again and again, and reads nothing."""
    frames *= max(1, CHUNK // len(frames))
    with connected(server) as client:
        assert handshake(client) == 101
        client.settimeout(3)
        send(client, before)
        taken = 0
        while taken < most and send(client, frames):
            taken += len(frames)
    return taken


def pings(server):
    return flood(server, frame(9, b"p" * 100))


def empty_frames(server):
    """A message that does not end and has no bytes."""
    return flood(server, frame(0, fin=False), before=frame(1, fin=False))


def messages(server):
    """Messages that each get an error."""
    return flood(server, frame(1, b"{"), most=4 << 20)


def odd_handshakes(server, count=100, seed=1):
    """Handshakes with one thing wrong or odd; the set of statuses."""
    chance, statuses = random.Random(seed), set()
    for _ in range(count):
        lines = [chance.choice([
            b"Sec-WebSocket-Protocol: " + b"a," * chance.randrange(4000), b"Sec-WebSocket-Extensions: " + os.urandom(8).hex().encode(),
            b"X: " + b"x" * chance.randrange(20000), b"Host: localhost", b"Origin: http://evil.example", b"Cookie: \xff\xfe",
            b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Sec-WebSocket-Key: again"])]
        with connected(server) as client:
            statuses.add(handshake(client, *lines, method=chance.choice([b"GET", b"GET", b"POST", b"HEAD"]),
                                   version=chance.choice([b"13", b"13", b"12", b""]),
                                   key=chance.choice([b"MDEyMzQ1Njc4OWFiY2RlZg==", b"", b"short", b"a" * 9000])))
    return statuses


# --- fields

HOSTILE_FIELDS = (
    {"voice": "\ud800"}, {"language": "\udfff"}, {"model": "\ud800"}, {"voice": "a\0b"}, {"voice": {"id": "\ud800"}},
    {"max_new_tokens": 4611686018427387904}, {"max_new_tokens": 10**400}, {"seed": 2**53}, {"seed": 2**63}, {"top_k": 10**30},
    {"temperature": 10**400}, {"temperature": float("inf")}, {"temperature": float("nan")}, {"top_p": True}, {"speed": True},
    {"pace": float("-inf")}, {"start_frame": 2**62, "seed": 1}, {"initial_codec_chunk_frames": 2**70}, {"voice": "v" * 100_000},
    {"sample_rate": 2**62}, {"sample_rate": -8000}, {"sample_rate": float("nan")}, {"target_loudness": -70.5}, {"target_loudness": 1},
)


def hostile_fields(server, count=64):
    """Statuses of requests with fields that make no sense."""
    return {server.speech(input="Hi.", **HOSTILE_FIELDS[number % len(HOSTILE_FIELDS)])[0] for number in range(count)}


def noise(server, count=50, seed=1):
    """Bytes at random, some of them after a true beginning."""
    chance, statuses = random.Random(seed), set()
    for number in range(count):
        begin = (b"", b"GET ", b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n", post(b'{"input": "')[:-20])[number % 4]
        with connected(server) as client:
            client.settimeout(1)
            send(client, begin + chance.randbytes(chance.randrange(4000)) + b"\r\n\r\n")
            with contextlib.suppress(OSError):
                statuses.add(status(client.recv(CHUNK)))
    return statuses


def rare_characters(server):
    """12 KB that have some 12,000 tokens."""
    return server.request("POST", "/v1/audio/speech", json.dumps({"input": "\ufdfa" * 4096}))[0]
