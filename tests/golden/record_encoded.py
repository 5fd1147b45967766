#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records what the official package makes of encoded recordings: data/encoded.

Encodes speech of data/references with ffmpeg (not again where the file is there), has the package read and encode each
file, and writes how many samples it read and the codes. libsndfile cannot read AAC: ffmpeg decodes it for the package,
which is also how librosa falls back, and its padding is cut off, which ffmpeg leaves. Run as record.py is (README.md).

    record_encoded.py GENERATOR
"""

import importlib.metadata
import io
import json
import os
import struct
import subprocess
import sys
import tempfile

import librosa
import numpy as np

import record

FOLDER = os.path.join(record.HERE, "data", "encoded")
# name: recording, seconds of it, options of ffmpeg
FILES = {
    "mpeg-1.mp3": ("speech-44100.wav", 1.5, ["-c:a", "libmp3lame", "-b:a", "64k"]),
    "mpeg-1-lame.mp3": ("speech-44100.wav", 1.5, ["-c:a", "libmp3lame", "-b:a", "64k"]),
    "mpeg-2.mp3": ("speech-24000.wav", 1.7, ["-c:a", "libmp3lame", "-q:a", "5"]),
    "mpeg-1-stereo.mp3": ("speech-48000-stereo.wav", 1.1, ["-c:a", "libmp3lame", "-b:a", "96k"]),
    "no-tag.mp3": ("speech-44100.wav", 1.5, ["-c:a", "libmp3lame", "-b:a", "64k", "-write_xing", "0"]),
    "44100.flac": ("speech-44100.wav", 1.5, ["-c:a", "flac"]),
    "44100.ogg": ("speech-44100.wav", 1.5, ["-c:a", "libvorbis"]),
    "48000.opus": ("speech-44100.wav", 1.5, ["-c:a", "libopus", "-b:a", "48k"]),
    "24000.opus": ("speech-24000.wav", 1.7, ["-c:a", "libopus", "-b:a", "48k"]),
    "edit-list.m4a": ("speech-44100.wav", 1.5, ["-c:a", "aac", "-b:a", "64k"]),
    "itunes.m4a": ("speech-24000.wav", 1.7, ["-c:a", "aac", "-b:a", "64k"]),
}
AAC_PRIMING = 1024  # of ffmpeg's encoder
# Variants of the tag of mpeg-1.mp3: bytes written at an offset from "Info" or from the encoder's name.
INFO, NAME = b"Info", b"Lavf"
VARIANTS = [
    ("no number of frames", INFO, 7, b"\x0e"),
    ("no frames", INFO, 8, bytes(4)),
    ("fewer frames than there are", INFO, 8, (50).to_bytes(4, "big")),
    ("more frames than there are", INFO, 8, (70).to_bytes(4, "big")),
    ("no encoder", NAME, 0, bytes(9)),
    ("no delay, no padding", NAME, 21, bytes(3)),
    ("less padding than decoders delay", NAME, 21, (576 << 12 | 400).to_bytes(3, "big")),
    ("as much padding as decoders delay", NAME, 21, (576 << 12 | 529).to_bytes(3, "big")),
    ("a sample more", NAME, 21, (576 << 12 | 530).to_bytes(3, "big")),
    ("a long delay and padding", NAME, 21, (4000 << 12 | 4000).to_bytes(3, "big")),
]


def boxes(data, begin, end):
    while begin + 8 <= end:
        size, kind = struct.unpack(">I4s", data[begin:begin + 8])
        yield kind, begin, begin + size
        begin += size


def find(data, *path):
    begin, end = 0, len(data)
    for kind in path:
        begin, end = next((b + 8, e) for k, b, e in boxes(data, begin, end) if k == kind)
    return begin - 8, end


def box(kind, content):
    return struct.pack(">I4s", 8 + len(content), kind) + content


def notes_of_itunes(data, valid):
    """The file with iTunSMPB in the place of the edit list, as iTunes writes it. `moov` is the last box."""
    data = bytearray(data)
    edts, _ = find(data, b"moov", b"trak", b"edts")
    data[edts + 4:edts + 8] = b"free"
    stts, _ = find(data, b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stts")
    count, = struct.unpack(">I", data[stts + 12:stts + 16])
    packets = sum(struct.unpack(">I", data[stts + 16 + 8 * i:stts + 20 + 8 * i])[0] for i in range(count))
    numbers = [0, AAC_PRIMING, packets * 1024 - AAC_PRIMING - valid, valid]
    text = " ".join(["", *(f"{n:0{16 if i == 3 else 8}X}" for i, n in enumerate(numbers)), *["00000000"] * 8])
    tag = box(b"----", box(b"mean", bytes(4) + b"com.apple.iTunes") + box(b"name", bytes(4) + b"iTunSMPB") +
              box(b"data", struct.pack(">II", 1, 0) + text.encode()))
    handler = box(b"hdlr", bytes(8) + b"mdirappl" + bytes(9))
    udta, end = find(data, b"moov", b"udta")
    data[udta:end] = box(b"udta", box(b"meta", bytes(4) + handler + box(b"ilst", tag)))
    moov, _ = find(data, b"moov")
    data[moov:moov + 4] = struct.pack(">I", len(data) - moov)
    return bytes(data)


def encode(name):
    reference, seconds, options = FILES[name]
    path = os.path.join(FOLDER, name)
    if os.path.exists(path):
        return
    subprocess.run(["ffmpeg", "-hide_banner", "-loglevel", "error", "-i",
                    os.path.join(record.HERE, "data", "references", reference), "-t", str(seconds),
                    *options, "-bitexact", path], check=True)
    with open(path, "rb") as file:
        data = file.read()
    if name == "mpeg-1-lame.mp3":  # LAME's own signature; some readers trust no other
        at = data.rindex(NAME, 0, 300)
        data = data[:at] + b"LAME3.100" + data[at + 9:]
    if name == "itunes.m4a":
        data = notes_of_itunes(data, round(seconds * 24000))
    with open(path, "wb") as file:
        file.write(data)


def read(name):
    """Samples and rate, as the package reads them; by ffmpeg where libsndfile cannot."""
    path = os.path.join(FOLDER, name)
    if not name.endswith(".m4a"):
        return librosa.load(path, sr=None, mono=False)
    rate = {"edit-list.m4a": 44100, "itunes.m4a": 24000}[name]
    raw = subprocess.run(["ffmpeg", "-hide_banner", "-loglevel", "error", "-i", path, "-f", "f32le", "-"],
                         check=True, capture_output=True).stdout
    return np.frombuffer(raw, "<f4")[:round(FILES[name][1] * rate)], rate


def read_variants():
    """Number of samples that are read of mpeg-1.mp3 with other tags."""
    with open(os.path.join(FOLDER, "mpeg-1.mp3"), "rb") as file:
        data = file.read()
    variants = []
    for about, mark, distance, new in VARIANTS:
        at = data.rindex(mark, 0, 300) + distance
        changed = data[:at] + new + data[at + len(new):]
        samples, _ = record.soundfile.read(io.BytesIO(changed))
        variants.append(dict(about=about, offset=at, bytes=new.hex(), samples=len(samples)))
    return variants


def main():
    record.torch.set_num_threads(1)
    record.torch.use_deterministic_algorithms(True)
    os.makedirs(FOLDER, exist_ok=True)
    document = {"versions": {package: importlib.metadata.version(package)
                             for package in (*record.PACKAGES, "librosa", "soundfile")},
                "libsndfile": record.soundfile.__libsndfile_version__, "files": {}}
    with tempfile.TemporaryDirectory() as folder, record.torch.no_grad():
        document["checkpoint"] = record.prepare_checkpoint(sys.argv[1], record.CLONING, folder)
        model = record.Qwen3TTSModel.from_pretrained(folder, dtype=record.torch.float32)
        for name in FILES:
            encode(name)
            samples, rate = read(name)
            audio = (np.atleast_2d(samples).mean(0), rate) if name.endswith(".m4a") else os.path.join(FOLDER, name)
            item, = model.create_voice_clone_prompt(ref_audio=audio, ref_text=record.REFERENCE)
            document["files"][name] = {"reference": FILES[name][0], "rate": rate, "samples": np.atleast_2d(samples).shape[1],
                                       "channels": np.atleast_2d(samples).shape[0], "codes": item.ref_code.tolist()}
            print(name, rate, np.atleast_2d(samples).shape, len(item.ref_code))
    document["variants"] = read_variants()
    with open(os.path.join(FOLDER, "encoded.json"), "w", encoding="utf-8") as file:
        file.write(record.compact_json(document))


if __name__ == "__main__":
    main()
