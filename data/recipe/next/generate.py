#!/usr/bin/env python3
"""Reference synthesis from an exported folder (batched, no cache: for measuring, not for speed).

usage: generate.py MODELDIR TEXTFILE OUTDIR [--speaker NAME] [--greedy] [--stream] [--temperature 0.9] ...
Writes NNN.wav per line and lengths.json.
"""
import argparse, json, os, time, wave
import numpy as np
import torch
from bpe import BPE
from export import load_safetensors
from model import CodecDecoder, Talker, TALKER as C, N_CODE, N_Q
from voices import INDEX, SPEAKERS


def load(folder, dev):
    b = BPE(folder)
    conf = json.load(open(f"{folder}/config.json"))["talker_config"]["code_predictor_config"]
    t = Talker(b.size, cp=conf)
    t.load_state_dict({k[len("talker."):]: v for k, v in load_safetensors(f"{folder}/model.safetensors").items()})
    d = CodecDecoder()
    d.load_state_dict({k[len("decoder."):]: v for k, v in load_safetensors(f"{folder}/speech_tokenizer/model.safetensors").items()})
    return b, t.to(dev).eval(), d.to(dev).eval()


def pick(lg, T, k, greedy):
    if greedy:
        return lg.argmax(-1)
    lg = lg / T
    if k and k < lg.shape[-1]:
        lg = lg.masked_fill(lg < lg.topk(k).values[..., -1:], -1e30)
    return torch.multinomial(lg.softmax(-1), 1)[:, 0]


@torch.no_grad()
def generate(b, m, texts, dev, speakers, stream=False, english=True, T=0.9, k=50, rp=1.05, greedy=False, sT=0.9, sk=50, sgreedy=False, seed=0):
    """speakers: index of each text's, or None -> list of [frames, N_Q] codes, list of ended flags"""
    from train_talker import sequence
    torch.manual_seed(seed)
    ids = [b.encode(t) for t in texts]
    B = len(ids)
    lim = [min(400, 24 + 8 * len(i)) for i in ids]
    seqs = [sequence(b, i, 0, n, stream, english, s) for i, n, s in zip(ids, lim, speakers)]
    pre = torch.tensor([len(q[0]) - n for q, n in zip(seqs, lim)], device=dev)
    mx = max(len(q[0]) for q in seqs) + 1
    txt = torch.full((B, mx), b.special["<tts_pad>"], device=dev)
    c0 = torch.full((B, mx), -1, device=dev)
    for i, q in enumerate(seqs):
        txt[i, :len(q[0])] = torch.tensor(q[0], device=dev)
        c0[i, :len(q[1])] = torch.tensor(q[1], device=dev)
    E, cp = m.model.codec_embedding.weight, m.code_predictor
    x = m.text_projection(m.model.text_embedding(txt)) + E[c0.clamp(min=0)] * (c0 >= 0)[..., None]
    lim_t = torch.tensor(lim, device=dev)
    codes = torch.zeros(B, max(lim), N_Q, dtype=torch.long, device=dev)
    n = torch.zeros(B, dtype=torch.long, device=dev)
    alive, ended = torch.ones(B, dtype=torch.bool, device=dev), torch.zeros(B, dtype=torch.bool, device=dev)
    seen = torch.zeros(B, C["vocab_size"], dtype=torch.bool, device=dev)
    ar = torch.arange(B, device=dev)
    W = [e.weight for e in cp.model.codec_embedding]
    step, eos = 0, C["codec_eos_token_id"]
    while alive.any():
        cur = pre + step
        top = int(cur.max())
        h = m.backbone(x[:, :top], torch.arange(top, device=dev), None)
        h = h[ar, cur - 1]
        lg = m.codec_head(h).float()
        lg = torch.where(seen, torch.where(lg > 0, lg / rp, lg * rp), lg)
        e = lg[:, eos].clone()
        lg[:, N_CODE:] = -1e30                           # suppressed: the last 1024 ids except EOS
        if step >= 2:
            lg[:, eos] = e
        t0 = pick(lg, T, k, greedy)
        seen[ar, t0] = True
        stop = (t0 == eos) & alive
        ended |= stop
        alive &= ~stop & (step < lim_t - 1)
        t0 = torch.where(t0 >= N_CODE, torch.zeros_like(t0), t0)
        seq, cs = [h, E[t0]], [t0]
        for i in range(N_Q - 1):
            o = cp.run(torch.stack(seq, 1))[:, -1]
            c = pick(cp.lm_head[i](o).float(), sT, sk, sgreedy or greedy)
            cs.append(c)
            seq.append(W[i][c])
        fr = torch.stack(cs, 1)
        codes[:, step] = fr
        n += alive
        x[ar, cur] = x[ar, cur] + torch.stack(seq[1:], 0).sum(0)
        step += 1
        if step >= max(lim):
            break
    return [codes[i, :int(n[i])].cpu() for i in range(B)], ended.tolist()


@torch.no_grad()
def decode(d, codes, dev):
    return d(codes.t()[None].to(dev))[0].float().cpu().numpy() if len(codes) else np.zeros(0, np.float32)


def write_wav(path, y):
    with wave.open(path, "wb") as w:
        w.setnchannels(1); w.setsampwidth(2); w.setframerate(24000)
        w.writeframes((np.clip(y, -1, 1) * 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model"); ap.add_argument("text"); ap.add_argument("out")
    ap.add_argument("--speaker", default=SPEAKERS[0].name)
    ap.add_argument("--greedy", action="store_true"); ap.add_argument("--stream", action="store_true")
    ap.add_argument("--auto", action="store_true", help="no language in the prompt")
    ap.add_argument("--temperature", type=float, default=0.9); ap.add_argument("--top_k", type=int, default=50)
    ap.add_argument("--sample_rest", action="store_true", help="sample the other codebooks, too")
    ap.add_argument("--st", type=float, default=0.9); ap.add_argument("--sk", type=int, default=50)
    ap.add_argument("--rp", type=float, default=1.05); ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    b, m, d = load(a.model, dev)
    L = [l for l in open(a.text, encoding="utf-8").read().split("\n") if l]
    os.makedirs(a.out, exist_ok=True)
    t0 = time.time()
    codes, ended = generate(b, m, L, dev, [INDEX[a.speaker]] * len(L), a.stream, not a.auto, a.temperature, a.top_k, a.rp, a.greedy, a.st, a.sk,
                            not a.sample_rest, a.seed)
    for i, c in enumerate(codes):
        write_wav(f"{a.out}/{i:03d}.wav", decode(d, c, dev))
    json.dump({"frames": [len(c) for c in codes], "ended": ended}, open(f"{a.out}/lengths.json", "w"))
    print(a.out, f"{len(L)} lines, {sum(len(c) for c in codes) / 12.5:.1f} s audio in {time.time() - t0:.1f} s, ended {sum(ended)}/{len(L)}")
