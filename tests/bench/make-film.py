#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Subtitles of a film that does not exist, to standard output, for measure-rate.py --film.

usage: make-film.py [--minutes N] [--speed MIN MAX] [--seed N] > film.srt

Cues are the sentences of long-lines.txt, words-lines.txt and data/recipe/test_sentences.txt by chance. Each is shown for its characters at
11 to 17 characters a second (--speed), at least 1 s, as subtitles for adults are (guidelines allow 17 to 20); pauses of 0.1 to 3 s lie between, and
after some ten cues one of 5 to 15 s: about two thirds of the time have speech.
"""
import argparse
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ("tests/bench/long-lines.txt", "tests/bench/words-lines.txt", "data/recipe/test_sentences.txt")
LONGEST = 84  # two lines of 42 characters


def stamp(seconds):
    milliseconds = round(1000 * seconds)
    return f"{milliseconds // 3600000:02}:{milliseconds // 60000 % 60:02}:{milliseconds // 1000 % 60:02},{milliseconds % 1000:03}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--speed", nargs=2, type=float, default=[11, 17], help="characters a second")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    sentences = [line.strip() for text in TEXTS for line in open(ROOT / text, encoding="utf-8") if 8 <= len(line.strip()) <= LONGEST]
    now, number = 2.0, 0
    while now < 60 * args.minutes:
        number += 1
        text = chance.choice(sentences)
        end = now + max(1.0, len(text) / chance.uniform(*args.speed))
        print(f"{number}\n{stamp(now)} --> {stamp(end)}\n{text}\n")
        now = end + (chance.uniform(5, 15) if chance.random() < 0.1 else chance.uniform(0.1, 3))


if __name__ == "__main__":
    main()
