#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""How much of written text is heard: numbers, marks, capitals. Whisper base listens to qtts-tool speak.

usage: measure-text.py BUILD_DIR [--voice DIR] [--speakers A B] [--kinds LIST] [--normalize NAME] [--show]

Kinds of numbers and capitals stand in text-lines.tsv, twelve lines each: a line is right if the words that stand for what is written in
short are heard in it or, for codes, their digits. The rest of the line does not count, but for capitals. Kinds of marks are put into carrier sentences: words wrong by words, beside the carriers alone.
Long texts are the sentences of long-lines.txt in an order by chance, as one utterance: 900 and 3,900 characters of each speaker with
each seed, and 2,752 words without a mark. Their sound is heard in pieces of up to 27 s, cut where it is quietest.
Documents with markup are those of tests/data/text/markup; what is said of them is what qtts-tool text prints.
Lines take turns between the speakers and the seeds 0 and 1. The recogniser needs the environment described in measure-voice.py.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data/recipe"))
import meters  # noqa: E402
from word_errors import distance  # noqa: E402

CARRIERS = [("She opened", "the window", "and looked at the garden."), ("We had", "a wonderful dinner", "with our friends."),
            ("My brother works", "for a large company", "in Chicago."), ("The children", "were playing", "in the park."),
            ("Please leave", "your message", "after the tone."), ("The book", "was written", "a long time ago.")]
MARKS = {
    "none": "{} {} {}", "quotes": '{} "{}" {}', "curly quotes": "{} “{}” {}", "guillemets": "{} «{}» {}", "round": "{} ({}) {}",
    "square": "{} [{}] {}", "braces": "{} {{{}}} {}", "ellipsis": "{}… {} {}", "em dash": "{} — {} — {}", "en dash": "{} – {} – {}",
    "two hyphens": "{} -- {} {}", "bold": "{} **{}** {}", "italic": "{} *{}* {}", "code": "{} `{}` {}", "struck": "{} ~~{}~~ {}",
    "underscore": "{} _{}_ {}", "hash": "# {} {} {}", "bullet": "• {} {} {}", "arrow": "{} → {} {}", "trademark": "{} {}™ {}",
    "registered": "{} {}® {}", "slash": "{} / {} {}", "backslash": "{} \\ {} {}", "bar": "{} | {} {}", "tag": "{} <b>{}</b> {}",
    "reference": "{} &quot;{}&quot; {}", "emoji": "{} 😂 {} {} 👍🏽", "joined emoji": "{} 👩‍🚀 {} {}", "no-break space": "{}\u00a0{}\u00a0{}",
    "U+FEFF": "{} \ufeff{}\ufeff {}", "U+200B": "{} \u200b{} \u200b{}", "soft hyphen": "{} {}\u00ad {}", "U+200E": "\u200e{} \u200e{} {}", "tab": "{}\t{}\t{}",
}
DOCUMENTS = {"ssml document": ("talk.ssml", "ssml"), "markdown document": ("readme.markdown", "markdown"),
             "subtitles": ("film.srt", "subtitle"), "subtitles with voices": ("talk.vtt", "subtitle")}
LONG = {"900 characters": 900, "3900 characters": 3900, "2752 words": 2752}
PIECE, EARLIEST = 27, 18  # seconds of a long text that are heard at once: the cut is where it is quietest from the second on
DIGITS = {w: str(i) for i, w in enumerate("zero one two three four five six seven eight nine".split())} | {"oh": "0", "o": "0"}


def plain(text):
    """one spelling for what was said and heard"""
    text = " ".join(meters.words(text))
    for old, new in (("metre", "meter"), ("litre", "liter"), ("kilo meter", "kilometer"), (" o'clock", ""), ("one half", "a half"), ("one third", "a third"), ("one quarter", "a quarter"),
                     ("percentage", "percent"), (" vs ", " versus ")):
        text = text.replace(old, new)
    return re.sub(r"\b([a-z]) (?=[a-z]\b)", r"\1", text).split()


def digits(text):
    text = re.sub(r"\bfor (?=\d)", "4 ", text.lower())  # "four eight" sounds like "for eight"
    text = re.sub(r"(\d)[ ,.\-](?=\d)", r"\1", text)
    return "".join(DIGITS.get(w, w if w.isdigit() else "") for w in re.findall(r"[a-z]+|\d", text))


class Bench:
    def __init__(self, args):
        self.args, self.model, self.tool = args, meters.whisper_model(), f"{args.build}/engine/tools/qtts-tool"

    def sound(self, text, index, *more):
        speakers = self.args.speakers
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([self.tool, "speak", self.args.voice, text, "--speaker", speakers[index % len(speakers)], "--seed", str(index // len(speakers) % 2),
                            "--normalize", self.args.normalize, *more, "--output", f"{folder}/a.wav"], check=True, stderr=subprocess.DEVNULL)
            return read(f"{folder}/a.wav")

    def hear(self, sounds):
        import numpy as np
        x = np.concatenate([np.concatenate([meters.at16(s), np.zeros(8000, np.float32)]) for s in sounds])
        segments, _ = self.model.transcribe(x, language="en", beam_size=5, condition_on_previous_text=False, temperature=0, without_timestamps=True)
        return " ".join(s.text for s in segments).strip()

    def spoken(self, text):
        """the tool's words for what was heard, another spelling of it"""
        out = subprocess.run([self.tool, "text", self.args.voice, text, "--json"], check=True, capture_output=True, text=True).stdout
        import json
        return " ".join(u["spoken"] for u in json.loads(out)["utterances"])

    def is_right(self, written, said, heard):
        """the words of the kind are heard, or all of the line where nothing else tells them from the rest"""
        carrier = set(re.findall(r"[a-z']+", written.lower()))
        core = [w for w in plain(said) if w not in carrier] or plain(said)
        for words in (plain(heard), plain(self.spoken(heard))):
            if words == plain(said) or any(words[i:i + len(core)] == core for i in range(len(words))):
                return True
        return len(digits(said)) >= 5 and digits(said) == digits(heard)

    def lines(self, kind, rows):
        right, wrong, count, wrong_digits, all_digits = 0, 0, 0, 0, 0
        for i, (written, said) in enumerate(rows):
            heard = self.hear([self.sound(written, i)])
            ok = self.is_right(written, said, heard)
            right += ok
            wrong += distance(plain(said), plain(heard))
            count += len(plain(said))
            if len(digits(said)) >= 5:
                wrong_digits += distance(digits(said), digits(heard))
                all_digits += len(digits(said))
            if self.args.show and not ok:
                print(f"    {written!r} -> {heard!r}")
        more = f", {wrong_digits / all_digits:.3f} of the digits wrong" if all_digits else f", {wrong / count:.3f} of the words wrong"
        print(f"{kind:22} {right:2} of {len(rows)} right{more}", flush=True)

    def marks(self, name, template):
        wrong = count = 0
        for first in range(0, len(CARRIERS), 3):
            part = list(enumerate(CARRIERS))[first:first + 3]
            heard = self.hear([self.sound(template.format(*c), i) for i, c in part])
            said = meters.words(" ".join(" ".join(c) for _, c in part))
            wrong += distance(said, meters.words(heard))
            count += len(said)
            if self.args.show and distance(said, meters.words(heard)):
                print(f"    {heard!r}")
        print(f"{name:22} {wrong / count:.2f} wrong", flush=True)


    def document(self, name, file, markup):
        import json
        text = (ROOT / "tests/data/text/markup" / file).read_text()
        out = subprocess.run([self.tool, "text", self.args.voice, text, "--markup", markup, "--json"], check=True, capture_output=True, text=True).stdout
        said = meters.words(" ".join(u.get("spoken", "") for u in json.loads(out)["utterances"]))
        wrong = 0
        for index in range(2 * len(self.args.speakers)):
            heard = meters.words(" ".join(self.hear([piece]) for piece in pieces(self.sound(text, index, "--markup", markup))))
            wrong += distance(said, heard)
            if self.args.show:
                print(f"    {' '.join(heard)!r}", flush=True)
        print(f"{name:22} {wrong / len(said) / 2 / len(self.args.speakers):.3f} of the words wrong", flush=True)

    def long(self, name, size):
        wrong = count = 0
        longest = 0.0
        for index in range(1 if name.endswith("words") else 2 * len(self.args.speakers)):
            text = long_text(name, size, index)
            sound = self.sound(text, index)
            heard = " ".join(self.hear([piece]) for piece in pieces(sound))
            said = meters.words(text)
            errors = distance(said, meters.words(heard))
            wrong += errors
            count += len(said)
            longest = max(longest, len(sound) / 24000)
            if self.args.show:
                print(f"    {errors} of {len(said)}, {len(sound) / 24000:.0f} s: {heard[:200]!r} ...", flush=True)
        print(f"{name:22} {wrong / count:.3f} of the words wrong, up to {longest:.0f} s of sound", flush=True)


def long_text(name, size, index):
    """as many characters, or words without marks, in an order that `index` decides"""
    sentences = pathlib.Path(__file__).with_name("long-lines.txt").read_text().splitlines()
    chance, words = random.Random(index), []
    while len(words) < size:
        words += " ".join(chance.sample(sentences, len(sentences))).split()
    if name.endswith("words"):
        return re.sub(r"[.,?!]", "", " ".join(words[:size])).lower()
    text = " ".join(words)[:size]
    return text[:text.rindex(".") + 1]


def pieces(sound):
    import numpy as np
    while len(sound) > PIECE * 24000:
        frames = np.square(sound[EARLIEST * 24000:PIECE * 24000]).reshape(-1, 1200).mean(1)
        quiet = np.convolve(frames, np.ones(5), "same")
        cut = (EARLIEST * 24000) + 1200 * int(quiet.argmin())
        yield sound[:cut]
        sound = sound[cut:]
    yield sound


def read(path):
    import wave
    import numpy as np
    with wave.open(path) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--voice", default=str(ROOT / "data/voice"))
    parser.add_argument("--speakers", nargs="*", default=["grace", "clara"])
    parser.add_argument("--kinds", help="comma-separated; all if left out; \"marks\" are all kinds of marks")
    parser.add_argument("--normalize", default="model")
    parser.add_argument("--show", action="store_true", help="print what was heard wrong")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    rows = {}
    for line in open(pathlib.Path(__file__).with_name("text-lines.tsv"), encoding="utf-8"):
        if line.strip() and not line.startswith("#"):
            kind, written, said = line.rstrip("\n").split("\t")
            rows.setdefault(kind, []).append((written, said))
    kinds = args.kinds.split(",") if args.kinds else [*rows, "marks", *LONG, *DOCUMENTS]
    known = [*rows, *MARKS, "marks", *LONG, *DOCUMENTS]
    if unknown := [k for k in kinds if k not in known]:
        parser.error(f"no kind named {', '.join(unknown)}: there are {', '.join(known)}")
    bench = Bench(args)
    for kind in kinds:
        if kind in rows:
            bench.lines(kind, rows[kind])
    for name in MARKS if "marks" in kinds else [k for k in kinds if k in MARKS]:
        bench.marks(name, MARKS[name])
    for name in [k for k in kinds if k in LONG]:
        bench.long(name, LONG[name])
    for name in [k for k in kinds if k in DOCUMENTS]:
        bench.document(name, *DOCUMENTS[name])


if __name__ == "__main__":
    main()
