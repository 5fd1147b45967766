#!/usr/bin/env python3
"""Takes what lies below 20 Hz out of a voice's sound, by the weights of its decoder's last convolution alone.

usage: without_offset.py MODEL QTTS_TOOL OUTDIR [--low 1]

The sound of a decoder trained on the teacher's is shifted by up to 0.02 of full scale while a voice sounds, and not in silence, so no constant takes it out.
The shift is in the last layer's inputs (what a Snake rectifies), so it is a matter of least squares: the new weights
are those whose sound is nearest to the sound without what lies below 20 Hz. Errors count by frequency as the speech is
loud there, those below 30 Hz --low times. Each speaker says three lines: two give the weights and one the figures that
are printed. The zeros that lines begin with stay as silent as they are.
"""
import argparse
import json
import os
import shutil
import subprocess

import numpy as np
import torch
from scipy.signal import butter, sosfiltfilt

from export import load_safetensors, save_safetensors
from model import CodecDecoder, RATE

HERE = os.path.dirname(os.path.abspath(__file__))
LAST = "decoder.decoder.6.conv"
WINDOW = 2048
SILENT = 480                                            # samples with which each line begins


def spoken_features(model, tool, decoder):
    """inputs of the last convolution for three lines by each speaker, [samples, channels] each"""
    speakers = json.load(open(f"{model}/config.json"))["talker_config"]["spk_id"]
    texts = [t for t in open(f"{HERE}/test_sentences.txt", encoding="utf-8").read().split("\n") if t]
    for k, speaker in enumerate(speakers):
        for i in range(3):
            text = texts[(5 * k + i) % len(texts)]
            said = subprocess.run([tool, "codes", model, "--text", text, "--speaker", speaker, "--seed", "2", "--json"], check=True, capture_output=True, text=True).stdout
            codes = torch.tensor(json.loads(said)["codes"]).T[None]
            with torch.no_grad():
                x = decoder.pre_transformer(decoder.pre_conv(decoder.quantizer.decode(codes).transpose(1, 2)))
                x = decoder.coarse(x)
                for block in decoder.decoder[:-1]:
                    x = block(x)
            yield x[0].numpy()


def design(x, taps):
    """the convolution as a product: what each weight sees, taps first, and a one for the bias"""
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1]), np.float32), x])
    return np.concatenate([padded[t:t + len(x)] for t in range(taps)] + [np.ones((len(x), 1), np.float32)], 1).astype(np.float64)


def spectrum(sounds):
    """mean power by frequency, smoothed; nowhere more than 60 dB below its peak"""
    frames = np.concatenate([np.lib.stride_tricks.sliding_window_view(y, WINDOW)[::WINDOW // 4] for y in sounds])
    power = np.square(np.abs(np.fft.rfft(frames * np.hanning(WINDOW)))).mean(0)
    return np.exp(np.convolve(np.log(np.maximum(power, power.max() * 1e-6)), np.ones(9) / 9, "same"))


def weighted(columns, power, low):
    """each column filtered so that its error counts by frequency"""
    f = np.fft.rfftfreq(2 * len(columns), 1 / RATE)
    gain = np.interp(f, np.linspace(0, RATE / 2, len(power)), power ** -0.5) * np.where(f < 30, low, 1)
    return np.fft.irfft(np.fft.rfft(columns, 2 * len(columns), axis=0) * gain[:, None], axis=0)[:len(columns)]


def fitted(features, old, taps, low):
    """-> weights and bias; old: those that there are"""
    power = spectrum([design(x, taps) @ old for x in features])
    high = butter(2, 20, "highpass", fs=RATE, output="sos")
    products, target, silence, silent = 0, 0, 0, 0
    for x in features:
        X = design(x, taps)
        seen, wanted = weighted(X, power, low), weighted(sosfiltfilt(high, X @ old)[:, None], power, low)[:, 0]
        products, target = products + seen.T @ seen, target + seen.T @ wanted
        zeros = X[:SILENT]
        silence, silent = silence + zeros.T @ zeros, silent + zeros.T @ (zeros @ old)
    much, little = 1e3 * np.trace(products) / np.trace(silence), 1e-9 * np.trace(products) / len(old)
    return np.linalg.solve(products + much * silence + little * np.eye(len(old)), target + much * silent)


def told(features, old, new, taps):
    power = lambda y: np.square(np.abs(np.fft.rfft(y * np.hanning(len(y)))))
    rows = [[], [], []]
    for x in features:
        X = design(x, taps)
        for row, y in zip(rows, (X @ old, X @ new, X @ (new - old))):
            p, f = power(y), np.fft.rfftfreq(len(y), 1 / RATE)
            row.append([y.mean(), np.square(y[:SILENT]).mean(), p[f < 20].sum(), p.sum(), p[(f > 60) & (f < 300)].sum(), p[f >= 300].sum()])
    before, after, change = (np.array(r) for r in rows)
    db = lambda a, b: 10 * np.log10(a.mean() / b.mean())
    one = np.ones(1)
    print(f"mean {before[:, 0].mean():.5f} -> {after[:, 0].mean():.5f}; beginning {db(before[:, 1], one):.1f} -> {db(after[:, 1], one):.1f} dBFS; "
          f"below 20 Hz of all {db(before[:, 2], before[:, 3]):.1f} -> {db(after[:, 2], before[:, 3]):.1f} dB; "
          f"change from 60 to 300 Hz {db(change[:, 4], before[:, 4]):.1f} dB, above {db(change[:, 5], before[:, 5]):.1f} dB of what is there")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("model", "tool", "out"):
        ap.add_argument(n)
    ap.add_argument("--low", type=float, default=1, help="how much more errors below 30 Hz count")
    a = ap.parse_args()
    file = f"{a.model}/speech_tokenizer/model.safetensors"
    state = load_safetensors(file)
    decoder = CodecDecoder().eval()
    decoder.load_state_dict({k[len("decoder."):]: v for k, v in state.items()})
    weight, bias = state[f"{LAST}.weight"].numpy(), state[f"{LAST}.bias"].numpy()
    taps = weight.shape[2]
    old = np.concatenate([weight[0].T.reshape(-1), bias]).astype(np.float64)
    features = list(spoken_features(a.model, a.tool, decoder))
    new = fitted([x for k, x in enumerate(features) if k % 3 < 2], old, taps, a.low)
    new = new.astype(np.float16).astype(np.float64)     # as they are stored
    told(features[2::3], old, new, taps)
    shutil.copytree(a.model, a.out, dirs_exist_ok=True)
    state[f"{LAST}.weight"] = torch.from_numpy(new[:-1].reshape(taps, -1).T[None].copy())
    state[f"{LAST}.bias"] = torch.from_numpy(new[-1:])
    save_safetensors(f"{a.out}/speech_tokenizer/model.safetensors", state)


if __name__ == "__main__":
    main()
