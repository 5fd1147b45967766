# SPDX-License-Identifier: LGPL-2.1-or-later
"""The voice files of --voices-folder: their names, and the styles of their takes. The element reads the rest."""
import dataclasses
import json
import os
import re

SUFFIXES = (".voice", ".safetensors")
FORMAT = "qttssrc-voice-1"
LONGEST_HEADER = 1 << 20
MOST_TAKES = 64
# A word of an instruction, as the element sees one: it ends with white space or one of these marks.
WORD = re.compile(r"""[^\s.,;:!?"'()\[\]<>*\-\u2013\u2014\u2026\u3001\u3002\uff0c\uff01\uff1a]+""")


@dataclasses.dataclass(frozen=True)
class Take:
    style: str  # in lower case, as the element has it; empty if it has none
    measured: bool  # its loudness is in the file


@dataclasses.dataclass(frozen=True)
class VoiceFile:
    path: str
    takes: tuple

    @property
    def styles(self):
        return [take.style for take in self.takes if take.style]

    def take_of(self, instructions):
        """The take whose style is the first word of the instructions, which a Base model does not heed otherwise; or None."""
        word = WORD.search(instructions)
        return self.take(word[0]) if word else None

    def take(self, style):
        """The take of a style; None if there is none."""
        return next((take for take in self.takes if take.style and take.style == style.lower()), None)


def read_folder(folder):
    """The voice files by the name of the voice. ValueError for a file that is none, and for two files of one name."""
    voices, names = {}, {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix not in SUFFIXES or not os.path.isfile(os.path.join(folder, file)):
            continue
        other = names.setdefault(name.lower(), file)
        if name in voices:
            raise ValueError(f"{folder}: {name} is there with several suffixes")
        if other != file:
            raise ValueError(f"{folder}: {other} and {file} differ in case only, and are one name for requests; rename one")
        path = os.path.abspath(os.path.join(folder, file))
        voices[name] = VoiceFile(path, _read_takes(path))
    return voices


def _read_takes(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = file.read(length) if length <= LONGEST_HEADER else b""
    try:
        metadata = json.loads(head)["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError("another format")
        takes = int(metadata.get("takes", "1"))
        if not 1 <= takes <= MOST_TAKES:
            raise ValueError("another number of takes")
        keys = ["", *(f".{take}" for take in range(1, takes))]
        return tuple(Take(metadata.get("style" + key, "").lower(), bool(metadata.get("loudness" + key))) for key in keys)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no voice file; \"qtts-tool voice\" makes them") from error
