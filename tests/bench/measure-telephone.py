#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Words that Whisper base hears wrong in a telephone call, beside the same sound at 24 kHz.

usage: measure-telephone.py BUILD_DIR [--voice DIR] [--speakers A B] [--lines N] [--seeds N] [--show]

Speaks lines of words-lines.txt with qtts-tool, and sends each through the elements of examples/telephone: 8 kHz, packets of 20 ms,
G.711 with both laws, and back. Exit status 1 if a law's share of wrong words is more than 0.03 above that at 24 kHz.
The recogniser needs the environment described in measure-voice.py.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import wave

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data/recipe"))
import meters  # noqa: E402

LIMIT = 0.03
# The arrays `rtp_encoder` and `rtp_decoder` of examples/rtp-formats.sh.
ELEMENTS = '. "$1" && rtp_format "$2" && printf "%s\\n" "${rtp_encoder[*]} ! ${rtp_decoder[*]}"'


def call(wav, law, out):
    """`wav` as it is heard at the other end of a call, at 24 kHz."""
    elements = subprocess.run(["bash", "-c", ELEMENTS, "bash", str(ROOT / "examples/rtp-formats.sh"), law], check=True,
                              capture_output=True, text=True).stdout.split()
    subprocess.run(["gst-launch-1.0", "-q", "filesrc", f"location={wav}", "!", "wavparse", "!", "audioconvert", "!", "audioresample", "!",
                    *elements, "!", "audioconvert", "!", "audioresample", "!", "audio/x-raw,rate=24000", "!", "wavenc", "!", "filesink",
                    f"location={out}"], check=True)
    return read(out)


def read(path):
    import numpy as np
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24000, 1, 2), path
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--voice", default=str(ROOT / "data/voice"))
    parser.add_argument("--speakers", nargs="+", default=["grace", "owen"])
    parser.add_argument("--lines", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print what was heard")
    args = parser.parse_args()
    lines = (ROOT / "tests/bench/words-lines.txt").read_text(encoding="utf-8").splitlines()[:args.lines]
    model, worst = meters.whisper_model(), 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for speaker in args.speakers:
            texts, sounds = [], {"24 kHz": [], "pcmu": [], "pcma": []}
            for seed in range(args.seeds):
                for line in lines:
                    subprocess.run([f"{args.build}/engine/tools/qtts-tool", "speak", args.voice, line, "--speaker", speaker, "--seed", str(seed),
                                    "--output", str(folder / "a.wav")], check=True, stderr=subprocess.DEVNULL)
                    texts.append(line)
                    sounds["24 kHz"].append(read(folder / "a.wav"))
                    for law in ("pcmu", "pcma"):
                        sounds[law].append(call(folder / "a.wav", law, folder / "b.wav"))
            wrong = {}
            for kind, heard in sounds.items():
                results = [meters.hear(model, window) for window in meters.windows(texts, heard)]
                errors, count = sum(e for e, _, _ in results), sum(n for _, n, _ in results)
                wrong[kind] = errors / count
                print(f"{speaker:8} {kind:7} {errors} of {count} words wrong, {wrong[kind]:.4f}", flush=True)
                if args.show:
                    for _, _, text in results:
                        print(f"  {text!r}")
            worst = max(worst, *(wrong[law] - wrong["24 kHz"] for law in ("pcmu", "pcma")))
    print(f"at most {worst:+.4f} beside 24 kHz; allowed are {LIMIT:+.2f}")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
