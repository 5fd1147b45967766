#!/usr/bin/env python3
"""Turns speech into what the talker is trained on: codes of the frozen codec and phone classes. Also carries it from one machine to another.

usage: encode_speech.py encode SPEECHDIR CODEC.pt OUTDIR
       encode_speech.py pack OUTDIR FILE PARTS      writes FILE.0 to FILE.PARTS-1: 10 minutes are about 0.15 MB
       encode_speech.py unpack FILE OUTDIR

A shard NNNN.npz of teacher.py becomes OUTDIR/NNNN.npz: codes [frame, 16], a phone class per 20 ms [frame, 4], and the table of utterances.
"""
import glob
import io
import lzma
import os
import sys

import numpy as np

BITS = 7                                                # a code's, packed


def write(path, **arrays):
    np.savez(path + ".tmp.npz", **arrays)
    os.rename(path + ".tmp.npz", path)


def encode_all(speech, codec, out):
    import torch
    from codec_parts import Encoder, encode
    from model import CODEC, SplitRVQ
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    state = torch.load(codec, map_location=dev)
    enc, quantizer = Encoder().to(dev).eval(), SplitRVQ(CODEC).to(dev).eval()
    enc.load_state_dict(state["enc"])
    quantizer.load_state_dict(state["quantizer"])
    frames = 0
    shards = sorted(f for f in os.listdir(speech) if f.endswith(".npz") and ".tmp" not in f)
    for f in sorted(shards, key=lambda f: f[0] != "x"):  # the held-out shards first
        z = np.load(f"{speech}/{f}")
        codes = encode(enc, quantizer, torch.from_numpy(z["wav"]).to(dev)).cpu().numpy()
        write(f"{out}/{f}", codes=codes, labels=z["labels"].reshape(-1, 8)[:, 1::2], table=z["table"])
        frames += len(codes)
    open(f"{out}/all.done", "w").close()
    print(f"{len(shards)} shards, {frames / 45000:.1f} h")


def pack(folder, path, parts):
    names = sorted(os.path.basename(f) for f in glob.glob(f"{folder}/*.npz"))
    for part in range(parts):
        mine = names[part::parts]
        shards = [np.load(f"{folder}/{f}") for f in mine]
        codes = np.concatenate([z["codes"] for z in shards])
        bits = np.packbits(np.unpackbits(codes[..., None], -1)[..., 8 - BITS:])
        rest = io.BytesIO()
        np.savez(rest, names=mine, frames=[len(z["codes"]) for z in shards], labels=np.concatenate([z["labels"] for z in shards]),
                 tables=np.concatenate([z["table"] for z in shards]), lines=[len(z["table"]) for z in shards])
        rest = lzma.compress(rest.getvalue(), preset=3)
        with open(f"{path}.{part}", "wb") as f:
            f.write(len(rest).to_bytes(8, "little") + rest + bits.tobytes())


def unpack(path, folder):
    os.makedirs(folder, exist_ok=True)
    for part in sorted(glob.glob(f"{path}.*")):
        data = open(part, "rb").read()
        n = 8 + int.from_bytes(data[:8], "little")
        z = np.load(io.BytesIO(lzma.decompress(data[8:n])))
        frames, lines = np.cumsum(z["frames"]), np.cumsum(z["lines"])
        bits = np.unpackbits(np.frombuffer(data[n:], np.uint8))[:frames[-1] * 16 * BITS].reshape(-1, 16, BITS)
        codes = np.packbits(np.pad(bits, ((0, 0), (0, 0), (8 - BITS, 0))), -1)[..., 0]
        for k, name in enumerate(z["names"]):
            f, t = (slice(x[k - 1] if k else 0, x[k]) for x in (frames, lines))
            write(f"{folder}/{name}", codes=codes[f], labels=z["labels"][f], table=z["tables"][t])
    open(f"{folder}/all.done", "w").close()


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "encode":
        os.makedirs(sys.argv[4], exist_ok=True)
        encode_all(*sys.argv[2:])
    elif len(sys.argv) == 5 and sys.argv[1] == "pack":
        pack(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) == 4 and sys.argv[1] == "unpack":
        unpack(*sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
