#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures the worth of `retry` for books: texts spoken ahead, with and without it. Whisper base listens.

usage: measure-retry.py BUILD_DIR [--temperature 1] [--runs 3] [--speaker NAME] [--sentences N]

The sentences of long-lines.txt, N of them as one utterance, are spoken by one element with parallel=8, in each run with retry=0 and retry=2 and random seeds. Prints the words wrong by words of
each run, the utterances that the element calls incomplete, and those made again. The recogniser needs the environment described in measure-voice.py.
"""
import argparse
import importlib.util
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("measure_text", pathlib.Path(__file__).with_name("measure-text.py"))
text = importlib.util.module_from_spec(spec)
spec.loader.exec_module(text)


def subtitles(args):
    """the file that is spoken: each subtitle is one utterance"""
    lines = (ROOT / "tests/bench/long-lines.txt").read_text().splitlines()
    turns = [" ".join(lines[i:i + args.sentences]) for i in range(0, len(lines), args.sentences)]
    return "".join(f"{i + 1}\n00:00:{i:02},000 --> 00:00:{i:02},900\n{turn}\n\n" for i, turn in enumerate(turns))


def speak(args, retry, file, wav):
    """returns what the element tells of its utterances"""
    env = dict(os.environ, GST_PLUGIN_PATH=f"{args.build}/gst", QTTS_VOICE_PATH=str(ROOT / "data/voice"))
    said = subprocess.run(["gst-launch-1.0", "-m", "filesrc", f"location={file}", "!", "subparse", "!", "qttssrc", "segmentation=none", f"speaker={args.speaker}",
                           f"temperature={args.temperature}", "parallel=8", f"retry={retry}", "!", "audioconvert", "!", "audio/x-raw,format=S16LE", "!", "wavenc", "!",
                           "filesink", f"location={wav}"], env=env, check=True, capture_output=True, text=True).stdout
    finished = [line for line in said.splitlines() if "qtts-utterance-finished" in line]
    again = sum(int(re.search(r"retries=\(uint\)(\d+)", line)[1]) for line in finished)
    incomplete = sum("coverage=(double)1," not in line or "end-missed=(boolean)true" in line or "reason=(string)runaway" in line for line in finished)
    return len(finished), incomplete, again


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--speaker", default="grace")
    parser.add_argument("--sentences", type=int, default=1)
    args = parser.parse_args()
    bench = text.Bench(argparse.Namespace(build=args.build))
    said = text.meters.words(pathlib.Path(ROOT, "tests/bench/long-lines.txt").read_text())
    for _ in range(args.runs):
        for retry in (0, 2):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "turns.srt").write_text(subtitles(args))
                count, incomplete, again = speak(args, retry, f"{folder}/turns.srt", f"{folder}/a.wav")
                heard = " ".join(bench.hear([piece]) for piece in text.pieces(text.read(f"{folder}/a.wav")))
            wrong = text.distance(said, text.meters.words(heard)) / len(said)
            print(f"retry={retry}: {wrong:.4f} of {len(said)} words wrong; {incomplete} of {count} utterances not whole, {again} made again", flush=True)


if __name__ == "__main__":
    main()
