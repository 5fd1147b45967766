# SPDX-License-Identifier: LGPL-2.1-or-later
# Check: 65
"""Sample rates and the formats of telephones."""
import array
import base64
import functools
import json
import math
import operator
import subprocess
import urllib.parse

import pytest

from conftest import element, of
from qtts_serve import encoding, formats
from qtts_serve.settings import Settings

TEXT = "Please leave your message after the tone."
OTHERS = [rate for rate in formats.RATES if rate != 24000]
COMPRESSED = ["opus", "flac", "mp3", "aac"]


def samples(sound):
    return array.array("h", sound)


@functools.cache
def original():
    return samples(element(TEXT, seed=1))


def converted(sound, *description):
    """`sound` as samples at 24 kHz; with a description of it, that of raw bytes."""
    command = ["ffmpeg", "-v", "error", *description, "-i", "-", "-f", "s16le", "-ar", "24000", "-ac", "1", "-"]
    return samples(subprocess.run(command, input=sound, check=True, capture_output=True).stdout)


def correlation(one, other, lag):
    """The correlation of two sounds, the second of which is `lag` samples late."""
    begin, end = max(0, -lag), min(len(one), len(other) - lag)
    one, other = one[begin:end], other[begin + lag:end + lag]
    product = sum(map(operator.mul, one, other))
    return product / math.sqrt(sum(map(operator.mul, one, one)) * sum(map(operator.mul, other, other)))


def check_is_original(sound, lags=range(-3, 4)):
    """At 24 kHz, without the highest frequencies perhaps, and not shifted in time."""
    best = max(lags, key=lambda lag: correlation(original(), sound, lag))
    assert best == 0 and correlation(original(), sound, 0) > 0.85


@pytest.mark.parametrize("rate", OTHERS)
def test_samples(server, rate):
    status, headers, sound = server.speech(input=TEXT, seed=1, sample_rate=rate)
    assert status == 200 and headers["content-type"] == f"audio/pcm;rate={rate}"
    assert abs(len(sound) / 2 - len(original()) * rate / 24000) <= 1
    check_is_original(converted(sound, "-f", "s16le", "-ar", str(rate), "-ac", "1"))


def test_the_models_own_rate_changes_nothing(server):
    status, headers, sound = server.speech(input=TEXT, seed=1, sample_rate=24000)
    assert status == 200 and headers["content-type"] == "audio/pcm" and sound == element(TEXT, seed=1)


@pytest.mark.parametrize("rate", OTHERS)
def test_wav_headers(server, rate):
    plain = server.speech(input=TEXT, seed=1, sample_rate=rate)[2]
    streamed = server.speech(input=TEXT, seed=1, sample_rate=rate, response_format="wav")[2]
    _, headers, whole = server.speech(input=TEXT, seed=1, sample_rate=rate, response_format="wav", stream=False)
    assert streamed[44:] == whole[44:] == plain
    assert int(headers["content-length"]) == len(whole) == 44 + int.from_bytes(whole[40:44], "little")
    for header in (streamed, whole):
        assert int.from_bytes(header[24:28], "little") == rate and int.from_bytes(header[28:32], "little") == 2 * rate


@pytest.mark.parametrize("response_format, rate", [(name, rate) for name in COMPRESSED for rate in formats.FORMATS[name].rates])
def test_compressed(server, response_format, rate):
    status, _, sound = server.speech(input=TEXT, seed=1, response_format=response_format, sample_rate=rate)
    assert status == 200
    decoded = converted(sound)
    assert -0.01 <= (len(decoded) - len(original())) / 24000 <= 0.3  # an encoder adds sound before and behind it
    if response_format == "flac":
        check_is_original(decoded)
    probe = ["ffprobe", "-v", "error", "-show_entries", "stream=sample_rate", "-of", "csv=p=0", "-"]
    told = subprocess.run(probe, input=sound, check=True, capture_output=True).stdout.decode().strip()
    assert told == ("48000" if response_format == "opus" else str(rate))  # Opus is decoded at 48 kHz whatever it was


@pytest.mark.parametrize("response_format, rate", [(name, rate) for name in COMPRESSED for rate in formats.FORMATS[name].rates])
def test_an_encoder_keeps_no_more_back_than_it_tells(response_format, rate):
    """A listener's next sound is written while what has left the encoder is played."""
    sound = original().tobytes()

    for frames in (4, 7):
        stages = encoding.Stages(response_format, rate)
        encoded = b"".join(stages.push(sound[3840 * frame:3840 * (frame + 1)]) for frame in range(frames))
        stages.close()
        description = ("-f", response_format) if response_format in ("mp3", "aac") else ()  # which are not recognized so early
        assert len(converted(encoded, *description)) / 24000 >= frames * 0.08 - formats.held(response_format, rate) - 0.0005


def expand_ulaw(code):
    """ITU-T G.711, table 2, in 16 bits."""
    code = ~code & 0xFF
    value = (((code & 0x0F) << 3) + 0x84) << ((code & 0x70) >> 4)
    return 0x84 - value if code & 0x80 else value - 0x84


def expand_alaw(code):
    """ITU-T G.711, table 1, in 16 bits."""
    code ^= 0x55
    segment, value = (code & 0x70) >> 4, (code & 0x0F) << 4
    value = value + 8 if segment == 0 else (value + 0x108) << (segment - 1)
    return value if code & 0x80 else -value


@pytest.mark.parametrize("name, media, expand, error", [
    ("g711_ulaw", "audio/PCMU", expand_ulaw, lambda sample: (abs(sample) + 132) / 32 + 1),
    ("g711_alaw", "audio/PCMA", expand_alaw, lambda sample: max(8, abs(sample) / 32) + 8),
])
def test_telephones(server, name, media, expand, error):
    status, headers, sound = server.speech(input=TEXT, seed=1, response_format=name)
    assert status == 200 and headers["content-type"] == f"{media};rate=8000"
    assert sound == server.speech(input=TEXT, seed=1, response_format=name, sample_rate=8000)[2]
    plain = samples(server.speech(input=TEXT, seed=1, sample_rate=8000)[2])
    assert len(sound) == len(plain)
    assert all(abs(expand(code) - sample) <= error(sample) for code, sample in zip(sound, plain))


@pytest.mark.parametrize("name", formats.FORMATS)
def test_each_format_may_be_the_default(name):
    assert Settings(response_format=name).response_format == name


def test_telephones_by_default(start):
    server = start("--response-format", "g711_alaw")
    status, headers, sound = server.request("POST", "/v1/audio/speech", json.dumps({"input": TEXT, "seed": 1}))
    assert status == 200 and headers["content-type"] == "audio/PCMA;rate=8000"
    assert sound == server.speech(input=TEXT, seed=1, response_format="g711_alaw")[2]


def test_telephone_answer_in_one_piece(server):
    _, headers, sound = server.speech(input=TEXT, seed=1, response_format="g711_ulaw", stream=False)
    assert int(headers["content-length"]) == len(sound) and abs(len(sound) - len(original()) / 3) <= 1


@pytest.mark.parametrize("allowed, fields", [
    ("8000, 16000, 22050, 24000, 44100, 48000", {"sample_rate": 11025}),
    ("8000, 16000, 22050, 24000, 44100, 48000", {"sample_rate": 32000, "response_format": "mp3"}),
    ("8000, 16000, 24000, 48000", {"sample_rate": 22050, "response_format": "opus"}),
    ("8000", {"sample_rate": 16000, "response_format": "g711_ulaw"}),
    ("8000", {"sample_rate": 24000, "response_format": "g711_alaw"}),
    ("a whole number", {"sample_rate": "8000"}),
    ("a whole number", {"sample_rate": 8000.5}),
    ("a whole number", {"sample_rate": True}),
])
def test_refusals(server, allowed, fields):
    status, error = server.refusal(**{"input": TEXT, **fields})
    assert status == 400 and error["param"] == "sample_rate"
    assert error["message"].endswith(f"may be {allowed}.") or f"has to be {allowed}." in error["message"]


@pytest.mark.parametrize("fields", [{"sample_rate": 16000}, {"response_format": "g711_alaw"},
                                    {"response_format": "wav", "sample_rate": 44100}])
def test_events_and_one_object_have_the_same_bytes(server, fields):
    plain = server.speech(input=TEXT, seed=1, **fields)[2]
    body = server.speech(input=TEXT, seed=1, stream_format="sse", **fields)[2]
    events = [json.loads(line.removeprefix(b"data: ")) for line in body.split(b"\n\n") if line]
    assert b"".join(base64.b64decode(event["audio"]) for event in of(events, "speech.audio.delta")) == plain
    answer = json.loads(server.speech(input=TEXT, seed=1, stream_format="json", **fields)[2])
    assert answer["sample_rate"] == fields.get("sample_rate", 8000)
    header = 44 if fields.get("response_format") == "wav" else 0  # the length is known by then
    assert base64.b64decode(answer["audio"])[header:] == plain[header:]


def test_times_of_words_are_those_of_the_sound(server):
    words = [json.loads(server.speech(input=TEXT, seed=1, stream_format="json", timestamp_granularities=["word"],
                                      sample_rate=rate)[2])["words"] for rate in formats.RATES]
    assert words[0] and all(other == words[0] for other in words)


@pytest.mark.parametrize("fields, rate, width", [({"sample_rate": 16000}, 16000, 2), ({"response_format": "g711_ulaw"}, 8000, 1)])
def test_session(server, fields, rate, width):
    with server.stream() as stream:
        sound, messages = stream.say(TEXT, seed=1, **fields)
    start, done = of(messages, "audio.start")[0], of(messages, "audio.done")[0]
    assert start["sample_rate"] == rate and start["format"] == fields.get("response_format", "pcm")
    expected = len(element("", (TEXT,), seed=1)) / 2
    assert done["total_bytes"] == len(sound) and abs(len(sound) / width - expected * rate / 24000) <= 1


def test_whole_utterances_of_a_session(server):
    with server.stream() as stream:
        stream.send("session.config", response_format="wav", sample_rate=8000, seed=1)
        stream.send("input.text", text=TEXT)
        stream.send("input.done")
        start, sound = stream.receive(), stream.receive()
    assert start["sample_rate"] == int.from_bytes(sound[24:28], "little") == 8000
    assert int.from_bytes(sound[40:44], "little") == len(sound) - 44


@pytest.mark.parametrize("fields", [{"response_format": "pcm", "sample_rate": 44100}, {"response_format": "wav", "sample_rate": 8000}])
def test_parts(server, fields):
    path = "/v1/audio/speech?" + urllib.parse.urlencode({"input": TEXT, "seed": 1, "stream": "false", **fields})
    whole = server.get(path)[2]
    path = path.replace("&stream=false", "")
    tags = set()
    for first, last in ((0, 99), (100, len(whole) - 1)):
        status, headers, part = server.request("GET", path, headers={"Range": f"bytes={first}-{last}"})
        tags.add(headers["etag"])
        assert status == 206 and headers["content-range"] == f"bytes {first}-{last}/{len(whole)}" and part == whole[first:last + 1]
    other = server.request("GET", path.replace(f"={fields['sample_rate']}", "=24000"), headers={"Range": "bytes=0-9"})[1]["etag"]
    assert len(tags) == 1 and other not in tags
