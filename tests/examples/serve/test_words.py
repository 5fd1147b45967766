# SPDX-License-Identifier: LGPL-2.1-or-later
"""Times of words, and what was spoken of a text."""
import base64
import json

import pytest

from conftest import element, of

TEXT = "  Please leave your message, after the tone."
WORDS = ["Please", "leave", "your", "message", "after", "the", "tone"]


def check_words(words, seconds):
    assert [word["word"] for word in words] == WORDS
    assert not any(word["estimated"] for word in words)
    for word in words:
        assert TEXT[word["offset"]:].startswith(word["word"]) and 0 <= word["start"] < word["end"] <= seconds + 0.01
    assert all(word["start"] <= following["start"] for word, following in zip(words, words[1:]))


def test_one_object(server):
    status, headers, body = server.speech(input=TEXT, seed=1, stream_format="json", timestamp_granularities=["word"])
    answer = json.loads(body)
    assert status == 200 and headers["content-type"] == "application/json" and int(headers["content-length"]) == len(body)
    sound = base64.b64decode(answer["audio"])
    assert sound == element(TEXT, seed=1) and answer["format"] == "pcm" and answer["seed"] == 1
    assert (answer["reason"], answer["coverage"], answer["skipped"], answer["repeated"]) == ("complete", 1, [], [])
    check_words(answer["words"], len(sound) / 48000)


def test_words_have_the_times_of_the_speed(server):
    plain, fast = (json.loads(server.speech(input=TEXT, seed=1, speed=speed, stream_format="json", timestamp_granularities=["word"])[2])
                   for speed in (1, 2))
    sounds = [base64.b64decode(answer["audio"]) for answer in (plain, fast)]
    assert sounds[1] == element(TEXT, seed=1, rate=2) and abs(len(sounds[0]) / 2 - len(sounds[1])) <= 2
    check_words(fast["words"], len(sounds[1]) / 48000)
    for before, after in zip(plain["words"], fast["words"]):
        assert abs(before["start"] / 2 - after["start"]) < 0.002 and abs(before["end"] / 2 - after["end"]) < 0.002


def test_words_only_if_asked(server):
    assert "words" not in json.loads(server.speech(input=TEXT, seed=1, stream_format="json")[2])


def test_events(server):
    _, _, body = server.speech(input=TEXT, seed=1, stream_format="sse", timestamp_granularities=["word"])
    events = [json.loads(line.removeprefix(b"data: ")) for line in body.split(b"\n\n") if line]
    words = of(events, "speech.audio.word")
    check_words(words, sum(len(base64.b64decode(event["audio"])) for event in of(events, "speech.audio.delta")) / 48000)
    done = events[-1]
    assert (done["type"], done["reason"], done["coverage"]) == ("speech.audio.done", "complete", 1)


def test_session(server):
    with server.stream() as stream:
        sound, messages = stream.say(TEXT, seed=1, word_timestamps=True)
        words = of(messages, "audio.progress")
        assert [TEXT[word["offset"]:word["offset"] + word["length"]] for word in words] == WORDS
        assert all(word["duration"] > 0 and word["time"] + word["duration"] <= len(sound) / 48000 + 0.01 for word in words)
        assert of(messages, "audio.done")[0]["coverage"] == 1


def test_whole_answer(server):
    status, headers, body = server.speech(input=TEXT, seed=1, stream=False)
    assert status == 200 and body == element(TEXT, seed=1) and int(headers["content-length"]) == len(body)
    assert (headers["x-qtts-reason"], headers["x-qtts-coverage"]) == ("complete", "1.0000")
    assert headers["x-qtts-words-skipped"] == headers["x-qtts-words-repeated"] == "0"


def test_a_whole_answer_has_a_header_of_its_length(server):
    status, _, body = server.speech(input=TEXT, seed=1, stream=False, response_format="wav")
    assert status == 200 and int.from_bytes(body[40:44], "little") == len(body) - 44


def test_trailers(server):
    """Facts that are known only at the end stand in trailers behind the last chunk. http.client drops these."""
    connection = server.connection()
    connection.request("POST", "/v1/audio/speech", json.dumps({"input": TEXT, "seed": 1, "response_format": "pcm"}))
    response = connection.getresponse()
    assert response.headers["trailer"].startswith("x-qtts-reason, x-qtts-coverage")
    raw = response.fp.read1(1 << 20)
    while not raw.endswith(b"\r\n\r\n"):
        raw += response.fp.read1(1 << 20)
    trailers = raw.rpartition(b"\r\n0\r\n")[2].decode()
    assert "x-qtts-reason: complete\r\n" in trailers and "x-qtts-coverage: 1.0000\r\n" in trailers
    response.close()
    connection.close()


def test_a_connection_lives_on_after_trailers(server):
    connection = server.connection()
    for _ in range(2):
        connection.request("POST", "/v1/audio/speech", json.dumps({"input": TEXT, "seed": 1, "response_format": "pcm"}))
        assert connection.getresponse().read() == element(TEXT, seed=1)
    connection.close()


@pytest.mark.parametrize("status, param, fields", [
    (400, "timestamp_granularities", {"timestamp_granularities": ["word"]}),
    (400, "timestamp_granularities", {"timestamp_granularities": ["segment"], "stream_format": "sse"}),
    (400, "timestamp_granularities", {"timestamp_granularities": 5, "stream_format": "sse"}),
    (400, "stream", {"stream": "no"}),
    (413, "input", {"input": "a" * 4097, "stream": False}),
    (413, "input", {"input": "a" * 4097, "stream_format": "json"}),
])
def test_refusals(server, status, param, fields):
    given, error = server.refusal(**{"input": TEXT, **fields})
    assert (given, error["param"]) == (status, param)
