#!/usr/bin/env python3
"""Writes an official-layout model folder from the trained parts.

usage: export.py talker.pt decoder.pt TOKDIR OUTDIR
"""
import json, os, shutil, struct, sys
import numpy as np
import torch
from bpe import BPE
from model import CODEC, TALKER as C, CP, N_CODE, N_Q
from voices import SPEAKERS


def save_safetensors(path, tensors):
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for k in sorted(tensors):
        t = np.ascontiguousarray(tensors[k].detach().cpu().to(torch.float16).numpy())
        assert np.isfinite(t.astype(np.float32)).all(), k
        head[k] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
        blobs.append(t)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for b in blobs:
            f.write(b.tobytes())
    return at


def load_safetensors(path):
    with open(path, "rb") as f:
        h = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    dt = {"F16": np.float16, "F32": np.float32}
    return {k: torch.from_numpy(np.frombuffer(data[v["data_offsets"][0]:v["data_offsets"][1]], dt[v["dtype"]]).reshape(v["shape"]).astype(np.float32))
            for k, v in h.items() if k != "__metadata__"}


def dump(path, obj):
    json.dump(obj, open(path, "w"), indent=2)


def main(talker, decoder, tok, out, gen=None):
    os.makedirs(f"{out}/speech_tokenizer", exist_ok=True)
    t, d, b = torch.load(talker, map_location="cpu"), torch.load(decoder, map_location="cpu"), BPE(tok)
    used = list(range(N_CODE)) + [C[k] for k in ("codec_pad_id", "codec_bos_id", "codec_eos_token_id", "codec_think_id", "codec_nothink_id",
                                                 "codec_think_bos_id", "codec_think_eos_id", "english")]
    used += [C["first_speaker"] + k for k in range(len(SPEAKERS))]
    for name, rows in (("model.codec_embedding.weight", used), ("codec_head.weight", list(range(N_CODE)) + [C["codec_eos_token_id"]])):
        w = torch.zeros_like(t[name])                    # rows that no prompt uses: zero, they compress away
        w[rows] = t[name][rows]
        t[name] = w
    n1 = save_safetensors(f"{out}/model.safetensors", {"talker." + k: v for k, v in t.items()})
    n2 = save_safetensors(f"{out}/speech_tokenizer/model.safetensors", {"decoder." + k: v for k, v in d.items()})
    for f in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(f"{tok}/{f}", out)
    common = dict(hidden_act="silu", attention_bias=False, attention_dropout=0, initializer_range=0.02, use_cache=True,
                  max_position_embeddings=32768, tie_word_embeddings=False, use_sliding_window=False, sliding_window=None)
    tc = {k: v for k, v in C.items() if k not in ("english", "first_speaker")}
    tc.update(common, model_type="qwen3_tts_talker", text_vocab_size=b.size, position_id_per_seconds=13,
              rope_scaling={"interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default", "type": "default"},
              codec_language_id={"english": C["english"]}, spk_id={s.name: C["first_speaker"] + k for k, s in enumerate(SPEAKERS)},
              spk_is_dialect={s.name: False for s in SPEAKERS},
              code_predictor_config=dict(CP, **common, model_type="qwen3_tts_talker_code_predictor", num_code_groups=N_Q,
                                         rope_scaling=None, max_window_layers=28,
                                         layer_types=["full_attention"] * CP["num_hidden_layers"]))
    dump(f"{out}/config.json", {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts", "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": "0b6", "tts_model_type": "custom_voice", "torch_dtype": "float16", "assistant_token_id": b.encode("assistant")[0],
        "im_start_token_id": b.special["<|im_start|>"], "im_end_token_id": b.special["<|im_end|>"],
        "tts_pad_token_id": b.special["<tts_pad>"], "tts_bos_token_id": b.special["<tts_text_bos>"], "tts_eos_token_id": b.special["<tts_text_eod>"],
        "talker_config": tc})
    dump(f"{out}/generation_config.json", gen or {
        # measured: sampling codebooks 1..15 at the official 0.9 costs a few points of word error rate
        "do_sample": True, "repetition_penalty": 1.0, "temperature": 0.9, "top_k": 50, "top_p": 1.0,
        "subtalker_dosample": False, "subtalker_temperature": 0.5, "subtalker_top_k": 50, "subtalker_top_p": 1.0, "max_new_tokens": 1024})
    dump(f"{out}/speech_tokenizer/config.json", {
        "architectures": ["Qwen3TTSTokenizerV2Model"], "model_type": "qwen3_tts_tokenizer_12hz", "encoder_valid_num_quantizers": N_Q,
        "input_sample_rate": 24000, "output_sample_rate": 24000, "encode_downsample_rate": 1920, "decode_upsample_rate": 1920,
        "torch_dtype": "float16",
        "decoder_config": dict(CODEC, num_semantic_quantizers=1, attention_bias=False, attention_dropout=0.0, hidden_act="silu", layer_scale_initial_scale=0.01,
                               max_position_embeddings=8000)})
    print(f"talker {n1} bytes, speech tokenizer {n2} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:5])
