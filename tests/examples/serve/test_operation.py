# SPDX-License-Identifier: LGPL-2.1-or-later
"""Limits, cancels, readers that do not read, the end: on servers of their own."""
import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import unittest.mock

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from conftest import FRAME, PATIENCE, element, of, wait_for
from qtts_serve import limits
from qtts_serve.__main__ import listen
from qtts_serve.admission import Slots
from qtts_serve.errors import ApiError
from qtts_serve.front import Front
from qtts_serve.settings import Settings
from qtts_serve.utterance import Cancelled, Utterance

TEXT = "Please leave your message after the tone."
LONG = " ".join([TEXT] * 30)


def test_full(start):
    """A request that gets no slot in time is refused. Others are not affected."""
    server = start("--slots", "3", "--max-wait", "1")
    speaking = [server.begin(input=LONG, pace=0.2) for _ in range(3)]
    statuses, lock = [], threading.Lock()

    def ask():
        begin = time.monotonic()
        status, headers, body = server.speech(input=TEXT)
        assert time.monotonic() - begin > 0.99, "it was refused without waiting"
        with lock:
            statuses.append((status, headers["retry-after"], json.loads(body)["error"]["type"]))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(status, error) for status, _, error in statuses] == [(429, "overloaded")] * 8
    assert all(1 <= int(seconds) <= 60 for _, seconds, _ in statuses)
    with server.stream() as stream:
        stream.send("input.text", text=TEXT)
        stream.send("input.done")
        _, messages = stream.until("session.done")
        assert of(messages, "error")[0]["code"] == "overloaded"
        speaking.pop().close()
        wait_for("a slot", lambda: server.metric("qtts_slots_busy") == 2)
        assert stream.say(TEXT, seed=1)[0] == element("", (TEXT,), seed=1)
    assert server.get("/health/ready")[0] == 200  # otherwise all replicas would be taken out together
    for response in speaking:
        response.close()
    server.wait_until_idle()
    assert server.metric('qtts_utterances_total') == 1 + 3 + 9 + 1  # with the warm-up


def test_more_slots_than_by_default(start):
    server = start("--slots", "70", "--sessions", "100")
    assert server.metric("qtts_slots") == 70
    speaking = [server.begin(input=TEXT, seed=number, pace=0.2) for number in range(70)]
    assert server.metric("qtts_waiting_utterances") == 0
    for response in speaking:
        response.close()
    server.wait_until_idle()


def test_waiting_ends_with_a_slot(start):
    server = start("--slots", "1", "--max-wait", "600")
    speaking = server.begin(input=LONG, pace=0.2)
    answer = []
    thread = threading.Thread(target=lambda: answer.append(server.speech(input=TEXT, seed=1)))
    thread.start()
    wait_for("the other to wait", lambda: server.metric("qtts_waiting_utterances") == 1)
    time.sleep(0.01)  # the least that it waits, after the server has told that it does
    speaking.close()
    thread.join()
    status, headers, sound = answer[0]
    assert status == 200 and sound == element(TEXT, seed=1)
    assert int(headers["x-qtts-queue-ms"]) >= 10


def test_sessions(start):
    server = start("--sessions", "2")
    with server.stream(), server.stream():
        assert server.refusal(input=TEXT)[0] == 429
        with pytest.raises(InvalidStatus) as refusal:
            with server.stream():
                pass
        assert refusal.value.response.status_code == 429
    server.wait_until_idle()
    assert server.speech(input=TEXT)[0] == 200


def kill_encoders(server):
    def children(pid):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    for template in children(server.process.pid):
        for fork in children(template):
            os.kill(fork, signal.SIGKILL)


def test_encoders_that_are_lost_in_mid_speech(start):
    """Each protocol tells it, and the next utterance is spoken."""
    server = start()
    sound = {"input": LONG, "response_format": "flac", "pace": 0.5}
    answer = server.begin(**sound)
    answer.read(100)
    kill_encoders(server)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    answer = server.begin(**sound, stream_format="sse")
    answer.readline()
    kill_encoders(server)
    events = [json.loads(line[6:]) for line in answer.read().splitlines() if line.startswith(b"data: {")]
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("speech.audio.error", "encoder_failed")
    with server.stream() as stream:
        stream.send("session.config", response_format="flac", stream_audio=True, seed=1, pace=0.5)
        stream.send("input.text", text=LONG)
        while not isinstance(stream.receive(), bytes):
            pass
        kill_encoders(server)
        _, messages = stream.until("error")
        assert messages[-1]["code"] == "encoder_failed", messages[-1]
        stream.send("input.done")
        stream.until("session.done")
        assert stream.say(TEXT, response_format="flac")[0].startswith(b"fLaC")


def test_disconnects_and_cancels_at_random_frames(start):
    """The engine stops, and every pipeline speaks as before."""
    server = start()
    chance = random.Random(1)

    def cut(number):
        if number % 2:
            response = server.begin(input=LONG, pace=2.0)
            response.read(1 + chance.randrange(20 * FRAME))
            response.close()
            return
        with server.stream() as stream:
            stream.send("session.config", response_format="pcm", stream_audio=True, seed=1)
            stream.send("input.text", text=LONG)
            received, most = 0, chance.randrange(20 * FRAME)
            while received <= most:
                message = stream.receive()
                received += len(message) if isinstance(message, bytes) else 0
            stream.send("input.cancel")
            stream.until("audio.cancelled")
            sound, _ = stream.until("session.done")
            assert sound == b""

    run_threads(cut, 40, 4)
    server.wait_until_idle()
    run_threads(lambda number: check_same(server), 12, 6)


def check_same(server):
    assert server.speech(input=TEXT, seed=1)[2] == element(TEXT, seed=1)


def run_threads(function, count, at_once):
    """Calls function(0) to function(count - 1); fails as they do."""
    numbers, problems, lock = iter(range(count)), [], threading.Lock()

    def work():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None or problems:
                return
            try:
                function(number)
            except BaseException as problem:
                problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def test_storm_of_cancels(start):
    """300 connections end at once, half of them before an answer: none goes on, all slots are free."""
    server = start("--sessions", "320", "--max-wait", "600", "--slow-reader", "600")
    # At a pace, none comes to its end before the last one is there.
    body = json.dumps({"input": LONG, "response_format": "pcm", "seed": 1, "pace": 0.2}).encode()
    request = b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def storm():
        writers = []
        for _ in range(300):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(request)
            writers.append(writer)
        while server.metric("qtts_slots_busy") + server.metric("qtts_waiting_utterances") < 300:
            await asyncio.sleep(0.05)
        for writer in writers:
            writer.transport.abort()

    asyncio.run(asyncio.wait_for(storm(), PATIENCE))
    server.wait_until_idle()
    check_same(server)


def test_retry_after():
    """A refusal names the time in which a slot becomes free, behind those that wait, and never more than a minute."""
    async def ask():
        slots = Slots(4, max_wait=PATIENCE)
        assert slots.retry_after() == 1  # nothing is known yet
        for _ in range(4):
            slots.ask()
        for held in (10, 14):
            slots.release(held)
            slots.ask()
        assert slots.retry_after() == 3  # one becomes free every 12 / 4 s
        for _ in range(5):
            slots.ask()
        assert slots.retry_after() == 18
        for _ in range(100):
            slots.ask()
        assert slots.retry_after() == 60

    asyncio.run(ask())


@pytest.mark.parametrize("turns", range(8))
def test_cancel_as_the_slot_comes(turns):
    """A request cancelled `turns` turns of the event loop after it was given a slot gives the slot back."""
    async def cancel():
        slots = Slots(1, max_wait=PATIENCE)
        pool = types.SimpleNamespace(take=lambda: types.SimpleNamespace(spoken=None), give_back=lambda speaker: None)
        front = types.SimpleNamespace(slots=slots, pool=pool, metrics=unittest.mock.MagicMock(), utterances=set())
        for by_request in (False, True):
            slots.ask()
            utterance = Utterance(front, "http", "whole")

            async def speak():
                async with utterance:
                    await asyncio.sleep(0)

            request = asyncio.create_task(speak())
            await asyncio.sleep(0.01)
            assert (slots.busy, slots.waiting) == (1, 1)
            slots.release()
            for _ in range(turns):
                await asyncio.sleep(0)
            utterance.cancel()
            if by_request:
                request.cancel()
            ended = (await asyncio.gather(request, return_exceptions=True))[0]
            assert ended is None or isinstance(ended, (Cancelled, asyncio.CancelledError))
            assert (slots.busy, slots.waiting) == (0, 0)

    asyncio.run(cancel())


def test_readers_that_do_not_read(start):
    """Their pipelines stop, and they are disconnected. Other clients are not affected."""
    server = start("--slow-reader", "1.5")
    length = len(element(LONG, seed=1))
    stuck = [server.begin(input=LONG, seed=1, pace=0) for _ in range(3)]
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, pace=0, seed=1)
        stream.send("input.text", text=LONG)
        stream.send("input.done")
        check_same(server)
        wait_for("them to be disconnected", lambda: server.metric("qtts_slots_busy") == 0)
        with pytest.raises(ConnectionClosed):
            while True:
                stream.receive()
    for response in stuck:
        received = 0
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            while data := response.read1(1 << 16):
                received += len(data)
        assert received < length / 2
    server.wait_until_idle()


def test_requests_that_do_not_end(start):
    server = start("--body-timeout", "0.5")
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as client:
        client.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as client:
        client.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    server.wait_until_idle()


def test_pings(start):
    server = start("--ping-interval", "0.05")
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as client:
        client.sendall(b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
        received = b""
        while b"\r\n\r\n\x89" not in received:
            received += client.recv(1 << 16)
            assert received.startswith(b"HTTP/1.1 101 "[:len(received)])
    server.wait_until_idle()
    silent = start("--ping-interval", "0")
    with silent.stream() as stream:
        assert of(stream.say(TEXT)[1], "audio.done")[0]["reason"] == "complete"


def test_a_client_that_is_gone_without_a_word_is_noticed():
    """Connections inherit keep-alive and its time-out from the listening socket."""
    with listen(Settings(port=0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 60
            assert 0 < connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000


def test_drain_lets_utterances_end(start):
    server = start("--text-timeout", "600")
    expected = element(TEXT + " " + TEXT, seed=1)
    speaking = server.begin(input=TEXT + " " + TEXT, seed=1, pace=0.2)
    with server.stream() as idle, server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, seed=1, pace=0.2)
        stream.send("input.text", text=TEXT)
        stream.until("audio.start")
        assert server.request("POST", "/drain")[0] == 202
        wait_for("it to be told", lambda: server.get("/health/ready")[0] == 503)
        assert server.get("/health/live")[0] == 200
        with pytest.raises(ConnectionClosed) as closed:
            idle.receive()
        assert closed.value.rcvd.code == 1001
        status, error = server.refusal(input=TEXT)
        assert status == 503 and error["code"] == "draining"
        stream.send("input.done")
        assert of(stream.until("session.done")[1], "audio.done")[0]["reason"] == "complete"
        with pytest.raises(ConnectionClosed) as closed:
            stream.receive()
        assert closed.value.rcvd.code == 1001
    assert speaking.read() == expected


def test_a_balanced_server_without_sessions_takes_requests_until_the_balancer_knows(start):
    server = start("--drain-delay", "3600")
    assert server.get("/health/ready")[0] == 200
    assert server.request("POST", "/drain")[0] == 202
    wait_for("the balancer to be told", lambda: server.get("/health/ready")[0] == 503)
    status, _, sound = server.speech(input="Not lost.", max_new_tokens=5)
    assert status == 200 and sound


def drained(asked_before):
    """A front that was asked by a balancer so many seconds before it drains, None: never. Returns it and whether it
    refuses once it drains, with a delay that no test waits for."""
    now = 1000.0

    async def drain():
        nonlocal now
        front = Front(Settings(drain_delay=3600), clock=lambda: now)
        if asked_before is not None:
            front.answer_balancer()
            now += asked_before
        draining = asyncio.create_task(front.drain())
        if front.is_balanced():
            await asyncio.sleep(0)  # to its delay
        else:
            await asyncio.wait_for(draining, PATIENCE)
        draining.cancel()
        return front.draining, front.refusing.is_set()

    return asyncio.run(drain())


def test_only_a_balanced_front_waits_before_it_refuses():
    assert drained(asked_before=0) == (True, False)
    assert drained(asked_before=29) == (True, False)
    assert drained(asked_before=31) == (True, True)
    assert drained(asked_before=None) == (True, True)


def test_terminate_ends_after_the_last_utterance(start):
    server = start()
    speaking = server.begin(input=TEXT, seed=1, pace=0.2)
    server.process.send_signal(signal.SIGTERM)
    assert speaking.read() == element(TEXT, seed=1)
    assert server.process.wait(PATIENCE) == 0


def test_drain_has_a_time_limit(start):
    server = start("--drain-timeout", "0.5")
    speaking = server.begin(input=LONG, pace=0.2)
    assert server.stop()[1] == 0  # drain_timeout is shorter than the utterance
    speaking.close()


def test_sessions_are_told_when_the_time_to_drain_is_over(start):
    """Utterances that are spoken or wait are cancelled, including text that never ends."""
    server = start("--drain-timeout", "0.5", "--slots", "2", "--max-wait", "600")
    with server.stream() as growing, server.stream() as whole, server.stream() as waiting:
        for stream in (growing, whole):
            stream.send("session.config", response_format="pcm", stream_audio=True, pace=0.2, seed=1)
            stream.send("input.text", text=LONG)
            stream.until("audio.start")
        for _ in range(2):
            for stream in (whole, waiting):
                stream.send("input.text", text=TEXT)
                stream.send("input.done")
        wait_for("one to wait", lambda: server.metric("qtts_waiting_utterances") == 1)
        server.process.send_signal(signal.SIGTERM)
        for stream, count in ((growing, 1), (whole, 2), (waiting, 2)):
            for number in range(count):
                messages = stream.until("session.done")[1]
                if messages[0]["type"] == "audio.start":  # it got the slot of another cancelled one first
                    messages.pop(0)
                assert [message["type"] for message in messages] == ["audio.cancelled", "audio.done", "session.done"]
                assert messages[1]["reason"] == "interrupted"
                assert messages[0]["frames"] > 0 or stream is waiting or number > 0
            with pytest.raises(ConnectionClosed) as closed:
                stream.receive()
            assert closed.value.rcvd.code == 1001
    assert server.process.wait(PATIENCE) == 0


def test_drain_is_for_this_machine_alone(start):
    server = start()
    assert server.request("POST", "/drain", headers={"X-Forwarded-For": "192.0.2.1"})[0] == 404
    assert server.get("/health/ready")[0] == 200


def command(*options, environment=None, preexec=None):
    """Standard error and status of a server that does not start."""
    done = subprocess.run([sys.executable, "-m", "qtts_serve", "--port", "0", *options], capture_output=True, text=True,
                          timeout=PATIENCE, env={**os.environ, **(environment or {})}, preexec_fn=preexec)
    return done.stderr, done.returncode


def test_too_few_descriptors(start):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    said, status = command("--sessions", "256", preexec=limit)
    assert status == 1
    assert [line for line in said.splitlines() if "open files is 256" in line and "ulimit -n" in line], said
    assert "CRITICAL" not in said and "Traceback" not in said
    server = start("--sessions", "8", "--slots", "8", preexec=limit)
    check_same(server)


def test_too_few_threads():
    """The limit is a stand-in: a real one as low would end this test."""
    original = limits._most_threads
    try:
        limits._most_threads = lambda: 64
        with pytest.raises(RuntimeError, match="limit of threads is 64; .* lower --sessions"):
            limits.check(256, 64, 576)
        limits.check(8, 8, 8)
    finally:
        limits._most_threads = original


@pytest.mark.parametrize("options, says", [
    (("--model-path", "/nowhere"), "/nowhere"),
    (("--element", "no-such-property=1"), "no-such-property"),
    (("--sessions", "0"), "sessions: at least 1"),
    (("--max-wait", "-1"), "max_wait: -1.0 is not 0 or more"),
    (("--ping-interval", "-1"), "ping_interval: -1.0 is not 0 or more"),
    (("--voice-alias", "alloy"), "lacks '='"),
    (("--voice-alias", "alloy=default"), "alloy=default: the model has no voice 'default'; its voices are: clara, grace"),
    (("--voice-alias", "one=clara,two=alloy"), "two=alloy"),
    (("--openai-names", "maybe"), "--openai-names"),
    (("--log-level", "loud"), "loud"),
    (("--response-format", "ogg"), "response_format"),
    (("--port", "99999"), "port"),
    (("--sing",), "--sing"),
])
def test_options_that_make_no_sense(options, says):
    said, status = command(*options)
    assert status in (1, 2) and says in said and "Traceback" not in said, said


def test_settings_of_the_environment(start):
    server = start(environment={"QTTS_SERVE_MODEL_NAME": "own/one,mine", "QTTS_SERVE_VOICE_ALIAS": "alloy=grace,Boss=Ross",
                                "QTTS_SERVE_OPENAI_NAMES": "no", "QTTS_SERVE_RESPONSE_FORMAT": "wav",
                                "QTTS_SERVE_TRIM_LEADING_SILENCE": "no"})
    assert [model["id"] for model in json.loads(server.get("/v1/models")[2])["data"]] == ["own/one", "mine"]
    assert json.loads(server.get("/v1/models/own/one")[2])["id"] == "own/one"
    assert json.loads(server.get("/v1/audio/voices")[2])["aliases"] == {"alloy": "grace", "Boss": "Ross"}
    for model, voice, speaker in (("own/one", "alloy", "grace"), ("mine", "Boss", "ross")):
        assert server.speech(input=TEXT, seed=1, model=model, voice=voice)[2] == element(
            TEXT, seed=1, speaker=speaker, trim_leading_silence="false")
    assert server.request("POST", "/v1/audio/speech", json.dumps({"input": TEXT}))[1]["content-type"] == "audio/wav"
    for name, value in (("model", "qttssrc"), ("model", "tts-1"), ("voice", "nova")):
        status, error = server.refusal(input=TEXT, **{name: value})
        assert (status, error["param"]) == (400, name)
    said, status = command(environment={"QTTS_SERVE_SLOTS": "many"})
    assert status == 2 and "QTTS_SERVE_SLOTS" in said


def test_loading_and_a_lost_device_are_told():
    front = Front(Settings())
    for code, change in (("loading", lambda: None), ("device_lost", lambda: front._lose("The GPU was lost."))):
        change()
        with pytest.raises(ApiError) as refusal, front.session("http"):
            pass
        assert (refusal.value.status, refusal.value.code) == (503, code)
        assert refusal.value.headers()["retry-after"]
        assert not front.ready


def test_pages_of_other_sites(start):
    server = start("--allow-origin", "https://speech.example")
    own = f"http://{server.host}:{server.port}"
    for origin, status in ((own, 200), ("https://speech.example", 200), ("https://evil.example", 403), ("null", 403),
                           ("http://127.0.0.1:1", 403)):
        assert server.speech({"Origin": origin}, input="Hi.")[0] == status, origin
        with contextlib.ExitStack() as stack:
            if status == 403:
                stack.enter_context(pytest.raises(InvalidStatus))
            stack.enter_context(server.stream(origin=origin))


def test_a_listener_beside_many_whole_answers(start):
    """24 requests that take all they get, and a session that somebody hears: all get on, and the listener's sound is as if it
    were alone. How fast each gets on depends on the machine: the scheduler's tests have a simulated one."""
    server = start()
    over, received = threading.Event(), [0] * 24

    def take(number):
        while not over.is_set():
            response = server.begin(input=LONG)
            while not over.is_set() and (data := response.read1(1 << 16)):
                received[number] += len(data)
            response.close()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(len(received))]
    for thread in threads:
        thread.start()
    try:
        wait_for("all of them to speak", lambda: min(received) > 0)
        before = list(received)
        with server.stream() as stream:
            text = " ".join([TEXT] * 4)
            sound, messages = stream.say(text, seed=1, pace=30)
        wait_for("each of them to go on", lambda: all(now > then for now, then in zip(received, before)))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert of(messages, "audio.done")[0]["reason"] == "complete"
    assert sound == element("", (text,), seed=1)
    server.wait_until_idle()


def test_cancel_of_what_waits_for_a_slot(start):
    server = start("--slots", "1", "--max-wait", "600")
    speaking = server.begin(input=LONG, pace=0.2)
    with server.stream() as stream:
        stream.send("input.text", text=TEXT)
        wait_for("it to wait", lambda: server.metric("qtts_waiting_utterances") == 1)
        stream.send("input.cancel")
        assert of(stream.until("session.done")[1], "audio.cancelled")[0]["frames"] == 0
        assert server.metric("qtts_waiting_utterances") == 0
        speaking.close()
        assert stream.say(TEXT, seed=1)[0] == element("", (TEXT,), seed=1)
    server.wait_until_idle()


def test_texts_are_not_logged(start):
    server = start()
    server.speech(input="Secret words.")
    server.speech(input="Secret words.", voice="nobody")
    with server.stream() as stream:
        stream.say("Secret words.")
    said, status = server.stop()
    assert status == 0 and "ecret" not in said
