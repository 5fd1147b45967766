# SPDX-License-Identifier: LGPL-2.1-or-later
"""Models of other types than the bundled voice: random ones, made by the golden tests' generator, QTTS_GENERATOR."""
import base64
import pathlib

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
