#!/usr/bin/env python3
"""Trains talker + code predictor, on one GPU or several, on the codes that encode_speech.py makes of the speech.

Prompt layouts are the official ones (role tokens, think / nothink prefix, speaker row, text in the prefill *or* one text token per frame).
Utterances are packed into fixed rows, attention is block-diagonal causal, positions restart per utterance. A line of the default
speaker is asked for without a speaker in 30 % of the cases. Exported weights are a running average.

usage: train_talker.py CORPUS TOKDIR TOKENS.npz CODESDIR OUTDIR --until EPOCH_SECONDS [--compile] [--start TALKER.pt]

Starts at once (the step is compiled meanwhile) and takes in shards as they appear.
"""
import argparse
import math
import os
import queue
import random
import sys
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import parallel
from bpe import BPE
from model import N_CODE, TALKER as C, Talker
from teacher import PHONES
from voices import INDEX

S = 640                                                 # row length: 30 s of speech with its text


def sequence(b, ids, f0, n, stream, english, speaker):
    """-> text, c0, fin, fout: what is summed at each position and which frame it predicts.
    c0: special codec id or -1; fin: frame whose 16 codes are added or -1; fout: frame, -1 none, -2 EOS. speaker: index or None"""
    pad, bos, eos = b.special["<tts_pad>"], b.special["<tts_text_bos>"], b.special["<tts_text_eod>"]
    role = [b.special["<|im_start|>"]] + b.encode("assistant") + b.encode("\n")
    pre = [C["codec_think_id"], C["codec_think_bos_id"], C["english"], C["codec_think_eos_id"]] if english else \
        [C["codec_nothink_id"], C["codec_think_bos_id"], C["codec_think_eos_id"]]
    pre += ([] if speaker is None else [C["first_speaker"] + speaker]) + [C["codec_pad_id"]]
    text = role + [pad] * (len(pre) - 1) + [bos]
    c0 = [-1] * 3 + pre
    if stream:
        text, c0, rest = text + ids[:1], c0 + [C["codec_bos_id"]], ids[1:] + [eos]
    else:
        text, rest = text + ids + [eos, pad], []
        c0 += [C["codec_pad_id"]] * (len(ids) + 1) + [C["codec_bos_id"]]
    p = len(text)                                      # prefill length
    text += (rest + [pad] * n)[:n]
    fr = list(range(f0, f0 + n))
    return text, c0 + [-1] * n, [-1] * p + fr, [-1] * (p - 1) + fr + [-2]


class Pool:
    """sequences and codes on the GPU, in arrays that never move (the compiled step refers to them)"""

    def __init__(self, a, dev, rank, world):
        self.a, self.dev, self.rank, self.world = a, dev, rank, world
        frames = int(a.hours * 45000)
        cap = int(frames * 4 * 1.55)
        put = lambda n, t: torch.zeros(n, dtype=t, device=dev)
        self.text, self.c0, self.fin, self.fout = put(cap, torch.int16), put(cap, torch.int16), put(cap, torch.int32), put(cap, torch.int32)
        self.codes, self.labels = put((frames, 16), torch.uint8), put((frames, 4), torch.uint8)
        self.positions = self.frames = 0
        self.host_fout = np.zeros(cap, np.int32)
        empty = np.zeros(0, np.int64)
        self.now = dict(lens=empty, off=empty, train=empty, val=empty)   # replaced in one assignment
        self.b = BPE(a.tok)
        z = np.load(a.tokens)
        self.ids, self.lens = z["ids"], z["lens"].astype(np.int64)
        self.at = np.concatenate([[0], np.cumsum(self.lens)])
        self.who = [INDEX[l.split("\t")[2]] for l in open(f"{a.corpus}/text.tsv", encoding="utf-8")]
        self.kinds = np.load(f"{a.corpus}/jobs.npz")["kinds"]
        self.stream = torch.cuda.Stream() if dev == "cuda" else None

    def sequences(self, u, f0, n):
        rng = random.Random(u)
        for v in range(4):
            k = u * 4 + v
            who = self.who[u]
            if who == 0 and rng.random() < 0.3:
                who = None
            yield sequence(self.b, self.ids[self.at[k]:self.at[k + 1]].tolist(), f0, n, rng.random() < 0.5, rng.random() < 0.5, who)

    def add(self, codes, labels, table):
        nf = len(codes)
        out, lens, train, val = [[], [], [], []], [], [], []
        first = len(self.now["lens"]) // 4
        for u, f, n in table.tolist():
            kind = self.kinds[u]
            if kind == 2:
                continue
            (val if kind else train).append(first + len(lens) // 4)
            for q in self.sequences(u, self.frames + f, n):
                if len(q[0]) > S:
                    q = tuple(x[:1] for x in q)         # too long: a length of 1 is skipped below
                lens.append(len(q[0]))
                for k in range(4):
                    out[k].extend(q[k])
        n = len(out[0])
        if not lens or self.positions + n > len(self.text) or self.frames + nf > len(self.codes):
            return False
        p = slice(self.positions, self.positions + n)

        def copy():
            for to, x, t in zip((self.text, self.c0, self.fin, self.fout), out, (np.int16, np.int16, np.int32, np.int32)):
                to[p] = torch.from_numpy(np.array(x, t)).to(self.dev)
            self.codes[self.frames:self.frames + nf] = torch.from_numpy(codes).to(self.dev)
            self.labels[self.frames:self.frames + nf] = torch.from_numpy(labels).to(self.dev)
        if self.stream:
            with torch.cuda.stream(self.stream):
                copy()
            self.stream.synchronize()
        else:
            copy()
        self.host_fout[p] = out[3]
        lens = np.array(lens, np.int64)
        old = self.now
        self.now = dict(lens=np.concatenate([old["lens"], lens]), off=np.concatenate([old["off"], self.positions + np.cumsum(lens) - lens]),
                        train=np.concatenate([old["train"], np.array(train, np.int64)]), val=np.concatenate([old["val"], np.array(val, np.int64)]))
        self.positions, self.frames = self.positions + n, self.frames + nf
        return True

    def fill(self, log):
        seen, told = set(), 0
        while True:
            for f in sorted(os.listdir(self.a.codes), reverse=True) if os.path.isdir(self.a.codes) else ():    # the held-out shards first
                if not f.endswith(".npz") or ".tmp" in f or f in seen:
                    continue
                seen.add(f)
                if f[0] != "x" and int(f[:4]) % self.world != self.rank:
                    continue
                z = np.load(f"{self.a.codes}/{f}")
                self.add(z["codes"], z["labels"], z["table"])
                if self.frames // 450000 > told:
                    told = self.frames // 450000
                    log(f"pool: {len(self.now['train'])} utterances, {self.frames / 45000:.1f} h here")
            time.sleep(0.5)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("corpus", "tok", "tokens", "codes", "out"):
        ap.add_argument(n)
    ap.add_argument("--until", type=float, required=True, help="end at this time (seconds of the epoch)")
    ap.add_argument("--start", help="weights to begin with")
    ap.add_argument("--steps", type=int, default=10 ** 9)
    ap.add_argument("--rows", type=int, default=28, help="a process")
    ap.add_argument("--frames", type=int, default=10240, help="frames per step for the code predictor, a process")
    ap.add_argument("--hours", type=float, default=130, help="size of each process's pool")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--noise", type=float, default=0.12)
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--w_cp", type=float, default=1.5, help="weight of the code predictor's loss")
    ap.add_argument("--compile", action="store_true")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--save_every", type=float, default=60)
    a = ap.parse_args()
    T0 = time.time()
    rank, world, dev = parallel.start()
    log = lambda *x: rank == 0 and print(f"[talker {time.time() - T0:6.1f}s]", *x, flush=True)
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed * 100 + rank)
    torch.backends.cuda.matmul.allow_tf32 = True
    pool = Pool(a, dev, rank, world)
    model = Talker(pool.b.size, dropout=a.dropout).to(dev).train()
    if a.start:
        model.load_state_dict(torch.load(a.start, map_location=dev))
    aux = nn.Linear(C["hidden_size"], 8 * PHONES).to(dev)   # training only: phones of this and the next frame
    params = list(model.named_parameters()) + [("aux." + n, p) for n, p in aux.named_parameters()]
    flat = parallel.Flat([[p for _, p in params]], dev)
    for (_, p), g in zip(params, flat.views[0]):
        p.grad = g
    groups = {}
    for n, p in params:
        groups.setdefault(p.dim() >= 2 and "embedding" not in n, []).append(p)
    opt = torch.optim.AdamW([{"params": v, "weight_decay": 0.05 if k else 0.0} for k, v in groups.items()], lr=a.lr, betas=(0.9, 0.98),
                            **(dict(fused=True) if dev == "cuda" else {}))
    log(f"{world} processes, parameters", sum(p.numel() for p in model.parameters()))

    def batches(order, P):
        """greedy packing of utterances (a random one of the four variants) into rows"""
        idx = np.full((a.rows, S), -1, np.int64)
        doc, pos = np.zeros((a.rows, S), np.int16), np.zeros((a.rows, S), np.int16)
        r = c = d = 0
        for u in order:
            v = u * 4 + rng.integers(4)
            n = P["lens"][v]
            if n < 8:
                continue
            if c + n > S:
                r, c = r + 1, 0
                if r == a.rows:
                    i = idx.reshape(-1)
                    ok = np.flatnonzero((np.where(i >= 0, pool.host_fout[i], -1)) >= 0)
                    sel = rng.choice(ok, a.frames, replace=len(ok) < a.frames)
                    t = [torch.from_numpy(z) for z in (idx, doc, pos, sel)]
                    yield [z.pin_memory() if dev == "cuda" else z for z in t]
                    idx, doc, pos = np.full_like(idx, -1), np.zeros_like(doc), np.zeros_like(pos)
                    r = d = 0
            d += 1
            idx[r, c:c + n] = np.arange(P["off"][v], P["off"][v] + n)
            doc[r, c:c + n] = d
            pos[r, c:c + n] = np.arange(n)
            c += n

    base15 = torch.arange(15, device=dev) * N_CODE
    tril = torch.ones(S, S, dtype=torch.bool, device=dev).tril()
    EOS = N_CODE                                        # class index of EOS in the 129-way loss
    noise = torch.zeros((), device=dev)

    def losses(idx, doc, pos, sel):
        ok = idx >= 0
        j = idx.clamp(min=0)
        t, s0, fi, fo = pool.text[j].long(), pool.c0[j].long(), pool.fin[j].long(), pool.fout[j].long()
        fo = torch.where(ok, fo, -1)
        isf = ok & (fi >= 0)
        ci = pool.codes[fi.clamp(min=0)].long()        # [R,S,16], lightly corrupted history
        bad = torch.rand(ci.shape, device=dev) < noise * torch.rand(ci.shape[0], 1, 1, device=dev)
        ci = torch.where(bad, torch.randint(0, N_CODE, ci.shape, device=dev), ci)
        tab = model.text_projection(model.model.text_embedding.weight)
        x = F.embedding(t, tab)
        e0 = model.model.codec_embedding.weight
        id0 = torch.where(isf, ci[..., 0], s0)
        x = x + F.embedding(id0.clamp(min=0), e0) * (id0 >= 0)[..., None]
        W = torch.cat([e.weight for e in model.code_predictor.model.codec_embedding])     # [15*128, D]
        hot = torch.zeros(idx.shape[0] * S, 15 * N_CODE, device=dev, dtype=x.dtype if dev == "cpu" else torch.bfloat16)
        hot.scatter_(1, (ci[..., 1:] + base15).reshape(-1, 15), 1)
        x = x + (hot * isf.reshape(-1, 1)).matmul(W.to(hot.dtype)).view(x.shape)
        mask = (doc[:, :, None] == doc[:, None, :]) & tril
        h, mid = model.backbone(x, pos, mask[:, None], tap=4)
        # codebook 0 and EOS
        head = torch.cat([model.codec_head.weight[:N_CODE], model.codec_head.weight[C["codec_eos_token_id"]][None]])
        lab0 = torch.where(fo >= 0, pool.codes[fo.clamp(min=0), 0].long(), torch.where(fo == -2, EOS, -100))
        lg = F.linear(h, head).float().flatten(0, 1)
        l0 = F.cross_entropy(lg, lab0.flatten(), ignore_index=-100)
        # phones of frame fout and the next one
        ap_ = aux(mid).float().view(-1, PHONES)
        fz = fo.clamp(min=0)
        tgt = torch.cat([pool.labels[fz], pool.labels[(fz + 1).clamp(max=pool.labels.shape[0] - 1)]], -1).long()
        tgt = torch.where((fo >= 0)[..., None], tgt, -100)
        la = F.cross_entropy(ap_, tgt.flatten(), ignore_index=-100)
        # code predictor on a random subset of frames
        hs = h.reshape(-1, h.shape[-1])[sel]
        cs = pool.codes[fo.flatten()[sel].clamp(min=0)].long()          # [F,16]
        e = [hs[:, None], F.embedding(cs[:, :1], e0).to(hs.dtype), F.embedding(cs[:, 1:15] + base15[:14], W).to(hs.dtype)]
        o = model.code_predictor.run(torch.cat(e, 1))
        hw = torch.stack([l.weight for l in model.code_predictor.lm_head])                # [15,128,Dc]
        lc = torch.einsum("fqd,qnd->fqn", o[:, 1:], hw.to(o.dtype)).float()
        lcp = F.cross_entropy(lc.reshape(-1, N_CODE), cs[:, 1:].reshape(-1))
        with torch.no_grad():
            acc0 = ((lg.argmax(-1) == lab0.flatten()) & (lab0.flatten() >= 0)).float().sum() / (lab0 >= 0).float().sum()
        return l0, lcp, la, acc0

    amp = lambda: torch.autocast(dev, dtype=torch.bfloat16, enabled=dev == "cuda")
    fn = losses
    if a.compile:                                       # built on an empty batch while the codec is trained
        fn = torch.compile(losses)
        empty = [torch.full((a.rows, S), -1), torch.zeros(a.rows, S, dtype=torch.int16), torch.zeros(a.rows, S, dtype=torch.int16),
                 torch.zeros(a.frames, dtype=torch.int64)]
        try:
            for _ in range(2):
                with amp():
                    l0, lcp, la, _ = fn(*[z.to(dev) for z in empty])
                (l0 + lcp + la).backward()
            log("compiled")
        except Exception as e:
            log("not compiled:", type(e).__name__, str(e)[:300])
            fn = losses
        flat.data.zero_()
    threading.Thread(target=pool.fill, args=(log,), daemon=True).start()
    enough = lambda: len(pool.now["train"]) >= min(200, a.rows * 10)
    while not enough():
        time.sleep(0.1)
    time.sleep(3 if dev == "cuda" else 0)
    q = queue.Queue(6)

    def feeder():
        while True:
            P = pool.now
            for b in batches(rng.permutation(P["train"]), P):
                q.put(b)
                if len(pool.now["train"]) > 1.02 * len(P["train"]):
                    break                              # the pool has grown

    threading.Thread(target=feeder, daemon=True).start()
    average = [p.detach().clone() for p in model.parameters()]

    def validate(weights=None):
        own = None
        if weights is not None:
            own = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), weights)
        model.eval()
        noise.fill_(0.0)
        P, r, l0 = pool.now, "", float("inf")
        for b in batches(np.tile(P["val"], 40), P):
            with torch.no_grad(), amp():
                l0, lcp, la, acc0 = losses(*[z.to(dev) for z in b])
            r = f"l0 {l0:.3f} acc0 {acc0:.3f} cp {lcp:.3f} phones {la:.3f}"
            break
        noise.fill_(a.noise)
        model.train()
        if own is not None:
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), own)
        return r, float(l0)

    best = float("inf")

    def save():
        """the running average, and a copy of the one with the lowest loss of codebook 0 on unseen lines"""
        nonlocal best
        names = [n for n, _ in model.named_parameters()]
        r, l0 = validate(average)
        for name in ("talker", "best") if l0 < best else ("talker",):
            torch.save({n: m.detach().cpu().clone() for n, m in zip(names, average)}, f"{a.out}/tmp.pt")
            os.replace(f"{a.out}/tmp.pt", f"{a.out}/{name}.pt")
        if l0 < best:                                   # the best in half precision: what is shipped, and small enough to carry
            torch.save({n: m.detach().cpu().half() for n, m in zip(names, average)}, f"{a.out}/tmp.pt")
            os.replace(f"{a.out}/tmp.pt", f"{a.out}/best.half")
        best = min(best, l0)
        return r

    noise.fill_(a.noise)
    clock = parallel.Clock(rank, 0, a.until)
    t0, step, prog, saved, t1 = time.time(), 0, 0.0, time.time(), time.time()
    weights = list(model.parameters())
    while step < a.steps:
        if step % 20 == 0:
            if step:
                prog = float(flat.data[-1])
                if prog >= 1:
                    break
            rate = max(0.01, 0.5 * (1 + math.cos(math.pi * min(prog, 1.0))))
        if step == 30:
            t1 = time.time()
        for gr in opt.param_groups:
            gr["lr"] = a.lr * min(1, (step + 1) / 400) * rate
        b = [z.to(dev, non_blocking=True) for z in q.get()]
        flat.data.zero_()
        with amp():
            l0, lcp, la, acc0 = fn(*b)
        loss = l0 + a.w_cp * lcp + (0.5 if prog < 0.5 else 0.2) * la
        loss.backward()
        parallel.total(flat, rank, world, clock)
        flat.data[:-1].mul_(1.0 / world)
        gn = nn.utils.clip_grad_norm_(weights, 1.0)
        opt.step()
        d = min(0.9995, (step + 1) / (step + 100))
        with torch.no_grad():
            torch._foreach_mul_(average, d)
            torch._foreach_add_(average, [p.detach() for p in weights], alpha=1 - d)
        if step % 500 == 0 or step in (10, 50, 100, 250):
            log(f"step {step} {prog:.2f} {(time.time() - t0) / max(step, 1) * 1e3:.0f} ms/step l0 {l0:.3f} acc0 {acc0:.3f} cp {lcp:.3f} phones {la:.3f} gn {gn:.2f}",
                f"{pool.frames / 45000:.1f} h here")
        if rank == 0 and time.time() - saved > a.save_every:
            log(f"step {step} validation:", save())
            saved = time.time()
        step += 1
    log("trained", step, "steps", f"{(time.time() - t0) / max(step, 1) * 1e3:.1f} ms/step, steady {(time.time() - t1) / max(1, step - 30) * 1e3:.1f} ms")
    if rank == 0:
        log("validation, last weights:", validate()[0], "; running average:", save())
        open(f"{a.out}/talker.done", "w").close()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
