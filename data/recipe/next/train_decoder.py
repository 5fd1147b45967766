#!/usr/bin/env python3
"""Trains the speech tokenizer's decoder, codebooks included, on one GPU: from codes to the teacher's sound, adversarial.

Choices that matter
 * There is no encoder: the codes are what the teacher knows of a frame (codes.py), and a codebook is an embedding like any other.
 * Everything the product runs is causal. Codes name the two phones that follow a frame, so the sound need not guess where it goes.
 * A crop is CTX frames of history, which only the transformer sees, and LEN frames that the convolutions see, too; the first SKIP of those
   are not judged. Some crops begin where an utterance begins, with an empty past, and are judged from the first sample: a decoder that has
   never met its empty past begins with a click.
 * First the part below 50 Hz learns alone, from spectra that a head predicts: a step sees thirty times the frames that one of samples does.
   Without it phones stay blurred: 0.37 of the words wrong after 7,500 steps.
 * A step is one CUDA graph. Exported weights are a running average of the trained ones.

usage: train_decoder.py WORK OUTDIR --front EPOCH_SECONDS --until EPOCH_SECONDS [--start RESUME.pt]
WORK/speech and WORK/codes hold the shards of teacher.py; they are read as they appear.
"""
import argparse
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
from judges import Disc, MelHead, dev, mel_targets, recon_loss
from model import CodecDecoder, FRAME, N_Q

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("work"); ap.add_argument("out")
ap.add_argument("--until", type=float, required=True, help="end at this time (seconds of the epoch)")
ap.add_argument("--front", type=float, required=True, help="end of the part below 50 Hz alone (seconds of the epoch)")
ap.add_argument("--start", help="begin with this, an earlier run's resume.pt: all weights of the same name and shape")
ap.add_argument("--steps", type=int, default=10 ** 9, help="at most")
ap.add_argument("--first", type=int, default=8, help="shards needed to start")
ap.add_argument("--hours", type=float, default=60, help="size of the audio buffer")
ap.add_argument("--rows", type=int, default=12, help="crops in mid speech")
ap.add_argument("--starts", type=int, default=3, help="crops at the beginning of an utterance")
ap.add_argument("--front_rows", type=int, default=112, help="front alone: crops in mid speech")
ap.add_argument("--front_starts", type=int, default=16, help="front alone: crops at the beginning of an utterance")
ap.add_argument("--front_lr", type=float, default=1.5e-3)
ap.add_argument("--lr", type=float, default=6e-4)
ap.add_argument("--eager", action="store_true", help="no CUDA graph")
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--log_every", type=int, default=400)
ap.add_argument("--save_every", type=float, default=90)
a = ap.parse_args()
T00 = time.time()
torch.manual_seed(a.seed)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark_limit = 4                 # the exhaustive search costs half a minute
os.makedirs(a.out, exist_ok=True)
CTX, LEN, SKIP = 20, 10, 3
JUDGED = LEN - SKIP
FRONT_SKIP = 6


def log(*x):
    print(f"[decoder {time.time() - T00:6.1f}s]", *x, flush=True)


amp = lambda: torch.autocast(dev, dtype=torch.bfloat16, enabled=dev == "cuda", cache_enabled=False)
dec, disc = CodecDecoder().to(dev), Disc().to(dev)


class Store:
    """sound and codes, on the GPU"""

    def __init__(self):
        n = int(a.hours * 3600 * 12.5)
        self.wav = torch.zeros(n * FRAME, dtype=torch.int16, device=dev)
        self.codes = torch.zeros(n, N_Q, dtype=torch.uint8, device=dev)
        self.starts = torch.zeros(200000, dtype=torch.int64, device=dev)
        self.n = self.u = self.shards = 0
        self.ready = (0, 0)                             # frames, utterances: one assignment
        self.held = None
        self.lock = threading.Lock()                    # no other GPU work while the step is recorded
        self.stream = torch.cuda.Stream() if dev == "cuda" else None

    def fill(self):
        seen = set()
        while True:
            for f in sorted(os.listdir(f"{a.work}/codes"), reverse=True):     # the held-out shards first
                if not f.endswith(".npz") or ".tmp" in f or f in seen or not os.path.exists(f"{a.work}/speech/{f}") or f[0] == "x" and f != "x0000.npz":
                    continue
                seen.add(f)
                wav, z = np.load(f"{a.work}/speech/{f}")["wav"], np.load(f"{a.work}/codes/{f}")
                codes, table = z["codes"], z["table"]
                if self.n + len(codes) > len(self.codes) - 64 or self.u + len(table) > len(self.starts):
                    continue
                with self.lock:
                    if self.stream:
                        with torch.cuda.stream(self.stream):
                            self.add(f[0] == "x", wav, codes, table)
                        self.stream.synchronize()
                    else:
                        self.add(f[0] == "x", wav, codes, table)
            time.sleep(0.3)

    def add(self, held, wav, codes, table):
        w, c = torch.from_numpy(wav).to(dev), torch.from_numpy(codes).to(dev)
        if held:
            self.held = w, c, table
            return
        n = len(codes)
        self.wav[self.n * FRAME:(self.n + n) * FRAME] = w
        self.codes[self.n:self.n + n] = c
        self.starts[self.u:self.u + len(table)] = torch.from_numpy(table[:, 1].astype(np.int64)).to(dev) + self.n
        self.n, self.u, self.shards = self.n + n, self.u + len(table), self.shards + 1
        self.ready = (self.n, self.u)

    def crops(self, rows, starts, skip, frames):
        """-> samples of `frames` frames, of crops in mid speech after the first `skip`; codes [rows + starts, N_Q, CTX + LEN]"""
        n, u = self.ready                               # nothing yet: silence, to record the step on
        s = torch.randint(0, max(1, n - CTX - LEN - 1), (rows,), device=dev)
        b = self.starts[torch.randint(0, max(1, u), (starts,), device=dev)]
        begin = torch.cat([s + skip, b])[:, None] * FRAME
        x = self.wav[begin + torch.arange(frames * FRAME, device=dev)].float() / 32768
        return x, self.codes[torch.cat([s, b])[:, None] + torch.arange(CTX + LEN, device=dev)].long().transpose(1, 2)


store = Store()
threading.Thread(target=store.fill, daemon=True).start()


def synth(z):
    """z [B, dim, CTX + LEN]: rows in mid speech and, after them, starts -> judged samples of each"""
    mid, begin = z[:a.rows], z[a.rows:, :, :LEN]
    latent = lambda y: dec.pre_transformer(dec.pre_conv(y.transpose(1, 2)))
    x = dec.waveform(torch.cat([latent(mid)[:, CTX:], latent(begin)]))
    return torch.cat([x[:a.rows, SKIP * FRAME:], x[a.rows:, :JUDGED * FRAME]])


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
head = MelHead().to(dev)
front = [dec.quantizer, dec.pre_conv, dec.pre_transformer, dec.upsample, head]


def spectra(c):
    return head(dec.coarse(dec.pre_transformer(dec.pre_conv(dec.quantizer.decode(c).transpose(1, 2)))))


def front_step():
    with torch.no_grad():
        t = mel_targets(X)
    with amp():
        y = spectra(C)
    wrong = (y.float() - t).abs().mean(2).view(X.shape[0], CTX + LEN, 8).mean(2)[:, :-1]      # the last frame's window reaches beyond the crop
    judged = torch.ones_like(wrong, dtype=torch.bool)
    judged[:a.front_rows, :FRONT_SKIP] = False          # a crop in mid speech lacks its past
    rec = (wrong * judged).sum() / judged.sum()
    torch._foreach_copy_([p.grad for p in gp], list(torch.autograd.grad(rec, gp)))
    return dict(rec=rec)


def decoder_step():
    with amp():
        y = synth(dec.quantizer.decode(C))
    rec, begin = recon_loss(y, X), start_loss(y)
    dl, adv, fm = adversarial(y, X)
    loss = 15 * rec + 2 * begin + gain * (adv + 1.5 * fm)
    torch._foreach_copy_([p.grad for p in dp], list(torch.autograd.grad(dl, dp, retain_graph=True)))
    torch._foreach_copy_([p.grad for p in gp], list(torch.autograd.grad(loss, gp)))
    return dict(rec=rec, start=begin, adv=adv, fm=fm, disc=dl)


@torch.no_grad()
def held_spectra(n=12):
    """error of the predicted spectra of held-out speech"""
    if store.held is None:
        return float("nan")
    wav, codes, table = store.held
    wrong = [(spectra(codes[at:at + m].long().t()[None]) - mel_targets(wav[at * FRAME:(at + m) * FRAME][None].float() / 32768)).abs().mean() for _, at, m in table[:n].tolist()]
    return round(float(torch.stack(wrong).mean()), 4)


@torch.no_grad()
def held_error(n=12):
    """reconstruction error on held-out speech; level of the first 20 ms of it, dBFS"""
    if store.held is None:
        return float("nan"), float("nan")
    wav, codes, table = store.held
    errors, first = [], []
    for _, at, frames in table[:n].tolist():
        y = dec(codes[at:at + frames].long().t()[None])
        errors.append(float(recon_loss(y, wav[at * FRAME:(at + frames) * FRAME][None].float() / 32768)))
        first.append(float(y[0, :480].square().mean()))
    return round(float(np.mean(errors)), 4), round(10 * math.log10(max(first) + 1e-14), 1)


def swap(weights):
    own = [p.detach().clone() for p in gp]
    with torch.no_grad():
        torch._foreach_copy_(gp, weights)
    return own


def save(average):
    """the decoder with the running average of its weights, and what a later run needs to go on: each of less than 16 MB"""
    names = {id(p): k for k, p in dec.named_parameters()}
    state = {**dec.state_dict(), **{names[id(p)]: m for p, m in zip(gp, average)}}
    half = lambda d: {k: v.detach().half().cpu() for k, v in d.items()}
    for name, what in (("decoder.pt", half(state)), ("resume.pt", {"decoder": half(dec.state_dict()), "disc": half(disc.state_dict())})):
        torch.save(what, f"{a.out}/part.tmp")
        os.replace(f"{a.out}/part.tmp", f"{a.out}/{name}")


log("parameters: decoder", sum(p.numel() for p in dec.parameters()), "discriminators", sum(p.numel() for p in disc.parameters()))
if a.start:
    given = torch.load(a.start, map_location=dev)
    for net, state in ((dec, given["decoder"]), (disc, given["disc"])):
        own = net.state_dict()
        same = {k: v.float() for k, v in state.items() if k in own and v.shape == own[k].shape}
        net.load_state_dict({**own, **same})
        log(f"begun with {len(same)} of {len(own)} tensors")


def stage(name, step_fn, crop, gp_, dp_, lr, dlr, until, held, ramp):
    """records the step, waits for speech, trains until the time has come"""
    global gp, dp, X, C, average
    gp, dp = gp_, dp_
    fast = dict(fused=True) if dev == "cuda" else {}
    og = torch.optim.AdamW(gp, lr=lr, betas=(0.8, 0.99), weight_decay=1e-3, **fast)
    od = torch.optim.AdamW(dp, lr=dlr, betas=(0.8, 0.99), weight_decay=1e-3, **fast) if dp else None
    average = [p.detach().clone() for p in gp]
    for p in gp + dp:
        p.grad = torch.zeros_like(p)
    X, C = (t.clone() for t in crop())
    graph, stat = None, {}
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
                stat = step_fn()
            torch.cuda.synchronize()
        log(name, "step recorded")
    while store.shards < a.first or store.held is None:
        time.sleep(0.1)
    step, t0, tl, sl, saved = 0, time.time(), time.time(), 0, time.time()
    while step < a.steps:
        if step % 20 == 0:
            prog = (time.time() - t0) / max(1.0, until - t0)
            if prog >= 1:
                break
            rate = (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * prog))) * min(1.0, (step + 20) / 200)
            for o, base in ((og, lr), (od, dlr))[:1 + bool(dp)]:
                for g in o.param_groups:
                    g["lr"] = base * rate
            gain.fill_(ramp(step))
        for to, new in zip((X, C), crop()):
            to.copy_(new)
        if graph is None:
            stat = step_fn()
        else:
            graph.replay()
        gn = nn.utils.clip_grad_norm_(gp, 300.0)
        og.step()
        if od:
            od.step()
        d = min(0.999, (step + 1) / (step + 50))
        with torch.no_grad():
            torch._foreach_mul_(average, d)
            torch._foreach_add_(average, [p.detach() for p in gp], alpha=1 - d)
        if step % a.log_every == 0 or step in (1, 10, 50, 100):
            log(f"{name} step {step} {prog:.2f} {(time.time() - tl) / max(step - sl, 1) * 1e3:.1f} ms/step, {store.n / 45000:.1f} h,",
                " ".join(f"{k} {float(v.detach()):.3f}" for k, v in stat.items()), f"gn {float(gn):.1f}")
            tl, sl = time.time(), step
            if not math.isfinite(float(stat["rec"].detach())):
                log("not finite: stopped")
                os._exit(3)
        if time.time() - saved > a.save_every:
            own = swap(average)
            log(f"{name} step {step} held out:", held())
            swap(own)
            if dp:
                save(average)
            saved = time.time()
        step += 1
    log(f"{name}: {step} steps, {(time.time() - t0) / max(step, 1) * 1e3:.1f} ms each")
    swap(average)
    log(f"{name} held out at the end:", held())


learned = lambda nets: [p for m in nets for p in m.parameters() if p.requires_grad]
stage("front", front_step, lambda: store.crops(a.front_rows, a.front_starts, 0, CTX + LEN), learned(front), [], a.front_lr, 0, a.front, held_spectra, lambda step: 0.0)
stage("decoder", decoder_step, lambda: store.crops(a.rows, a.starts, CTX + SKIP, JUDGED), learned([dec]), list(disc.parameters()), a.lr, 5e-4, a.until, held_error,
      lambda step: min(1.0, max(0.0, (step - 500) / 800)))      # samples come first, then what the discriminators say
save(average)
open(f"{a.out}/decoder.done", "w").close()
sys.stdout.flush()
os._exit(0)                                             # the loader is still waiting for shards
