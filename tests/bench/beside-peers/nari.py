# SPDX-License-Identifier: LGPL-2.1-or-later
"""Times nari-qwen3-tts in process: nari.py MODEL SENTENCES PROFILE STREAMS...

Its best case: all requests of a size enter in one turn of its engine and go in step, a batch of that size is captured,
nobody reads, and the first frame, which it does not send as it ships, counts. Its limits are raised to the largest
size. The profile is as shipped otherwise. The general sampler's graphs, which top-k 50 does not use, are not captured.

Some names of its inside are used; they are those of commit e8c5b2b."""
import os
import statistics
import sys
import time
from concurrent.futures import Future

from nari_qwen3_tts.config import EngineConfig, ModelAssetConfig
from nari_qwen3_tts.contract.command import SubmitRequest
from nari_qwen3_tts.contract.request import SynthesisRequest
from nari_qwen3_tts.contract.stream import PCMStream
from nari_qwen3_tts.executor import sampling
from nari_qwen3_tts.factory import build_qwen3_tts_engine
from nari_qwen3_tts.model.public import Qwen3TTSModel
from nari_qwen3_tts.profile import ProfileLoader

BYTES_PER_FRAME = 1920 * 2
FRAMES = {"throughput": 75, "balanced": 82}  # whole chunks of the profile's
PATIENCE = 60  # seconds
Chunks = list[tuple[float, int]]  # time and bytes


def overlay(profile: str, sizes: list[int]) -> dict:
    most = max(64, *sizes)
    batches = sorted({1, 8, *sizes})
    cold, frames = {
        "throughput": (batches, {"cold": [7, 25], "warm": [25], "warm_full": [25], "terminal_pad": [25]}),
        # First chunks in batches of 8, as shipped.
        "balanced": ([1, 8], {"cold": [4, 7], "warm": [4, 8, 12, 16, 25], "warm_full": [4, 8, 12, 16, 25],
                              "terminal_pad": [12, 25]}),
    }[profile]
    return {
        "extends": profile,
        "talker_prefill": {"batch_sizes": [1, 8], "token_buckets": [64, 128, 192, 384], "exact_batch_sizes": [1]},
        "talker_decode": {"max_batch_size": most, "batch_sizes": batches},
        "code_predictor": {"max_batch_size": most, "batch_sizes": batches},
        "codec": {
            "max_batch_size": most,
            "batches": {"whole_sequence_first_frame": [1], "whole_sequence_followup": [1], "cold": cold,
                        "cold_terminal_partial": [], "warm_partial": [1], "warm_full": batches},
            "frames": {"cold_terminal_partial": [], **frames},
        },
        # A scratch page for each row of the largest batch, a page of 128 positions for each stream, and spares.
        "kv_pages": max(256, 2 * most + 64),
    }


def request(text: str, frames: int, seed: int) -> SynthesisRequest:
    return SynthesisRequest(text=text, voice="ryan", language="english", random_seed=seed, max_new_tokens=frames,
                            ignore_eos=True, skip_fixed_bootstrap_audio=False)


def note_what_is_published() -> None:
    publish = PCMStream.publish

    def publish_and_note(self: PCMStream, value: bytes) -> None:
        publish(self, value)
        if value:
            self.__dict__.setdefault("noted", []).append((time.perf_counter(), len(value)))

    PCMStream.publish = publish_and_note


def speak(engine, texts: list[str], streams: int, frames: int) -> tuple[float, list[Chunks]]:
    """When it began, and what each stream got."""
    replies = []
    start = time.perf_counter()
    for i in range(streams):
        reply = Future()
        said = request(texts[i % len(texts)], frames, i)
        engine._put(SubmitRequest(f"{start}-{i}", said, False, (), (), True, reply), timeout_s=10)
        replies.append(reply)
    results = [reply.result(timeout=PATIENCE) for reply in replies]
    while not engine.wait_idle(timeout_s=1):
        if engine._failure is not None:
            raise RuntimeError("the engine failed") from engine._failure
        if time.perf_counter() - start > PATIENCE:
            raise TimeoutError(f"{streams} streams did not end in {PATIENCE} s")
    return start, [stream.__dict__["noted"] for stream in results]


def report(start: float, streams: list[Chunks]) -> None:
    # From each stream's first chunk to its last: without the prompt.
    steady = statistics.mean((chunks[-1][0] - chunks[0][0]) * BYTES_PER_FRAME / sum(size for _, size in chunks[1:])
                             for chunks in streams)
    first = statistics.median(chunks[0][0] - start for chunks in streams)
    print(f"{len(streams):4d} streams: {1000 * steady:8.2f} ms a frame of each, "
          f"{0.08 * len(streams) / steady:8.1f} audio-s/s; first PCM p50 {1000 * first:.0f} ms", flush=True)


def main() -> None:
    path, sentences, profile, *sizes = sys.argv[1:]
    sizes = [int(size) for size in sizes]
    with open(sentences, encoding="utf-8") as file:
        texts = [line.strip() for line in file if line.strip()]
    note_what_is_published()
    model = Qwen3TTSModel(ModelAssetConfig(model_id=path, device="cuda:0", require_h100=False, local_files_only=True))
    sampling.sample_logits_cuda_graph = sampling.sample_code_predictor_cuda_graph
    most = max(64, *sizes)
    engine = build_qwen3_tts_engine(
        model, model.load_assets(), config=ProfileLoader().load_mapping(overlay(profile, sizes)), capture=True,
        engine_config=EngineConfig(max_active_requests=max(128, most + 1), command_capacity=max(512, most + 1),
                                   max_commands_per_turn=max(32, most)))
    engine.start(request(texts[0], 30, 0), timeout_s=60)
    for streams in sizes:
        speak(engine, texts, streams, 27)  # warm-up
        report(*speak(engine, texts, streams, FRAMES[profile]))
    engine.stop(timeout_s=5)
    sys.stdout.flush()
    os._exit(0)  # its threads are not waited for


if __name__ == "__main__":
    main()
