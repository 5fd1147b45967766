# SPDX-License-Identifier: LGPL-2.1-or-later
"""The WebSocket, with vLLM-Omni's messages, against an address."""
import struct
import types
import unittest.mock

import pytest
from websockets.exceptions import ConnectionClosed

from conftest import FRAME, element, frames, of
from qtts_serve.utterance import Utterance

TEXT = "Please leave your message after the tone."
PIECES = ("Pl", "ease leave", " your ", "message", " after the tone", ".")
LONG = " ".join([TEXT] * 20)


def test_growing_text_sounds_as_the_element_has_it(server):
    with server.stream() as stream:
        sound, messages = stream.say(*PIECES, seed=1)
    assert sound == element("", PIECES, seed=1)
    assert [message["type"] for message in messages] == ["audio.start", "audio.done", "session.done"]
    start, done, session = messages
    assert (start["utterance_index"], start["sentence_index"]) == (0, 0)
    assert (start["format"], start["sample_rate"], start["channels"], start["seed"]) == ("pcm", 24000, 1, 1)
    assert start["id"]
    assert (done["reason"], done["error"]) == ("complete", False)
    assert done["total_bytes"] == len(sound) and done["frames"] == frames(sound)
    assert (session["utterance_index"], session["total_sentences"]) == (0, 1)


def test_sound_comes_before_the_text_has_ended(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, seed=1)
        stream.send("input.text", text=TEXT)
        while not isinstance(stream.receive(), bytes):
            pass
        stream.send("input.text", text=" " + TEXT)
        stream.send("input.done")
        sound, messages = stream.until("session.done")
    assert of(messages, "audio.done")[0]["reason"] == "complete"
    assert len(sound) / 48000 > 3.5


def test_utterances_of_a_session(server):
    with server.stream() as stream:
        for index in range(3):
            sound, messages = stream.say(TEXT, seed=index)
            assert sound == element("", (TEXT,), seed=index)
            assert {message["utterance_index"] for message in messages} == {index}


def test_texts_that_come_while_another_is_spoken(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, seed=1, pace=0)
        for text in ("One.", "Two.", "Three."):
            stream.send("input.text", text=text)
            stream.send("input.done")
        for index, text in enumerate(("One.", "Two.", "Three.")):
            sound, messages = stream.until("session.done")
            assert sound == element("", (text,), seed=1)
            assert messages[-1]["utterance_index"] == index


def test_vllm_omnis_defaults(server):
    """Without a format in its configuration, a client gets one WAV file for each utterance."""
    with server.stream() as stream:
        stream.send("session.config", voice="grace", seed=1)
        stream.send("input.text", text=TEXT)
        stream.send("input.done")
        start, sound, done, session = (stream.receive() for _ in range(4))
    assert (start["type"], start["format"]) == ("audio.start", "wav")
    assert struct.unpack("<I", sound[40:44])[0] == len(sound) - 44
    assert sound[44:] == element("", (TEXT,), seed=1)
    assert (done["type"], session["type"]) == ("audio.done", "session.done")


@pytest.mark.parametrize("response_format", ["wav", "flac", "opus", "mp3", "aac"])
def test_formats(server, response_format):
    with server.stream() as stream:
        sound, messages = stream.say(TEXT, response_format=response_format)
    heads = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS", "mp3": b"\xff", "aac": b"\xff"}
    assert sound.startswith(heads[response_format])
    assert of(messages, "audio.done")[0]["total_bytes"] == len(sound)


def test_no_text_is_no_sound(server):
    with server.stream() as stream:
        for index, text in enumerate(("", " ", "\n \t")):
            stream.send("input.text", text=text)
            stream.send("input.done")
            sound, messages = stream.until("session.done")
            assert sound == b"" and not of(messages, "audio.start")
            assert messages[-1] == {"type": "session.done", "utterance_index": index, "total_sentences": 0}


def test_two_ends_of_a_text(server):
    """The second input.done ends an utterance without text."""
    with server.stream() as stream:
        stream.send("input.text", text="Hi.")
        stream.send("input.done")
        stream.send("input.done")
        for index in range(2):
            done = stream.until("session.done")[1][-1]
            assert (done["utterance_index"], done["total_sentences"]) == (index, 1 - index)


def test_words(server):
    with server.stream() as stream:
        sound, messages = stream.say("  Please ", "leave your", " message.", seed=1, progress=True)
    words = of(messages, "audio.progress")
    text = "  Please leave your message."
    assert [text[word["offset"]:word["offset"] + word["length"]].strip(".") for word in words] == [
        "Please", "leave", "your", "message"]
    times = [word["time"] for word in words]
    assert times == sorted(times) and 0 <= times[0] and times[-1] < len(sound) / 48000


def test_cancel_keeps_the_session(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, seed=1)
        stream.send("input.text", text=LONG)
        stream.send("input.done")
        stream.send("input.text", text="This one waits.")
        received = 0
        while received < FRAME * 20:  # with some words
            message = stream.receive()
            received += len(message) if isinstance(message, bytes) else 0
        stream.send("input.cancel")
        _, messages = stream.until("audio.cancelled")
        cancelled = messages[-1]
        assert 20 <= cancelled["frames"] < frames(element("", (LONG,), seed=1))
        assert 0 < cancelled["text_spoken_chars"] < len(LONG)
        sound, messages = stream.until("session.done")
        assert sound == b"" and of(messages, "audio.done")[0]["reason"] == "interrupted"
        sound, messages = stream.until("session.done")  # of the utterance that waited
        assert sound == b"" and of(messages, "audio.cancelled")[0]["frames"] == 0
        sound, messages = stream.say(TEXT, seed=1)
        assert sound == element("", (TEXT,), seed=1)


def test_cancel_of_nothing(server):
    with server.stream() as stream:
        stream.send("input.cancel")
        assert stream.receive() == {"type": "audio.cancelled", "frames": 0, "text_spoken_chars": 0}


def test_cancel_of_what_has_failed(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, language="klingon")
        stream.send("input.text", text="One ")
        stream.until("audio.done")
        stream.send("input.cancel")
        assert [stream.receive()["type"] for _ in range(2)] == ["audio.cancelled", "session.done"]
        assert stream.say("Hi.", seed=1)[0] == element("", ("Hi.",), seed=1)


def test_what_follows_a_failed_utterance_is_not_one_more(server):
    """Text and input.done that were sent before the error arrived belong to the failed utterance."""
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, language="klingon")
        stream.send("input.text", text="One ")
        sound, messages = stream.until("audio.done")
        assert sound == b"" and "english" in of(messages, "error")[0]["message"]
        assert messages[-1]["reason"] == "error" and messages[-1]["error"]
        stream.send("input.text", text="two.")
        stream.send("input.done")
        assert stream.receive() == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}
        sound, messages = stream.say(TEXT, seed=1)
        assert sound == element("", (TEXT,), seed=1)
        assert messages[-1]["utterance_index"] == 1


def test_too_long_a_text(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, pace=0, seed=1)
        stream.send("input.text", text="One two. ")
        stream.send("input.text", text="a" * 100_000)
        stream.send("input.text", text="b")
        stream.send("input.done")
        sound, messages = stream.until("session.done")
        assert [error["code"] for error in of(messages, "error")] == ["too_long"]
        assert of(messages, "audio.done")[0]["reason"] == "complete" and 0 < len(sound) < 48000 * 10
        assert stream.say("Hi.")[1][-1]["utterance_index"] == 1


def test_too_long_a_text_for_a_whole_answer(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm")
        stream.send("input.text", text="One two. ")
        stream.send("input.text", text="a" * 4096)
        stream.send("input.done")
        sound, messages = stream.until("session.done")
        assert [error["code"] for error in of(messages, "error")] == ["too_long"]
        assert "4096 characters" in of(messages, "error")[0]["message"] and sound


@pytest.mark.parametrize("message, says", [
    ("{", "JSON"),
    ("[]", "unknown"),
    ('{"type": "input.song"}', "unknown"),
    ('{"type": "input.text"}', "text"),
    ('{"type": "input.text", "text": 5}', "text"),
    ('{"type": "session.config", "speed": 5}', "speed"),
    ('{"type": "session.config", "volume": 2}', "volume"),
    ('{"type": "session.config", "model": "tts-2"}', "tts-2"),
    ('{"type": "session.config", "voice": "nobody"}', "clara"),
    ('{"type": "session.config", "split_granularity": "clause"}', "split_granularity"),
    ('{"type": "session.config", "word_timestamps": 1}', "word_timestamps"),
    ('{"type": "session.config", "stream_audio": "yes"}', "stream_audio"),
    ('{"type": "session.config", "ref_audio": "http://a.b/c.wav"}', "data URL"),
    (b"\x00\x01", "text frame"),
])
def test_messages_that_make_no_sense(server, message, says):
    with server.stream() as stream:
        stream.socket.send(message)
        error = stream.receive()
        assert error["type"] == "error" and says in error["message"]
        sound, _ = stream.say("Hi.", seed=1)
        assert sound == element("", ("Hi.",), seed=1)


def test_settings_are_for_between_utterances(server):
    with server.stream() as stream:
        stream.send("input.text", text="One ")
        stream.send("session.config", seed=1)
        assert stream.until("error")[1][-1]["code"] == "invalid_state"
        stream.send("input.done")
        assert stream.until("session.done")[1][-1]["utterance_index"] == 0


def test_close(server):
    with server.stream() as stream:
        stream.send("session.close")
        with pytest.raises(ConnectionClosed) as closed:
            stream.receive()
        assert closed.value.rcvd.code == 1000


def test_late_text_ends_the_utterance(start):
    server = start("--text-timeout", "0.3")
    with server.stream() as stream:
        stream.send("session.config", response_format="pcm", stream_audio=True, seed=1)
        stream.send("input.text", text="One two three ")
        _, messages = stream.until("session.done")
        assert of(messages, "audio.done")[0]["reason"] == "complete"
        stream.send("input.done")  # belongs to the utterance that has ended
        stream.send("input.text", text="Four.")
        stream.send("input.done")
        assert stream.until("session.done")[1][-1] == {"type": "session.done", "utterance_index": 1, "total_sentences": 1}


class Late:
    """A pace by which the next frame is late by these seconds."""

    def __init__(self):
        self.seconds = self.delayed = 0.0

    def late(self, now):
        return self.seconds

    def delay(self, seconds):
        self.delayed += seconds


@pytest.mark.parametrize("begun", [False, True])
def test_silence_that_is_heard_is_counted_and_has_a_limit(begun):
    """Times are made up, and binary fractions."""
    front = types.SimpleNamespace(metrics=unittest.mock.MagicMock(), settings=types.SimpleNamespace(text_timeout=1.0))
    utterance, pace = Utterance(front, "websocket", "growing"), Late()
    utterance._asked, utterance._speaker, utterance.growing = 8.0, unittest.mock.MagicMock(), True
    utterance._samples = 1920 if begun else 0
    for now, more in ((8.0, 0.0), (8.5, 0.5), (9.0, 0.5)):
        pace.seconds = more
        utterance._watch_gap(pace, now)
        assert utterance.growing
    assert pace.delayed == 1.0
    utterance._watch_gap(pace, 9.5)
    assert not utterance.growing
    utterance._speaker.end_text.assert_called_once_with()
    assert sum(call.args[0] for call in front.metrics.stalled.inc.call_args_list) == (1.5 if begun else 0)
    front.metrics.underruns.inc.assert_not_called()


def test_frames_that_nobody_heard_are_counted():
    front = types.SimpleNamespace(metrics=unittest.mock.MagicMock())
    utterance = Utterance(front, "http", "whole")
    utterance._samples = 3 * 1920
    utterance._count(types.SimpleNamespace(finished="interrupted", frames=5))
    front.metrics.dropped.inc.assert_called_once_with(2)
