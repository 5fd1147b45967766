#!/usr/bin/env python3
"""Token ids of every line of the corpus, four times: as written, as written with merges left out, spelled out, and a mix.

usage: tokenize_text.py CORPUS TOKDIR OUT.npz [--processes 12]

28 % of them are the spelled-out text: the voice reads "$12.50" and "twelve dollars and fifty cents".
"""
import argparse
import multiprocessing
import random

import numpy as np

from bpe import BPE

DROP = (0.0, 0.06, 0.0, 0.12)                           # BPE dropout: rare words need near-letters
SPELLED = (0.0, 0.0, 0.8, 0.3)


def part(job):
    tok, lines, seed = job
    rng = random.Random(seed)
    random.seed(seed)
    b, out, lens = BPE(tok), [], []
    for written, spelled in lines:
        for drop, p in zip(DROP, SPELLED):
            ids = b.encode(spelled if rng.random() < p else written, drop)
            out.extend(ids)
            lens.append(len(ids))
    return np.array(out, np.int16), np.array(lens, np.int16)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus"); ap.add_argument("tok"); ap.add_argument("out")
    ap.add_argument("--processes", type=int, default=12)
    a = ap.parse_args()
    lines = [tuple(l.rstrip("\n").split("\t")[:2]) for l in open(f"{a.corpus}/text.tsv", encoding="utf-8")]
    jobs = [(a.tok, lines[i:i + 1000], i) for i in range(0, len(lines), 1000)]
    with multiprocessing.Pool(a.processes) as pool:
        parts = pool.map(part, jobs, chunksize=1)
    np.savez(a.out, ids=np.concatenate([p[0] for p in parts]), lens=np.concatenate([p[1] for p in parts]))
    print(f"{len(lines)} lines, {sum(len(p[0]) for p in parts) / 4 / len(lines):.1f} tokens a line")


if __name__ == "__main__":
    main()
