#!/usr/bin/env python3
"""SnakeBeta, convolution along time and the distance of features for training, as few Triton kernels each; sequences are [row, time, channel].

The decoder's last blocks have 20 to 160 channels and hundreds of thousands of steps: there the libraries' convolutions, written for many channels,
take most of a training step. On a CPU, or with FUSED=0, plain PyTorch computes the same.

usage: fused.py      compares kernels and plain PyTorch, on the GPU or, without one, in Triton's interpreter
"""
import os
import sys

import torch
import torch.nn.functional as F

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
try:
    import triton
    import triton.language as tl
except ImportError:                                     # PyTorch for CPUs comes without
    triton = None
ON = triton is not None and os.environ.get("FUSED", "1") == "1"
CPU_TOO = os.environ.get("TRITON_INTERPRET") == "1"


def usable(x):
    return ON and (x.is_cuda or CPU_TOO)


def compute_type(x):
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype


if triton is not None:
    @triton.jit
    def conv_kernel(x, w, bias, residual, y, steps, shift, C: tl.constexpr, O: tl.constexpr, K: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
                    T_BLOCK: tl.constexpr, C_BLOCK: tl.constexpr, O_BLOCK: tl.constexpr):
        """y[t] = sum over k of x[t + shift k] w[k], for shift k within the row; w is [K, C, O]"""
        row = tl.program_id(0).to(tl.int64)
        t = tl.program_id(1) * T_BLOCK + tl.arange(0, T_BLOCK)
        o = tl.program_id(2) * O_BLOCK + tl.arange(0, O_BLOCK)
        total = tl.zeros((T_BLOCK, O_BLOCK), tl.float32)
        c_blocks: tl.constexpr = (C + C_BLOCK - 1) // C_BLOCK
        for step in range(K * c_blocks):
            at = t + step // c_blocks * shift
            c = step % c_blocks * C_BLOCK + tl.arange(0, C_BLOCK)
            a = tl.load(x + (row * steps + at)[:, None] * C + c[None, :], ((at >= 0) & (at < steps))[:, None] & (c < C)[None, :], 0.0)
            b = tl.load(w + (step // c_blocks * C + c)[:, None] * O + o[None, :], (c < C)[:, None] & (o < O)[None, :], 0.0)
            total = tl.dot(a, b, total)
        if HAS_BIAS:
            total += tl.load(bias + o, o < O, 0.0)[None, :].to(tl.float32)
        place = (row * steps + t)[:, None] * O + o[None, :]
        valid = (t < steps)[:, None] & (o < O)[None, :]
        if HAS_RESIDUAL:
            total += tl.load(residual + place, valid, 0.0).to(tl.float32)
        tl.store(y + place, total.to(y.dtype.element_ty), valid)

    @triton.jit
    def weight_kernel(x, dy, dw, steps, shift, chunks, C: tl.constexpr, O: tl.constexpr, K: tl.constexpr, CHUNK: tl.constexpr,
                      T_BLOCK: tl.constexpr, C_BLOCK: tl.constexpr, O_BLOCK: tl.constexpr):
        """dw[part, k, c, o] = sum over t of the part of x[t + shift k, c] dy[t, o]; a part is CHUNK steps of a row"""
        part = tl.program_id(0)
        row = (part // chunks).to(tl.int64)
        begin = (part % chunks) * CHUNK
        k = tl.program_id(1)
        o_blocks: tl.constexpr = (O + O_BLOCK - 1) // O_BLOCK
        c = tl.program_id(2) // o_blocks * C_BLOCK + tl.arange(0, C_BLOCK)
        o = tl.program_id(2) % o_blocks * O_BLOCK + tl.arange(0, O_BLOCK)
        total = tl.zeros((C_BLOCK, O_BLOCK), tl.float32)
        for first in range(0, CHUNK, T_BLOCK):
            t = begin + first + tl.arange(0, T_BLOCK)
            at = t + k * shift
            a = tl.load(x + (row * steps + at)[None, :] * C + c[:, None], ((at >= 0) & (at < steps) & (t < steps))[None, :] & (c < C)[:, None], 0.0)
            b = tl.load(dy + (row * steps + t)[:, None] * O + o[None, :], (t < steps)[:, None] & (o < O)[None, :], 0.0)
            total = tl.dot(a, b, total)
        place = ((part * K + k).to(tl.int64) * C + c)[:, None] * O + o[None, :]
        tl.store(dw + place, total, (c < C)[:, None] & (o < O)[None, :])

    @triton.jit
    def snake_kernel(x, alpha, beta, y, n, C: tl.constexpr, BLOCK: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + i, i < n, 0.0).to(tl.float32)
        s = tl.sin(v * tl.exp(tl.load(alpha + i % C)))
        tl.store(y + i, (v + tl.exp(-tl.load(beta + i % C)) * s * s).to(y.dtype.element_ty), i < n)

    @triton.jit
    def snake_backward_kernel(x, alpha, beta, dy, dx, sums, steps, C: tl.constexpr, T_BLOCK: tl.constexpr, C_BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
        """dx, and sums[program] = [2, C]: of the gradients of alpha and beta; steps of all rows in one sequence"""
        c = tl.arange(0, C_BLOCK)
        a = tl.exp(tl.load(alpha + c, c < C, 0.0))[None, :]
        b = tl.exp(-tl.load(beta + c, c < C, 0.0))[None, :]
        of_alpha = tl.zeros((C_BLOCK,), tl.float32)
        of_beta = tl.zeros((C_BLOCK,), tl.float32)
        for k in range(BLOCKS):
            t = (tl.program_id(0).to(tl.int64) * BLOCKS + k) * T_BLOCK + tl.arange(0, T_BLOCK)
            place = t[:, None] * C + c[None, :]
            valid = (t < steps)[:, None] & (c < C)[None, :]
            v = tl.load(x + place, valid, 0.0).to(tl.float32)
            g = tl.load(dy + place, valid, 0.0).to(tl.float32)
            s = tl.sin(v * a)
            twice = 2 * s * tl.cos(v * a) * a * b
            tl.store(dx + place, (g * (1 + twice)).to(dx.dtype.element_ty), valid)
            of_alpha += tl.sum(g * twice * v, 0)
            of_beta -= tl.sum(g * b * s * s, 0)
        tl.store(sums + tl.program_id(0) * 2 * C + c, of_alpha, c < C)
        tl.store(sums + (tl.program_id(0) * 2 + 1) * C + c, of_beta, c < C)


    @triton.jit
    def distance_kernel(p, q, sums, n, BLOCK: tl.constexpr):
        """sums[program] = sum of |p - q|, sum of |p|"""
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(p + i, i < n, 0.0).to(tl.float32)
        b = tl.load(q + i, i < n, 0.0).to(tl.float32)
        tl.store(sums + 2 * tl.program_id(0), tl.sum(tl.abs(a - b)))
        tl.store(sums + 2 * tl.program_id(0) + 1, tl.sum(tl.abs(a)))

    @triton.jit
    def distance_backward_kernel(p, q, scale, dp, dq, n, BLOCK: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(p + i, i < n, 0.0).to(tl.float32)
        b = tl.load(q + i, i < n, 0.0).to(tl.float32)
        g = tl.load(scale)
        tl.store(dq + i, tl.where(b > a, g, tl.where(b < a, -g, 0.0)).to(dq.dtype.element_ty), i < n)
        tl.store(dp + i, tl.zeros((BLOCK,), tl.float32).to(dp.dtype.element_ty), i < n)


def block(n):
    return min(64, max(16, triton.next_power_of_2(n)))


def run_conv(x, w, shift, bias=None, residual=None):
    """x [row, time, C], w [K, C, O]"""
    rows, steps, channels = x.shape
    taps, _, outputs = w.shape
    y = torch.empty(rows, steps, outputs, dtype=x.dtype, device=x.device)
    t_block = 128
    grid = rows, triton.cdiv(steps, t_block), triton.cdiv(outputs, block(outputs))
    conv_kernel[grid](x, w, bias if bias is not None else x, residual if residual is not None else x, y, steps, shift, channels, outputs, taps,
                      bias is not None, residual is not None, t_block, block(channels), block(outputs))
    return y


def run_weight(x, dy, taps, shift):
    """-> [K, C, O] in float32"""
    rows, steps, channels = x.shape
    outputs = dy.shape[2]
    chunk = 2048
    chunks = triton.cdiv(steps, chunk)
    dw = torch.empty(rows * chunks, taps, channels, outputs, dtype=torch.float32, device=x.device)
    grid = rows * chunks, taps, triton.cdiv(channels, block(channels)) * triton.cdiv(outputs, block(outputs))
    weight_kernel[grid](x, dy, dw, steps, shift, chunks, channels, outputs, taps, chunk, 64, block(channels), block(outputs))
    return dw.sum(0)


class Conv(torch.autograd.Function):
    """causal: y[t] = sum over k of x[t - (K - 1 - k) dilation] w[:, :, k] + bias, + residual"""

    @staticmethod
    def forward(ctx, x, weight, bias, residual, dilation):
        x = x.contiguous()
        w = weight.to(x.dtype).permute(2, 1, 0).flip(0).contiguous()     # newest tap first
        ctx.save_for_backward(x, w)
        ctx.dilation, ctx.has = dilation, (bias is not None, residual is not None)
        return run_conv(x, w, -dilation, bias, residual if residual is None else residual.contiguous())

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.contiguous()
        dx = run_conv(dy, w.transpose(1, 2).contiguous(), ctx.dilation) if ctx.needs_input_grad[0] else None
        dw = run_weight(x, dy, w.shape[0], -ctx.dilation).flip(0).permute(2, 1, 0) if ctx.needs_input_grad[1] else None
        db = dy.sum((0, 1), dtype=torch.float32) if ctx.has[0] else None
        return dx, dw, db, dy if ctx.has[1] else None, None


def conv(x, weight, bias, dilation=1, residual=None):
    """weight [O, C, K] as torch.nn.Conv1d has it; the past before the row is silence"""
    if usable(x):
        to = compute_type(x)
        return Conv.apply(x.to(to), weight, bias, residual if residual is None else residual.to(to), dilation)
    y = F.conv1d(F.pad(x.transpose(1, 2), ((weight.shape[2] - 1) * dilation, 0)), weight, bias, dilation=dilation).transpose(1, 2)
    return y if residual is None else y + residual


class Snake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha, beta):
        x = x.contiguous()
        ctx.save_for_backward(x, alpha, beta)
        y = torch.empty_like(x)
        snake_kernel[(triton.cdiv(x.numel(), 2048),)](x, alpha, beta, y, x.numel(), x.shape[-1], 2048)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, alpha, beta = ctx.saved_tensors
        channels = x.shape[-1]
        steps = x.numel() // channels
        c_block = triton.next_power_of_2(channels)
        t_block = max(1, 2048 // c_block)
        blocks = max(1, triton.cdiv(steps, t_block * 1024))
        programs = triton.cdiv(steps, t_block * blocks)
        dx, sums = torch.empty_like(x), torch.empty(programs, 2, channels, dtype=torch.float32, device=x.device)
        snake_backward_kernel[(programs,)](x, alpha, beta, dy.contiguous(), dx, sums, steps, channels, t_block, c_block, blocks)
        total = sums.sum(0)
        return dx, total[0], total[1]


def snake(x, alpha, beta):
    """x + sin^2(x e^alpha) / e^beta"""
    if usable(x):
        return Snake.apply(x.to(compute_type(x)), alpha, beta)
    return x + (-beta).exp().to(x.dtype) * torch.sin(x * alpha.exp().to(x.dtype)).square()


class Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        n = t.numel() // 2
        sums = torch.empty(triton.cdiv(n, 4096), 2, dtype=torch.float32, device=t.device)
        p = t.flatten()
        distance_kernel[(len(sums),)](p, p[n:], sums, n, 4096)
        total = sums.sum(0) / n
        scale = 1 / (total[1] + 1e-3)
        ctx.save_for_backward(t, scale)
        return total[0] * scale

    @staticmethod
    def backward(ctx, g):
        t, scale = ctx.saved_tensors
        n = t.numel() // 2
        dt = torch.empty_like(t)
        p, d = t.flatten(), dt.view(-1)
        distance_backward_kernel[(triton.cdiv(n, 4096),)](p, p[n:], (g * scale / n).float(), d, d[n:], n, 4096)
        return dt


def distance(t):
    """t: real features, then as many generated ones -> mean |difference| over the real ones' mean size; no gradient for the real ones"""
    if usable(t):
        if t.dim() == 4:                                # dense with the channel innermost
            t = t.permute(0, 2, 3, 1)
        return Distance.apply(t.contiguous())
    p, q = t.chunk(2)
    p = p.detach()
    return (p - q).abs().float().mean() / (p.abs().float().mean() + 1e-3)


def check(dev):
    global ON
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    worst = 0.0
    sizes = [(2, 150, 20, 20, 7, 9), (1, 133, 40, 40, 1, 1), (2, 90, 20, 1, 7, 1), (1, 70, 80, 80, 7, 3), (1, 65, 160, 160, 7, 1)]
    if dev == "cuda":
        sizes += [(13, 28800, 20, 20, 7, 9), (13, 2400, 80, 80, 7, 9)]
    for rows, steps, channels, outputs, taps, dilation in sizes:
        leaf = lambda *shape: torch.randn(*shape, device=dev, dtype=torch.float64).float().requires_grad_()
        x, w, b, r = leaf(rows, steps, channels), leaf(outputs, channels, taps), leaf(outputs), leaf(rows, steps, outputs)
        alpha, beta = leaf(channels), leaf(channels)
        g = torch.randn(rows, steps, outputs, device=dev)
        results = []
        for ON in (True, False):
            y = conv(snake(x, alpha, beta), w, b, dilation, r)
            results.append([y] + list(torch.autograd.grad(y, (x, w, b, r, alpha, beta), g)))
        for name, p, q in zip("y x w b residual alpha beta".split(), *results):
            e = float((p - q).norm() / q.norm())
            worst = max(worst, e)
            if not e < 3e-3:
                sys.exit(f"fused {name} of {rows, steps, channels, outputs, taps, dilation} is off by {e:.2e}")
    for shape in ((4, 3, 5, 7), (6, 8, 40, 70)):
        t = torch.randn(shape, device=dev).contiguous(memory_format=torch.channels_last).requires_grad_()
        results = []
        for ON in (True, False):
            d = distance(t)
            results.append([d, torch.autograd.grad(d * 3, t)[0]])
        for name, p, q in zip(("distance", "its gradient"), *results):
            e = float((p - q).norm() / q.norm())
            worst = max(worst, e)
            if not e < 1e-4:
                sys.exit(f"fused {name} of {shape} is off by {e:.2e}")
    ON = True
    print(f"fused operations agree with plain PyTorch to {worst:.1e}")


if __name__ == "__main__":
    check("cuda" if torch.cuda.is_available() else "cpu")
