# SPDX-License-Identifier: LGPL-2.1-or-later
"""The names of the model and of its voices: its own, those of --model-name and --voice-alias, and OpenAI's."""
import itertools

from .errors import bad_field

MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
# OpenAI's voices as they are heard; those between are with the first. "fable" is British, as the bundled voice's "hugh".
FEMALE = ("alloy", "coral", "nova", "sage", "shimmer", "marin")
MALE = ("fable", "ash", "ballad", "cedar", "echo", "onyx", "verse")
# Speakers of the bundled voice and of the released models. Those that speak a dialect are no voice for English texts.
FEMALE_SPEAKERS = ("clara", "grace", "serena", "vivian", "ono_anna", "sohee")
MALE_SPEAKERS = ("hugh", "owen", "ross", "ryan", "aiden", "uncle_fu")
DIALECT_SPEAKERS = ("dylan", "eric")


class Catalogue:
    """Names that requests may give. `speakers`: the model's own voices; none before it is loaded, and of a model that has
    its voices by description or by recording."""

    def __init__(self, settings, speakers=()):
        self._settings = settings
        self.speakers = list(speakers)
        openai = settings.openai_names
        self.models = list(dict.fromkeys([*settings.names, *(MODELS if openai else ())]))
        self._own = {name.lower(): name for name in self.speakers}
        aliases = {name: voice for name, voice in (_openai_voices(self.speakers) if openai else {}).items()
                   if name not in self._own}
        # Other name to speaker; None: the model has its one voice, whatever the name.
        self.aliases = {**aliases, **settings.voices}

    def check(self):
        """RuntimeError if an alias of --voice-alias is for a voice that the model does not have."""
        for alias, voice in self._settings.voices.items():
            if voice.lower() not in self._own:
                raise RuntimeError(f"--voice-alias: {alias}={voice}: the model has no voice {voice!r}; its voices are: "
                                   f"{', '.join(self.speakers) or 'none by name'}.")

    def check_model(self, name):
        """ApiError 400 for a model that is not served."""
        if name not in self.models:
            raise bad_field("model", f"is {name[:100]!r}; it may be {', '.join(self.models)}.")

    def speaker(self, name):
        """The speaker of a voice; None for the model's one voice. ApiError 400 for a voice that there is not."""
        voice = self.aliases.get(name, self.aliases.get(name.lower(), name))
        if voice is not None and voice.lower() not in self._own:
            raise bad_field("voice", f"is {name[:100]!r}; it may be {', '.join([*self.speakers, *self.aliases]) or 'left out'}.")
        return voice


def _openai_voices(speakers):
    """OpenAI's names, each with a speaker of the same gender where the model has one that is known."""
    usual = [name for name in speakers if name.lower() not in DIALECT_SPEAKERS] or speakers
    voices = {}
    for names, known in ((FEMALE, FEMALE_SPEAKERS), (MALE, MALE_SPEAKERS)):
        alike = sorted((name for name in usual if name.lower() in known), key=lambda name: known.index(name.lower()))
        for name, speaker in zip(names, itertools.cycle(alike or usual or [None])):
            voices[name] = speaker
    return dict(sorted(voices.items()))
