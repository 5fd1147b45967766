#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records utterances of the bundled voice for tests/unit/alignment: scores of the alignment head, levels of the sound, starts of the words.

usage: record.py BUILD_DIR (numpy needed; writes NAME.json beside itself)

`truth` are the starts of the words by the phones of the codes (tests/bench/measure-words.py), which no attention takes part in.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
spec = importlib.util.spec_from_file_location("measure_words", ROOT / "tests/bench/measure-words.py")
words = importlib.util.module_from_spec(spec)
spec.loader.exec_module(words)
LEAD = 0.04  # of the sound before the phones, s
UTTERANCES = {
    "streaming": ("The captain spoke slowly, and the crew listened.", "ross", "streaming", 0),
    "non-streaming": ("When the music stopped, everybody looked at the door.", "grace", "non-streaming", 0),
}


def main(build):
    tool, voice = f"{build}/engine/tools/qtts-tool", ROOT / "data/voice"
    for name, (text, speaker, layout, seed) in UTTERANCES.items():
        common = ["--text", text, "--speaker", speaker, "--layout", layout]
        with tempfile.TemporaryDirectory() as folder:
            codes, wav = f"{folder}/codes", f"{folder}/a.wav"
            run = lambda *args: subprocess.run([tool, *map(str, args)], check=True, capture_output=True, text=True).stdout
            out = run("codes", voice, *common, "--seed", seed)
            pathlib.Path(codes).write_text(out)
            record = json.loads(run("align", voice, *common, "--codes", codes, "--json"))
            run("decode", voice, codes, "--output", wav)
            pcm = words.read_wav(wav)
        frames = [[int(x) for x in line.split()] for line in out.splitlines()]
        truth = words.word_starts(frames)
        assert len(truth) == len(text.split()), name
        hops = pcm[:len(pcm) // 240 * 240].reshape(-1, 240)
        record["levels"] = [round(float(x), 1) for x in 10 * np.log10(np.square(hops).mean(1) + 1e-12)]
        record["truth"] = [round(t - LEAD, 3) for t in truth]
        (HERE / f"{name}.json").write_text(json.dumps(record) + "\n")


main(sys.argv[1])
