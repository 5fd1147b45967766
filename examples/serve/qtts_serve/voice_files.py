# SPDX-License-Identifier: LGPL-2.1-or-later
"""The voice files of --voices-folder: their names and the styles of their takes. The element reads the rest."""
import json
import os

SUFFIXES = (".voice", ".safetensors")
FORMAT = "qttssrc-voice-1"
LONGEST_HEADER = 1 << 20
MOST_TAKES = 64


def read_folder(folder):
    """Path and styles of each voice file, by the name of the voice. ValueError for a file that is none."""
    voices = {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix not in SUFFIXES or not os.path.isfile(os.path.join(folder, file)):
            continue
        if name in voices:
            raise ValueError(f"{folder}: {name} is there with several suffixes")
        path = os.path.abspath(os.path.join(folder, file))
        voices[name] = (path, _read_styles(path))
    return voices


def _read_styles(path):
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
        keys = ["style", *(f"style.{take}" for take in range(1, takes))]
        return [metadata[key] for key in keys if metadata.get(key)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no voice file; \"qtts-tool voice\" makes them") from error
