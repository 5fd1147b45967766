"""Kokoro's graph run by PyTorch, so that a GPU can be the teacher. Integers stay on the host.

The weights and nodes are read from kokoro.npz (teacher_weights.py).
"""
import json

import numpy as np
import torch
import torch.nn.functional as F

DURATIONS = "/encoder/Clip_output_0"                    # frames of 25 ms, one number a token


class Graph:
    def __init__(self, path, device='cpu'):
        z = np.load(path)
        self.device = device
        self.nodes = json.loads(bytes(z['nodes']).decode())
        self.w = {}
        for k in z.files:
            if k == 'nodes' or k[:2] == 's:':
                continue
            a = z[k]
            if k[:2] == 'q:':
                a = a.astype(np.float32) * z['s:' + k[2:]]
            elif a.dtype == np.float16:
                a = a.astype(np.float32)
            t = torch.from_numpy(np.array(a, order="C"))
            self.w[k[2:]] = t.to(device) if t.is_floating_point() else t
        last = {}
        for i, (op, ins, outs, at) in enumerate(self.nodes):
            for n in ins:
                last[n] = i
        self.free = {}
        for n, i in last.items():
            if n not in self.w:
                self.free.setdefault(i, []).append(n)
        self.lstm = {}
        for i, (op, ins, outs, at) in enumerate(self.nodes):
            if op == 'LSTM':
                W, R, B = (self.w[ins[k]] for k in (1, 2, 3))
                h = at['hidden_size']
                m = torch.nn.LSTM(W.shape[2], h, bidirectional=W.shape[0] == 2).to(device)
                order = lambda x: torch.cat([x[:h], x[2 * h:3 * h], x[3 * h:], x[h:2 * h]])  # i o f c -> i f g o
                with torch.no_grad():
                    for d, s in enumerate(('', '_reverse')[:W.shape[0]]):
                        getattr(m, 'weight_ih_l0' + s).copy_(order(W[d])); getattr(m, 'weight_hh_l0' + s).copy_(order(R[d]))
                        getattr(m, 'bias_ih_l0' + s).copy_(order(B[d][:4 * h])); getattr(m, 'bias_hh_l0' + s).copy_(order(B[d][4 * h:]))
                if str(device) != 'cpu':
                    m.flatten_parameters()
                self.lstm[i] = m

    @torch.no_grad()
    def __call__(self, tokens, style, speed=1.0):
        dev = self.device
        v, kept = dict(self.w), None
        v[''] = None
        v['tokens'] = torch.tensor(tokens, dtype=torch.int64)[None]
        v['style'] = torch.as_tensor(style, dtype=torch.float32).reshape(1, 256).to(dev)
        v['speed'] = torch.tensor([speed], dtype=torch.float32, device=dev)
        ints = lambda t: [int(x) for x in t.reshape(-1).tolist()]

        def same(a, b):
            if a.device != b.device:
                if a.dim() == 0 or a.is_floating_point() is False:
                    return a.to(b.device), b
                return a, b.to(a.device)
            return a, b
        for i, (op, ins, outs, at) in enumerate(self.nodes):
            x = [v[n] for n in ins]
            if op in BINARY:
                a, b = same(x[0], x[1])
                r = BINARY[op](a, b)
                if op == 'Div' and not a.is_floating_point():
                    r = torch.div(a, b, rounding_mode='trunc')
            elif op in UNARY:
                r = UNARY[op](x[0])
            elif op == 'MatMul':
                r = torch.matmul(*same(x[0], x[1]))
            elif op == 'FusedMatMul':
                r = torch.matmul(x[0].transpose(-1, -2) if at['transA'] else x[0], x[1].transpose(-1, -2) if at['transB'] else x[1]) * at['alpha']
            elif op == 'Cast':
                to = {1: torch.float32, 7: torch.int64, 6: torch.int32, 9: torch.bool}[at['to']]
                r = x[0].to(to)
                r = r.to(dev) if to is torch.float32 else r.cpu() if to is not torch.bool else r
            elif op == 'Unsqueeze':
                r = x[0]
                for d in sorted(k if k >= 0 else k + x[0].dim() + x[1].numel() for k in ints(x[1])):
                    r = r.unsqueeze(d)
            elif op == 'Squeeze':
                r = x[0]
                for d in sorted((k % x[0].dim() for k in ints(x[1])), reverse=True):
                    r = r.squeeze(d)
            elif op == 'Gather':
                ax, idx = at.get('axis', 0), x[1].to(x[0].device)
                ax %= x[0].dim()
                idx = torch.where(idx < 0, idx + x[0].shape[ax], idx)
                r = torch.index_select(x[0], ax, idx.reshape(-1)).reshape(x[0].shape[:ax] + idx.shape + x[0].shape[ax + 1:])
            elif op == 'Shape':
                r = torch.tensor(x[0].shape, dtype=torch.int64)
            elif op == 'Concat':
                ts = x
                if any(t.device != ts[0].device for t in ts):
                    ts = [t.to(dev) for t in ts]
                r = torch.cat(ts, at['axis'])
            elif op == 'Reshape':
                s = ints(x[1])
                r = x[0].reshape([x[0].shape[k] if d == 0 else d for k, d in enumerate(s)])
            elif op == 'Transpose':
                r = x[0].permute(at['perm'])
            elif op == 'ReduceMean':
                r = x[0].mean(ints(x[1]), keepdim=bool(at.get('keepdims', 1)))
            elif op == 'ReduceSum':
                r = x[0].sum(ints(x[1]), keepdim=bool(at.get('keepdims', 1)))
            elif op == 'Split':
                r = torch.split(x[0], ints(x[1]) if len(x) > 1 and x[1] is not None else x[0].shape[at['axis']] // len(outs), at['axis'])
            elif op == 'Slice':
                r = x[0]
                st, en = ints(x[1]), ints(x[2])
                ax = ints(x[3]) if len(x) > 3 and x[3] is not None else list(range(len(st)))
                sp = ints(x[4]) if len(x) > 4 and x[4] is not None else [1] * len(st)
                for s, e, a, p in zip(st, en, ax, sp):
                    n = r.shape[a]
                    if p < 0:
                        r = r.flip(a); assert p == -1 and s in (-1, n - 1) and e < -n
                        continue
                    s = max(0, s + n) if s < 0 else min(s, n)
                    e = max(0, e + n) if e < 0 else min(e, n)
                    r = r[(slice(None),) * (a % r.dim()) + (slice(s, e, p),)]
            elif op in ('Conv', 'ConvTranspose'):
                p = at.get('pads', [0, 0])
                y = x[0]
                k = dict(stride=at.get('strides', [1])[0], dilation=at.get('dilations', [1])[0], groups=at.get('group', 1))
                bias = x[2] if len(x) > 2 else None
                if op == 'Conv':
                    if p[0] != p[1]:
                        y = F.pad(y, p); p = [0, 0]
                    r = F.conv1d(y, x[1], bias, padding=p[0], **k)
                else:
                    r = F.conv_transpose1d(y, x[1], bias, padding=p[0], output_padding=at.get('output_padding', [0])[0], **k)
            elif op == 'LeakyRelu':
                r = F.leaky_relu(x[0], at.get('alpha', 0.01))
            elif op == 'Softmax':
                r = torch.softmax(x[0], at.get('axis', -1))
            elif op == 'LayerNormalization':
                r = F.layer_norm(x[0], x[1].shape, x[1], x[2], at['epsilon'])
            elif op == 'SkipLayerNormalization':
                r = F.layer_norm(x[0] + x[1] + (x[4] if len(x) > 4 else 0), x[2].shape, x[2], x[3], at['epsilon'])
            elif op == 'FastGelu':
                y = x[0] + x[1] if len(x) > 1 and x[1] is not None else x[0]
                r = 0.5 * y * (1 + torch.tanh(0.7978845608028654 * (y + 0.044715 * y ** 3)))
            elif op == 'LSTM':
                y, (h, c) = self.lstm[i](x[0])
                h_ = y.shape[-1] // 2
                r = (y.reshape(y.shape[0], y.shape[1], 2, h_).permute(0, 2, 1, 3), h, c)
            elif op == 'Resize':
                sc = x[2].tolist() if x[2] is not None and x[2].numel() else None
                size = [int(round(a * b)) for a, b in zip(x[0].shape, sc)] if sc else ints(x[3])
                if at['mode'] == 'nearest':
                    idx = torch.floor(torch.arange(size[-1], device=x[0].device, dtype=torch.float64) * (x[0].shape[-1] / size[-1])).long()
                    r = x[0].index_select(-1, idx.clamp_(max=x[0].shape[-1] - 1))
                else:
                    y = x[0].reshape(x[0].shape[0], -1, x[0].shape[-1])
                    r = F.interpolate(y, scale_factor=sc[-1], mode='linear', align_corners=False, recompute_scale_factor=False)
                    r = r.reshape(*x[0].shape[:-1], r.shape[-1])
            elif op == 'Where':
                ts = [t.to(dev) for t in x] if any(t.device.type != 'cpu' for t in x) else x
                r = torch.where(*ts)
            elif op == 'ConstantOfShape':
                val = at.get('value', [0.0]); val = val[0] if isinstance(val, list) else val
                r = torch.full(ints(x[0]), val, dtype=torch.int64 if isinstance(val, int) and not isinstance(val, bool) else torch.float32)
                r = r.to(dev) if r.is_floating_point() else r
            elif op == 'Expand':
                s = ints(x[1])
                s = [1] * (x[0].dim() - len(s)) + s
                y = x[0].reshape((1,) * (len(s) - x[0].dim()) + tuple(x[0].shape))
                r = y.expand([a if b == 1 else b for a, b in zip(y.shape, s)])
            elif op == 'DequantizeLinear':
                a = x[0].to(dev).float() - (x[2].to(dev).float() if len(x) > 2 and x[2] is not None else 0)
                s = x[1].to(dev)
                r = a * (s if s.dim() == 0 or s.numel() == 1 else s.reshape([-1] + [1] * (a.dim() - 1)))
            elif op == 'CumSum':
                r = torch.cumsum(x[0], int(x[1]))
            elif op == 'Range':
                r = torch.arange(int(x[0]), int(x[1]), int(x[2]))
            elif op == 'Pad':
                p = ints(x[1]); n = len(p) // 2
                y = x[0]
                k = [(p[d], p[d + n]) for d in range(n)]
                k2 = [z for d in reversed(range(n)) for z in k[d]]
                while len(k2) > 2 and k2[-1] == 0 and k2[-2] == 0:
                    k2 = k2[:-2]
                if at.get('mode', 'constant') == 'reflect':
                    sh = y.shape
                    r = F.pad(y.reshape(1, -1, sh[-1]), k2[:2], mode='reflect'); r = r.reshape(*sh[:-1], r.shape[-1])
                else:
                    r = F.pad(y, k2, value=float(x[2]) if len(x) > 2 and x[2] is not None else 0.0)
            elif op == 'Clip':
                r = x[0]
                if x[1] is not None: r = torch.maximum(r, x[1].to(r.device))
                if len(x) > 2 and x[2] is not None: r = torch.minimum(r, x[2].to(r.device))
            elif op == 'STFT':
                hop, n = int(x[1]), int(x[3]) if len(x) > 3 and x[3] is not None else x[2].numel()
                y = x[0].reshape(x[0].shape[0], -1).unfold(-1, n, hop)
                r = torch.view_as_real(torch.fft.rfft(y * x[2].to(y.device)))
            elif op == 'NonZero':
                r = torch.nonzero(x[0]).t().cpu()
            elif op == 'ScatterND':
                r = x[0].clone()
                r[tuple(x[1].to(r.device).unbind(-1))] = x[2].to(r.device)
            else:
                raise NotImplementedError(op)
            if outs[0] == DURATIONS:
                kept = r
            if len(outs) == 1:
                v[outs[0]] = r
            else:
                for n, y in zip(outs, r):
                    v[n] = y
            for n in self.free.get(i, ()):
                v.pop(n, None) if n else None
        return v['audio'].reshape(-1), kept


BINARY = {'Add': torch.add, 'Mul': torch.mul, 'Sub': torch.sub, 'Div': lambda a, b: torch.div(a, b), 'Pow': torch.pow, 'Equal': torch.eq,
          'Greater': torch.gt, 'Less': torch.lt, 'GreaterOrEqual': torch.ge, 'And': torch.logical_and}
UNARY = {'Sqrt': torch.sqrt, 'Sin': torch.sin, 'Floor': torch.floor, 'Sigmoid': torch.sigmoid, 'Round': torch.round, 'Tanh': torch.tanh,
         'Atan': lambda a: torch.nan_to_num(torch.atan(a)), 'Exp': torch.exp, 'Cos': torch.cos}
