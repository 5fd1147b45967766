#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Word times of qtts-tool speak --words against the phones of the bundled voice's codes, which no attention head takes part in.

usage: measure-words.py BUILD_DIR [--voice DIR] [--lines FILE] [--speakers A B ...] [--layouts L ...] [--seeds N] [--show]
       measure-words.py BUILD_DIR --coverage [--temperatures T ...] ...
       measure-words.py BUILD_DIR --splices ...
       measure-words.py BUILD_DIR --interrupts [--show] ...

With --coverage Whisper base listens: an utterance is faulty if two or more words in a row are missing or too many; the table tells which
of the faulty and the clean ones the report flags. Words that are only pronounced badly are no fault here, and the report does not see them. With --splices the codes of each line are aligned
as they are, with 40 frames of another line behind them, with their last eight frames again and again, and without their last 40 %.
With --interrupts the element speaks each line, as fast as it is played, and is interrupted after a random number of its buffers; the word of `text-spoken-chars` is compared with the word that the phones have
at the end of the sound that left. Needs PyGObject too.

Codebooks 0 to 2 of the bundled voice name the phones of a frame with their durations in units of 25 ms, spaces between words included
(data/recipe/codes.py), so they say when each word begins. Words are matched by their consonants; two words without a space between them
in the codes are one there, and only the first of them is scored. Utterances in which words do not match are left out and counted. Sound begins earlier than its phones: the median distance from phone to sound where a sound begins after silence, measured
here too, is taken off the phones. Needs the environment described in measure-voice.py (numpy).
"""
import argparse
import difflib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import wave

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data/recipe"))
from word_errors import distance  # noqa: E402

UNIT = 0.025
NUMBERS = {w: str(i) for i, w in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())} | {"fourteen": "14", "forty": "40"}
PAUSE, SPACE, NONE = 0, 1, 255
LETTERS = "AIOQSTWYᵊabdefhijklmnoprstuvwzɑɒæɔðʤəɛɜɡɪŋθɹɾʃʧʊʌʒʔᵻ"  # of data/recipe/codes.py


def letters(codes):
    """codes [frames][groups] -> list of (class, begin): the letters in their order, with the time of each"""
    out, previous = [], None
    for f, frame in enumerate(codes):
        # a frame of 80 ms has the units that begin in it
        first = -(-f * 1920 // 600)
        at = first
        for k in range(3):
            if frame[k] == NONE:
                break
            kind, time = frame[k] // 4, frame[k] % 4 + 1
            if not (k == 0 and previous == kind):
                out.append((kind, at * UNIT))
            at += time
            previous = kind
    return out


def runs(codes):
    """-> (begin, letters) of each run of letters between spaces and pauses"""
    out, inside = [], False
    for kind, begin in letters(codes):
        if kind in (PAUSE, SPACE):
            inside = False
            continue
        if not inside:
            out.append([begin, ""])
            inside = True
        if kind >= 6:
            out[-1][1] += LETTERS[kind - 6]
    return out


def word_starts(codes):
    return [begin for begin, _ in runs(codes)]


def skeleton(text, table):
    return "".join(table.get(c, "") for c in text)


SPELLED = dict(zip("bcdfgjklmnpqrstvxz", "bkdfgkklmnpkrstfks")) | {"w": "w", "h": "h"}
SPOKEN = dict(zip("bdfkɡlmnprɹstvzðŋʃʒʧʤθɾTwh", "bdfkglmnprrstfstnsskktttwh"))


def match(words, spoken):
    """the run that begins each word, or None within a run; None if the words are not those of the runs"""
    inf, most = 1e9, 4
    n, m = len(words), len(spoken)
    cost = [[inf] * (m + 1) for _ in range(n + 1)]
    taken = [[0] * (m + 1) for _ in range(n + 1)]
    cost[0][0] = 0
    heard = [skeleton(letters_, SPOKEN) for _, letters_ in spoken]
    for j in range(1, m + 1):
        for i in range(1, n + 1):
            if abs(i * m / n - j) > 12:
                continue
            for k in range(1, min(most, i) + 1):
                if cost[i - k][j - 1] >= inf:
                    continue
                own = skeleton("".join(words[i - k:i]).lower(), SPELLED)
                c = cost[i - k][j - 1] + distance(own, heard[j - 1]) + 0.3 * (k - 1)
                if c < cost[i][j]:
                    cost[i][j], taken[i][j] = c, k
    letters_ = sum(len(skeleton(w.lower(), SPELLED)) for w in words)
    if cost[n][m] > 0.5 * letters_:
        return None
    out, i = [None] * n, n
    for j in range(m, 0, -1):
        i -= taken[i][j]
        out[i] = j - 1
    return out


def read_wav(path):
    with wave.open(str(path)) as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768


def onsets(pcm):
    """times at which sound begins after 160 ms of silence"""
    hops = pcm[:len(pcm) // 240 * 240].reshape(-1, 240)
    level = 10 * np.log10(np.square(hops).mean(1) + 1e-12)
    peak, run, found = -200.0, 16, []
    for i, x in enumerate(level):
        peak = max(x, peak - 0.03)
        silent = x < max(peak - 25, -70)
        if not silent and run >= 16:
            found.append(i * 0.01)
        run = run + 1 if silent else 0
    return found


def speak(args, folder, text, speaker, layout, seed, more=(), codes=True):
    tool, out = f"{args.build}/engine/tools/qtts-tool", pathlib.Path(folder)
    common = ["--speaker", speaker, "--layout", layout, "--seed", str(seed), *more] + args.set
    subprocess.run([tool, "speak", args.voice, text, "-o", out / "a.wav", "--words", out / "a.json", "--part-length", "0", "--normalize", "none"] + common,
                   check=True, stderr=subprocess.DEVNULL)
    if not codes:
        return json.loads((out / "a.json").read_text()), None, read_wav(out / "a.wav")
    codes = json.loads(subprocess.run([tool, "codes", args.voice, "--json", "--text", text] + common, check=True, capture_output=True, text=True).stdout)["codes"]
    return json.loads((out / "a.json").read_text()), codes, read_wav(out / "a.wav")


def faults(text, heard):
    """words in a row that are missing or too many, the longest run"""
    a, b = [w for w in heard_words(text)], [w for w in heard_words(heard)]
    worst = 0
    for _, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        worst = max(worst, abs((j - i) - (m - k)))
    return worst


def heard_words(text):
    import meters
    return [NUMBERS.get(w, w) for w in meters.words(text)]


def coverage(args, lines):
    import meters
    model = meters.whisper_model()
    for temperature in args.temperatures:
        table = {(faulty, flagged): 0 for faulty in (True, False) for flagged in (True, False)}
        with tempfile.TemporaryDirectory() as folder:
            for i, text in enumerate(lines):
                for seed in range(args.seeds):
                    for layout in args.layouts:
                        speaker = args.speakers[(i + seed) % len(args.speakers)]
                        spoken, _, pcm = speak(args, folder, text, speaker, layout, seed, ["--temperature", str(temperature)], codes=False)
                        report = spoken["report"]
                        flagged = not report["measured"] or bool(report["skipped"] or report["repeated"] or report["end_missed"] or report["stopped_early"])
                        parts, _ = model.transcribe(meters.at16(pcm), language="en", beam_size=5, condition_on_previous_text=False)
                        heard = " ".join(part.text for part in parts)
                        faulty = faults(text, heard) >= 2
                        table[faulty, flagged] += 1
                        if args.show and (faulty or flagged):
                            print(f"  faulty {faulty} flagged {flagged} {speaker} {seed} {layout}: {heard} | {report}", flush=True)
        faulty, clean = table[True, True] + table[True, False], table[False, True] + table[False, False]
        print(f"temperature {temperature}: {table[True, True]} of {faulty} faulty utterances flagged, {table[False, True]} of {clean} clean ones", flush=True)


def splices(args, lines):
    tool, found = f"{args.build}/engine/tools/qtts-tool", {}
    run = lambda *a: subprocess.run([tool, *a], check=True, capture_output=True, text=True).stdout
    spoken = []
    for i, text in enumerate(lines):
        common = ["--text", text, "--speaker", args.speakers[i % len(args.speakers)], "--layout", args.layouts[i % len(args.layouts)]]
        spoken.append((common, run("codes", args.voice, *common, "--seed", "1").splitlines()))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "codes"
        for i, (common, codes) in enumerate(spoken):
            other = spoken[(i + 1) % len(spoken)][1]
            for kind, changed in (("as they are", codes), ("other speech behind", codes + other[3:43]), ("the end in a loop", codes + codes[-8:] * 5),
                                  ("cut off", codes[:len(codes) * 6 // 10])):
                file.write_text("\n".join(changed) + "\n")
                report = json.loads(run("align", args.voice, *common, "--codes", str(file), "--json"))["report"]
                bad = not report["measured"] or report["end_missed"] or report["stopped_early"] or report["skipped"] or report["repeated"]
                found[kind] = found.get(kind, 0) + bool(bad)
    for kind, count in found.items():
        print(f"{kind}: {count} of {len(lines)} flagged")


def interrupt(args, pipeline, text, speaker, layout, seed, buffers):
    """speaks, interrupts after so many buffers -> the fields text-spoken-chars and samples of the finished message"""
    from gi.repository import Gst
    source, sink, bus = pipeline.get_by_name("source"), pipeline.get_by_name("sink"), pipeline.get_bus()
    for name, value in {"text": text, "speaker": speaker, "layout": layout}.items():
        Gst.util_set_object_arg(source, name, value)
    source.set_property("seed", seed)
    pipeline.set_state(Gst.State.PLAYING)
    for _ in range(buffers):
        if sink.emit("pull-sample") is None:
            break
    source.emit("interrupt")
    pulled = buffers
    while sink.emit("try-pull-sample", 5 * Gst.SECOND) is not None:
        pulled += 1
    found = None
    while (message := bus.pop_filtered(Gst.MessageType.ELEMENT | Gst.MessageType.ERROR)) is not None:
        if message.type == Gst.MessageType.ERROR:
            raise SystemExit(message.parse_error()[0].message)
        fields = message.get_structure()
        if fields.get_name() == "qtts-utterance-finished":
            found = fields.get_value("text-spoken-chars"), fields.get_value("samples"), fields.get_value("reason")
    pipeline.set_state(Gst.State.NULL)
    return found


def interrupts(args, lines):
    import gi
    gi.require_version("Gst", "1.0")
    from gi.repository import Gst
    os.environ["GST_PLUGIN_PATH"], os.environ["QTTS_VOICE_PATH"] = f"{args.build}/gst", args.voice
    Gst.init(None)
    pipeline = Gst.parse_launch("qttssrc name=source normalize=none part-length=0 ! appsink name=sink sync=true max-buffers=1")
    generator = random.Random(1)
    for layout in args.layouts:
        distances, lead, left_out = [], [], 0
        with tempfile.TemporaryDirectory() as folder:
            for i, text in enumerate(lines):
                for seed in range(args.seeds):
                    speaker = args.speakers[(i + seed) % len(args.speakers)]
                    _, codes, pcm = speak(args, folder, text, speaker, layout, seed)
                    found, words = runs(codes), text.split()
                    places = match(words, found)
                    told = interrupt(args, pipeline, text, speaker, layout, seed, generator.randint(6, max(7, len(pcm) // 1920 - 4)))
                    if places is None or told is None or told[2] != "interrupted":
                        left_out += 1
                        continue
                    for onset in onsets(pcm):
                        near = min((begin for begin, _ in found), key=lambda t: abs(t - onset), default=None)
                        if near is not None and abs(near - onset) < 0.15:
                            lead.append(near - onset)
                    distances.append((text, told, places, [begin for begin, _ in found]))
        shift = statistics.median(lead) if lead else 0.04
        close = exact = 0
        for text, (chars, samples, _), places, begins in distances:
            # the last word whose run has begun; those without a run of their own share its
            last = max((i for i, place in enumerate(places) if place is not None and begins[place] - shift < samples / 24000), default=-1)
            reported = len(text[:chars].split())
            joined = last + 1
            while joined < len(places) and places[joined] is None:
                joined += 1
            distance_ = max(last + 1 - reported, reported - joined, 0)
            close += distance_ <= 1
            exact += distance_ == 0
            if args.show and distance_ > 1:
                print(f"  {reported} words reported, {last + 1} to {joined} heard: {text[:chars]}|{text[chars:]}")
        n = len(distances)
        print(f"{layout}: {n} interrupts, {left_out} left out; within a word {100 * close / n:.1f} %, the word itself {100 * exact / n:.1f} %", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--voice", default=str(ROOT / "data/voice"))
    parser.add_argument("--lines", default=str(ROOT / "tests/bench/words-lines.txt"))
    parser.add_argument("--speakers", nargs="+", default=["ross"])
    parser.add_argument("--layouts", nargs="+", default=["streaming", "non-streaming"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], help="further options of qtts-tool speak and codes")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--splices", action="store_true")
    parser.add_argument("--interrupts", action="store_true")
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.9, 1.2])
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    lines = [line.strip() for line in open(args.lines) if line.strip()]
    if args.splices:
        return splices(args, lines)
    if args.interrupts:
        return interrupts(args, lines)
    if args.coverage:
        return coverage(args, lines)
    lead = []
    for layout in args.layouts:
        errors, left_out, flagged, unmeasured, words = [], 0, 0, 0, 0
        with tempfile.TemporaryDirectory() as folder:
            for i, text in enumerate(lines):
                for seed in range(args.seeds):
                    speaker = args.speakers[(i + seed) % len(args.speakers)]
                    spoken, codes, pcm = speak(args, folder, text, speaker, layout, seed)
                    found = runs(codes)
                    truth = [begin for begin, _ in found]
                    report = spoken["report"]
                    bad = report.get("skipped") or report.get("repeated") or report.get("end_missed") or report.get("stopped_early")
                    flagged += bool(bad)
                    unmeasured += not report["measured"]
                    words += len(text.split())
                    if bad:
                        print("flagged:", speaker, seed, text[:60], report)
                    for onset in onsets(pcm):
                        near = min(truth, key=lambda t: abs(t - onset), default=None)
                        if near is not None and abs(near - onset) < 0.15:
                            lead.append(near - onset)
                    places = match(text.split(), found) if not bad else None
                    if places is None or len(spoken["words"]) != len(places):
                        left_out += 1
                        if args.show:
                            print("left out:", len(truth), len(text.split()), len(spoken["words"]), text[:60])
                        continue
                    for place, w in zip(places, spoken["words"]):
                        if place is not None:
                            errors.append((w["start"] - truth[place], w["word"], speaker))
        shift = statistics.median(lead) if lead else 0.04
        e = np.array([x for x, _, _ in errors]) + shift
        a = np.abs(e)
        print(f"{layout}: {len(lines) * args.seeds} utterances, {left_out} left out, {len(e)} of {words} words; median {1000 * np.median(a):.0f} ms, bias {1000 * np.median(e):+.0f} ms; "
              f"within 100 / 200 / 300 ms {100 * (a <= .1).mean():.1f} / {100 * (a <= .2).mean():.1f} / {100 * (a <= .3).mean():.1f} %; flagged {flagged}, not measured {unmeasured}; "
              f"sound before phones {1000 * shift:.0f} ms (n={len(lead)})", flush=True)
        if args.show:
            for x, (_, word, speaker) in sorted(zip(e, errors), key=lambda p: -abs(p[0]))[:20]:
                print(f"  {1000 * x:+5.0f} ms {word} ({speaker})")


if __name__ == "__main__":
    main()
