#!/usr/bin/env python3
"""Measures a model folder with the recipe's own synthesis: speaks both test sets with every speaker and several seeds, and prints a table.

usage: evaluate.py MODELDIR OUT.json [--work DIR --corpus DIR] [--seeds 3] [--sets hard,everyday] [--temperature T ...]
With --work, a folder of teacher.py, the teacher's own test lines are measured, too (similarity to the teacher's voice, lengths), and what the decoder
makes of their codes.
"""
import argparse
import concurrent.futures as cf
import glob
import json
import os
import time

import numpy as np
import torch

import meters
from generate import decode, generate, load, write_wav
from voices import SPEAKERS

HERE = os.path.dirname(os.path.abspath(__file__))
read = lambda f: [l for l in open(f"{HERE}/../{f}", encoding="utf-8").read().split("\n") if l]
SETS = {"everyday": read("test_sentences.txt"), "hard": read("hard_set.txt")}


def hear_all(job):
    """in a process of its own"""
    global WHISPER
    try:
        WHISPER
    except NameError:
        WHISPER = meters.whisper_model(1)
    return meters.hear(WHISPER, job)


def dns_all(x):
    global DNS
    try:
        DNS
    except NameError:
        DNS = meters.dnsmos_session()
    return meters.dnsmos(DNS, x)


def teacher_lines(work, corpus):
    """-> {speaker: {line: (sound, codes)}} of the test lines"""
    rows = [l.rstrip("\n").split("\t") for l in open(f"{corpus}/text.tsv", encoding="utf-8")]
    out = {s.name: {} for s in SPEAKERS}
    for f in sorted(glob.glob(f"{work}/speech/x*.npz")):
        wav, z = np.load(f)["wav"], np.load(f"{work}/codes/{os.path.basename(f)}")
        codes = z["codes"]
        for u, at, n in z["table"].tolist():
            out[rows[u][2]].setdefault(rows[u][0], (wav[at * 1920:(at + n) * 1920].astype(np.float32) / 32768, codes[at:at + n].astype(np.int64)))
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model"); ap.add_argument("out")
    ap.add_argument("--work"); ap.add_argument("--corpus")
    ap.add_argument("--seeds", type=int, default=3)
    ap.add_argument("--sets", default="hard,everyday")
    ap.add_argument("--temperature", type=float, nargs="*", default=[0.9])
    ap.add_argument("--top_k", type=int, default=50)
    ap.add_argument("--stream", action="store_true")
    ap.add_argument("--processes", type=int, default=2)
    ap.add_argument("--wav", help="keep the sound of the first seed here")
    ap.add_argument("--mos_every", type=int, default=2)
    a = ap.parse_args()
    t0 = time.time()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    b, m, d = load(a.model, dev)
    sets = {k: SETS[k] for k in a.sets.split(",")}
    runs = {}                                           # (name, speaker, seed) -> {set: [sound]}, ended
    teacher = None
    if a.work:
        teacher = teacher_lines(a.work, a.corpus)
        if not all(l in teacher[s.name] for s in SPEAKERS for ls in sets.values() for l in ls):
            print("teacher's test lines incomplete", flush=True)
        none = np.zeros(4800, np.float32), np.zeros((0, 1), np.int64)
        for s in SPEAKERS:
            lines = {k: [teacher[s.name].get(l, none) for l in ls] for k, ls in sets.items()}
            runs["teacher", s.name, 0] = {k: [x for x, _ in ls] for k, ls in lines.items()}, None
            runs["round trip", s.name, 0] = {k: [decode(d, torch.from_numpy(c), dev) for _, c in ls] for k, ls in lines.items()}, None
    for T in a.temperature:
        name = f"T {T:g}" + (" stream" if a.stream else "")
        for seed in range(a.seeds):
            lines = [(s, k, l) for s in range(len(SPEAKERS)) for k, ls in sets.items() for l in ls]
            codes, ended = [], []
            for part in np.array_split(np.arange(len(lines)), max(1, len(lines) // 400)):
                c, e = generate(b, m, [lines[i][2] for i in part], dev, [lines[i][0] for i in part], a.stream, True, T, a.top_k, sgreedy=True, seed=seed)
                codes += c
                ended += e
            sounds = [decode(d, c, dev) for c in codes]
            for s, sp in enumerate(SPEAKERS):
                pick = lambda k: [i for i, l in enumerate(lines) if l[0] == s and l[1] == k]
                runs[name, sp.name, seed] = {k: [sounds[i] for i in pick(k)] for k in sets}, [ended[i] for k in sets for i in pick(k)]
        print(f"{name}: synthesised, {time.time() - t0:.0f} s", flush=True)
    if a.wav:
        for (name, sp, seed), (sounds, _) in runs.items():
            if seed == 0:
                for k, xs in sounds.items():
                    folder = f"{a.wav}/{name.replace(' ', '-')}/{sp}/{k}"
                    os.makedirs(folder, exist_ok=True)
                    for i, x in enumerate(xs):
                        write_wav(f"{folder}/{i:03d}.wav", x)
    keys = list(runs)
    jobs, owner = [], []
    for key in keys:
        for k, xs in runs[key][0].items():
            for w in meters.windows(SETS[k], [x if len(x) > 2400 else np.zeros(2400, np.float32) for x in xs]):
                jobs.append(w)
                owner.append((key, k))
    mos = meters.distillmos_model(dev)
    embed = meters.embedder()
    report = {}
    with cf.ProcessPoolExecutor(a.processes, mp_context=__import__("multiprocessing").get_context("spawn")) as pool:
        heard = pool.map(hear_all, jobs, chunksize=1)
        some = {key: [x for k in sorted(runs[key][0]) for x in runs[key][0][k][::a.mos_every] if len(x) > 4800] for key in keys}
        dns = {key: pool.map(dns_all, xs, chunksize=4) for key, xs in some.items()}
        emb = {key: meters.embedding(embed, [x for k in sorted(runs[key][0]) for x in runs[key][0][k][:10] if len(x) > 4800]) for key in keys}
        for key in keys:
            sounds, ended = runs[key]
            flat = [x for k in sorted(sounds) for x in sounds[k] if len(x) > 4800]
            r = report[key] = dict(M=float(np.mean([meters.distillmos_score(mos, x, dev) for x in some[key]])), H=meters.high_band(flat),
                                   start=sorted(meters.beginning(x) for x in flat), n=len(flat))
            if ended is not None:
                r["ended"], r["of"] = int(sum(ended)), len(ended)
            if teacher:
                r["S"] = {s.name: float(emb[key] @ emb["teacher", s.name, 0]) for s in SPEAKERS}
                ref = runs["teacher", key[1], 0][0]
                r["length"] = sorted(len(x) / max(1, len(y)) for k in sounds for x, y in zip(sounds[k], ref[k]))
        for key in keys:
            report[key]["D"] = float(np.mean(list(dns[key])))
        err = {}
        for o, (e, n, h) in zip(owner, heard):
            x = err.setdefault(o, [0, 0, []])
            x[0], x[1] = x[0] + e, x[1] + n
            x[2].append(h)
    for (key, k), (e, n, h) in err.items():
        report[key]["W " + k], report[key]["heard " + k] = e / n, h
    json.dump([dict(run=k[0], speaker=k[1], seed=k[2], **v) for k, v in report.items()], open(a.out, "w"), indent=1)
    for name in dict.fromkeys(k[0] for k in keys):
        for who in [s.name for s in SPEAKERS] + ["all"]:
            rs = [report[k] for k in keys if k[0] == name and who in (k[1], "all")]
            mean = lambda f: np.mean([f(r) for r in rs])
            line = f"{name:12} {who:6}" + "".join(f" W {k} {mean(lambda r: r['W ' + k]):.3f}" for k in sets)
            line += f" D {mean(lambda r: r['D']):.2f} M {mean(lambda r: r['M']):.2f} H {mean(lambda r: r['H']):.1f}"
            st = np.concatenate([r["start"] for r in rs])
            line += f" start<-50 {np.mean(st < -50):.3f} max {st.max():.0f}"
            if "ended" in rs[0]:
                line += f" ended {sum(r['ended'] for r in rs)}/{sum(r['of'] for r in rs)}"
            if "S" in rs[0] and who != "all":
                line += f" S own {np.mean([r['S'][who] for r in rs]):.2f} others {max(np.mean([r['S'][o.name] for r in rs]) for o in SPEAKERS if o.name != who):.2f}"
                ln = np.concatenate([r["length"] for r in rs])
                line += f" length {np.percentile(ln, 1):.2f} {np.median(ln):.2f} {np.percentile(ln, 99):.2f}"
            print(line, flush=True)
    print(f"{time.time() - t0:.0f} s", flush=True)


if __name__ == "__main__":
    main()
