"""Tiny Qwen3-TTS-12Hz modules for training, written from the published graph.

Parameter names equal the official state dict, so `export.py` only has to add
the file prefixes.  Training-only parts (losses, discriminators) live in
judges.py.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

import codes
import fused

N_CODE, N_Q = codes.ENTRIES, codes.GROUPS   # entries per codebook, codebooks
FRAME, RATE = 1920, 24000                # samples per frame, sample rate

CODEC = dict(codebook_size=N_CODE, num_quantizers=N_Q, codebook_dim=192, latent_dim=192,
             hidden_size=192, intermediate_size=320, num_hidden_layers=2,
             num_attention_heads=3, num_key_value_heads=3, head_dim=64,
             sliding_window=16, rope_theta=10000.0, rms_norm_eps=1e-5,
             decoder_dim=320, upsample_rates=[8, 5, 4, 3], upsampling_ratios=[2, 2])
# special ids keep the official offsets above the codebook; the last 1024 ids are
# suppressed at sampling time by the official code, so vocab = codebook + 1024.
TALKER = dict(vocab_size=N_CODE + 1024, hidden_size=256, intermediate_size=592, num_hidden_layers=7,
              num_attention_heads=4, num_key_value_heads=2, head_dim=64, rope_theta=10000.0,
              rms_norm_eps=1e-6, text_hidden_size=128, num_code_groups=N_Q,
              codec_pad_id=N_CODE + 100, codec_bos_id=N_CODE + 101, codec_eos_token_id=N_CODE + 102,
              codec_think_id=N_CODE + 106, codec_nothink_id=N_CODE + 107,
              codec_think_bos_id=N_CODE + 108, codec_think_eos_id=N_CODE + 109,
              english=N_CODE + 2, first_speaker=N_CODE + 872)
CP = dict(vocab_size=N_CODE, hidden_size=192, intermediate_size=320, num_hidden_layers=3,
          num_attention_heads=4, num_key_value_heads=1, head_dim=64, rope_theta=10000.0, rms_norm_eps=1e-6)


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * y).to(x.dtype)


def rope_table(pos, dim, theta):
    """cos, sin of shape pos.shape + (dim,); halves rotated against each other."""
    inv = theta ** (-torch.arange(0, dim, 2, device=pos.device, dtype=torch.float32) / dim)
    a = pos.float()[..., None] * inv
    a = torch.cat([a, a], -1)
    return a.cos(), a.sin()


def rope(x, cos, sin):
    h = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., h:], x[..., :h]], -1) * sin


def attend(q, k, v, mask):
    """mask: bool [.., T, T] or None for plain causal."""
    if hasattr(F, "scaled_dot_product_attention") and (mask is not None or q.shape[-2] == k.shape[-2]):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    t = q.shape[-2]
    if mask is None:
        mask = torch.ones(t, k.shape[-2], dtype=torch.bool, device=q.device).tril(k.shape[-2] - t)
    return ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).masked_fill(~mask, -1e30).softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, c, qk_norm):
        super().__init__()
        self.h, self.kv, self.d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        n = c["hidden_size"]
        self.q_proj = nn.Linear(n, self.h * self.d, bias=False)
        self.k_proj = nn.Linear(n, self.kv * self.d, bias=False)
        self.v_proj = nn.Linear(n, self.kv * self.d, bias=False)
        self.o_proj = nn.Linear(self.h * self.d, n, bias=False)
        if qk_norm:
            self.q_norm = RMSNorm(self.d, c["rms_norm_eps"])
            self.k_norm = RMSNorm(self.d, c["rms_norm_eps"])
        else:
            self.q_norm = self.k_norm = nn.Identity()

    def forward(self, x, cos, sin, mask, cache=None):
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.h, self.d)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.kv, self.d)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv, self.d).transpose(1, 2)
        q, k = rope(q, cos, sin).to(v.dtype), rope(k, cos, sin).to(v.dtype)
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
            cache["k"], cache["v"] = k, v
        r = self.h // self.kv
        if r > 1:
            k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
        y = attend(q, k, v, mask)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, self.h * self.d))


class MLP(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.gate_proj = nn.Linear(n, m, bias=False)
        self.up_proj = nn.Linear(n, m, bias=False)
        self.down_proj = nn.Linear(m, n, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Scale(nn.Module):
    def __init__(self, n, s):
        super().__init__()
        self.scale = nn.Parameter(torch.full((n,), s))

    def forward(self, x):
        return self.scale * x


class Layer(nn.Module):
    def __init__(self, c, qk_norm=True, layer_scale=None, dropout=0.0):
        super().__init__()
        self.dropout = dropout                          # of what a branch adds, in training
        n, eps = c["hidden_size"], c["rms_norm_eps"]
        self.self_attn = Attention(c, qk_norm)
        self.mlp = MLP(n, c["intermediate_size"])
        self.input_layernorm = RMSNorm(n, eps)
        self.post_attention_layernorm = RMSNorm(n, eps)
        if layer_scale is None:
            self.self_attn_layer_scale = self.mlp_layer_scale = nn.Identity()
        else:
            self.self_attn_layer_scale, self.mlp_layer_scale = Scale(n, layer_scale), Scale(n, layer_scale)

    def forward(self, x, cos, sin, mask, cache=None):
        drop = (lambda y: F.dropout(y, self.dropout, self.training)) if self.dropout else (lambda y: y)
        x = x + drop(self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), cos, sin, mask, cache)))
        return x + drop(self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x))))


# ------------------------------------------------------------------ speech tokenizer decoder
# Sequences are [B, T, channels].
class CausalConv(nn.Module):
    def __init__(self, i, o, k, dilation=1, groups=1):
        super().__init__()
        self.conv = nn.Conv1d(i, o, k, dilation=dilation, groups=groups)

    def forward(self, x, residual=None):
        c = self.conv
        if c.groups == 1:
            return fused.conv(x, c.weight, c.bias, c.dilation[0], residual)
        return c(F.pad(x.transpose(1, 2), (c.kernel_size[0] - 1, 0))).transpose(1, 2)


class CausalTConv(nn.Module):
    def __init__(self, i, o, k, s):
        super().__init__()
        self.conv = nn.ConvTranspose1d(i, o, k, stride=s)

    def forward(self, x):
        """one matrix product: an input and the one before it give the outputs of one stride"""
        i, o, k = self.conv.weight.shape
        s = self.conv.stride[0]
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
        x = torch.cat([x, before], 2) if k == 2 * s else x
        w = self.conv.weight.view(i, o, k // s, s).permute(3, 1, 2, 0).reshape(s * o, k // s * i)
        return F.linear(x, w, self.conv.bias.repeat(s)).view(x.shape[0], -1, o)


class ConvNeXt(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.dwconv = CausalConv(n, n, 7, groups=n)
        self.norm = nn.LayerNorm(n, eps=1e-6)
        self.pwconv1 = nn.Linear(n, 4 * n)
        self.pwconv2 = nn.Linear(4 * n, n)
        self.gamma = nn.Parameter(torch.full((n,), 0.3))

    def forward(self, x):
        return x + self.gamma * self.pwconv2(F.gelu(self.pwconv1(self.norm(self.dwconv(x)))))


class SnakeBeta(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(n))
        self.beta = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return fused.snake(x, self.alpha, self.beta)


class ResUnit(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.act1, self.conv1 = SnakeBeta(n), CausalConv(n, n, 7, d)
        self.act2, self.conv2 = SnakeBeta(n), CausalConv(n, n, 1)

    def forward(self, x):
        return self.conv2(self.act2(self.conv1(self.act1(x))), x)


class UpBlock(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.block = nn.ModuleList([SnakeBeta(i), CausalTConv(i, o, 2 * s, s)] + [ResUnit(o, d) for d in (1, 3, 9)])

    def forward(self, x):
        for b in self.block:
            x = b(x)
        return x


class Codebook(nn.Module):
    """stored the official way, vector = embedding_sum / cluster_usage, with a usage of one"""

    def __init__(self, n, dim):
        super().__init__()
        self.cluster_usage = nn.Parameter(torch.ones(n), requires_grad=False)
        self.embedding_sum = nn.Parameter(torch.randn(n, dim) * 0.3)


class VQ(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self._codebook = Codebook(n, dim)


class RVQStack(nn.Module):
    def __init__(self, n_q, n, dim):
        super().__init__()
        self.layers = nn.ModuleList([VQ(n, dim) for _ in range(n_q)])


class RVQ(nn.Module):
    """the way in, of an encoder, is part of the layout; nothing here runs it"""

    def __init__(self, n_q, n, dim, io):
        super().__init__()
        self.input_proj = nn.Conv1d(io, dim, 1, bias=False).requires_grad_(False)
        self.output_proj = nn.Conv1d(dim, io, 1, bias=False)
        self.vq = RVQStack(n_q, n, dim)
        nn.init.zeros_(self.input_proj.weight)

    def decode(self, x):                               # [B, q, T] -> [B, io, T]
        table = torch.cat([l._codebook.embedding_sum for l in self.vq.layers])
        at = torch.arange(x.shape[1], device=x.device)[:, None] * self.vq.layers[0]._codebook.embedding_sum.shape[0]
        return self.output_proj(F.embedding(x + at, table).sum(1).transpose(1, 2))


class SplitRVQ(nn.Module):
    def __init__(self, c):
        super().__init__()
        dim, io, n = c["codebook_dim"] // 2, c["codebook_dim"], c["codebook_size"]
        self.rvq_first = RVQ(1, n, dim, io)
        self.rvq_rest = RVQ(c["num_quantizers"] - 1, n, dim, io)

    def decode(self, x):
        return self.rvq_first.decode(x[:, :1]) + self.rvq_rest.decode(x[:, 1:])


class PreTransformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.layers = nn.ModuleList([Layer(c, qk_norm=False, layer_scale=0.3) for _ in range(c["num_hidden_layers"])])
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.input_proj = nn.Linear(c["latent_dim"], c["hidden_size"])
        self.output_proj = nn.Linear(c["hidden_size"], c["latent_dim"])

    def forward(self, x):                              # [B, T, latent]
        t = x.shape[1]
        p = torch.arange(t, device=x.device)
        d = p[:, None] - p[None]
        mask = (d >= 0) & (d < self.c["sliding_window"])
        cos, sin = rope_table(p, self.c["head_dim"], self.c["rope_theta"])
        x = self.input_proj(x)
        for l in self.layers:
            x = l(x, cos, sin, mask)
        return self.output_proj(self.norm(x))


class CodecDecoder(nn.Module):
    def __init__(self, c=CODEC):
        super().__init__()
        self.quantizer = SplitRVQ(c)
        n, d = c["latent_dim"], c["decoder_dim"]
        self.pre_conv = CausalConv(c["codebook_dim"], n, 3)
        self.pre_transformer = PreTransformer(c)
        self.upsample = nn.ModuleList([nn.ModuleList([CausalTConv(n, n, f, f), ConvNeXt(n)]) for f in c["upsampling_ratios"]])
        r = c["upsample_rates"]
        self.decoder = nn.ModuleList([CausalConv(n, d, 7)]
                                     + [UpBlock(d >> i, d >> (i + 1), s) for i, s in enumerate(r)]
                                     + [SnakeBeta(d >> len(r)), CausalConv(d >> len(r), 1, 7)])

    def synth(self, z):                                # z [B, codebook_dim, T] -> wav [B, T*1920]
        return self.waveform(self.pre_transformer(self.pre_conv(z.transpose(1, 2))))

    def coarse(self, x):                               # [B, T, latent] -> [B, T * 4, latent]
        for up in self.upsample:
            x = up[1](up[0](x))
        return x

    def waveform(self, x):                             # [B, T, latent] -> wav [B, T*1920]
        x = self.coarse(x)
        for b in self.decoder[:-1]:
            x = b(x)
        with torch.autocast(x.device.type, enabled=False):
            return self.decoder[-1](x.float()).squeeze(2)

    def forward(self, x):                              # codes [B, N_Q, T]
        return self.synth(self.quantizer.decode(x)).clamp(-1, 1)


# ------------------------------------------------------------------ talker
class ResizeMLP(nn.Module):
    def __init__(self, i, m, o):
        super().__init__()
        self.linear_fc1 = nn.Linear(i, m)
        self.linear_fc2 = nn.Linear(m, o)

    def forward(self, x):
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class TalkerModel(nn.Module):
    def __init__(self, c, text_vocab, dropout=0.0):
        super().__init__()
        self.codec_embedding = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.text_embedding = nn.Embedding(text_vocab, c["text_hidden_size"])
        self.layers = nn.ModuleList([Layer(c, dropout=dropout) for _ in range(c["num_hidden_layers"])])
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])


class CPModel(nn.Module):
    def __init__(self, c, talker_hidden, groups):
        super().__init__()
        self.codec_embedding = nn.ModuleList([nn.Embedding(c["vocab_size"], talker_hidden) for _ in range(groups - 1)])
        self.layers = nn.ModuleList([Layer(c) for _ in range(c["num_hidden_layers"])])
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])


class CodePredictor(nn.Module):
    def __init__(self, c, talker_hidden, groups):
        super().__init__()
        self.c = c
        self.model = CPModel(c, talker_hidden, groups)
        self.lm_head = nn.ModuleList([nn.Linear(c["hidden_size"], c["vocab_size"], bias=False) for _ in range(groups - 1)])
        self.small_to_mtp_projection = nn.Linear(talker_hidden, c["hidden_size"])

    def run(self, x):                                  # x [F, n, talker_hidden], causal over n
        x = self.small_to_mtp_projection(x)
        p = torch.arange(x.shape[1], device=x.device)
        cos, sin = rope_table(p, self.c["head_dim"], self.c["rope_theta"])
        for l in self.model.layers:
            x = l(x, cos, sin, None)
        return self.model.norm(x)


class Talker(nn.Module):
    def __init__(self, text_vocab, c=TALKER, cp=CP, dropout=0.0):
        super().__init__()
        self.c = c
        self.model = TalkerModel(c, text_vocab, dropout)
        self.text_projection = ResizeMLP(c["text_hidden_size"], c["text_hidden_size"], c["hidden_size"])
        self.codec_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        self.code_predictor = CodePredictor(cp, c["hidden_size"], c["num_code_groups"])
        self.unheard = [self.code_predictor.model.codec_embedding[g - 1].weight.requires_grad_(False) for g in codes.UNHEARD]
        for n, p in self.named_parameters():
            if p.dim() >= 2:
                if "embedding" in n:
                    nn.init.normal_(p, std=0.3 if "text" in n else 0.08)
                else:
                    nn.init.normal_(p, std=0.7 / math.sqrt(p.shape[1]))
                    if "o_proj" in n or "down_proj" in n:
                        p.data.mul_(0.4)
        for p in self.unheard:
            nn.init.zeros_(p)

    def backbone(self, x, pos, mask):
        """x [B,T,D]; pos [B,T] or [T]; returns final hidden (normed)"""
        cos, sin = rope_table(pos, self.c["head_dim"], self.c["rope_theta"])
        if pos.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]
        for l in self.model.layers:
            x = l(x, cos, sin, mask)
        return self.model.norm(x)
