#!/usr/bin/env python3
"""Makes the tables of courses that codes.py uses, from the teacher's curves of some lines: k-means, 256 entries each.

usage: fit_tables.py CORPUS KOKORO.NPZ STYLES.NPZ OUT.npz [--lines 400]
"""
import argparse

import numpy as np
import torch

import codes
from teacher import Lines
from teacher_model import Teacher


def means(x, entries, rng, rounds=40):
    """-> [entries, size]"""
    table = x[rng.choice(len(x), entries, replace=False)].copy()
    for _ in range(rounds):
        i = codes.nearest(table, x)
        count = np.bincount(i, minlength=entries)
        total = np.zeros_like(table)
        np.add.at(total, i, x)
        worst = np.square(x - table[i]).sum(1).argsort()[::-1]
        table = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], x[worst[:entries]])
    return table


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("corpus", "weights", "styles", "out"):
        ap.add_argument(n)
    ap.add_argument("--lines", type=int, default=400)
    a = ap.parse_args()
    lines, rng = Lines(a), np.random.default_rng(1)
    teacher = Teacher(a.weights, "cuda" if torch.cuda.is_available() else "cpu")
    some = rng.choice(np.flatnonzero(lines.kinds == 0), a.lines, replace=False)
    some = sorted(some, key=lambda u: lines.lengths[u] / lines.speed(u))
    pitches, energies = [], []
    for i in range(0, len(some), 20):
        batch = some[i:i + 20]
        durations, f0, energy = (x.cpu().numpy() for x in teacher.prosody(*lines.inputs(batch))[:3])
        for d, f, e in zip(durations, f0, energy):
            n = 2 * d.sum()
            first, units = codes.cut(e[:n])
            frames = -(-units * codes.UNIT // codes.FRAME)
            pitches.append(codes.pitch(codes.courses(f[:n], first, frames, 0.0))[1])
            e = codes.courses(e[:n], first, frames, -10.0)
            energies.append(e - e.mean(1, keepdims=True))
    tables = {}
    for name, x in (("pitch", np.concatenate(pitches)), ("energy", np.concatenate(energies))):
        for part in (name, name + "_rest"):
            tables[part] = means(x, codes.ENTRIES, rng).astype(np.float32)
            rest = x - tables[part][codes.nearest(tables[part], x)]
            print(f"{part}: {len(x)} frames, root mean square {np.sqrt(np.square(x).mean()):.4f}, left {np.sqrt(np.square(rest).mean()):.4f}")
            x = rest
    np.savez(a.out, **tables)


if __name__ == "__main__":
    main()
