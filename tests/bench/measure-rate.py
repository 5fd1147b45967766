#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Speech at other rates: opinion scores, words wrong, lengths; beside ffmpeg and rubberband.

usage: measure-rate.py BUILD_DIR [--rates N ...] [--lines N] [--meters LIST] [--beside LIST] [--speakers A B] [--voice DIR] [--show]

Speaks the first lines of data/recipe/test_sentences.txt with the element at each rate, speakers in turn, one seed. Programs that are
named with --beside get the element's sound of rate 1:
  atempo      ffmpeg -af atempo
  soundtouch  soundstretch -speech (Debian: soundstretch)
  rubberband  rubberband -3 (Debian: rubberband-cli)
Meters:
  distillmos  opinion score from 1 to 5
  whisper     share of the words wrong by Whisper base
  length      largest deviation of a sound's length from that of rate 1 divided by the rate, %
The first sound: bench-element --set rate=1.5.
The first two need the environment described in measure-voice.py.

usage: measure-rate.py BUILD_DIR --film FILE.srt [--set PROPERTY=VALUE ...]

Speaks subtitles with text-timing=compress and prints how many cues began late, by how much, and how fast they were spoken.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import wave

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data/recipe"))
PROGRAMS = {
    "atempo": lambda rate, source, target: ["ffmpeg", "-y", "-v", "error", "-i", source, "-af", f"atempo={rate}", target],
    "soundtouch": lambda rate, source, target: ["soundstretch", source, target, f"-tempo={100 * (rate - 1)}", "-speech"],
    "rubberband": lambda rate, source, target: ["rubberband", "-q", "-3", "-t", str(1 / rate), source, target],
}
METERS = ("distillmos", "whisper", "length")
LATE = 0.3  # seconds


def speak(args, text, speaker, rate, path):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    subprocess.run(["gst-launch-1.0", "-q", "qttssrc", f"model-path={args.voice}", f'text="{quoted}"', f"speaker={speaker}", "seed=1", f"rate={rate}", "!",
                    "audio/x-raw,format=S16LE", "!", "wavenc", "!", "filesink", f"location={path}"], check=True)


def read(path):
    import numpy as np
    with wave.open(path) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


class Judge:
    def __init__(self, names, lines):
        self.names, self.lines, self.models = names, lines, {}
        if {"distillmos", "whisper"} & set(names):
            import meters
            self.meters = meters
        if "distillmos" in names:
            import torch
            torch.set_num_threads(1)
            self.models["distillmos"] = meters.distillmos_model()
        if "whisper" in names:
            self.models["whisper"] = meters.whisper_model()

    def __call__(self, paths):
        out, sounds = [], [read(path) for path in paths]
        if "distillmos" in self.names:
            scores = [self.meters.distillmos_score(self.models["distillmos"], x) for x in sounds]
            out.append(f"DistillMOS {sum(scores) / len(scores):.3f}")
        if "whisper" in self.names:
            heard = [self.meters.hear(self.models["whisper"], window) for window in self.meters.windows(self.lines, sounds)]
            out.append(f"words wrong {sum(e for e, _, _ in heard) / sum(n for _, n, _ in heard):.4f}")
        return out


def measure_rates(args):
    lines = [line for line in open(ROOT / "data/recipe/test_sentences.txt", encoding="utf-8").read().split("\n") if line][:args.lines]
    names = args.meters.split(",")
    judge = Judge(names, lines)
    with tempfile.TemporaryDirectory() as folder:
        plain = []
        for rate in [1.0] + [rate for rate in args.rates if rate != 1]:
            paths = [f"{folder}/{rate}-{i:03d}.wav" for i in range(len(lines))]
            for i, (line, path) in enumerate(zip(lines, paths)):
                speak(args, line, args.speakers[i % len(args.speakers)], rate, path)
            out = judge(paths)
            plain = plain or paths
            if "length" in names:
                worst = max(abs(len(read(b)) * rate / len(read(a)) - 1) for a, b in zip(plain, paths))
                out.append(f"length off by {100 * worst:.3f} % at most")
            print(f"{rate:<5} {'qttssrc':10} {', '.join(out)}", flush=True)
            for program in args.beside if rate != 1 else []:
                others = [path.replace(".wav", f"-{program}.wav") for path in paths]
                for source, target in zip(plain, others):
                    subprocess.run(PROGRAMS[program](rate, source, target), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                print(f"{rate:<5} {program:10} {', '.join(judge(others))}", flush=True)


def measure_film(args):
    launched = subprocess.Popen(["gst-launch-1.0", "-m", "filesrc", f"location={args.film}", "!", "subparse", "!", "qttssrc", f"model-path={args.voice}",
                                 "text-timing=compress", "real-time=false", *args.set, "!", "fakesink", "sync=false"], stdout=subprocess.PIPE, text=True)
    cues = []
    for line in launched.stdout:
        if "qtts-utterance-finished" in line:
            cues.append({name: int(number) for name, number in re.findall(r"([a-z-]+)=\(guint64\)(\d+)", line)})
            cues[-1]["whole"] = "reason=(string)complete" in line
    if launched.wait() != 0 or not cues:
        raise SystemExit("the film could not be spoken")
    if args.show:
        for cue in cues:
            print(f"  cue {cue['id']}: {cue['duration'] / 1e9:.2f} s in {cue['cue-duration'] / 1e9:.2f} s, late {cue['late'] / 1e9:.3f} s, "
                  f"{'whole' if cue['whole'] else 'not whole'}")
    late = [cue["late"] / 1e9 for cue in cues]
    # Speech that takes its time to the sample was fitted, or is too long for it.
    full = sum(cue["duration"] >= cue["cue-duration"] - 1_000_000 for cue in cues)
    print(f"{len(cues)} cues: {sum(seconds > LATE for seconds in late)} late by more than {1e3 * LATE:.0f} ms, the latest by {1e3 * max(late):.0f} ms; "
          f"{sum(not cue['whole'] for cue in cues)} not spoken to their end; {full} take all their time")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rates", nargs="*", type=float, default=[0.75, 1.25, 1.5, 2.0])
    parser.add_argument("--lines", type=int, default=24)
    parser.add_argument("--meters", default=",".join(METERS), help="comma-separated, of " + ", ".join(METERS))
    parser.add_argument("--beside", nargs="*", choices=PROGRAMS, default=[])
    parser.add_argument("--speakers", nargs="*", default=["grace", "clara"])
    parser.add_argument("--voice", default=str(ROOT / "data/voice"))
    parser.add_argument("--film", help="subtitles to speak in their slots")
    parser.add_argument("--set", nargs="*", default=[], help="further properties of the element, with --film")
    parser.add_argument("--show", action="store_true", help="print each cue")
    args = parser.parse_args()
    if unknown := set(args.meters.split(",")) - set(METERS):
        parser.error(f"no meter named {', '.join(sorted(unknown))}: there are {', '.join(METERS)}")
    os.environ["GST_PLUGIN_PATH"] = f"{os.path.abspath(args.build)}/gst"
    if args.film:
        measure_film(args)
    else:
        measure_rates(args)


if __name__ == "__main__":
    main()
