#!/usr/bin/env python3
"""Speaks the corpus with the Kokoro-82M teacher: several processes a GPU (the graph is bound by kernel launches).

usage: teacher.py CORPUS KOKORO.NPZ STYLES.NPZ OUTDIR [--gpus 0,1,2,3] [--each 14] [--shard 40] [--limit SHARDS]

Writes shards OUTDIR/NNNN.npz as they are finished (xNNNN.npz: held-out and test lines); each holds int16 samples at 24 kHz, every utterance padded to whole frames of
80 ms, a phone class per 10 ms, and a table (utterance, first frame, frames). Processes take the next free shard. A file
OUTDIR/stop.GPU ends the processes of that GPU after their utterance's shard.
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


def work(a, gpu, k):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from teacher_graph import Graph
    torch.set_num_threads(1)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    z = np.load(f"{a.corpus}/jobs.npz")
    ids, lens, kinds = z["ids"], z["lens"].astype(np.int64), z["kinds"]
    off = np.concatenate([[0], np.cumsum(lens)])
    who = [l.rstrip("\n").split("\t")[2:4] for l in open(f"{a.corpus}/text.tsv", encoding="utf-8")]
    styles = np.load(a.styles)
    styles = {s.name: styles[s.style].reshape(-1, 256) for s in SPEAKERS}
    kind = classes(json.load(open(f"{a.corpus}/vocabulary.json", encoding="utf-8")))
    graph, seconds, bad, t0 = Graph(a.weights, dev), 0.0, 0, time.time()
    fixed = int((kinds > 0).sum())
    shards = shard_table(len(lens), fixed, a.shard)[:a.limit]
    for s, (lo, hi) in enumerate(shards):
        if os.path.exists(f"{a.out}/stop.{gpu}"):
            break
        name = f"x{s:04d}" if hi <= fixed else f"{s:04d}"
        try:
            os.close(os.open(f"{a.out}/{name}.taken", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        sound, labs, table, at = [], [], [], 0
        for u in range(lo, hi):
            i = [int(v) for v in ids[off[u]:off[u + 1]]]
            speaker, speed = who[u]
            try:
                audio, durations = graph([0, *i, 0], styles[speaker][min(len(i), 510) - 1], float(speed))
                audio, durations = audio.float().cpu().numpy(), durations.float().cpu().numpy().ravel()
                done = finish(audio, np.cumsum(durations) * (RATE // 40), i, kind, SPEAKERS[INDEX[speaker]].gain)
            except Exception as e:                       # one utterance lost is no reason to lose the rest
                print(f"[teacher {gpu}.{k}] utterance {u}: {type(e).__name__} {e}", flush=True)
                done = None
            if done is None:
                bad += 1
                continue
            sound.append(done[0])
            labs.append(done[1])
            table.append((u, at, done[2]))
            at += done[2]
        seconds += at * FRAME / RATE
        if sound:
            np.savez(f"{a.out}/{name}.tmp.npz", wav=np.concatenate(sound), labels=np.concatenate(labs), table=np.array(table, np.int32))
            os.rename(f"{a.out}/{name}.tmp.npz", f"{a.out}/{name}.npz")
    print(f"[teacher {gpu}.{k}] {seconds / 3600:.2f} h in {time.time() - t0:.0f} s, {bad} failed", flush=True)


def shard_table(n, fixed, size):
    """held-out and test utterances in small shards of their own, which come first"""
    edges = list(range(0, fixed, min(24, size))) + list(range(fixed, n, size)) + [n]
    return list(zip(edges[:-1], edges[1:]))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("corpus", "weights", "styles", "out"):
        ap.add_argument(n)
    ap.add_argument("--gpus", default="0")
    ap.add_argument("--each", type=int, default=14)
    ap.add_argument("--shard", type=int, default=40)
    ap.add_argument("--limit", type=int, default=10 ** 6)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    jobs = [context.Process(target=work, args=(a, g, k)) for k in range(a.each) for g in a.gpus.split(",")]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    open(f"{a.out}/all.done", "w").close()


if __name__ == "__main__":
    main()
