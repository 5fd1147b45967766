#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Speech at other rates: opinion scores, words wrong, lengths; beside ffmpeg and rubberband.

usage: measure-rate.py BUILD_DIR [--rates N ...] [--text FILE ...] [--lines N] [--seeds N ...] [--meters LIST] [--beside LIST]
                       [--speakers A B] [--voice DIR]

Speaks the first lines of each text with the element at each rate, speakers in turn, once with each seed. Programs that are named with
--beside get the element's sound of rate 1:
  atempo      ffmpeg -af atempo
  soundtouch  soundstretch -speech (Debian: soundstretch)
  rubberband  rubberband -3 (Debian: rubberband-cli)
Meters:
  distillmos  mean opinion score from 1 to 5; of a program also the mean difference from the element at the same rate, line by line
  whisper     share of the words wrong by Whisper base
  length      largest deviation of a sound's length from that of rate 1 divided by the rate, %
The first sound: bench-element --set rate=1.5.
The first two need the environment described in measure-voice.py. Behind ± is one standard error: over the lines, and of the words over
the windows of 28 s that Whisper hears. A score depends on where splices fall by chance, so differences need many lines.

usage: measure-rate.py BUILD_DIR --film FILE.srt [--set PROPERTY=VALUE ...]

Speaks subtitles with text-timing=compress and prints how many cues began late and by how much, and how many take all their time. With --show
each cue is printed. make-film.py makes subtitles.
"""
import argparse
import os
import pathlib
import re
import statistics
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


def speak(args, text, speaker, seed, rate, path):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    subprocess.run(["gst-launch-1.0", "-q", "qttssrc", f"model-path={args.voice}", f'text="{quoted}"', f"speaker={speaker}", f"seed={seed}", f"rate={rate}", "!",
                    "audio/x-raw,format=S16LE", "!", "wavenc", "!", "filesink", f"location={path}"], check=True)


def read(path):
    import numpy as np
    with wave.open(path) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


def standard_error(numbers):
    return statistics.stdev(numbers) / len(numbers) ** 0.5 if len(numbers) > 1 else float("nan")


def share(heard):
    """errors and words of windows -> share of the errors and its standard error"""
    errors, words = sum(e for e, _ in heard), sum(n for _, n in heard)
    spread = sum((e - n * errors / words) ** 2 for e, n in heard)
    windows = len(heard)
    error = (spread * windows / (windows - 1)) ** 0.5 / words if windows > 1 else float("nan")
    return f"words wrong {errors / words:.4f} ± {error:.4f} ({errors} of {words})"


class Judge:
    def __init__(self, names, lines):
        self.lines, self.opinion, self.recogniser = lines, None, None
        if {"distillmos", "whisper"} & set(names):
            import meters
            self.meters = meters
        if "distillmos" in names:
            import torch
            torch.set_num_threads(1)
            self.opinion = meters.distillmos_model()
        if "whisper" in names:
            self.recogniser = meters.whisper_model()

    def __call__(self, paths, beside=None):
        """-> parts to print, scores of the lines; `beside`: scores to compare with"""
        out, scores, sounds = [], [], [read(path) for path in paths]
        if self.opinion:
            scores = [self.meters.distillmos_score(self.opinion, sound) for sound in sounds]
            out.append(f"DistillMOS {statistics.mean(scores):.3f} ± {standard_error(scores):.3f}")
            if beside:
                differences = [score - other for score, other in zip(scores, beside)]
                out.append(f"{statistics.mean(differences):+.3f} ± {standard_error(differences):.3f} from qttssrc")
        if self.recogniser:
            heard = [self.meters.hear(self.recogniser, window) for window in self.meters.windows(self.lines, sounds)]
            out.append(share([(errors, words) for errors, words, _ in heard]))
        return out, scores


def read_lines(files, most):
    """the first lines of each file"""
    return [line for file in files for line in [line for line in pathlib.Path(file).read_text(encoding="utf-8").split("\n") if line][:most]]


def measure_rates(args):
    lines = read_lines(args.text, args.lines)
    spoken = [(line, args.speakers[i % len(args.speakers)], seed) for seed in args.seeds for i, line in enumerate(lines)]
    names = args.meters.split(",")
    judge = Judge(names, [line for line, _, _ in spoken])
    with tempfile.TemporaryDirectory() as folder:
        plain = []
        for rate in [1.0] + [rate for rate in args.rates if rate != 1]:
            paths = [f"{folder}/{rate}-{i:03d}.wav" for i in range(len(spoken))]
            for (line, speaker, seed), path in zip(spoken, paths):
                speak(args, line, speaker, seed, rate, path)
            out, scores = judge(paths)
            plain = plain or paths
            if "length" in names:
                worst = max(abs(len(read(b)) * rate / len(read(a)) - 1) for a, b in zip(plain, paths))
                out.append(f"length off by {100 * worst:.3f} % at most")
            print(f"{rate:<5} {'qttssrc':10} {', '.join(out)}", flush=True)
            for program in args.beside if rate != 1 else []:
                others = [path.replace(".wav", f"-{program}.wav") for path in paths]
                for source, target in zip(plain, others):
                    subprocess.run(PROGRAMS[program](rate, source, target), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                print(f"{rate:<5} {program:10} {', '.join(judge(others, scores)[0])}", flush=True)


def measure_film(args):
    launched = subprocess.Popen(["gst-launch-1.0", "-m", "filesrc", f"location={args.film}", "!", "subparse", "!", "qttssrc", f"model-path={args.voice}",
                                 "text-timing=compress", "real-time=false", *args.set, "!", "fakesink", "sync=false"], stdout=subprocess.PIPE, text=True)
    cues = []
    for line in launched.stdout:
        if "qtts-utterance-finished" in line:
            cues.append({name: int(number) for name, number in re.findall(r"([a-z-]+)=\(guint64\)(\d+)", line)})
            cue = cues[-1]
            cue["whole"] = "reason=(string)complete" in line
            if args.show:
                print(f"  cue {cue['id']}: {cue['duration'] / 1e9:.2f} s in {cue['cue-duration'] / 1e9:.2f} s, late {cue['late'] / 1e9:.3f} s, "
                      f"{'whole' if cue['whole'] else 'not whole'}", flush=True)
    if launched.wait() != 0 or not cues:
        raise SystemExit("the film could not be spoken")
    late = [cue["late"] / 1e9 for cue in cues]
    # Speech that takes its time to the sample was fitted, or is too long for it.
    full = sum(cue["duration"] >= cue["cue-duration"] - 1_000_000 for cue in cues)
    print(f"{len(cues)} cues: {sum(seconds > LATE for seconds in late)} late by more than {1e3 * LATE:.0f} ms, the latest by {1e3 * max(late):.0f} ms; "
          f"{sum(not cue['whole'] for cue in cues)} not spoken to their end; {full} take all their time")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rates", nargs="*", type=float, default=[0.75, 1.25, 1.5, 2.0])
    parser.add_argument("--text", nargs="+", default=[str(ROOT / "data/recipe/test_sentences.txt"), str(ROOT / "tests/bench/words-lines.txt")])
    parser.add_argument("--lines", type=int, help="the first so many lines of each text instead of all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
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
