"""Judges of the decoder in training: spectra, a head that predicts them from its sequence of 50 Hz, discriminators. None of it is shipped."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from model import CODEC, CausalConv, ConvNeXt, RATE

dev = "cuda" if torch.cuda.is_available() else "cpu"


# ------------------------------------------------------------------ mel
def mel_matrix(n_fft, n_mel, fmax):
    f = np.linspace(0, RATE / 2, n_fft // 2 + 1)
    m = lambda h: 2595 * np.log10(1 + h / 700)
    p = 700 * (10 ** (np.linspace(m(0), m(fmax), n_mel + 2) / 2595) - 1)
    w = np.zeros((n_mel, len(f)), np.float32)
    for i in range(n_mel):
        lo, c, hi = p[i:i + 3]
        w[i] = np.maximum(0, np.minimum((f - lo) / (c - lo), (hi - f) / (hi - c)))
    w /= np.maximum(w.sum(1, keepdims=True), 1e-3)
    return torch.from_numpy(w).to(dev)


MELS = {}


def mel(x, n_fft, hop, n_mel, fmax=12000.0):
    k = (n_fft, n_mel, fmax)
    if k not in MELS:
        MELS[k] = (mel_matrix(*k), torch.hann_window(n_fft, device=dev))
    m, w = MELS[k]
    s = torch.stft(x, n_fft, hop, window=w, center=True, pad_mode="constant", return_complex=True).abs() / n_fft * 4
    return m @ s


def recon_loss(y, x):
    tot = 0
    for n_fft, n_mel in ((256, 28), (512, 56), (1024, 100), (2048, 180)):
        my, mx = mel(y, n_fft, n_fft // 4, n_mel), mel(x, n_fft, n_fft // 4, n_mel)
        tot = tot + (my.clamp(min=2e-5).log10() - mx.clamp(min=2e-5).log10()).abs().mean()
    return tot


SPECTRA = ((1024, 100), (2048, 160))                    # predicted by the head: window, bands; a spectrum per 10 ms


def mel_targets(x):
    """[B, n] -> [B, n/240, 2 * bands]: log spectra down to the noise, and again for the loud parts alone"""
    m = torch.cat([mel(x, n_fft, 240, n_mel)[..., :-1] for n_fft, n_mel in SPECTRA], 1).transpose(1, 2)
    return torch.cat([m.clamp(min=2e-5).log10() + 3, (m + 1e-3).log10() + 3], 2)


class MelHead(nn.Module):
    """spectra from the decoder's sequence of 50 Hz, causal as the decoder is"""

    def __init__(self, n=320):
        super().__init__()
        self.out = 2 * sum(b for _, b in SPECTRA)
        self.net = nn.Sequential(CausalConv(CODEC["latent_dim"], n, 7), ConvNeXt(n), ConvNeXt(n), nn.Linear(n, 2 * self.out))

    def forward(self, x):
        y = self.net(x)
        return y.view(y.shape[0], -1, self.out)


# ------------------------------------------------------------------ discriminators
class WNConv2d(nn.Module):
    """weight-normalised Conv2d (parameter names of torch.nn.utils.weight_norm), written out so that it compiles"""

    def __init__(self, i, o, k, s=1, p=0):
        super().__init__()
        c = nn.Conv2d(i, o, k)
        self.weight_v, self.bias = nn.Parameter(c.weight.detach().clone()), nn.Parameter(c.bias.detach().clone())
        self.weight_g = nn.Parameter(self.weight_v.detach().flatten(1).norm(dim=1)[:, None, None, None].clone())
        self.s, self.p = s, p

    def forward(self, x):
        w = self.weight_v * (self.weight_g / self.weight_v.flatten(1).norm(dim=1)[:, None, None, None])
        return F.conv2d(x, w.contiguous(memory_format=torch.channels_last), self.bias, self.s, self.p)


def stack(convs, x):
    """-> score, features"""
    fs = []
    for i, c in enumerate(convs):
        x = c(x)
        if i < len(convs) - 1:
            x = F.leaky_relu(x, 0.1)
            fs.append(x)
    return x, fs


class PeriodD(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p
        ch = [1, 16, 64, 128, 256]
        self.c = nn.ModuleList([WNConv2d(ch[i], ch[i + 1], (5, 1), (3, 1), (2, 0)) for i in range(4)]
                               + [WNConv2d(256, 256, (5, 1), 1, (2, 0)), WNConv2d(256, 1, (3, 1), 1, (1, 0))])

    def view(self, x):                                 # wave [B, n] -> image [B, 1, n/p, p]
        n = x.shape[-1] // self.p * self.p
        return x[:, :n].reshape(x.shape[0], 1, -1, self.p)

    def forward(self, x):
        return stack(self.c, self.view(x))


class SpecD(nn.Module):
    def __init__(self, n_fft):
        super().__init__()
        self.n = n_fft
        self.register_buffer("w", torch.hann_window(n_fft), persistent=False)
        k = 32
        self.c = nn.ModuleList([WNConv2d(2, k, (3, 9), 1, (1, 4))] + [WNConv2d(k, k, (3, 9), (1, 2), (1, 4)) for _ in range(3)]
                               + [WNConv2d(k, k, 3, 1, 1), WNConv2d(k, 1, 3, 1, 1)])

    def view(self, x):                                 # wave -> image [B, 2, frames, bins]
        s = torch.stft(x.float(), self.n, self.n // 4, window=self.w, return_complex=True) / self.n ** 0.5 * 4
        return torch.view_as_real(s).permute(0, 3, 2, 1)

    def forward(self, x):
        return stack(self.c, self.view(x))


class Disc(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleList([PeriodD(p) for p in (2, 3, 5, 7, 11)] + [SpecD(n) for n in (512, 1024, 2048)])

    def views(self, x):
        return [d.view(x) for d in self.d]

    def judge(self, vs):
        return [stack(d.c, v) for d, v in zip(self.d, vs)]

    def forward(self, x):
        return [d(x) for d in self.d]
