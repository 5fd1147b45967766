# SPDX-License-Identifier: LGPL-2.1-or-later
"""POST /v1/audio/speech, against an address."""
import base64
import json
import math
import shutil
import subprocess
import threading
import time
import urllib.parse

import openai
import pytest

from conftest import FRAME, element, frames, of, wait_for
from qtts_serve.catalogue import Catalogue
from qtts_serve.fields import read_request
from qtts_serve.pacing import FRAME as FRAME_SECONDS
from qtts_serve.pacing import Pace
from qtts_serve.settings import Settings

TEXT = "Please leave your message after the tone."
SPEAKERS = ["clara", "grace", "hugh", "owen", "ross"]
OPENAI_VOICES = ["alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"]


def test_sound_is_the_elements(server):
    status, headers, sound = server.speech(input=TEXT, seed=1)
    assert status == 200
    assert sound == element(TEXT, seed=1)
    assert headers["content-type"] == "audio/pcm"
    assert headers["x-qtts-seed"] == "1"
    assert "content-length" not in headers
    assert int(headers["x-qtts-queue-ms"]) >= 0
    assert headers["x-qtts-replica"] and headers["x-qtts-fingerprint"]


def test_a_seed_is_told_and_repeats_the_sound(server):
    _, headers, sound = server.speech(input=TEXT)
    assert server.speech(input=TEXT, seed=int(headers["x-qtts-seed"]))[2] == sound


@pytest.mark.parametrize("field, given, properties", [
    ("temperature", 0.3, {"temperature": 0.3}),
    ("top_k", 5, {"top_k": 5}),
    ("top_p", 0.5, {"top_p": 0.5}),
    ("repetition_penalty", 1.3, {"repetition_penalty": 1.3}),
    ("max_new_tokens", 10, {"max_duration": 800_000_000}),
    ("language", "en", {"language": "en"}),
    ("normalize", "none", {"normalize": "none"}),
    ("emoji", "names", {"emoji": "names"}),
    ("lexicon", {}, {}),
    ("markup", "markdown", {"markup": "markdown"}),
    ("voice", "grace", {"speaker": "grace"}),
    ("voice", {"id": "grace"}, {"speaker": "grace"}),
    ("non_streaming_mode", True, {"layout": "non-streaming"}),
    ("non_streaming_mode", False, {"layout": "streaming"}),
    ("target_loudness", -30, {"target_loudness": -30}),
    ("target_loudness", 0, {}),  # off
    ("speed", 1, {}),
    ("speed", 1.5, {"rate": 1.5}),
    ("speed", 0.25, {"rate": 0.25}),
    ("stream", True, {}),
    ("model", "qttssrc", {}),
    ("model", "tts-1-hd", {}),
    ("voice", "nova", {"speaker": "clara"}),
    ("voice", "Onyx", {"speaker": "ross"}),
    ("trim_leading_silence", False, {"trim_leading_silence": "false"}),
    ("trim_leading_silence", True, {"trim_leading_silence": "true"}),
])
def test_fields_are_properties(server, field, given, properties):
    assert server.speech(input=TEXT, seed=1, **{field: given})[2] == element(TEXT, seed=1, **properties)


@pytest.mark.parametrize("response_format", ["wav", "pcm", "flac", "opus", "mp3", "aac"])
def test_formats(server, response_format, tmp_path):
    status, headers, sound = server.speech(input=TEXT, seed=1, response_format=response_format)
    assert status == 200
    types = {"wav": "wav", "pcm": "pcm", "flac": "flac", "opus": "ogg", "mp3": "mpeg", "aac": "aac"}
    assert headers["content-type"] == "audio/" + types[response_format]
    decoded, expected = decode(sound, response_format, tmp_path), element(TEXT, seed=1)
    if response_format in ("wav", "pcm", "flac"):
        assert decoded == expected
    else:
        assert -0.01 <= (len(decoded) - len(expected)) / 48000 <= 0.15


def decode(sound, response_format, folder):
    if response_format == "pcm":
        return sound
    assert shutil.which("ffmpeg"), "no ffmpeg here"
    path = folder / "sound"
    path.write_bytes(sound)
    return subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "s16le", "-ar", "24000", "-ac", "1", "-"], check=True,
                          capture_output=True).stdout


def test_mp3_is_the_default(server, tmp_path):
    for answer in (server.request("POST", "/v1/audio/speech", json.dumps({"input": TEXT, "seed": 1})),
                   server.get("/v1/audio/speech?" + urllib.parse.urlencode({"input": TEXT, "seed": 1}))):
        _, headers, sound = answer
        assert headers["content-type"] == "audio/mpeg"
        assert sound == server.speech(input=TEXT, seed=1, response_format="mp3")[2]


def test_wav_is_of_unknown_length(server):
    sound = server.speech(input=TEXT, response_format="wav")[2]
    assert sound[:4] == b"RIFF" and sound[4:8] == sound[40:44] == b"\xff" * 4


def test_events(server):
    _, headers, body = server.speech(input=TEXT, seed=1, stream_format="sse")
    assert headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in body.decode().split("\n\n") if line]
    *deltas, done = events
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    sound = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
    assert sound == element(TEXT, seed=1)
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["input_tokens"] == len(TEXT)
    assert done["usage"]["output_tokens"] == frames(sound)


@pytest.mark.parametrize("speed", [0.5, 2])
def test_frames_are_those_of_the_sound_at_any_speed(server, speed):
    fields = {"input": TEXT, "seed": 1, "speed": speed}
    server.wait_until_idle()
    before = server.metric("qtts_frames_dropped_total"), server.metric("qtts_requests_total")
    _, headers, whole = server.speech(**fields)
    wait_for("the metrics of it", lambda: server.metric("qtts_requests_total") > before[1])
    assert server.metric("qtts_frames_dropped_total") == before[0]
    body = server.speech(**fields, stream_format="sse")[2]
    done = json.loads(body.decode().rstrip().rpartition("data: ")[2])
    assert done["usage"]["output_tokens"] == done["frames"] == frames(whole)
    same = {"x-qtts-fingerprint": headers["x-qtts-fingerprint"]}
    for frame in (1, frames(whole) - 1, frames(whole)):
        status, _, rest = server.speech(same, **fields, start_frame=frame)
        assert status == 200 and rest == whole[frame * FRAME:]
    status, _, body = server.speech(same, **fields, start_frame=frames(whole) + 1)
    assert status == 400 and f"has {frames(whole)} frames" in json.loads(body)["error"]["message"]


def test_going_on_after_a_break(server):
    _, headers, whole = server.speech(input=TEXT, seed=1)
    same = {"x-qtts-fingerprint": headers["x-qtts-fingerprint"]}
    for frame in (1, 7, frames(whole) - 1, frames(whole)):
        assert server.speech(same, input=TEXT, seed=1, start_frame=frame)[2] == whole[frame * FRAME:]
    assert server.speech(input=TEXT, seed=1, start_frame=3)[0] == 409
    assert server.speech({"x-qtts-fingerprint": "0123"}, input=TEXT, seed=1, start_frame=3)[0] == 409
    status, _, body = server.speech(same, input=TEXT, seed=1, start_frame=1000)
    assert status == 400 and json.loads(body)["error"]["param"] == "start_frame"
    assert server.refusal(input=TEXT, start_frame=3)[1]["param"] == "start_frame"


@pytest.mark.parametrize("given, pace", [({}, 0), ({"stream_format": "sse"}, 0), ({"stream_format": "json"}, 0),
                                         ({"stream": False, "pace": 2}, 0), ({"pace": 2}, 2)])
def test_an_answer_without_a_pace_comes_as_it_is_made(given, pace):
    """How long that takes depends on the machine."""
    wishes = read_request({"input": TEXT, "response_format": "pcm", **given}, Settings(), Catalogue(Settings(), SPEAKERS))
    assert wishes.pace == pace and wishes.settings["real-time"] == (pace > 0)
    paced = Pace(wishes.pace)
    paced.begin(100.0)
    paced.frames = 2
    assert paced.allowed(100.0) == (2 / FRAME_SECONDS if pace else math.inf)


def test_pace(server):
    """A server that is far faster than real time keeps to the pace after the first frames."""
    long = " ".join([TEXT] * 4)
    begin = time.monotonic()
    paced = server.begin(input=long, seed=1, pace=0.5)
    received = 0
    while data := paced.read1(1 << 16):
        received += len(data)
        ahead = received / 48000 - (time.monotonic() - begin)
        assert ahead < 0.5 + 3 * 0.08 + 0.05  # the last term: data in the socket's buffer
        if received > 48000 * 3:
            break
    paced.close()
    assert received > 48000 * 3


@pytest.mark.parametrize("status, param, fields", [
    (400, "input", {}),
    (400, "input", {"input": ""}),
    (400, "input", {"input": " \n"}),
    (400, "input", {"input": 5}),
    (400, "input", {"input": "!!! ???"}),
    (413, "input", {"input": "a" * 100_001}),
    (400, "model", {"input": TEXT, "model": "tts-2"}),
    (400, "voice", {"input": TEXT, "voice": "nobody"}),
    (400, "voice", {"input": TEXT, "voice": 5}),
    (400, "language", {"input": TEXT, "language": "klingon"}),
    (400, "response_format", {"input": TEXT, "response_format": "ogg"}),
    (400, "stream_format", {"input": TEXT, "stream_format": "ndjson"}),
    (400, "speed", {"input": TEXT, "speed": 4.5}),
    (400, "speed", {"input": TEXT, "speed": 0.2}),
    (400, "speed", {"input": TEXT, "speed": "fast"}),
    (400, "pace", {"input": TEXT, "pace": 0.1}),
    (400, "pace", {"input": TEXT, "pace": 1000}),
    (400, "pace", {"input": TEXT, "pace": "fast"}),
    (400, "seed", {"input": TEXT, "seed": -1}),
    (400, "seed", {"input": TEXT, "seed": 2**63}),
    (400, "seed", {"input": TEXT, "seed": 1.5}),
    (400, "temperature", {"input": TEXT, "temperature": -2}),
    (400, "top_k", {"input": TEXT, "top_k": 2**40}),
    (400, "top_p", {"input": TEXT, "top_p": 7}),
    (400, "trim_leading_silence", {"input": TEXT, "trim_leading_silence": "yes"}),
    (400, "max_new_tokens", {"input": TEXT, "max_new_tokens": 0}),
    (400, "start_frame", {"input": TEXT, "seed": 1, "start_frame": -1}),
    (400, "ref_audio", {"input": TEXT, "ref_audio": "https://example.com/voice.wav"}),
    (400, "ref_audio", {"input": TEXT, "ref_audio": "file:///etc/passwd"}),
    (400, "ref_audio", {"input": TEXT, "ref_audio": "data:audio/wav;base64,%%%"}),
    (413, "ref_audio", {"input": TEXT, "ref_audio": "data:audio/wav;base64," + "A" * 14_000_000}),
    (400, "ref_text", {"input": TEXT, "ref_text": "Hello."}),
    (400, "normalize", {"input": TEXT, "normalize": "loud"}),
    (400, "emoji", {"input": TEXT, "emoji": 1}),
    (400, "lexicon", {"input": TEXT, "lexicon": "lexicon.pls"}),
    (400, "lexicon", {"input": TEXT, "lexicon": {"tone": 5}}),
    (400, "lexicon", {"input": TEXT, "lexicon": {"tone": " "}}),
    (400, "lexicon", {"input": TEXT, "lexicon": {"#tone": "sound"}}),
    (400, "lexicon", {"input": TEXT, "lexicon": {"tone": "a\tb"}}),
    (413, "lexicon", {"input": TEXT, "lexicon": {f"word{number}": "word" for number in range(1001)}}),
    (400, "volume", {"input": TEXT, "volume": 5}),
])
def test_refusals(server, status, param, fields):
    given, error = server.refusal(**fields)
    assert given == status
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]


def test_a_voice_that_the_model_has_not_is_told_with_those_that_it_has(server):
    assert "clara" in server.refusal(input=TEXT, voice="nobody")[1]["message"]


def test_a_model_that_does_not_clone_says_so(server):
    recording = "data:audio/wav;base64," + base64.b64encode(server.speech(input=TEXT, response_format="wav")[2]).decode()
    status, error = server.refusal(input=TEXT, ref_audio=recording)
    assert status == 400 and "clone" in error["message"]


def test_forms(server):
    """The same fields, and an uploaded recording."""
    boundary = "xxx"
    parts = {"input": TEXT, "seed": "1", "response_format": "pcm"}
    form = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in parts.items())
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    status, _, sound = server.request("POST", "/v1/audio/speech", f"{form}--{boundary}--\r\n".encode(), headers)
    assert status == 200 and sound == element(TEXT, seed=1)
    form += (f'--{boundary}\r\nContent-Disposition: form-data; name="ref_audio"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
             "RIFF\r\n")
    status, _, body = server.request("POST", "/v1/audio/speech", f"{form}--{boundary}--\r\n".encode(), headers)
    assert status == 400 and "clone" in json.loads(body)["error"]["message"]
    for broken in (b"--yyy", form.replace('"1"', '"x"').replace("\r\n1\r\n", "\r\none\r\n").encode() + b"--xxx--\r\n"):
        assert server.request("POST", "/v1/audio/speech", broken, headers)[0] == 400


def test_fields_in_the_address(server):
    address = "/v1/audio/speech?" + urllib.parse.urlencode({"input": TEXT, "seed": 1, "response_format": "pcm"})
    status, _, sound = server.get(address)
    assert status == 200 and sound == element(TEXT, seed=1)
    assert server.get("/v1/audio/speech")[0] == 400
    assert server.get(address + "&top_k=many")[0] == 400
    # A request from a page of another site.
    assert server.request("GET", address, headers={"Sec-Fetch-Site": "cross-site"})[0] == 403


def test_instructions_that_the_model_ignores_are_told(server):
    _, headers, sound = server.speech(input=TEXT, seed=1, instructions="In a whisper.")
    assert headers["x-qtts-ignored"] == "instructions"
    _, headers, same = server.speech(input=TEXT, seed=1)
    assert "x-qtts-ignored" not in headers and sound == same
    with server.stream() as stream:
        for config, ignored in (({"instructions": "In a whisper."}, ["instructions"]), ({}, None)):
            assert of(stream.say("Hi.", **config)[1], "audio.start")[0].get("ignored") == ignored


def test_fields_without_a_value(server):
    nothing = dict.fromkeys(("voice", "seed", "stream_format", "start_frame", "ref_audio", "stream", "non_streaming_mode"))
    assert server.speech(input=TEXT, **nothing)[0] == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b'{"input": NaN}', b"[" * 100_000])
def test_bodies_that_are_no_request(server, body):
    status, _, answer = server.request("POST", "/v1/audio/speech", body)
    assert status == 400 and json.loads(answer)["error"]["message"]


def test_characters_that_are_none(server):
    assert server.request("POST", "/v1/audio/speech", b'{"input": "One \\ud800 two \\u0000 three."}')[0] == 200


def test_other_methods_and_paths(server):
    assert server.request("DELETE", "/v1/audio/speech")[0] == 405
    status, _, body = server.get("/v1/audio/song")
    assert status == 404 and json.loads(body)["error"]["message"]


def test_lists(server):
    lists = json.loads(server.get("/v1/audio/voices")[2])
    assert lists["voices"] == [*SPEAKERS, *lists["aliases"]] and lists["languages"] == ["english"]
    assert lists["default"] == "grace"
    models = json.loads(server.get("/v1/models")[2])["data"]
    assert [model["id"] for model in models] == ["qttssrc", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"]
    assert {model["root"] for model in models} == {"qttssrc"}
    assert all(model["device"].startswith(("cpu", "cuda")) for model in models)
    for model in models:
        assert json.loads(server.get(f"/v1/models/{model['id']}")[2]) == model
    status, _, body = server.get("/v1/models/tts-2")
    assert status == 404 and json.loads(body)["error"]["code"] == "model_not_found"
    assert server.get("/health/live")[0] == 200
    assert json.loads(server.get("/health/ready")[2]) == {"ready": True}
    status, headers, page = server.get("/")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"</html>" in page


def lists(server):
    return json.loads(server.get("/v1/audio/voices")[2])


def test_openais_voices_are_the_models(server):
    """As many of them for each voice, women for women."""
    aliases = lists(server)["aliases"]
    assert list(aliases) == OPENAI_VOICES
    women = {name for name, voice in aliases.items() if voice in ("clara", "grace")}
    assert women == {"alloy", "coral", "marin", "nova", "sage", "shimmer"}
    assert all(2 <= list(aliases.values()).count(voice) <= 3 for voice in SPEAKERS)


def test_openai_client(server):
    client = openai.OpenAI(base_url=server.address.rstrip("/") + "/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()][:2] == ["qttssrc", "tts-1"]
    assert client.models.retrieve("gpt-4o-mini-tts").id == "gpt-4o-mini-tts"
    sound = client.audio.speech.create(model="qttssrc", voice="grace", input=TEXT, response_format="pcm",
                                       extra_body={"seed": 1}).read()
    assert sound == element(TEXT, seed=1)
    with client.audio.speech.with_streaming_response.create(model="qttssrc", voice="grace", input=TEXT, response_format="pcm",
                                                            extra_body={"seed": 1}) as response:
        assert b"".join(response.iter_bytes()) == sound
    with pytest.raises(openai.BadRequestError) as refusal:
        client.audio.speech.create(model="qttssrc", voice="nobody", input=TEXT)
    assert "clara" in refusal.value.message and refusal.value.param == "voice"
    # As programs for OpenAI's service ask.
    for voice in OPENAI_VOICES:
        sound = client.audio.speech.create(model="tts-1", voice=voice, input="Hi.", extra_body={"seed": 1}).read()
        assert sound == server.speech(input="Hi.", voice=lists(server)["aliases"][voice], seed=1, response_format="mp3")[2]


def test_many_at_once_say_the_same(server):
    answers = {}

    def ask(number):
        answers[number] = server.speech(input=TEXT, seed=number % 4)[2]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = [element(TEXT, seed=seed) for seed in range(4)]
    assert all(sound == alone[number % 4] for number, sound in answers.items())


def test_metrics(server):
    names = ["qtts_slots", "qtts_slots_busy", "qtts_sessions", "qtts_sessions_limit", "qtts_waiting_utterances",
             "qtts_wait_seconds_count", "qtts_first_sound_seconds_count", "qtts_engine_first_frame_seconds_count",
             "qtts_frames_total", "qtts_frames_dropped_total", "qtts_utterances_total", "qtts_requests_total",
             "qtts_underruns_total", "qtts_stalled_seconds_total", "qtts_text_characters_total", "qtts_audio_seconds_total",
             "qtts_device_lost", "qtts_load_seconds", "qtts_build_info", "qtts_steps_total", "qtts_step_frames_total",
             "qtts_step_seconds_total", "qtts_pages", "qtts_pages_free", "qtts_slots_ahead", "qtts_parts_ahead_total",
             "qtts_parts_preempted_total"]
    server.speech(input=TEXT, seed=1)  # metrics with labels exist from their first value on
    text = server.get("/metrics")[2].decode()
    assert [name for name in names if f"\n{name}" not in text] == []
    assert TEXT not in text
    server.wait_until_idle()
    before = {name: server.metric(name) for name in names}
    sound = server.speech(input=TEXT, seed=1)[2]
    wait_for("the metrics of it", lambda: server.metric("qtts_requests_total") > before["qtts_requests_total"])
    grown = {name: server.metric(name) - before[name] for name in names}
    assert grown["qtts_frames_total"] == frames(sound)
    assert grown["qtts_utterances_total"] == grown["qtts_first_sound_seconds_count"] == 1
    assert grown["qtts_text_characters_total"] == len(TEXT)
    assert grown["qtts_frames_dropped_total"] == 0
    assert grown["qtts_step_frames_total"] >= grown["qtts_steps_total"] >= frames(sound)
    assert grown["qtts_step_seconds_total"] > 0


@pytest.mark.parametrize("markup, document", [
    ("auto", f'<speak><p>{TEXT[:6]}<break time="500ms"/></p> {TEXT[7:]}</speak>'),
    ("ssml", f"<speak>{TEXT}</speak>"),
    ("markdown", f"# {TEXT[:-1]}\n\n**Yes**, `please`.\n"),
    ("subtitle", f"{{\\an8}}<i>{TEXT}</i>"),
])
def test_documents(server, markup, document):
    """A document is one answer, with the sound of its parts."""
    status, _, sound = server.speech(input=document, seed=1, markup=markup)
    assert status == 200 and sound == element(document, seed=1, markup=markup)


def test_a_document_is_broken(server):
    assert server.speech(input="<speak>Hello <b>you</speak>", seed=1)[0] == 200


def test_words_of_a_request(server):
    """A lexicon is of its request alone."""
    said = server.speech(input="Please leave your message after the nginx.", seed=1, lexicon={"nginx": "tone"})[2]
    assert said == server.speech(input=TEXT, seed=1)[2]
    assert server.speech(input="Please leave your message after the nginx.", seed=1)[2] != said


def test_no_file_is_left_when_an_answer_has_ended(start, tmp_path):
    """A client that has the whole answer may end the server at once."""
    server = start(environment={"TMPDIR": str(tmp_path)})
    assert server.speech(input=TEXT, seed=1, lexicon={"tone": "beep"})[0] == 200
    assert list(tmp_path.iterdir()) == []


def test_words_of_the_server(start, tmp_path):
    lexicon = tmp_path / "words.tsv"
    lexicon.write_text("nginx\tnoise\nmemo\tmessage\n")
    server = start("--lexicon", str(lexicon))
    said = server.speech(input="Please leave your memo after the nginx.", seed=1, lexicon={"nginx": "tone"})[2]
    assert said == element(TEXT, seed=1)


def test_a_lexicon_that_is_missing(tmp_path):
    with pytest.raises(ValueError, match="is no file"):
        Settings(lexicon=str(tmp_path / "none.tsv"))


def test_a_book(server):
    """100,000 characters in one request: the sound comes while the rest is made, and the model reads a part at a time."""
    book = ("She sells sea shells by the sea shore. " * 3000)[:100_000]
    response = server.begin(input=book, seed=1)
    assert response.status == 200
    received = response.read(48000 * 5)
    response.close()
    assert len(received) == 48000 * 5
    wait_for("the slot to be free", lambda: server.metric("qtts_slots_busy") == 0)


# --- parts of a long text that are made at once

LONG = "This is the first sentence. Here comes another one, which is longer. The third is short. And that is all of it."


@pytest.mark.parametrize("ahead", [1, 4])
def test_parts_that_are_made_at_once_are_the_same(start, ahead):
    server = start("--ahead", str(ahead), "--element", "part-length=40")
    expected = element(LONG, seed=3, part_length=40)
    _, headers, sound = server.speech(input=LONG, seed=3)
    assert sound == expected
    assert server.speech(input=LONG, seed=3, pace=20)[2] == expected
    same = {"x-qtts-fingerprint": headers["x-qtts-fingerprint"]}
    assert server.speech(same, input=LONG, seed=3, start_frame=30)[2] == expected[30 * FRAME:]
    assert server.speech(input=LONG, seed=3, stream=False)[2] == expected


@pytest.mark.parametrize("fields, ahead", [({}, 7), ({"pace": 2}, None), ({"pace": 2, "stream": False}, 7)])
def test_parts_are_made_at_once_if_nobody_listens(fields, ahead):
    settings = Settings(ahead=7)
    wishes = read_request({"input": TEXT, **fields}, settings, Catalogue(settings, ["clara"]))
    assert wishes.settings.get("parallel-parts") == ahead


@pytest.mark.parametrize("ahead", [0, 65])
def test_a_number_of_parts_that_makes_no_sense(ahead):
    with pytest.raises(ValueError, match="ahead"):
        Settings(ahead=ahead)
