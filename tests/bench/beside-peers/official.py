# SPDX-License-Identifier: LGPL-2.1-or-later
"""Times qwen-tts, the official package: official.py MODEL SENTENCES BATCH...

The time of a further frame of all streams is the difference between two lengths of a batch, without the prompt."""
import sys
import time

import torch
from qwen_tts import Qwen3TTSModel

LENGTHS = (4, 24)  # max_new_tokens


def texts_of(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def generate(tts: Qwen3TTSModel, texts: list[str], batch: int, tokens: int) -> tuple[float, float]:
    """Seconds that it takes, and the frames of the longest stream."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    waves, rate = tts.generate_custom_voice(
        text=[texts[i % len(texts)] for i in range(batch)], language=["english"] * batch, speaker=["ryan"] * batch,
        max_new_tokens=tokens)
    torch.cuda.synchronize()
    return time.perf_counter() - start, max(len(wave) for wave in waves) / (0.08 * rate)


def main() -> None:
    model, sentences, *batches = sys.argv[1:]
    texts = texts_of(sentences)
    tts = Qwen3TTSModel.from_pretrained(model, device_map="cuda:0", dtype=torch.bfloat16, attn_implementation="sdpa")
    for batch in map(int, batches):
        generate(tts, texts, batch, 3)  # warm-up
        (short, few), (long, many) = [generate(tts, texts, batch, tokens) for tokens in LENGTHS]
        frame = (long - short) / (many - few)
        print(f"{batch:4d} streams: {1000 * frame:8.2f} ms a frame of each, {0.08 * batch / frame:8.1f} audio-s/s",
              flush=True)


if __name__ == "__main__":
    main()
