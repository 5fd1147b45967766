#!/usr/bin/env python3
"""Trains the speech tokenizer in two stages, on one GPU or several.

1. codec: mel encoder (training only), split RVQ, the decoder's part below 50 Hz, and a head that predicts spectra instead of samples (training only).
   A step costs a fraction of one that makes samples, so the codes settle in two or three minutes. Ends by writing OUTDIR/codec.pt, with which
   encode_speech.py encodes the speech.
2. decoder: codes frozen, adversarial, until the end.

Choices that matter
 * The encoder sees a log-mel spectrogram, never the waveform: codes carry no phase, so text almost determines them.
 * Codebook 0 is pulled towards phones (cross entropy on the teacher's own durations).
 * Everything the product runs (quantizer tables, decoder) is causal.
 * A crop is CTX frames of history, which only the transformer sees, and LEN frames that the convolutions see, too; the first SKIP of those
   are not judged. Some crops begin where an utterance begins, with an empty past, and are judged from the first sample: a decoder that has
   never met its empty past begins with a click.
 * A step is one CUDA graph; gradients, codebook statistics and progress are summed over GPUs in one flat buffer outside of it.
 * Exported weights are a running average of the trained ones.

usage: train_codec.py SPEECHDIR OUTDIR --codec EPOCH_SECONDS --until EPOCH_SECONDS [--keep PROCESSES] [--skip_codec]
SPEECHDIR holds the shards of teacher.py; each process reads its part of them as they appear.
"""
import argparse
import fcntl
import math
import os
import sys
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import fused
import parallel
from codec_parts import Disc, Encoder, MelHead, dev, encode, logmel, mel_targets, recon_loss
from model import CodecDecoder, FRAME, N_CODE, update_codebooks

ap = argparse.ArgumentParser()
ap.add_argument("speech"); ap.add_argument("out")
ap.add_argument("--codec", type=float, required=True, help="end of the first stage (seconds of the epoch)")
ap.add_argument("--keep", type=int, default=10 ** 6, help="processes that go on with the second stage")
ap.add_argument("--until", type=float, required=True, help="end at this time (seconds of the epoch)")
ap.add_argument("--skip_codec", action="store_true", help="begin with the second stage, from OUTDIR/codec.pt")
ap.add_argument("--steps", type=int, default=10 ** 9, help="at most, a stage")
ap.add_argument("--first", type=int, default=8, help="shards needed to start")
ap.add_argument("--hours", type=float, default=130, help="size of each process's audio buffer")
ap.add_argument("--rows", type=int, default=12, help="crops in mid speech, a process")
ap.add_argument("--starts", type=int, default=3, help="crops at the beginning of an utterance, a process")
ap.add_argument("--codec_rows", type=int, default=56, help="first stage: crops in mid speech")
ap.add_argument("--codec_starts", type=int, default=8, help="first stage: crops at the beginning of an utterance")
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--lr2", type=float, default=6e-4, help="second stage")
ap.add_argument("--eager", action="store_true", help="no CUDA graph")
ap.add_argument("--profile", action="store_true", help="print where the time of a step goes, and end")
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--log_every", type=int, default=400)
ap.add_argument("--save_every", type=float, default=90)
a = ap.parse_args()
T00 = time.time()
rank, world, _ = parallel.start()
a.keep = min(a.keep, world)
group = torch.distributed.new_group(list(range(a.keep))) if 1 < a.keep < world else None
torch.manual_seed(a.seed)                                # the same weights everywhere
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark_limit = 4                 # the exhaustive search costs half a minute
os.makedirs(a.out, exist_ok=True)
CTX, LEN, SKIP = 20, 10, 3
JUDGED = LEN - SKIP
CODEC_SKIP = 6


def log(*x):
    if rank == 0:
        print(f"[codec {time.time() - T00:6.1f}s]", *x, flush=True)


amp = lambda: torch.autocast(dev, dtype=torch.bfloat16, enabled=dev == "cuda", cache_enabled=False)
dec, enc, disc, head = CodecDecoder().to(dev), Encoder().to(dev), Disc().to(dev), MelHead().to(dev)
q1, q2 = dec.quantizer.rvq_first, dec.quantizer.rvq_rest
BOOKS = [l._codebook for q in (q1, q2) for l in q.vq.layers]
USAGE = torch.stack([b.cluster_usage.data for b in BOOKS])
TOTAL = torch.stack([b.embedding_sum.data for b in BOOKS])
for i_, b_ in enumerate(BOOKS):                         # all codebooks in two tensors
    b_.cluster_usage.data, b_.embedding_sum.data = USAGE[i_], TOTAL[i_]
BASE = torch.arange(16, device=dev) * N_CODE


# ------------------------------------------------------------------ audio store (on the GPU)
class Store:
    def __init__(self):
        n = int(a.hours * 3600 * 12.5)
        self.wav = torch.zeros(n * FRAME, dtype=torch.int16, device=dev)
        self.lab = torch.zeros(n * 8, dtype=torch.uint8, device=dev)
        self.codes = torch.zeros(n, 16, dtype=torch.uint8, device=dev)
        self.starts = torch.zeros(200000, dtype=torch.int64, device=dev)
        self.n = self.u = self.shards = self.coded = 0
        self.ready = (0, 0)                             # frames, utterances: one assignment
        self.frozen = False
        self.held = None
        self.lock = threading.Lock()                    # no other GPU work while the step is recorded
        self.stream = torch.cuda.Stream() if dev == "cuda" else None

    def fill(self):
        seen = set()
        while True:
            for f in sorted(os.listdir(a.speech)):
                if not f.endswith(".npz") or ".tmp" in f or f in seen or f[0] == "x" and f != "x0000.npz":
                    continue
                seen.add(f)
                held = f[0] == "x"
                if not held and int(f[:4]) % world != rank:
                    continue
                z = np.load(f"{a.speech}/{f}")
                wav, lab, table = z["wav"], z["labels"], z["table"]
                nf = len(lab) // 8
                if self.n + nf > len(self.codes) - 64 or self.u + len(table) > len(self.starts):
                    continue
                with self.lock:
                    if self.stream:
                        with torch.cuda.stream(self.stream):
                            self.add(held, wav, lab, table, nf)
                        self.stream.synchronize()
                    else:
                        self.add(held, wav, lab, table, nf)
                if not held:
                    self.n, self.u, self.shards = self.n + nf, self.u + len(table), self.shards + 1
                    self.ready = (self.n, self.u)
            time.sleep(0.3)

    def add(self, held, wav, lab, table, nf):
        w = torch.from_numpy(wav).to(dev)
        if held:
            self.held = w
            return
        self.wav[self.n * FRAME:(self.n + nf) * FRAME] = w
        self.lab[self.n * 8:(self.n + nf) * 8] = torch.from_numpy(lab).to(dev)
        self.starts[self.u:self.u + len(table)] = torch.from_numpy(table[:, 1].astype(np.int64)).to(dev) + self.n
        if self.frozen:
            self.codes[self.n:self.n + nf] = encode(enc, dec.quantizer, self.wav[self.n * FRAME:(self.n + nf) * FRAME])

    def crops(self, grid, rows, starts):
        """-> samples [rows + starts, CTX + LEN frames], phone classes, codes; crops in mid speech lie on a grid of `grid` x 10 ms"""
        n, u = self.ready                               # nothing yet: silence, to record the step on
        w = CTX + LEN
        s = torch.randint(0, max(1, (n - w - 1) * 8 // grid), (rows,), device=dev) * grid
        b = self.starts[torch.randint(0, max(1, u), (starts,), device=dev)] * 8
        s = torch.cat([s, b])[:, None]
        x = self.wav[s * 240 + torch.arange(w * FRAME, device=dev)].float() / 32768
        return x, self.lab[s + torch.arange(w * 8, device=dev)].long(), self.codes[s // 8 + torch.arange(w, device=dev)].long()


store = Store()
threading.Thread(target=store.fill, daemon=True).start()


# ------------------------------------------------------------------ the decoder on a crop, losses
def synth(z):
    """z [B, dim, CTX + LEN]: rows in mid speech and, after them, starts -> judged samples of each"""
    mid, begin = z[:a.rows], z[a.rows:, :, :LEN]
    latent = lambda y: dec.pre_transformer(dec.pre_conv(y.transpose(1, 2)))
    x = dec.waveform(torch.cat([latent(mid)[:, CTX:], latent(begin)]))
    return torch.cat([x[:a.rows, SKIP * FRAME:], x[a.rows:, :JUDGED * FRAME]])


def target(x):
    return torch.cat([x[:a.rows, (CTX + SKIP) * FRAME:], x[a.rows:, :JUDGED * FRAME]])


def quantize(h, bypass=None, stats=None):
    v1, c1, l1 = q1.encode(h, bypass, stats)
    v2, c2, l2 = q2.encode(h, bypass, stats)
    return q1.output_proj(v1) + q2.output_proj(v2), v1, torch.cat([c1, c2], 1), l1 + l2


def start_loss(y):
    """the first 20 ms of the utterances: their level above -66 dBFS, in tens of dB"""
    rms = y[a.rows:, :480].square().mean(1).add(1e-12).sqrt()
    return F.relu(rms.log10() + 3.3).mean()


def adversarial(y, x):
    """-> the discriminators' loss, the decoder's two losses"""
    cl = lambda v: v.contiguous(memory_format=torch.channels_last)
    vx, vy = disc.views(x), disc.views(y)
    with amp():
        dl = adv = fm = 0
        for s, fs in disc.judge([cl(torch.cat([p, q])) for p, q in zip(vx, vy)]):
            r, f = s.float().chunk(2)
            dl = dl + (1 - r).square().mean() + f.square().mean()
            adv = adv + (1 - f).square().mean()
            for t in fs:
                fm = fm + fused.distance(t)
    return dl, adv, fm


gain = torch.zeros((), device=dev)                      # weight of the adversarial losses
bypass = torch.zeros((), device=dev)


def codec_step():
    x = X * torch.exp(torch.randn(X.shape[0], 1, device=dev) * 0.05)
    with torch.no_grad():
        m, targets = logmel(x), mel_targets(x)
    with amp():
        h = enc(m)
    h = enc.bn(h.float())
    stats = []
    z, v1, codes, commit = quantize(h, bypass, stats)
    with amp():
        spectra = head(dec.coarse(dec.pre_transformer(dec.pre_conv(z.transpose(1, 2)))))
    wrong = (spectra.float() - targets).abs().mean(2).view(X.shape[0], CTX + LEN, 8).mean(2)
    begins = (torch.arange(X.shape[0], device=dev) >= a.codec_rows)[:, None] & torch.ones_like(wrong, dtype=torch.bool)
    judged = begins.clone()
    judged[:, CODEC_SKIP:] = True                       # a crop in mid speech lacks its past
    judged[:, -2:] = False                              # what the encoder would see of the future is missing
    rec = (wrong * judged).sum() / judged.sum()
    pl = enc.phone(v1.transpose(1, 2)).view(X.shape[0], CTX + LEN, 4, -1)
    lab = L.view(X.shape[0], CTX + LEN, 8)[..., 1::2]
    phone = F.cross_entropy(pl.flatten(0, 2), lab.flatten())
    loss = 4 * rec + 0.3 * phone + 0.3 * commit
    flat.put(0, torch.autograd.grad(loss, gp))
    flat.put(2, [torch.stack(stats) * torch.cat([torch.ones(1 + q1_dim, device=dev), torch.full((q1_dim,), float(rank == 0), device=dev)])])
    acc = (pl.argmax(-1) == lab).float().mean()
    return dict(rec=rec, phone=phone, acc=acc, commit=commit), codes


def decoder_step():
    z = LUT[C + BASE].sum(2).transpose(1, 2)
    with amp():
        y = synth(z)
    t = target(X)
    rec, begin = recon_loss(y, t), start_loss(y)
    dl, adv, fm = adversarial(y, t)
    loss = 15 * rec + 2 * begin + gain * (adv + 1.5 * fm)
    flat.put(1, torch.autograd.grad(dl, dp, retain_graph=True))
    flat.put(0, torch.autograd.grad(loss, gp))
    return dict(rec=rec, start=begin, adv=adv, fm=fm, disc=dl), None


@torch.no_grad()
def held_error(n=12):
    """reconstruction error on held-out speech, whole decoder; level of the first 20 ms of it, dBFS"""
    if store.held is None:
        return float("nan"), float("nan")
    c = encode(enc, dec.quantizer, store.held)
    m = min(160, len(c) // n)
    y = dec(c[:n * m].view(n, m, 16).transpose(1, 2).long())
    x = store.held[:n * m * FRAME].view(n, -1).float() / 32768
    z = dec(c[None, :32].transpose(1, 2).long())[:, :480]
    return round(float(recon_loss(y, x)), 4), round(20 * math.log10(float(z.square().mean()) ** 0.5 + 1e-7), 1)


@torch.no_grad()
def held_spectra(n=12):
    """first stage: error of the predicted spectra of held-out speech"""
    if store.held is None:
        return float("nan")
    m = min(160, len(store.held) // FRAME // n)
    x = store.held[:n * m * FRAME].view(n, -1).float() / 32768
    c = encode(enc, dec.quantizer, store.held)[:n * m].view(n, m, 16).transpose(1, 2).long()
    y = head(dec.coarse(dec.pre_transformer(dec.pre_conv(dec.quantizer.decode(c).transpose(1, 2)))))
    return round(float((y - mel_targets(x)).abs().mean()), 4)


def save(average, gp):
    """the decoder with the running average of its weights, and all that a later run needs to go on"""
    state = dec.state_dict()
    if average is not None:
        names = {id(p): k for k, p in dec.named_parameters()}
        state = {**state, **{names[id(p)]: m for p, m in zip(gp, average) if id(p) in names}}
    state = {k: v.detach().cpu().clone() for k, v in state.items()}
    if average is not None:
        torch.save(state, f"{a.out}/decoder.tmp")
        os.replace(f"{a.out}/decoder.tmp", f"{a.out}/decoder.pt")
    torch.save({"enc": enc.state_dict(), "quantizer": {k[len("quantizer."):]: v for k, v in state.items() if k.startswith("quantizer.")},
                "decoder": dec.state_dict(), "disc": disc.state_dict(), "trained": average is not None}, f"{a.out}/codec.tmp")
    os.replace(f"{a.out}/codec.tmp", f"{a.out}/codec.pt")
    # the same in parts of less than 16 MB: what encodes, and what goes on
    half = lambda d: {k: v.half() if v.is_floating_point() else v for k, v in d.items()}
    whole = {"enc": enc.state_dict(), "quantizer": dec.quantizer.state_dict()}
    for name, what in (("codec.small", whole), ("resume.pt", {"decoder": half(dec.state_dict()), "disc": half(disc.state_dict()), "trained": average is not None})):
        torch.save(what, f"{a.out}/part.tmp")
        os.replace(f"{a.out}/part.tmp", f"{a.out}/{name}")


# ------------------------------------------------------------------ a stage
q1_dim = TOTAL.shape[2]
frozen = False


def stage(name, step_fn, gp_, dp_, rows, starts, lr, dlr, until, ramp, clip, grid):
    """records the step, waits for speech, trains until the time has come; returns the average of the weights"""
    global flat, gp, dp, X, L, C
    gp, dp = gp_, dp_
    flat = parallel.Flat([gp, dp] + ([] if frozen else [[torch.empty(16, N_CODE, 1 + 2 * q1_dim)]]), dev)
    fused = dict(fused=True) if dev == "cuda" else {}
    og = torch.optim.AdamW(gp, lr=lr, betas=(0.8, 0.99), weight_decay=1e-3, **fused)
    od = torch.optim.AdamW(dp, lr=dlr, betas=(0.8, 0.99), weight_decay=1e-3, **fused) if dp else None
    average = [p.detach().clone() for p in gp]
    for p, g in zip(gp + dp, flat.views[0] + flat.views[1]):
        p.grad = g
    X, L, C = (t.clone() for t in store.crops(grid, rows, starts))
    graph, stat, codes = None, {}, None
    torch.manual_seed(a.seed * 1000 + rank + 1)          # crops differ
    if dev == "cuda" and not a.eager:
        with store.lock:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step_fn()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                stat, codes = step_fn()
            torch.cuda.synchronize()
        log(name, "step recorded")
    while store.shards < a.first or store.held is None:
        time.sleep(0.1)
    if a.profile:
        for to, new in zip((X, L, C), store.crops(grid, rows, starts)):
            to.copy_(new)
        turn = open(f"{a.out}/profile.lock", "w")       # several profiles run beside each other but for the measurement
        fcntl.flock(turn, fcntl.LOCK_EX)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            for _ in range(3):
                step_fn()
            torch.cuda.synchronize()
        print(p.key_averages().table(sort_by="self_cuda_time_total", row_limit=45, max_name_column_width=110))
        if graph:
            begin = time.time()
            for _ in range(50):
                graph.replay()
            torch.cuda.synchronize()
            print(f"{name}: {(time.time() - begin) * 20:.2f} ms a recorded step of {rows} + {starts} rows")
        sys.stdout.flush()
        turn.close()
        if name == "decoder":
            os._exit(0)
        return average
    clock = parallel.Clock(rank, 0, until)
    step, prog, t0, tl, sl, saved = 0, 0.0, time.time(), time.time(), 0, time.time()
    while step < a.steps:
        if step % 20 == 0:
            if step:
                prog = float(flat.data[-1])
                if prog >= 1:
                    break
            rate = 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(prog, 1.0)))
        warm = min(1.0, (step + 1) / 200)
        for o, base in ((og, lr), (od, dlr))[:1 + bool(dp)]:
            for g in o.param_groups:
                g["lr"] = base * rate * warm
        gain.fill_(ramp(prog))
        bypass.fill_(max(0.0, 0.8 - prog * 8))
        for to, new in zip((X, L, C), store.crops(grid, rows, starts)):
            to.copy_(new)
        if graph is None:
            stat, codes = step_fn()
        else:
            graph.replay()
        parallel.total(flat, rank, world, clock, group if frozen else None)
        if world > 1:
            for v in (flat.views[0], flat.views[1])[:1 + bool(dp)]:
                torch._foreach_mul_(v, 1.0 / world)
        gn = nn.utils.clip_grad_norm_(gp, clip)
        og.step()
        if od:
            od.step()
        if not frozen:
            update_codebooks(USAGE, TOTAL, flat.views[2][0], X.shape[0] * (CTX + LEN) * world)
        d = min(0.999, (step + 1) / (step + 50))
        with torch.no_grad():
            torch._foreach_mul_(average, d)
            torch._foreach_add_(average, [p.detach() for p in gp], alpha=1 - d)
        if rank == 0 and (step % a.log_every == 0 or step in (1, 10, 50, 100)):
            extra = ""
            if codes is not None:
                use = torch.stack([torch.bincount(codes[:, i].flatten(), minlength=N_CODE).float() for i in (0, 1, 2, 5, 10, 15)])
                pr = use / use.sum(1, keepdim=True)
                extra = "codes in use " + " ".join(f"{v:.0f}" for v in (-(pr * (pr + 1e-9).log()).sum(1)).exp().tolist())
            log(f"{name} step {step} {prog:.2f} {(time.time() - tl) / max(step - sl, 1) * 1e3:.1f} ms/step, {store.n / 45000:.1f} h here,",
                " ".join(f"{k} {float(v.detach()):.3f}" for k, v in stat.items()), f"gn {float(gn):.1f}", extra)
            tl, sl = time.time(), step
            if not math.isfinite(float(stat["rec"].detach())):
                log("not finite: stopped")
                os._exit(3)
        if rank == 0 and time.time() - saved > a.save_every and frozen:
            save(average, gp)
            saved = time.time()
        step += 1
    log(f"{name}: {step} steps, {(time.time() - t0) / max(step, 1) * 1e3:.1f} ms each")
    return average


log(f"{world} processes, parameters: decoder", sum(p.numel() for p in dec.parameters()), "encoder", sum(p.numel() for p in enc.parameters()),
    "discriminators", sum(p.numel() for p in disc.parameters()))
if a.skip_codec:
    e = torch.load(f"{a.out}/codec.pt", map_location=dev)
    dec.load_state_dict(e["decoder"])
    enc.load_state_dict(e["enc"])
    disc.load_state_dict(e["disc"])
else:
    used = [dec.quantizer, dec.pre_conv, dec.pre_transformer, dec.upsample, enc, head]
    gp = [p for m in used for p in m.parameters() if p.requires_grad]
    stage("codec", codec_step, gp, [], a.codec_rows, a.codec_starts, a.lr, 0, a.codec, lambda p: 0.0, 20.0, 1)
    if world > 1:                                       # the encoder's running statistics: each process has its own
        for b in (enc.bn.running_mean, enc.bn.running_var):
            torch.distributed.all_reduce(b)
            b /= world

# ------------------------------------------------------------------ codes frozen
frozen = True
enc.eval()
for p in list(enc.parameters()) + list(dec.quantizer.parameters()):
    p.requires_grad_(False)
if rank == 0:
    if not a.skip_codec:
        save(None, [])
        log("held-out error of the spectra after the first stage", held_spectra())
with torch.no_grad():                                   # every code's contribution to the latent
    LUT = torch.cat([l._codebook.table() @ q.output_proj.weight[:, :, 0].t() for q in (q1, q2) for l in q.vq.layers])
    with store.lock:
        store.frozen = True
        for s in range(0, store.n, 65536):
            e = min(store.n, s + 65536)
            store.codes[s:e] = encode(enc, dec.quantizer, store.wav[s * FRAME:e * FRAME])
        if dev == "cuda":
            torch.cuda.synchronize()
log("speech encoded")
if world > 1:
    torch.distributed.barrier()
if rank >= a.keep:
    sys.stdout.flush()
    os._exit(0)
world = a.keep
gp = [p for p in dec.parameters() if p.requires_grad]
begun = a.skip_codec and e["trained"]                   # else samples come first, then what the discriminators say
average = stage("decoder", decoder_step, gp, list(disc.parameters()), a.rows, a.starts, a.lr2, 5e-4, a.until,
                lambda p: 1.0 if begun else min(1.0, max(0.0, (p - 0.02) / 0.04)), 300.0, 8)
if rank == 0:
    save(average, gp)                                   # a later run can go on from here
    dec.load_state_dict({k: v.to(dev) for k, v in torch.load(f"{a.out}/decoder.pt").items()})
    log("held-out error and level of the first 20 ms at the end", held_error())
    open(f"{a.out}/decoder.done", "w").close()
sys.stdout.flush()
os._exit(0)                                             # the loader is still waiting for shards
