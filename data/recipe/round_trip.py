#!/usr/bin/env python3
"""Speaks test lines with the teacher, and once more with a model folder's decoder from the codes of the teacher's speech: how much the codes lose.

usage: round_trip.py CORPUS KOKORO.NPZ STYLES.NPZ TABLES.NPZ OUTDIR [--model DIR] [--text FILE] [--speaker NAME ...] [--threads N]

Writes OUTDIR/teacher/SPEAKER/NNN.wav for each line of FILE (default: test_sentences.txt) and, of a model, OUTDIR/round-trip/SPEAKER/NNN.wav. The
corpus must hold the lines as test lines. tests/bench/measure-voice.py measures such folders (--recordings), and compares a voice with them (--reference).
"""
import argparse
import os
import wave

import numpy as np
import torch

import codes
from export import load_safetensors
from model import CodecDecoder, RATE
from teacher import Lines, finish
from teacher_model import Teacher
from voices import INDEX, SPEAKERS

BATCH = 6


def write(path, samples):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with wave.open(path, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(RATE)
        w.writeframes(samples.astype("<i2").tobytes())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for n in ("corpus", "weights", "styles", "tables", "out"):
        ap.add_argument(n)
    ap.add_argument("--model", help="model folder")
    ap.add_argument("--text", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_sentences.txt"))
    ap.add_argument("--speaker", nargs="*", choices=list(INDEX), default=list(INDEX))
    ap.add_argument("--threads", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    lines, tables = Lines(a), dict(np.load(a.tables))
    teacher = Teacher(a.weights, "cuda" if torch.cuda.is_available() else "cpu")
    decoder = None
    if a.model:
        decoder = CodecDecoder().eval()
        decoder.load_state_dict({k[len("decoder."):]: v for k, v in load_safetensors(f"{a.model}/speech_tokenizer/model.safetensors").items()})
    rows = [line.split("\t")[0] for line in open(f"{a.corpus}/text.tsv", encoding="utf-8")]
    texts = [line for line in open(a.text, encoding="utf-8").read().split("\n") if line]
    for speaker in a.speaker:
        utterance = {rows[u]: u for u in np.flatnonzero(lines.kinds == 2) if lines.who[u][0] == speaker}
        if missing := [t for t in texts if t not in utterance]:
            raise SystemExit(f"the corpus has no test line {missing[0]!r} of {speaker}")
        for first in range(0, len(texts), BATCH):
            batch = [utterance[t] for t in texts[first:first + BATCH]]
            *prosody, rest = teacher.prosody(*lines.inputs(batch))
            sound = teacher.speak(*prosody[1:], rest).cpu().numpy()
            for k, (u, durations, f0, energy) in enumerate(zip(batch, *(x.cpu().numpy() for x in prosody))):
                durations = durations[:lines.lengths[u] + 2]
                steps = 2 * durations.sum()
                frames, begin = codes.frame_codes(lines.classes[lines.ids(u)], durations, f0[:steps], energy[:steps], lines.speaker(u), tables)
                name = f"{speaker}/{first + k:03d}.wav"
                write(f"{a.out}/teacher/{name}", finish(sound[k, :steps * codes.STEP], begin, len(frames), SPEAKERS[lines.speaker(u)].gain))
                if decoder:
                    with torch.no_grad():
                        again = decoder(torch.from_numpy(frames.astype(np.int64)).t()[None])[0].numpy()
                    write(f"{a.out}/round-trip/{name}", again * 32767)


if __name__ == "__main__":
    main()
