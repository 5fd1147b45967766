#!/usr/bin/env python3
"""Puts lines of several corpora of build_corpus.py into one, in random order.

usage: join_corpora.py OUTDIR CORPUS[:LINES]...

Held-out and test lines are those of the first corpus. Each corpus gives its first LINES training lines, or all of them
if LINES is left out.
"""
import os
import shutil
import sys

import numpy as np


def read(name):
    """-> lines, phoneme ids and kind of each"""
    folder, _, lines = name.partition(":")
    z = np.load(f"{folder}/jobs.npz")
    ids = np.split(z["ids"], np.cumsum(z["lens"].astype(np.int64))[:-1])
    rows = list(zip(open(f"{folder}/text.tsv", encoding="utf-8").read().splitlines(), ids, z["kinds"]))
    train = [r for r in rows if r[2] == 0]
    return [r for r in rows if r[2] > 0], train[:int(lines)] if lines else train


def main(out, *names):
    (fixed, rows), *others = [read(n) for n in names]
    for _, train in others:
        rows += train
    order = np.random.default_rng(1).permutation(len(rows))
    rows = fixed + [rows[k] for k in order]
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/text.tsv", "w", encoding="utf-8") as f:
        f.writelines(text + "\n" for text, _, _ in rows)
    np.savez_compressed(f"{out}/jobs.npz", ids=np.concatenate([i for _, i, _ in rows]), lens=np.array([len(i) for _, i, _ in rows], np.int16),
                        kinds=np.array([k for _, _, k in rows], np.uint8))
    shutil.copy(f"{names[0].partition(':')[0]}/vocabulary.json", out)
    print(f"{len(rows)} utterances, {len(fixed)} of them held out or for tests")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
