# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names of models and voices, and the words in which clients are told of a problem: without a server."""

import pathlib
import re

import pytest

from qtts_serve import formats
from qtts_serve.catalogue import FEMALE, MALE, MODELS, Catalogue
from qtts_serve.errors import ApiError
from qtts_serve.settings import Settings
from qtts_serve.speaker import Gst
from qtts_serve.wording import for_clients

ROOT = pathlib.Path(__file__).resolve().parents[3]
RELEASED = ["serena", "vivian", "uncle_fu", "ryan", "aiden", "ono_anna", "sohee", "eric", "dylan"]


def test_openais_voices_of_the_released_models():
    aliases = Catalogue(Settings(), RELEASED).aliases
    assert {aliases[name] for name in FEMALE} == {"serena", "vivian", "ono_anna", "sohee"}
    assert {aliases[name] for name in MALE} == {"ryan", "aiden", "uncle_fu"}


def test_openais_voices_of_a_model_whose_speakers_are_not_known():
    aliases = Catalogue(Settings(), ["one", "two", "nova"]).aliases
    assert "nova" not in aliases, "the model's own"
    assert set(aliases.values()) == {"one", "two", "nova"}


def test_openais_voices_of_a_model_without_speakers():
    catalogue = Catalogue(Settings())
    assert catalogue.speaker("alloy") is None
    with pytest.raises(ApiError) as refusal:
        catalogue.speaker("nobody")
    assert (refusal.value.status, refusal.value.param) == (400, "voice")
    catalogue = Catalogue(Settings(openai_names=False))
    assert catalogue.aliases == {} and set(catalogue.models).isdisjoint(MODELS)
    with pytest.raises(ApiError):
        catalogue.speaker("alloy")


def test_own_aliases_come_first():
    catalogue = Catalogue(Settings(voice_alias="alloy=Dylan,me=ryan"), RELEASED)
    catalogue.check()
    assert (catalogue.speaker("alloy"), catalogue.speaker("me"), catalogue.speaker("RYAN")) == ("Dylan", "ryan", "RYAN")
    with pytest.raises(RuntimeError, match="me=nobody.*its voices are: serena"):
        Catalogue(Settings(voice_alias="me=nobody"), RELEASED).check()
    with pytest.raises(RuntimeError, match="none by name"):
        Catalogue(Settings(voice_alias="me=ryan"), []).check()


def test_a_default_format_without_its_encoder(monkeypatch):
    formats.check_default("wav")
    monkeypatch.setattr(formats, "available", formats.available.__wrapped__)  # without what was found before
    monkeypatch.setitem(formats.FORMATS, "mp3", formats.Format("audio/mpeg", "no-such-encoder"))
    with pytest.raises(RuntimeError, match="encoder of mp3 is not installed.*choose wav"):
        formats.check_default("mp3")


def properties():
    Gst.init(None)
    return [specification.name for specification in Gst.ElementFactory.make("qttssrc").list_properties()]


@pytest.mark.parametrize("message, text, field", [
    ('The setting "temperature" is -2, which is out of range: it may be 0 to 100.',
     '"temperature" is -2, which is out of range: it may be 0 to 100.', "temperature"),
    ('The setting "top-k" is a gint64, and has to be a gint.', '"top_k" has a value that the model does not take.', "top_k"),
    ("The setting \"x\" is unknown. Those of an utterance are: speaker, voice-file.", '"x" is unknown.', None),
    ('unknown language "klingon"; this model has: auto, english', 'unknown language "klingon"; this model has: auto, english',
     "language"),
    ("reference-text is set without reference-audio, the recording that says it. Set both or none.",
     "ref_text is set without ref_audio, the recording that says it. Set both or none.", None),
    ("ref_audio: it holds no sound. Give a file with speech that an installed GStreamer plugin can decode.",
     "ref_audio: it holds no sound.", "ref_audio"),
    ("The speech was cut at the longest duration allowed. Raise max-duration, or use shorter texts.",
     "The speech was cut at the longest duration allowed. Raise max_new_tokens, or use shorter texts.", None),
    ("The model missed the end of its text, and was stopped. Another seed will most likely work; runaway-guard=false does not "
     "stop it.", "The model missed the end of its text, and was stopped. Another seed will most likely work.", None),
    ("The instruction is none of GstQttsSrc's properties.", "The model refused the request.", None),
])
def test_messages_in_the_words_of_clients(message, text, field):
    assert for_clients(message, properties()) == (text, field)


def test_no_message_of_the_element_names_a_property_to_clients():
    """All literals of its sources that are sentences or parts of them."""
    names = properties()
    foreign = re.compile("|".join([r"\bG(?:st|Object)", r"\bpropert", "qttssrc", *(
        rf"(?<![\w-]){name}(?![\w-])" for name in names if "-" in name)]))
    literals = [literal for folder in ("gst", "engine/prompt", "engine/voice") for path in sorted((ROOT / folder).glob("*.c*"))
                for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text(encoding="utf-8")) if " " in literal]
    assert len(literals) > 200
    for literal in literals:
        text, _ = for_clients(literal.replace('\\"', '"'), names)
        assert not foreign.search(text), (literal, text)
