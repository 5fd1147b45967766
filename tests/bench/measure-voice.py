#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Word error rate of the bundled voice through the element, judged by pocketsphinx (en-us).

usage: measure-voice.py BUILD_DIR [--seeds N] [--runs N] [--text FILE]

Speaks every line with a gst-launch pipeline, in both prompt layouts, and prints the mean and range
over seeds and recogniser runs, beside what the voice's recipe measured with its own PyTorch code.
Needs the Debian packages pocketsphinx, pocketsphinx-en-us and sox.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data/recipe"))
import measure  # noqa: E402

RECIPE_WER = {"non-streaming": 0.145, "streaming": 0.137}  # data/recipe/README.md, shipped setting


def speak(build, layout, seed, text, wav):
    env = dict(os.environ, GST_PLUGIN_PATH=f"{build}/gst", QTTS_VOICE_PATH=str(ROOT / "data/voice"))
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    subprocess.run(["gst-launch-1.0", "-q", "qttssrc", f'text="{quoted}"', f"layout={layout}", f"seed={seed}", "!",
                    "audioconvert", "!", "audio/x-raw,format=S16LE", "!", "wavenc", "!", "filesink", f"location={wav}"],
                   check=True, env=env)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--text", default=str(ROOT / "data/recipe/test_sentences.txt"))
    parser.add_argument("--show", action="store_true", help="print what was heard")
    args = parser.parse_args()
    lines = [line for line in open(args.text).read().split("\n") if line]
    for layout, recipe in RECIPE_WER.items():
        rates = []
        for seed in range(args.seeds):
            with tempfile.TemporaryDirectory() as folder:
                wavs = [f"{folder}/{i:03d}.wav" for i in range(len(lines))]
                for text, wav in zip(lines, wavs):
                    speak(os.path.abspath(args.build), layout, seed, text, wav)
                for _ in range(args.runs):
                    result = measure.word_errors(lines, wavs)
                    rates.append(sum(e for e, _, _ in result) / sum(n for _, n, _ in result))
                    if args.show:
                        for text, (errors, count, heard) in zip(lines, result):
                            print(f"  {errors}/{count} {text!r} -> {heard!r}")
        print(f"{layout:14} WER {sum(rates) / len(rates):.3f} ({min(rates):.3f}-{max(rates):.3f}, "
              f"{args.seeds} seeds x {args.runs} runs); recipe {recipe:.3f}", flush=True)


if __name__ == "__main__":
    main()
