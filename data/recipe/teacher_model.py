"""Kokoro-82M in PyTorch for many utterances of different lengths at once, with the weights of teacher_weights.py.

An utterance gets the speech that it would get alone: recurrent layers run over packed sequences, norms over time take the valid part
only, and what lies behind an utterance's end is zero before each convolution. The network has no random node here: the sine
excitation starts at phase zero and has no noise. Sequences are [utterance, time, channel].
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

FRAME = 600                                             # samples a unit of duration: 25 ms
HOP, WINDOW, BINS = 5, 20, 11                           # of the inverse short-time Fourier transform


def mask(lengths, longest):
    """-> [utterance, longest, 1], 1 within the utterance"""
    return (torch.arange(longest, device=lengths.device) < lengths[:, None])[..., None].float()


def scaled_snake(x, scale, shift, alpha, valid):
    x = x * scale + shift
    return (x + torch.sin(alpha * x).square() / alpha) * valid


def scaled_leaky(x, scale, shift, valid):
    return F.leaky_relu(x * scale + shift, 0.2) * valid


class Teacher:
    def __init__(self, path, device="cpu", compiled=False):
        """compiled: norm and activation as one kernel"""
        z = np.load(path)
        self.device, self.w, self.lstms = device, {}, {}
        for k in z.files:
            kind, name = k.split(":", 1)
            if kind != "s":
                a = z[k].astype(np.float32)
                self.w[name] = torch.from_numpy(a * z["s:" + name] if kind == "i" else a).to(device)
        for name in [n[:-2] for n in self.w if n.endswith(".W")]:
            self.lstms[name] = self.make_lstm(name)
        for name, weight in self.w.items():             # convolutions are computed in two dimensions, with the channel innermost
            if weight.dim() == 3 and name.endswith(".weight"):
                self.w[name] = weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)
        self.snake, self.leaky = (torch.compile(f, dynamic=True) for f in (scaled_snake, scaled_leaky)) if compiled else (scaled_snake, scaled_leaky)

    def make_lstm(self, name):
        W, R, B = (self.w.pop(f"{name}.{k}") for k in "WRB")
        hidden = R.shape[2]
        order = lambda x: torch.cat([x[:hidden], x[2 * hidden:], x[hidden:2 * hidden]])     # i o f c -> i f c o
        lstm = torch.nn.LSTM(W.shape[2], hidden, batch_first=True, bidirectional=True)
        for d, suffix in enumerate(("", "_reverse")):
            for kind, value in (("weight_ih", W[d]), ("weight_hh", R[d]), ("bias_ih", B[d][:4 * hidden]), ("bias_hh", B[d][4 * hidden:])):
                getattr(lstm, f"{kind}_l0{suffix}").data = order(value).contiguous()
        lstm = lstm.to(self.device).requires_grad_(False)
        lstm.flatten_parameters()
        return lstm

    # ------------------------------------------------------------ layers
    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def conv(self, name, x, stride=1, dilation=1, padding=None):
        w = self.w[name + ".weight"]
        padding = dilation * (w.shape[3] - 1) // 2 if padding is None else padding
        y = F.conv2d(x.transpose(1, 2).unsqueeze(2), w, self.w.get(name + ".bias"), (1, stride), (0, padding), (1, dilation))
        return y.squeeze(2).transpose(1, 2)

    def transposed(self, name, x, stride, padding):
        y = F.conv_transpose2d(x.transpose(1, 2).unsqueeze(2), self.w[name + ".weight"], self.w[name + ".bias"], (1, stride), (0, padding))
        return y.squeeze(2).transpose(1, 2)

    def pool(self, name, x):
        """transposed convolution of each channel by three taps, stride 2"""
        a, b, c = self.w[name + ".weight"][:, 0, 0].unbind(1)
        later = torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)
        return torch.stack([b * x, c * x + a * later], 2).flatten(1, 2) + self.w[name + ".bias"]

    def lstm(self, name, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return torch.nn.utils.rnn.pad_packed_sequence(self.lstms[name](packed)[0], batch_first=True, total_length=x.shape[1])[0]

    def affine(self, name, x, style, valid):
        """adaptive instance norm as a scale and a shift; x is zero outside the utterance"""
        n = valid.sum(1, keepdim=True)
        mean = x.sum(1, keepdim=True) / n
        variance = ((x - mean) * valid).square().sum(1, keepdim=True) / n
        gamma, beta = self.linear(name + ".fc", style)[:, None].chunk(2, -1)
        scale = (1 + gamma) * torch.rsqrt(variance + 1e-5)
        return scale, beta - mean * scale

    def residual(self, name, x, style, valid, upper=None):
        """block of the predictor and the decoder; upper: mask of the output's time steps, twice as many"""
        h = self.leaky(x, *self.affine(name + ".norm1", x, style, valid), valid)
        if upper is not None:
            x, valid = x.repeat_interleave(2, 1), upper
            h = self.pool(name + ".pool", h) * valid
        h = self.conv(name + ".conv1", h) * valid
        h = self.conv(name + ".conv2", self.leaky(h, *self.affine(name + ".norm2", h, style, valid), valid))
        if name + ".conv1x1.weight" in self.w:
            x = self.conv(name + ".conv1x1", x)
        return (h + x) * (valid * math.sqrt(0.5))

    def snakes(self, name, x, style, valid):
        """block of the generator"""
        for k, dilation in enumerate((1, 3, 5)):
            h = self.snake(x, *self.affine(f"{name}.adain1.{k}", x, style, valid), self.w[f"{name}.alpha1.{k}"].view(-1), valid)
            h = self.conv(f"{name}.convs1.{k}", h, dilation=dilation) * valid
            h = self.snake(h, *self.affine(f"{name}.adain2.{k}", h, style, valid), self.w[f"{name}.alpha2.{k}"].view(-1), valid)
            x = x + self.conv(f"{name}.convs2.{k}", h) * valid
        return x

    # ------------------------------------------------------------ parts
    def bert(self, tokens, lengths):
        w, at = self.w, "bert.encoder.albert_layer_groups.0.albert_layers.0"
        norm = lambda name, x: F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)
        b, t = tokens.shape
        x = F.embedding(tokens, w["bert.embeddings.word_embeddings.weight"]) + w["bert.embeddings.token_type_embeddings.weight"][0] \
            + w["bert.embeddings.position_embeddings.weight"][:t]
        x = self.linear("bert.encoder.embedding_hidden_mapping_in", norm("bert.embeddings.LayerNorm", x))
        hidden = torch.where(mask(lengths, t).view(b, 1, 1, t) > 0, 0.0, -1e30)
        heads = lambda name: self.linear(f"{at}.attention.{name}", x).view(b, t, 12, 64).transpose(1, 2)
        for _ in range(12):
            a = (heads("query") @ heads("key").transpose(-1, -2) / 8 + hidden).softmax(-1) @ heads("value")
            x = norm(at + ".attention.LayerNorm", x + self.linear(at + ".attention.dense", a.transpose(1, 2).reshape(b, t, 768)))
            h = self.linear(at + ".ffn", x)
            h = 0.5 * h * (1 + torch.tanh(0.7978845608028654 * (h + 0.044715 * h ** 3)))
            x = norm(at + ".full_layer_layer_norm", x + self.linear(at + ".ffn_output", h))
        return self.linear("bert_encoder", x)

    def durations(self, x, style, lengths, speeds):
        """-> duration of each token in frames, features [utterance, token, 640]"""
        valid = mask(lengths, x.shape[1])
        s = style[:, None].expand(-1, x.shape[1], -1)
        x = torch.cat([x, s], -1) * valid
        for k in (0, 2, 4):
            x = self.lstm(f"predictor.text_encoder.lstms.{k}", x, lengths)
            gamma, beta = self.linear(f"predictor.text_encoder.lstms.{k + 1}.fc", style)[:, None].chunk(2, -1)
            x = torch.cat([(1 + gamma) * F.layer_norm(x, x.shape[-1:]) + beta, s], -1) * valid
        d = self.linear("predictor.duration_proj.linear_layer", self.lstm("predictor.lstm", x, lengths))
        d = (d.sigmoid().sum(-1) / speeds[:, None]).round().clamp(min=1).long()
        return d * valid[..., 0].long(), x

    def text(self, tokens, lengths):
        valid = mask(lengths, tokens.shape[1])
        x = F.embedding(tokens, self.w["text_encoder.embedding.weight"]) * valid
        for k in range(3):
            x = self.conv(f"text_encoder.cnn.{k}.0", x)
            x = F.leaky_relu(F.layer_norm(x, x.shape[-1:], self.w[f"text_encoder.cnn.{k}.1.gamma"], self.w[f"text_encoder.cnn.{k}.1.beta"]), 0.2) * valid
        return self.lstm("text_encoder.lstm", x, lengths)

    def curve(self, name, x, style, valid, upper):
        """fundamental frequency or energy -> [utterance, time, 1]"""
        x = self.residual(f"predictor.{name}.0", x, style, valid)
        x = self.residual(f"predictor.{name}.1", x, style, valid, upper)
        x = self.residual(f"predictor.{name}.2", x, style, upper)
        return self.conv(f"predictor.{name}_proj", x) * upper

    def excitation(self, f0):
        """f0 [utterance, time, 1], zero outside the utterance, 300 samples a step -> [utterance, samples]; nine harmonics, tanh of their sum"""
        step = 300
        place = (torch.arange(step, device=f0.device) + 0.5) / step - 0.5
        before, after = place.clamp(max=0) * step, place.clamp(min=0) * step
        total, voiced = 0, (f0 > 10).float()
        for h in range(9):
            cycles = (f0.double() * (h + 1) / 24000) % 1
            start = (cycles.cumsum(1) * step % 1).float()
            cycles = cycles.float()
            first = torch.cat([torch.zeros_like(cycles[:, :1]), cycles[:, 1:]], 1)
            after_it = torch.cat([cycles[:, 1:], torch.zeros_like(cycles[:, :1])], 1)
            wave = torch.sin((start + first * before + after_it * after) * (2 * math.pi))
            total = total + wave * (0.1 * voiced * self.w["generator.m_source.l_linear.weight"][0, h])
        return torch.tanh(total + self.w["generator.m_source.l_linear.bias"]).flatten(1)

    def harmonics(self, source, samples):
        """magnitudes and phases of the excitation, [utterance, samples / 5 + 1, 22]; each end is reflected"""
        at = torch.arange(source.shape[1] + WINDOW, device=source.device)[None] - WINDOW // 2
        at = torch.where(at < samples[:, None], at, 2 * samples[:, None] - 2 - at).clamp(min=-WINDOW).abs()
        frames = source.gather(1, at).unfold(1, WINDOW, HOP)
        z = torch.fft.rfft(frames * torch.hann_window(WINDOW, device=source.device), dim=-1)
        angle = torch.where((z.imag == 0) & (z.real < 0), -math.pi, torch.atan2(z.imag, z.real))   # as the network was trained
        return torch.cat([z.abs(), angle], -1) * mask(samples // HOP + 1, frames.shape[1])

    def generate(self, x, style, f0, steps):
        """x [utterance, step of 300 samples, 512] -> samples"""
        harmonics = self.harmonics(self.excitation(f0), steps * 300)
        for k, (stride, valid) in enumerate(((10, mask(steps * 10, x.shape[1] * 10)), (6, mask(steps * 60 + 1, x.shape[1] * 60 + 1)))):
            source = self.conv(f"generator.noise_convs.{k}", harmonics, *((6, 1, 3) if k == 0 else ())) * valid
            source = self.snakes(f"generator.noise_res.{k}", source, style, valid)
            x = self.transposed(f"generator.ups.{k}", F.leaky_relu(x, 0.1), stride, stride // 2)
            if k:
                x = torch.cat([x[:, 1:2], x], 1)        # reflected
            x = x * valid + source
            x = sum(self.snakes(f"generator.resblocks.{3 * k + j}", x, style, valid) for j in range(3)) / 3
        x = self.conv("generator.conv_post", F.leaky_relu(x, 0.01))
        size, angle = x[..., :BINS].exp() * valid, torch.sin(x[..., BINS:])
        x = torch.cat([size * angle.cos(), size * angle.sin()], -1)
        y = F.conv_transpose1d(x.transpose(1, 2), self.w["generator.stft.istft.stft.inverse_basis"], stride=HOP).squeeze(1)
        y[:, 1:WINDOW] /= self.w["generator.stft.istft.stft.window_sum"][1:]
        return y[:, WINDOW // 2:-WINDOW // 2] * (WINDOW // HOP)

    @torch.no_grad()
    def prosody(self, tokens, styles, speeds):
        """lists of token ids, each begun and ended by 0; styles [utterance, 256]; speeds -> durations [utterance, letter] in frames of FRAME samples,
        fundamental frequency (Hz) and energy [utterance, time], two values a frame, and what speak() needs"""
        dev = self.device
        styles = torch.as_tensor(np.asarray(styles, np.float32), device=dev)
        speeds = torch.as_tensor(np.asarray(speeds, np.float32), device=dev)
        lengths = torch.tensor([len(t) for t in tokens], device=dev)
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(t) for t in tokens], batch_first=True).to(dev)
        voice, style = styles[:, :128], styles[:, 128:]
        durations, features = self.durations(self.bert(ids, lengths), style, lengths, speeds)
        frames = durations.sum(1)
        longest = -(-int(frames.max()) // 32) * 32
        ends = durations.cumsum(1)
        token = torch.searchsorted(ends, torch.arange(longest, device=dev).expand(len(tokens), -1).contiguous(), right=True)
        valid, upper = mask(frames, longest), mask(frames * 2, longest * 2)
        spread = lambda x: x.gather(1, token.clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[2])) * valid
        shared = self.lstm("predictor.shared", spread(features), frames)
        f0, energy = (self.curve(n, shared, style, valid, upper) for n in ("F0", "N"))
        return durations, f0[..., 0], energy[..., 0], (ids, lengths, voice, frames, spread, valid, upper)

    @torch.no_grad()
    def speak(self, f0, energy, rest):
        """-> samples [utterance, longest]; an utterance's samples are those of its durations' sum"""
        ids, lengths, voice, frames, spread, valid, upper = rest
        f0, energy = f0[..., None], energy[..., None]
        text = spread(self.text(ids, lengths))
        low = [self.conv(n, x, 2) * valid for n, x in (("F0_conv", f0), ("N_conv", energy))]
        x = self.residual("encode", torch.cat([text, *low], -1), voice, valid)
        rest = [self.conv("asr_res.0", text) * valid, *low]
        for k in range(4):
            x = self.residual(f"decode.{k}", torch.cat([x, *rest], -1), voice, valid, upper if k == 3 else None)
        return self.generate(x, voice, f0, frames * 2)
