#!/usr/bin/env python3
"""Speaks the corpus with the Kokoro-82M teacher, many utterances at once: one process a GPU, beside it some that cut and store.

usage: teacher.py CORPUS KOKORO.NPZ STYLES.NPZ OUTDIR [--gpus 0,1,2,3] [--each 12] [--letters 12000] [--window 1600] [--limit SHARDS]

Writes shards OUTDIR/NNNN.npz as they are finished (xNNNN.npz: held-out and test lines); each holds int16 samples at 24 kHz, every utterance padded to whole frames of
80 ms, a phone class per 10 ms, and a table (utterance, first frame, frames). A GPU takes the next free shard; what is equally long is spoken together. A file
OUTDIR/stop.GPU ends its process after the shard.
Every utterance begins with one frame of near silence: 20 ms of zeros, then a fade of 40 ms into the teacher's own breath.
"""
import argparse
import json
import multiprocessing
import os
import time

import numpy as np

from voices import SPEAKERS, INDEX

RATE, FRAME = 24000, 1920
LEAD, TAIL = 1920, 2880                                 # samples of silence kept before the first and after the last sound

LETTERS = "AIOQSTWYᵊabdefhijklmnoprstuvwzɑɒæɔðʤəɛɜɡɪŋθɹɾʃʧʊʌʒʔᵻ"
SILENT = ';:,.!?—…"()“”'
PHONES = len(LETTERS) + 2                               # 0: silence, last: any other letter


def classes(vocabulary):
    """-> class of each id: 0 silence, -1 belongs to the next phone, -2 to the one before"""
    table = np.full(256, PHONES - 1, np.int16)
    for letter, i in vocabulary.items():
        if letter in LETTERS:
            table[i] = 1 + LETTERS.index(letter)
        elif letter in SILENT:
            table[i] = 0
        elif letter in "ˈˌ":
            table[i] = -1
        elif letter in "ː ":
            table[i] = -2
    return table


def labels(ids, ends, kind, n10):
    """phone class per 10 ms; ids with the two silences around them, ends in samples"""
    c = [0] + [int(kind[i]) for i in ids] + [0]
    for k in range(1, len(c)):
        if c[k] == -2:
            c[k] = c[k - 1]
    for k in range(len(c) - 2, -1, -1):
        if c[k] == -1:
            c[k] = c[k + 1]
    out, at = np.zeros(n10, np.uint8), 0
    for k, end in zip(c, ends):
        e = int(np.clip(round(end / 240), at, n10))
        out[at:e] = max(k, 0)
        at = e
    return out


def finish(audio, ends, ids, kind, gain):
    """cut to LEAD before the first sound and TAIL after the last, faded in and out, whole frames"""
    loud = np.flatnonzero(np.abs(audio) > 0.006)
    if not len(loud) or not np.isfinite(audio).all() or len(audio) < 2400:
        return None
    first, last = loud[0] - LEAD, loud[-1] + TAIL
    x = audio[max(0, first):last] * gain
    x = np.concatenate([np.zeros(max(0, -first), np.float32), x])
    ramp = np.clip((np.arange(LEAD) - 480) / 960, 0, 1).astype(np.float32)
    x[:LEAD] *= ramp * ramp * (3 - 2 * ramp)
    tail = min(1200, len(x))
    x[-tail:] *= np.linspace(1, 0, tail, dtype=np.float32)
    frames = -(-len(x) // FRAME)
    x = np.pad(x, (0, frames * FRAME - len(x)))
    lab = labels(ids, np.asarray(ends) - first, kind, frames * 8)
    lab[:LEAD // 240 - 1] = 0
    return (np.clip(x, -1, 1) * 32767).astype(np.int16), lab, frames


def batches(lines, order, letters):
    """utterances in groups whose padded length is at most `letters`"""
    group, longest = [], 0
    for u in order:
        size = lines.lengths[u] / lines.speed(u)
        if group and (len(group) + 1) * max(longest, size) > letters:
            yield group
            group, longest = [], 0
        group.append(u)
        longest = max(longest, size)
    if group:
        yield group


class Lines:
    """the corpus: phoneme ids, speaker and speed of each utterance"""

    def __init__(self, a):
        z = np.load(f"{a.corpus}/jobs.npz")
        self.flat, self.lengths, self.kinds = z["ids"], z["lens"].astype(np.int64), z["kinds"]
        self.at = np.concatenate([[0], np.cumsum(self.lengths)])
        self.who = [line.rstrip("\n").split("\t")[2:4] for line in open(f"{a.corpus}/text.tsv", encoding="utf-8")]
        styles = np.load(a.styles)
        self.styles = {s.name: styles[s.style].reshape(-1, 256) for s in SPEAKERS}
        self.kind = classes(json.load(open(f"{a.corpus}/vocabulary.json", encoding="utf-8")))

    def ids(self, u):
        return self.flat[self.at[u]:self.at[u + 1]].tolist()

    def speed(self, u):
        return float(self.who[u][1])

    def style(self, u):
        return self.styles[self.who[u][0]][min(self.lengths[u], 510) - 1]

    def gain(self, u):
        return SPEAKERS[INDEX[self.who[u][0]]].gain


def store(path, raw, batch, ends, lines):
    """cuts what was spoken, writes the shard, removes the raw samples -> seconds, utterances that failed"""
    sound, spoken, table, at = np.load(raw), [], [], 0
    for u, row, end in zip(batch, sound, ends):
        done = finish(row[:end[-1]], end, lines.ids(u), lines.kind, lines.gain(u))
        if done:
            spoken.append(done)
            table.append((u, at, done[2]))
            at += done[2]
    if spoken:
        np.savez(f"{path}.tmp.npz", wav=np.concatenate([s[0] for s in spoken]), labels=np.concatenate([s[1] for s in spoken]), table=np.array(table, np.int32))
        os.rename(f"{path}.tmp.npz", f"{path}.npz")
    os.remove(raw)
    return at * FRAME / RATE, len(batch) - len(spoken)


def storing(a, jobs, done):
    lines = Lines(a)
    for path, raw, batch, ends in iter(jobs.get, None):
        try:
            done.put(store(path, raw, batch, ends, lines))
        except Exception as e:                           # a shard lost is no reason to lose the rest
            print(f"[teacher] {path}: {type(e).__name__} {e}", flush=True)
            done.put((0.0, len(batch)))


def work(a, gpu, taken):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch
    from teacher_model import Teacher
    cuda = torch.cuda.is_available()
    if cuda:                                            # the codec's first steps are recorded beside it
        torch.cuda.set_per_process_memory_fraction(0.55)
    context = multiprocessing.get_context("spawn")
    jobs, done = context.Queue(2 * a.each), context.Queue()
    helpers = [context.Process(target=storing, args=(a, jobs, done), daemon=True) for _ in range(a.each)]
    for h in helpers:
        h.start()
    teacher, lines = Teacher(a.weights, "cuda" if cuda else "cpu", compiled=cuda), Lines(a)
    asked, seconds, bad, told, t0 = 0, 0.0, 0, time.time(), time.time()
    for name, batch in plan(lines, a):
        if os.path.exists(f"{a.out}/stop.{gpu}"):
            break
        place = int(name.lstrip("x")) + (len(taken) // 2 if name[0] == "x" else 0)
        with taken.get_lock():
            mine = not taken[place]
            taken[place] = True
        if not mine:
            continue
        try:
            sound, durations = teacher([[0, *lines.ids(u), 0] for u in batch], [lines.style(u) for u in batch], [lines.speed(u) for u in batch])
            ends = np.cumsum(durations.cpu().numpy(), 1) * (RATE // 40)
            np.save(f"{a.out}/{name}.raw.npy", sound.cpu().numpy())
        except Exception as e:
            print(f"[teacher {gpu}] {len(batch)} utterances: {type(e).__name__} {e}", flush=True)
            bad += len(batch)
            continue
        jobs.put((f"{a.out}/{name}", f"{a.out}/{name}.raw.npy", batch, [e[:lines.lengths[u] + 2] for e, u in zip(ends, batch)]))
        asked += 1
        while not done.empty():
            s, lost = done.get()
            asked, seconds, bad = asked - 1, seconds + s, bad + lost
        if time.time() - told > 20:
            told = time.time()
            print(f"[teacher {gpu}] {seconds / 3600:.2f} h in {told - t0:.0f} s, {bad} failed", flush=True)
    for _ in helpers:
        jobs.put(None)
    for _ in range(asked):
        s, lost = done.get()
        seconds, bad = seconds + s, bad + lost
    print(f"[teacher {gpu}] {seconds / 3600:.2f} h in {time.time() - t0:.0f} s, {bad} failed; the end", flush=True)


def plan(lines, a):
    """-> (shard, utterances): held-out and test lines in small shards of their own, which come first; then windows in random order of the corpus,
    within a window what is equally long together"""
    fixed = int((lines.kinds > 0).sum())
    for s, lo in enumerate(range(0, fixed, 24)):
        yield f"x{s:04d}", list(range(lo, min(lo + 24, fixed)))
    s = 0
    for lo in range(fixed, len(lines.lengths), a.window):
        order = sorted(range(lo, min(lo + a.window, len(lines.lengths))), key=lambda u: lines.lengths[u] / lines.speed(u))
        for batch in batches(lines, order, a.letters):
            if s == a.limit:
                return
            yield f"{s:04d}", batch
            s += 1


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("corpus", "weights", "styles", "out"):
        ap.add_argument(n)
    ap.add_argument("--gpus", default="0")
    ap.add_argument("--each", type=int, default=12, help="processes that cut and store, for each GPU")
    ap.add_argument("--letters", type=int, default=12000, help="spoken together, padding included")
    ap.add_argument("--window", type=int, default=1600, help="utterances")
    ap.add_argument("--limit", type=int, default=9999, help="shards")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    taken = context.Array("b", 20000)
    jobs = [context.Process(target=work, args=(a, g, taken)) for g in a.gpus.split(",")]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    open(f"{a.out}/all.done", "w").close()


if __name__ == "__main__":
    main()
