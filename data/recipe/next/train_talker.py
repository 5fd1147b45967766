#!/usr/bin/env python3
"""Trains talker + code predictor on one GPU, on the codes of teacher.py.

Prompt layouts are the official ones (role tokens, think / nothink prefix, speaker row, text in the prefill *or* one text token per frame).
Utterances are packed into fixed rows, attention is block-diagonal causal, positions restart per utterance. A line of the default
speaker is asked for without a speaker in 30 % of the cases. Exported weights are a running average.

usage: train_talker.py CORPUS TOKDIR TOKENS.npz CODESDIR OUTDIR --until EPOCH_SECONDS [--compile] [--start TALKER.pt]

The step is compiled at once; training begins when CODESDIR/all.done is there.
"""
import argparse
import glob
import math
import multiprocessing
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from bpe import BPE
from model import N_CODE, N_Q, TALKER as C, Talker
from voices import INDEX

S = 640                                                 # row length: 30 s of speech with its text
WEIGHTS = (0.6, 0.4) + (0.15,) * 7 + (0.3, 0.3)         # of the codebooks after the first: words first


def sequence(b, ids, f0, n, stream, english, speaker):
    """-> text, c0, fin, fout: what is summed at each position and which frame it predicts.
    c0: special codec id or -1; fin: frame whose codes are added or -1; fout: frame, -1 none, -2 EOS. speaker: index or None"""
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


class Lines:
    """what is said in the shards of codes, where its frames lie when they are put one behind the other, and its token ids"""

    def __init__(self, a):
        self.b = BPE(a.tok)
        z = np.load(a.tokens)
        self.ids, lens = z["ids"], z["lens"].astype(np.int64)
        self.at = np.concatenate([[0], np.cumsum(lens)])
        self.who = [INDEX[l.split("\t")[2]] for l in open(f"{a.corpus}/text.tsv", encoding="utf-8")]
        kinds = np.load(f"{a.corpus}/jobs.npz")["kinds"]
        self.shards, tables, self.frames = sorted(glob.glob(f"{a.codes}/*.npz")), [], 0
        for f in self.shards:
            z = np.load(f)
            tables.append(z["table"].astype(np.int64) + [0, self.frames, 0])
            self.frames += int(z["table"][-1, 1:].sum())
        table = np.concatenate(tables)
        self.train, self.held = table[kinds[table[:, 0]] == 0], table[kinds[table[:, 0]] == 1]

    def codes(self):
        return np.concatenate([np.load(f)["codes"] for f in self.shards])

    def sequence(self, u, first, frames, rng):
        """one of the line's four variants, in one of the layouts"""
        k, who = u * 4 + rng.integers(4), self.who[u]
        if who == 0 and rng.random() < 0.3:
            who = None
        return sequence(self.b, self.ids[self.at[k]:self.at[k + 1]].tolist(), first, frames, rng.random() < 0.5, rng.random() < 0.5, who)

    def batches(self, table, rng, rows, frames):
        """packs utterances into rows -> [6, rows, S]: text, c0, fin, fout, document, position; and `frames` places that predict one"""
        out = np.zeros((6, rows, S), np.int32)
        out[1:4] = -1
        r = c = d = 0
        for u, first, n in table[rng.permutation(len(table))].tolist():
            q = self.sequence(u, first, n, rng)
            size = len(q[0])
            if size > S:
                continue
            if c + size > S:
                r, c = r + 1, 0
                if r == rows:
                    ok = np.flatnonzero(out[3] >= 0)
                    yield out, rng.choice(ok, frames, replace=len(ok) < frames)
                    out = np.zeros_like(out)
                    out[1:4] = -1
                    r = d = 0
            d += 1
            out[:4, r, c:c + size] = q
            out[4, r, c:c + size] = d
            out[5, r, c:c + size] = np.arange(size)
            c += size


def packing(a, seed, q):
    """a process that packs batches"""
    lines, rng = Lines(a), np.random.default_rng(seed)
    while True:
        for batch in lines.batches(lines.train, rng, a.rows, a.frames):
            q.put(batch)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("corpus", "tok", "tokens", "codes", "out"):
        ap.add_argument(n)
    ap.add_argument("--until", type=float, required=True, help="end at this time (seconds of the epoch)")
    ap.add_argument("--start", help="weights to begin with")
    ap.add_argument("--steps", type=int, default=10 ** 9)
    ap.add_argument("--rows", type=int, default=28)
    ap.add_argument("--frames", type=int, default=10240, help="frames per step for the code predictor")
    ap.add_argument("--packers", type=int, default=4, help="processes that pack batches")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--noise", type=float, default=0.12)
    ap.add_argument("--own", type=float, default=0.3, help="share of the frames heard that are the model's own choice, in the last two thirds of the training")
    ap.add_argument("--dropout", type=float, default=0.05)
    ap.add_argument("--compile", action="store_true")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--save_every", type=float, default=60)
    a = ap.parse_args()
    T0 = time.time()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    log = lambda *x: print(f"[talker {time.time() - T0:6.1f}s]", *x, flush=True)
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Talker(BPE(a.tok).size, dropout=a.dropout).to(dev).train()
    if a.start:
        model.load_state_dict(torch.load(a.start, map_location=dev))
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = {}
    for n, p in model.named_parameters():
        if not p.requires_grad:
            continue
        groups.setdefault(p.dim() >= 2 and "embedding" not in n, []).append(p)
    opt = torch.optim.AdamW([{"params": v, "weight_decay": 0.05 if k else 0.0} for k, v in groups.items()], lr=a.lr, betas=(0.9, 0.98),
                            **(dict(fused=True) if dev == "cuda" else {}))
    log("parameters", sum(p.numel() for p in model.parameters()))
    rest = N_Q - 1
    base = torch.arange(rest, device=dev) * N_CODE
    tril = torch.ones(S, S, dtype=torch.bool, device=dev).tril()
    EOS = N_CODE                                        # its class in the loss of codebook 0
    noise, mixed = torch.zeros((), device=dev), torch.zeros((), device=dev)
    weights_of = torch.tensor(WEIGHTS, device=dev)

    def history(codes, batch):
        """codes of the frame that is heard at each position, lightly corrupted, [R, S, N_Q]"""
        ci = codes[batch[2].long().clamp(min=0)].long()
        bad = torch.rand(ci.shape, device=dev) < noise * torch.rand(ci.shape[0], 1, 1, device=dev)
        return torch.where(bad, torch.randint(0, N_CODE, ci.shape, device=dev), ci)

    def hidden(ci, batch):
        """the talker's last hidden state at each position, and the predictor's embeddings"""
        t, s0, fi, _, doc, pos = batch.long()
        isf = fi >= 0
        x = F.embedding(t, model.text_projection(model.model.text_embedding.weight))
        id0 = torch.where(isf, ci[..., 0], s0)
        x = x + F.embedding(id0.clamp(min=0), model.model.codec_embedding.weight) * (id0 >= 0)[..., None]
        W = torch.cat([e.weight for e in model.code_predictor.model.codec_embedding])     # [rest * N_CODE, D]
        hot = torch.zeros(x.shape[0] * S, rest * N_CODE, device=dev, dtype=x.dtype if dev == "cpu" else torch.bfloat16)
        hot.scatter_(1, (ci[..., 1:] + base).reshape(-1, rest), 1)
        x = x + (hot * isf.reshape(-1, 1)).matmul(W.to(hot.dtype)).view(x.shape)
        mask = (doc[:, :, None] == doc[:, None, :]) & tril
        return model.backbone(x, pos, mask[:, None]), W

    def predicted(hs, cs, W):
        """hs [F, D], true codes cs [F, N_Q] -> logits [F, rest, N_CODE] of the codebooks after the first, each with the true ones before it"""
        e = [hs[:, None], F.embedding(cs[:, :1], model.model.codec_embedding.weight).to(hs.dtype), F.embedding(cs[:, 1:-1] + base[:-1], W).to(hs.dtype)]
        o = model.code_predictor.run(torch.cat(e, 1))
        return torch.einsum("fqd,qnd->fqn", o[:, 1:], torch.stack([l.weight for l in model.code_predictor.lm_head]).to(o.dtype))

    @torch.no_grad()
    def slips(codes, batch, ci):
        """puts what the model itself would have said in place of some of the frames it hears: by itself it will hear no others"""
        h, W = hidden(ci, batch)
        fo = batch[3].long()
        true = codes[fo.clamp(min=0)].long().flatten(0, 1)
        first = F.linear(h, model.codec_head.weight[:N_CODE]).float().flatten(0, 1)
        first = (first / 0.7 - torch.rand_like(first).clamp(min=1e-9).log().neg().log()).argmax(-1)
        said = torch.cat([first[:, None], predicted(h.flatten(0, 1), true, W).argmax(-1)], 1).view(ci.shape).roll(1, 1)
        at = torch.rand(ci.shape[:2], device=dev) < mixed * torch.rand(ci.shape[0], 1, device=dev)
        return torch.where((at & (batch[2] >= 0))[..., None], said, ci)

    def losses(codes, batch, sel, ci):
        """codes [frames, N_Q]; batch and sel of Lines.batches; ci: what is heard
        -> losses of codebook 0 and of the others; accuracies of codebook 0 and its phone, of the others"""
        fo = batch[3].long()
        h, W = hidden(ci, batch)
        head = torch.cat([model.codec_head.weight[:N_CODE], model.codec_head.weight[C["codec_eos_token_id"]][None]])
        lab0 = torch.where(fo >= 0, codes[fo.clamp(min=0), 0].long(), torch.where(fo == -2, EOS, -100)).flatten()
        lg = F.linear(h, head).float().flatten(0, 1)
        l0 = F.cross_entropy(lg, lab0, ignore_index=-100)
        cs = codes[fo.flatten()[sel].clamp(min=0)].long()         # code predictor on some of the frames
        lc = predicted(h.reshape(-1, h.shape[-1])[sel], cs, W).float()
        lcp = (F.cross_entropy(lc.transpose(1, 2), cs[:, 1:], reduction="none").mean(0) * weights_of).sum()
        with torch.no_grad():
            said = (lab0 >= 0).float().sum()
            acc0 = ((lg.argmax(-1) == lab0) & (lab0 >= 0)).float().sum() / said
            phone = ((lg.argmax(-1) // 4 == lab0 // 4) & (lab0 >= 0)).float().sum() / said
            acc = (lc.argmax(-1) == cs[:, 1:]).float().mean(0)
        return l0, lcp, torch.stack([acc0, phone]), acc

    amp = lambda: torch.autocast(dev, dtype=torch.bfloat16, enabled=dev == "cuda")
    fn, slip = losses, slips
    if a.compile:                                       # on an empty batch, while the teacher still speaks
        fn, slip = torch.compile(losses), torch.compile(slips)
        empty = torch.full((6, a.rows, S), -1, dtype=torch.int32, device=dev)
        empty[0], empty[4:] = 0, 0
        codes = torch.zeros(100000, N_Q, dtype=torch.uint8, device=dev)
        torch._dynamo.mark_dynamic(codes, 0)
        try:
            for _ in range(2):
                with amp():
                    ci = slip(codes, empty, history(codes, empty))
                    l0, lcp, _, _ = fn(codes, empty, torch.zeros(a.frames, dtype=torch.int64, device=dev), ci)
                (l0 + lcp).backward()
            log("compiled")
        except Exception as e:
            log("not compiled:", type(e).__name__, str(e)[:300])
            fn, slip = losses, slips
        opt.zero_grad()
    while not os.path.exists(f"{a.codes}/all.done"):
        time.sleep(0.1)
    context = multiprocessing.get_context("spawn")
    q = context.Queue(4 * a.packers)
    packers = [context.Process(target=packing, args=(a, a.seed * 100 + k, q), daemon=True) for k in range(a.packers)]
    for p in packers:
        p.start()
    lines = Lines(a)
    codes = torch.from_numpy(lines.codes()).to(dev)
    log(f"{len(lines.train)} utterances, {lines.frames / 45000:.1f} h")
    put = lambda batch: [torch.from_numpy(z).to(dev, non_blocking=True) for z in batch]
    held = [put(b) for b in lines.batches(np.tile(lines.held, (8, 1)), np.random.default_rng(1), a.rows, a.frames)][:3]
    average = [p.detach().clone() for p in weights]
    best = float("inf")

    def validate():
        """-> text, loss on held-out lines"""
        model.eval()
        noise.fill_(0.0)
        with torch.no_grad(), amp():
            l0, lcp, acc0, acc = (torch.stack(x).mean(0) for x in zip(*(losses(codes, *b, history(codes, b[0])) for b in held)))
        noise.fill_(a.noise)
        model.train()
        return f"l0 {l0:.3f} acc0 {acc0[0]:.3f} its phone {acc0[1]:.3f} cp {lcp:.3f} acc {' '.join(f'{v:.2f}' for v in acc.tolist())}", float(l0 + lcp)

    def save():
        """the running average, and the one with the lowest loss on unseen lines in half precision: what is shipped, and small enough to carry"""
        nonlocal best
        own = [p.detach().clone() for p in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, average)
        text, loss = validate()
        state = {n: p.detach().cpu() for n, p in model.named_parameters()}
        with torch.no_grad():
            torch._foreach_copy_(weights, own)
        for name in ("talker.pt", "best.half") if loss < best else ("talker.pt",):
            torch.save(state if name == "talker.pt" else {n: p.half() for n, p in state.items()}, f"{a.out}/tmp.pt")
            os.replace(f"{a.out}/tmp.pt", f"{a.out}/{name}")
        best = min(best, loss)
        return text

    noise.fill_(a.noise)
    mixed.fill_(a.own)
    t0, step, prog, saved = time.time(), 0, 0.0, time.time()
    while step < a.steps:
        if step % 20 == 0:
            prog = (time.time() - t0) / max(1.0, a.until - t0)
            if prog >= 1:
                break
            rate = max(0.01, 0.5 * (1 + math.cos(math.pi * prog)))
        for gr in opt.param_groups:
            gr["lr"] = a.lr * min(1, (step + 1) / 400) * rate
        b = put(q.get())
        opt.zero_grad()
        with amp():
            ci = history(codes, b[0])
            if a.own and prog > 1 / 3:
                ci = slip(codes, b[0], ci)
            l0, lcp, acc0, acc = fn(codes, *b, ci)
        (l0 + lcp).backward()
        gn = nn.utils.clip_grad_norm_(weights, 1.0)
        opt.step()
        d = min(0.9995, (step + 1) / (step + 100))
        with torch.no_grad():
            torch._foreach_mul_(average, d)
            torch._foreach_add_(average, [p.detach() for p in weights], alpha=1 - d)
        if step % 500 == 0 or step in (10, 50, 100, 250):
            log(f"step {step} {prog:.2f} {(time.time() - t0) / max(step, 1) * 1e3:.0f} ms/step l0 {l0:.3f} acc0 {acc0[0]:.3f} cp {lcp:.3f} gn {gn:.2f}, batches waiting {q.qsize()}")
        if time.time() - saved > a.save_every:
            log(f"step {step} validation:", save())
            saved = time.time()
        step += 1
    log("trained", step, "steps", f"{(time.time() - t0) / max(step, 1) * 1e3:.1f} ms/step")
    log("validation of the running average:", save())
    open(f"{a.out}/talker.done", "w").close()
    for p in packers:
        p.kill()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
