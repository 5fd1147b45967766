# SPDX-License-Identifier: LGPL-2.1-or-later
# Check: 61
"""Models of other types than the bundled voice: random ones, made by the golden tests' generator, QTTS_GENERATOR."""
import base64
import json
import pathlib
import struct

import pytest

from conftest import element, needs_generator, of

RECORDING = pathlib.Path(__file__).resolve().parents[2] / "golden/data/references/speech-24000.wav"
TEXT = "Any words."
FRAMES = 5

pytestmark = needs_generator


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
def test_cloning(start, model):
    server = start("--model-path", model)
    settings = {"model_path": model, "seed": 1, "max_duration": FRAMES * 80_000_000, "reference_audio": str(RECORDING)}
    manner = element(TEXT, **settings, reference_text="What is said.")
    timbre = element(TEXT, **settings)
    assert manner != timbre

    data_url = "data:audio/wav;base64," + base64.b64encode(RECORDING.read_bytes()).decode()
    fields = {"input": TEXT, "seed": 1, "max_new_tokens": FRAMES, "ref_audio": data_url}
    assert server.speech(**fields, ref_text="What is said.")[2] == manner
    assert server.speech(**fields, ref_text="What is said.", x_vector_only_mode=True)[2] == timbre
    assert server.speech(**fields)[2] == timbre
    with server.stream() as stream:
        config = {"seed": 1, "max_new_tokens": FRAMES, "ref_audio": data_url}
        for _ in range(2):  # of the same recording
            sound, messages = stream.say(TEXT, **config)
            assert len(sound) == FRAMES * 3840 and of(messages, "audio.done")[0]["reason"] == "max-duration"
    status, error = server.refusal(input=TEXT, ref_audio="data:audio/wav;base64,AAAA")
    assert status == 400 and error["message"].startswith("ref_audio: ")
    # A Base model without a reference.
    status, error = server.refusal(input=TEXT)
    assert status == 400 and "cloned voice" in error["message"]


@pytest.mark.parametrize("model", ["tiny-design-1b7"], indirect=True)
def test_descriptions(start, model):
    server = start("--model-path", model)
    description = "A calm old man."
    expected = element(TEXT, model_path=model, seed=1, max_duration=FRAMES * 80_000_000, instruct=description)
    _, headers, sound = server.speech(input=TEXT, seed=1, max_new_tokens=FRAMES, instructions=description, model="tiny-design-1b7")
    assert sound == expected and "x-qtts-ignored" not in headers
    # It has no speakers: OpenAI's clients give the name of a voice all the same.
    same = server.speech(input=TEXT, seed=1, max_new_tokens=FRAMES, instructions=description, voice="alloy", model="tts-1")[2]
    assert same == expected
    status, error = server.refusal(input=TEXT, voice="clara")
    assert (status, error["param"]) == (400, "voice")


@pytest.mark.parametrize("model", ["tiny-custom-0b6"], indirect=True)
def test_a_loudness_that_was_not_measured_is_told(start, model):
    server = start("--model-path", model)
    fields = {"input": TEXT, "seed": 1, "max_new_tokens": FRAMES}
    _, headers, sound = server.speech(**fields, target_loudness=-10)
    assert headers["x-qtts-ignored"] == "target_loudness"
    _, headers, same = server.speech(**fields)
    assert "x-qtts-ignored" not in headers and sound == same


@pytest.mark.parametrize("model", ["tiny-custom-0b6"], indirect=True)
def test_models_have_fingerprints(start, model):
    first, second = start("--model-path", model), start()
    prints = {server.speech(input=TEXT, max_new_tokens=FRAMES)[1]["x-qtts-fingerprint"] for server in (first, second)}
    assert len(prints) == 2


def write_voice(path, takes, **metadata):
    """A voice file; `takes`: x-vector and codes of each. No model is named, so that each one of the sizes takes it."""
    header, data = {"__metadata__": {"format": "qttssrc-voice-1", "model": "", **metadata}}, b""
    if len(takes) > 1:
        header["__metadata__"]["takes"] = str(len(takes))
    for number, take in enumerate(takes):
        for (name, kind), values in zip((("x_vector", "F32"), ("reference_codes", "I32")), take):
            content = struct.pack(f"<{len(values)}{'f' if kind == 'F32' else 'i'}", *values)
            key = name if number == 0 else f"{name}.{number}"
            header[key] = {"dtype": kind, "shape": [len(values)], "data_offsets": [len(data), len(data) + len(content)]}
            data += content
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


@pytest.mark.parametrize("model", ["tiny-design-1b7"], indirect=True)
def test_a_folder_of_designed_voices(start, model, tmp_path):
    folder = tmp_path / "voices"
    folder.mkdir()
    codes = [frame * 16 + group for frame in range(4) for group in range(16)]
    path = folder / "Calm.voice"
    write_voice(path, [([], codes)], reference_text="So it goes.", instruct="A calm old man.")
    (folder / "notes.txt").write_text("These are no voices.")
    server = start("--model-path", model, "--voices-folder", str(folder))
    expected = element(TEXT, model_path=model, seed=1, max_duration=FRAMES * 80_000_000, voice_file=str(path))
    fields = {"input": TEXT, "seed": 1, "max_new_tokens": FRAMES}
    for voice in ("Calm", "calm", {"id": "Calm"}):
        assert server.speech(**fields, voice=voice)[2] == expected
    assert server.speech(**fields)[2] != expected
    lists = json.loads(server.get("/v1/audio/voices")[2])
    assert "Calm" in lists["voices"] and lists["styles"] == {}
    for wrong, param in (({"voice": "notes"}, "voice"), ({"voice": "../Calm"}, "voice"),
                         ({"voice": "Calm", "style": "calm"}, "style"), ({"style": "calm"}, "style")):
        status, error = server.refusal(**fields, **wrong)
        assert (status, error["param"]) == (400, param), error
        assert str(folder) not in error["message"]
    with server.stream() as stream:
        config = {"seed": 1, "max_new_tokens": FRAMES}
        calm, plain, again = (stream.say(TEXT, **config, **voice)[0] for voice in ({"voice": "Calm"}, {}, {"voice": "Calm"}))
        assert calm == again != plain


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
def test_styles_of_a_voice(start, model, tmp_path):
    folder = tmp_path / "voices"
    folder.mkdir()
    path = folder / "me.safetensors"
    write_voice(path, [([1.0] * 48, []), ([-1.0] * 48, [])], **{"style": "calm", "style.1": "Excited"})
    server = start("--model-path", model, "--voices-folder", str(folder))
    fields = {"input": TEXT, "seed": 1, "max_new_tokens": FRAMES, "voice": "me"}
    calm, excited = server.speech(**fields)[2], server.speech(**fields, style="Excited")[2]
    assert calm != excited and server.speech(**fields, style="calm")[2] == calm
    _, headers, sound = server.speech(**fields, instructions="Excited, please.")
    assert sound == excited and "x-qtts-ignored" not in headers
    for told in ({"instructions": "Sad, please."}, {"instructions": "Excited, please.", "style": "calm"}):
        assert server.speech(**fields, **told)[1]["x-qtts-ignored"] == "instructions"
    assert json.loads(server.get("/v1/audio/voices")[2])["styles"] == {"me": ["calm", "excited"]}
    status, error = server.refusal(**fields, style="angry")
    assert (status, error["param"]) == (400, "style") and "calm, excited" in error["message"]
    # A recording and a voice are two voices.
    data_url = "data:audio/wav;base64," + base64.b64encode(RECORDING.read_bytes()).decode()
    status, error = server.refusal(**fields, ref_audio=data_url)
    assert (status, error["param"]) == (400, "ref_audio")
    status, error = server.refusal(**fields, prepare_reference=True)
    assert (status, error["param"]) == (400, "prepare_reference")
    del fields["voice"]
    prepared = server.speech(**fields, ref_audio=data_url, ref_text="What is said.", prepare_reference=True)[2]
    settings = {"model_path": model, "seed": 1, "max_duration": FRAMES * 80_000_000, "reference_audio": str(RECORDING),
                "reference_text": "What is said."}
    assert prepared == element(TEXT, **settings, prepare_reference="true") != element(TEXT, **settings)


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
def test_the_loudness_of_a_voice_file_counts(start, model, tmp_path):
    folder = tmp_path / "voices"
    folder.mkdir()
    vectors = [([1.0] * 48, []), ([-1.0] * 48, [])]
    write_voice(folder / "me.voice", vectors, **{"style": "calm", "style.1": "excited", "loudness.1": "-23.00"})
    server = start("--model-path", model, "--voices-folder", str(folder))
    fields = {"input": TEXT, "seed": 1, "max_new_tokens": FRAMES, "voice": "me"}
    for choice, measured in (({}, False), ({"style": "calm"}, False), ({"style": "excited"}, True),
                             ({"instructions": "Excited."}, True)):
        plain = server.speech(**fields, **choice)[2]
        _, headers, sound = server.speech(**fields, **choice, target_loudness=-40)
        assert headers.get("x-qtts-ignored") == (None if measured else "target_loudness")
        assert (sound != plain) == measured
    del fields["voice"]
    data_url = "data:audio/wav;base64," + base64.b64encode(RECORDING.read_bytes()).decode()
    timbre = {**fields, "ref_audio": data_url, "target_loudness": -40}
    assert server.speech(**timbre)[1]["x-qtts-ignored"] == "target_loudness"
    assert "x-qtts-ignored" not in server.speech(**timbre, ref_text="What is said.")[1]


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
def test_the_loudness_of_the_recording_of_all_requests(start, model):
    recording = f"reference-audio={RECORDING}"
    for element_options, ignored in ((recording, "target_loudness"), (f'{recording} reference-text="What is said."', None)):
        server = start("--model-path", model, "--element", element_options)
        headers = server.speech(input=TEXT, seed=1, max_new_tokens=FRAMES, target_loudness=-40)[1]
        assert headers.get("x-qtts-ignored") == ignored


def test_a_folder_of_other_files_is_refused(tmp_path):
    from qtts_serve.settings import Settings
    for content in (b"", b"RIFF and so on", struct.pack("<Q", 1 << 40), struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 4) + b"null"):
        (tmp_path / "me.voice").write_bytes(content)
        with pytest.raises(ValueError, match="no voice file"):
            Settings(voices_folder=str(tmp_path))
    write_voice(tmp_path / "me.voice", [([], [])])
    assert list(Settings(voices_folder=str(tmp_path)).voice_files) == ["me"]
    write_voice(tmp_path / "me.safetensors", [([], [])])
    with pytest.raises(ValueError, match="several suffixes"):
        Settings(voices_folder=str(tmp_path))
    (tmp_path / "me.safetensors").unlink()
    write_voice(tmp_path / "Me.voice", [([], [])])
    with pytest.raises(ValueError, match="Me.voice and me.voice differ in case only"):
        Settings(voices_folder=str(tmp_path))
    with pytest.raises(ValueError, match="no folder"):
        Settings(voices_folder=str(tmp_path / "none"))
