#!/usr/bin/env python3
"""Speaks the corpus with the Kokoro-82M teacher, many utterances at once: one process a GPU, beside it some that cut, code and store.

usage: teacher.py CORPUS KOKORO.NPZ STYLES.NPZ TABLES.NPZ OUTDIR [--gpus 0,1] [--each 12] [--letters 12000] [--window 1600] [--limit SHARDS] [--silent]

Writes OUTDIR/codes/NNNN.npz as they are finished (xNNNN.npz: held-out and test lines): codes of codes.py and a table (utterance, first frame,
frames); and OUTDIR/speech/NNNN.npz: the same utterances' int16 samples at 24 kHz. With --silent only codes, which cost an eighth of the time. A GPU
takes the next shard that nobody has made. A file OUTDIR/stop.GPU ends its process after the shard.
Every utterance begins with 20 ms of zeros, then a fade of 40 ms into the teacher's own breath.
"""
import argparse
import json
import multiprocessing
import os
import time

import numpy as np

import codes
from voices import SPEAKERS, INDEX

RATE, FRAME = 24000, 1920


def finish(audio, first, frames, gain):
    """the frames' samples, faded in and out"""
    begin = first * codes.UNIT
    x = np.concatenate([np.zeros(max(0, -begin), np.float32), audio[max(0, begin):begin + frames * FRAME] * gain])
    x[:1440] *= (lambda r: r * r * (3 - 2 * r))(np.clip((np.arange(1440) - 480) / 960, 0, 1).astype(np.float32))
    x[-960:] *= np.linspace(1, 0, 960, dtype=np.float32)
    x = np.pad(x, (0, frames * FRAME - len(x)))
    return (np.clip(x, -1, 1) * 32767).astype(np.int16)


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
        self.classes = codes.phone_classes(json.load(open(f"{a.corpus}/vocabulary.json", encoding="utf-8")))

    def ids(self, u):
        """the two pauses around the line included"""
        return [0, *self.flat[self.at[u]:self.at[u + 1]].tolist(), 0]

    def speed(self, u):
        return float(self.who[u][1])

    def inputs(self, batch):
        """-> inputs of the teacher"""
        return [self.ids(u) for u in batch], [self.styles[self.who[u][0]][min(self.lengths[u], 510) - 1] for u in batch], [self.speed(u) for u in batch]

    def speaker(self, u):
        return INDEX[self.who[u][0]]


def write(path, **arrays):
    np.savez(f"{path}.tmp.npz", **arrays)
    os.rename(f"{path}.tmp.npz", f"{path}.npz")


def store(out, name, batch, prosody, sound, lines, tables):
    """codes what was spoken, cuts and writes the shard -> seconds, utterances that failed"""
    made, spoken, table, at = [], [], [], 0
    sound = np.load(sound) if sound else None
    for k, (u, durations, f0, energy) in enumerate(zip(batch, *prosody)):
        durations = durations[:lines.lengths[u] + 2]
        steps = 2 * durations.sum()
        done = codes.frame_codes(lines.classes[lines.ids(u)], durations, f0[:steps], energy[:steps], lines.speaker(u), tables)
        if done is None or sound is not None and not np.isfinite(sound[k, :steps * codes.STEP]).all():
            continue
        made.append(done[0])
        if sound is not None:
            spoken.append(finish(sound[k, :steps * codes.STEP], done[1], len(done[0]), SPEAKERS[lines.speaker(u)].gain))
        table.append((u, at, len(done[0])))
        at += len(done[0])
    if made:
        if sound is not None:
            write(f"{out}/speech/{name}", wav=np.concatenate(spoken))
        write(f"{out}/codes/{name}", codes=np.concatenate(made), table=np.array(table, np.int32))
    return at * FRAME / RATE, len(batch) - len(made)


def storing(a, jobs, done):
    lines, tables = Lines(a), dict(np.load(a.tables))
    for name, batch, prosody, sound in iter(jobs.get, None):
        try:
            done.put(store(a.out, name, batch, prosody, sound, lines, tables))
        except Exception as e:                           # a shard lost is no reason to lose the rest
            print(f"[teacher] {name}: {type(e).__name__} {e}", flush=True)
            done.put((0.0, len(batch)))
        if sound:
            os.remove(sound)


def work(a, gpu, taken):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch
    from teacher_model import Teacher
    cuda = torch.cuda.is_available()
    if cuda:                                            # the decoder's first steps are recorded beside it
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
            mine = not taken[place] and not os.path.exists(f"{a.out}/codes/{name}.npz")
            taken[place] = True
        if not mine:
            continue
        try:
            *prosody, rest = teacher.prosody(*lines.inputs(batch))
            sound = None
            if not a.silent:
                sound = f"{a.out}/speech/{name}.raw.npy"
                np.save(sound, teacher.speak(*prosody[1:], rest).cpu().numpy())
        except Exception as e:
            print(f"[teacher {gpu}] {len(batch)} utterances: {type(e).__name__} {e}", flush=True)
            bad += len(batch)
            continue
        jobs.put((name, batch, [x.cpu().numpy() for x in prosody], sound))
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
    for n in ("corpus", "weights", "styles", "tables", "out"):
        ap.add_argument(n)
    ap.add_argument("--gpus", default="0")
    ap.add_argument("--each", type=int, default=12, help="processes that code and store, for each GPU")
    ap.add_argument("--letters", type=int, default=12000, help="spoken together, padding included; the same in all runs into one folder")
    ap.add_argument("--window", type=int, default=1600, help="utterances; the same in all runs into one folder")
    ap.add_argument("--limit", type=int, default=9999, help="shards")
    ap.add_argument("--silent", action="store_true", help="codes only")
    a = ap.parse_args()
    for folder in ("speech", "codes"):
        os.makedirs(f"{a.out}/{folder}", exist_ok=True)
    context = multiprocessing.get_context("spawn")
    taken = context.Array("b", 20000)
    jobs = [context.Process(target=work, args=(a, g, taken)) for g in a.gpus.split(",")]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()


if __name__ == "__main__":
    main()
