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
    """Names that requests may give. `speakers`: the model's own voices, none of a model that has its voices by description
    or by recording; None before the model is loaded. Those of --voices-folder come after them."""

    def __init__(self, settings, speakers=None):
        self._settings = settings
        self._files = {name.lower(): file for name, file in settings.voice_files.items()} if speakers is not None else {}
        self._preset = list(speakers or [])
        self.speakers = [*self._preset, *(settings.voice_files if speakers is not None else [])]
        openai = settings.openai_names
        self.models = list(dict.fromkeys([*settings.names, *(MODELS if openai else ())]))
        self._own = {name.lower(): name for name in self.speakers}
        aliases = {name: voice for name, voice in (_openai_voices(self.speakers) if openai else {}).items()
                   if name not in self._own}
        # Other name to speaker; None: the model has its one voice, whatever the name.
        self.aliases = {**aliases, **settings.voices}

    def check(self):
        """RuntimeError if an alias of --voice-alias is for a voice that the model does not have, or a voice file has the name
        of a speaker."""
        for name in self._preset:
            if name.lower() in self._files:
                raise RuntimeError(f"--voices-folder: {self._files[name.lower()].path} has the name of a voice of the model, "
                                   f"{name}; give it another one.")
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

    def voice(self, name, style=None):
        """The element's settings for a voice. ApiError 400 for a voice or a style that there is not."""
        voice = self.speaker(name) if name is not None else None
        file = self._files.get(voice.lower()) if voice is not None else None
        if style is not None and not (file and file.take(style)):
            raise bad_field("style", f"is {style[:100]!r}; the voice has {', '.join(file.styles if file else ()) or 'no styles'}.")
        if file is not None:
            return {"voice-file": file.path} if style is None else {"voice-file": file.path, "style": style.lower()}
        return {} if voice is None else {"speaker": voice}

    def file(self, path):
        """The voice file of this path among those of --voices-folder; None if it is not there."""
        return next((file for file in self._files.values() if file.path == path), None)

    @property
    def styles(self):
        """Voice to the styles that it has, where it has any."""
        return {name: file.styles for name, file in self._settings.voice_files.items()
                if file.styles and name.lower() in self._files}


def _openai_voices(speakers):
    """OpenAI's names, each with a speaker of the same gender where the model has one that is known."""
    usual = [name for name in speakers if name.lower() not in DIALECT_SPEAKERS] or speakers
    voices = {}
    for names, known in ((FEMALE, FEMALE_SPEAKERS), (MALE, MALE_SPEAKERS)):
        alike = sorted((name for name in usual if name.lower() in known), key=lambda name: known.index(name.lower()))
        for name, speaker in zip(names, itertools.cycle(alike or usual or [None])):
            voices[name] = speaker
    return dict(sorted(voices.items()))
