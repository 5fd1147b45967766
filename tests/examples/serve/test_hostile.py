# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests that are made to harm: the server refuses them, stays as it was, and answers others meanwhile."""
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import socket
import time
import types
import unittest.mock

import pytest
from websockets.exceptions import ConnectionClosed

import hostile
from conftest import Server, element, of, wait_for
from qtts_serve import connection, front
from qtts_serve.admission import Slots
from qtts_serve.errors import ApiError
from qtts_serve.settings import Settings
from qtts_serve.utterance import Utterance

TEXT = "Hi."
FOUR = " ".join(["Please leave your message after the tone."] * 4)
# A folder with a sitecustomize.
FAULTY = pathlib.Path(__file__).parent / "faulty"
MEMORY = 64 << 20  # bytes by which a server may grow; what these requests once took is several times as much


@pytest.fixture(scope="module")
def server():
    started = Server()
    yield started
    said, status = started.stop()
    assert status == 0 and "Traceback" not in said, said


def memory(server):
    """Bytes that the process has had at most."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))


@contextlib.contextmanager
def unharmed(server):
    """The server has the memory, the pipelines and the sessions afterwards that it had before, and speaks."""
    server.wait_until_idle()
    before, pipelines = memory(server), server.metric("qtts_pipelines_idle")
    yield
    server.wait_until_idle()
    assert memory(server) < before + MEMORY
    assert server.metric("qtts_pipelines_idle") == pipelines
    assert server.speech(input=TEXT, seed=1)[2] == element(TEXT, seed=1)
    assert 'code="0"' not in server.get("/metrics")[2].decode()
    assert "Traceback" not in server.said()


# --- fields

def test_fields_that_make_no_sense(server):
    """Refused before a slot is taken."""
    slots = server.metric("qtts_wait_seconds_count")
    with unharmed(server):
        assert hostile.hostile_fields(server, count=200) == {400}
        assert server.metric("qtts_wait_seconds_count") == slots


@pytest.mark.parametrize("field", [field for field in hostile.HOSTILE_FIELDS if "start_frame" not in field],
                         ids=lambda field: " ".join(field)[:20])
def test_a_session_is_told_of_them(server, field):
    with server.stream() as stream:
        stream.send("session.config", **field)
        error = stream.receive()
        assert (error["type"], error["code"]) == ("error", "invalid_json" if any(word in json.dumps(field) for word in ("NaN", "Infinity")) else "invalid_value")
        assert len(error["message"]) < 500
        assert stream.say(TEXT, seed=1)[0] == element("", (TEXT,), seed=1)


def fail_with(error):
    async def fail():
        """An utterance whose element raises, a hundred times; what is left then."""
        slots, given_back = Slots(2, max_wait=1), []
        speaker = types.SimpleNamespace(spoken=None, broken="", on_change=None, say=unittest.mock.Mock(side_effect=error),
                                        begin=unittest.mock.Mock(side_effect=error))
        pool = types.SimpleNamespace(take=lambda: speaker, give_back=given_back.append)
        front = types.SimpleNamespace(slots=slots, pool=pool, metrics=unittest.mock.MagicMock(), utterances=set())
        for number in range(100):
            with pytest.raises(type(error)):
                # With a slot left behind, one would be refused after a second.
                async with Utterance(front, "http", "whole") as utterance:
                    utterance.say("", {}) if number % 2 else utterance.begin({})
        return slots, speaker, given_back, front

    return asyncio.run(fail())


@pytest.mark.parametrize("error", [OverflowError(), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "on purpose"), RuntimeError(),
                                   TypeError()])
def test_whatever_raises_gives_slot_and_pipeline_back(error):
    slots, speaker, given_back, front = fail_with(error)
    assert (slots.busy, slots.waiting) == (0, 0)
    assert given_back == [speaker] * 100 and not speaker.broken and not front.utterances


def test_a_mistake_is_told_and_counted(start):
    """A mistake that no check has found: the element gets a setting that it does not have."""
    server = start(environment={"PYTHONPATH": f"{FAULTY}:{os.environ['PYTHONPATH']}"})
    server.faulty = True
    pipelines = server.metric("qtts_pipelines_idle")
    for _ in range(64):
        status, error = server.refusal(input=TEXT, instructions="fault")
        assert (status, error["code"]) == (500, "internal")
    with server.stream() as stream:
        for _ in range(64):
            _, messages = stream.say(TEXT, instructions="fault")
            assert [message["type"] for message in messages] == ["error", "audio.done", "session.done"]
            assert messages[0]["code"] == "internal"
        # One that is no utterance's ends the session, with a word.
        stream.send("session.config", language="fault")
        assert stream.until("error")[1][-1]["code"] == "internal"
        with pytest.raises(ConnectionClosed) as closed:
            stream.receive()
        assert closed.value.rcvd.code == 1011
    server.wait_until_idle()
    assert server.metric("qtts_pipelines_idle") == pipelines
    metrics = server.get("/metrics")[2].decode()
    assert 'qtts_requests_total{code="500",route="speech"} 64.0' in metrics
    assert 'qtts_requests_total{code="500",route="stream"} 1.0' in metrics
    assert 'code="0"' not in metrics
    assert server.speech(input=TEXT, seed=1)[2] == element(TEXT, seed=1)


def test_another_session_is_not_interrupted(start):
    """A cancel of what has failed leaves its pipeline alone, which speaks for others by now."""
    server = start("--slots", "4")
    with server.stream() as failed, contextlib.ExitStack() as stack:
        failed.send("session.config", voice="nobody")
        failed.send("input.text", text="One ")
        failed.until("audio.done")
        speaking = [stack.enter_context(contextlib.closing(server.begin(input=FOUR, seed=1, pace=0.2))) for _ in range(4)]
        failed.send("input.cancel")
        failed.until("session.done")
        expected = element(FOUR, seed=1)[:3840 * 20]
        assert all(response.read(len(expected)) == expected for response in speaking)


# --- lengths

def test_texts_beside_the_text_have_a_length(server):
    for field in ("instructions", "ref_text"):
        status, error = server.refusal(input=TEXT, ref_audio="data:audio/wav;base64,AAAA", **{field: "word " * 1000})
        assert (status, error["param"], error["code"]) == (413, field, "too_long")
        with server.stream() as stream:
            stream.send("session.config", ref_audio="data:audio/wav;base64,AAAA", **{field: "word " * 1000})
            assert stream.receive()["code"] == "too_long"


def test_tokens(start):
    server = start("--max-tokens", "1000")
    with unharmed(server):
        assert hostile.rare_characters(server) == 413
        status, error = server.refusal(input="\ufdfa" * 334)
        assert (status, error["param"], error["code"]) == (413, "input", "too_long") and "1002 tokens" in error["message"]
        status, error = server.refusal(input=TEXT, instructions="\ufdfa" * 334)
        assert (status, error["param"]) == (413, "instructions")
        with server.stream() as stream:
            stream.send("session.config", response_format="pcm", stream_audio=True, pace=0)
            stream.send("input.text", text="One two. ")
            for _ in range(3):
                stream.send("input.text", text="\ufdfa" * 200)
            stream.send("input.done")
            _, messages = stream.until("session.done")
            assert [error["code"] for error in of(messages, "error")] == ["too_long"]
        assert server.metric("qtts_wait_seconds_count") == 2  # the warm-up and the session's


# --- headers and connections

def test_headers_have_a_size(server):
    with unharmed(server):
        taken, status = hostile.endless_header(server)
        assert status in (431, 0)  # 0: still sending, it has lost the answer
        assert hostile.many_fields(server) == 431
        hostile.endless_trailer(server)
        assert hostile.ask(server, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 60_000 + b"\r\n\r\n") == 200
        long = "&".join(["input=Hi.", "seed=1", "pace=0", "instructions=" + "%41" * 4000])
        assert server.get("/v1/audio/speech?" + long)[0] == 200
    assert server.metric("qtts_connections_refused_total") >= 2


def test_headers_have_a_time(start):
    server = start("--header-timeout", "4")
    with unharmed(server):
        _, statuses = hostile.half_headers(server)
        assert statuses == {408}
        # The time is that of one request: of the second one of a connection, too.
        with hostile.connected(server) as client:
            client.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
            received = hostile.answer(client)
            assert received.startswith(b"HTTP/1.1 200 ") and b"HTTP/1.1 408 " in received
    wait_for("them to be over", lambda: server.metric("qtts_connections") == 1)


def test_a_long_answer_is_not_a_late_header(start):
    """The next request of a connection waits for the answer before it, which takes longer than a header may."""
    server = start("--header-timeout", "4")
    body = json.dumps({"input": FOUR, "seed": 1, "pace": 0.2, "max_new_tokens": 80, "response_format": "pcm"}).encode()
    with hostile.connected(server) as client:
        client.sendall(hostile.post(body) + b"GET /health/live HTTP/1.1\r\nHost: local")
        received = b""
        while b"\r\n0\r\n" not in received:
            received += client.recv(1 << 16)
        client.sendall(b"host\r\nConnection: close\r\n\r\n")
        received += hostile.answer(client)
    assert received.count(b"HTTP/1.1 200 ") == 2 and b"HTTP/1.1 408" not in received


def test_slow_bodies_keep_nobody_out(start):
    server = start("--body-timeout", "600", "--sessions", "256")
    with unharmed(server):
        stack, clients = hostile.slow_bodies(server)
        with stack:
            wait_for("their connections", lambda: server.metric("qtts_connections") >= len(clients))
            assert server.metric("qtts_sessions") == 0
            assert server.speech(input=TEXT, seed=1)[2] == element(TEXT, seed=1)
            with server.stream() as stream:
                assert stream.say(TEXT, seed=1)[0] == element("", (TEXT,), seed=1)
            assert server.metric("qtts_connections") > len(clients), "they were there all the time"


def test_bodies_come_at_a_rate(start):
    """A body that is long may take its time, here ten minutes; one in drops may not."""
    server = start("--body-timeout", "0.5", "--body-rate", "100")
    with hostile.connected(server) as client:
        body = json.dumps({"input": TEXT, "pace": 0, "instructions": "x" * 4000}).encode() + b" " * 60_000
        request = hostile.post(body)
        # The first piece comes with the header: it has time for each of its bytes from then on.
        for begin in range(0, len(request), 8000):
            client.sendall(request[begin:begin + 8000])
            time.sleep(0.1)  # together longer than the time beside that of the bytes
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    with hostile.connected(server) as client:
        client.sendall(hostile.post(body)[:-len(body)])
        with contextlib.suppress(OSError):
            for begin in range(0, 100):
                client.sendall(body[begin:begin + 1])
                time.sleep(0.02)
        assert hostile.status(hostile.answer(client)) == 408


def test_bodies_that_are_costly_to_read(server):
    with unharmed(server):
        assert hostile.millions_of_values(server) == 400
        assert hostile.tiny_chunks(server, 50_000) == 400
        assert hostile.slow_form(server) == 400
        assert hostile.largest_recording(server) == 400  # the bundled voice clones nothing


def test_a_share_of_connections(start):
    server = start("--connections", "20", "--address-connections", "10", "--header-timeout", "600")

    def alone():
        """Whether the connections before this one are over, and no longer counted. This one is, when its end has come."""
        with hostile.connected(server) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b"\nqtts_connections 1.0\n" in hostile.answer(client)

    wait_for("earlier connections to be over", alone)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(hostile.connected(server))
        with hostile.connected(server) as client:
            received = hostile.answer(client)
            assert received.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1" in received
        # Another address of this machine.
        for _ in range(10):
            client = stack.enter_context(socket.create_connection((server.host, server.port), source_address=("127.0.0.2", 0)))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'qtts_connections_refused_total{reason="address_connections"} 1.0' in hostile.answer(client)
        stack.enter_context(socket.create_connection((server.host, server.port), source_address=("127.0.0.2", 0)))
        with socket.create_connection((server.host, server.port), source_address=("127.0.0.3", 0)) as client:
            assert hostile.answer(client).startswith(b"HTTP/1.1 503 ")
    wait_for("them to be over", lambda: server.metric("qtts_connections") == 1)


@pytest.mark.parametrize("peer, own", [
    ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::/64"),
    ("2001:db8::ffff:1", "2001:db8::/64"), ("fe80::1%eth0", "fe80::/64"), ("", ""),
])
def test_networks(peer, own):
    assert connection.network(peer) == own


def test_an_unwanted_body_ends_the_connection(server):
    with unharmed(server):
        assert hostile.unwanted_body(server, most=1 << 40) > 0


def test_bodies_have_a_limit_together():
    served = front.Front(Settings())
    served.take_body(front.MOST_BODIES)
    with pytest.raises(ApiError) as refusal:
        served.take_body(1)
    assert refusal.value.status == 503
    served.take_body(-1 - front.MOST_BODIES)
    served.take_body(front.MOST_BODIES)


# --- many small things

def test_floods(server):
    with unharmed(server):
        hostile.pipelined(server, 20_000)
        for flood in (hostile.pings, hostile.empty_frames, hostile.messages):
            flood(server)


def test_frames_without_content(server):
    """A message that does not end and has no bytes: only their number grows."""
    with hostile.connected(server) as client:
        assert hostile.handshake(client) == 101
        hostile.send(client, hostile.frame(1, fin=False) + hostile.frame(0, fin=False) * 20_000)
        assert b"\x03\xf1" in hostile.answer(client)  # closed with 1009


def test_messages_that_make_no_sense_end_a_session(server):
    with server.stream() as stream, pytest.raises(ConnectionClosed) as closed:
        for _ in range(1000):
            stream.socket.send("{")
            assert stream.receive()["code"] == "invalid_json"
    assert closed.value.rcvd.code == 1008


def test_handshakes_and_noise(server):
    with unharmed(server):
        assert hostile.odd_handshakes(server) <= {101, 400, 403, 405, 426, 431}
        assert hostile.noise(server) <= {0, 400, 408, 431}


class Costly:
    """A connection whose slices take so many seconds each."""

    def __init__(self, clock, slices, seconds):
        self.queued, self._clock, self._slices, self._seconds = False, clock, slices, seconds

    def read_slice(self):
        self._clock.now += self._seconds
        self._slices -= 1
        self._clock.read[self] += 1
        return self._slices > 0


def test_reading_takes_a_bounded_time_of_a_turn():
    """However many connections have however much to read; and all get on."""
    clock = types.SimpleNamespace(now=0.0, read=collections.Counter())

    async def read():
        reader = connection.Reader(lambda: clock.now)
        many = [Costly(clock, 100, 0.001) for _ in range(50)]
        for one in many:
            reader.read(one)
        worst, turns = clock.now, 0
        while any(one.queued for one in many):
            before = clock.now
            await asyncio.sleep(0)
            worst, turns = max(worst, clock.now - before), turns + 1
            assert max(clock.read.values()) - min(clock.read[one] for one in many) <= 3
        return worst, turns

    worst, turns = asyncio.run(read())
    assert worst <= connection.TURN + 0.001 + 1e-9
    assert sum(clock.read.values()) == 5000 and turns >= 5 / (connection.TURN + 0.001)
