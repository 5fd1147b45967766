#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Shows that the element's tests can fail: breaks one rule at a time in a copy of the sources, and runs the tests
that are there for it (doc/checks.md).

    tests/nightly/breaks.py [NAME...]

Fails if a break goes unnoticed, or if its place in the sources is not there any more. A test that hangs has noticed
too: the limit is longer than any of them waits by itself.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 150  # seconds


class Break(NamedTuple):
    name: str
    file: str
    before: str
    after: str
    tests: str  # of these: PROGRAM FILTER


SPEECH = "gst/gstqttsspeech.cpp"
OUTPUT = "gst/gstqttsoutput.cpp"
PROPERTIES = "gst/gstqttsproperties.cpp"
BREAKS = [
    Break("a flush leaves the speech", SPEECH,
          "    ++flushes_;\n    joiner_ = Utf8Joiner();\n    stream = DropAll();\n",
          "    ++flushes_;\n    joiner_ = Utf8Joiner();\n", "flush *C14WhileTheModelSpeaks"),
    Break("a flush does not begin the time anew", OUTPUT,
          "self->priv->timeline.Restart();", "self->priv->timeline.Break();", "flush *C14WhileTheModelSpeaks"),
    Break("frames leave in a pause", "gst/gstqttsclock.cpp",
          "  for (;;) {\n    changed_.wait(lock, [this] { return playing_ || unlocked_; });\n", "  for (;;) {\n",
          "live *C16*"),
    Break("a push does not see that its pad is released", SPEECH,
          "    if (!Running() || !pad_exists_) return Accept::kFlushing;\n    if (failed_ || end_handed_out_)",
          "    if (!Running()) return Accept::kFlushing;\n    if (failed_ || end_handed_out_)", "input *C15ReleasingThePadWakesIt"),
    Break("the end of the text is not kept", SPEECH,
          "  CloseUtterance();\n  text_ended_ = true;\n", "  CloseUtterance();\n", "input *C10*"),
    Break("the end comes before the text that waits", SPEECH,
          "    } else if (!queue_.empty()) {\n      if (StartNext",
          "    } else if (!queue_.empty() && !text_ended_) {\n      if (StartNext", "input *C10*"),
    Break("a stop lets the load go on", SPEECH,
          "  bool cancelled = false;\n  loader_.Cancel();\n", "  bool cancelled = false;\n", "states *C18*"),
    Break("NULL waits for the load", "gst/gstqttsloader.cpp",
          "  past_.push_back(std::exchange(job_, nullptr));",
          "  if (!job_->OnThisThread()) job_->Join();\n  past_.push_back(std::exchange(job_, nullptr));",
          "states *C18*"),
    Break("live frames leave as they are made", OUTPUT,
          "  if (!gst_base_src_is_live(GST_BASE_SRC(self))) return true;\n  return self->priv->clock.WaitUntil",
          "  if (gst_base_src_is_live(GST_BASE_SRC(self))) return true;\n  return self->priv->clock.WaitUntil",
          "live *C21*"),
    Break("speech after an idle time is dated by the speech before", OUTPUT,
          "    if (late || priv->timeline.broken()) {\n      priv->timeline.MoveTo(now);\n    } else",
          "    if (late || priv->timeline.broken()) {\n    } else", "live *C22*"),
    Break("an interrupt leaves the speech", SPEECH,
          "    if (current_) frames = current_->frames;\n    stream = DropAll();\n",
          "    if (current_) frames = current_->frames;\n    DropQueue();\n", "speak *C25*"),
    Break("an interrupt leaves the frame that waits for its time", SPEECH,
          "    if (!current_) return false;  // only Next() begins another\n",
          "    if (!current_) return true;\n", "live *C25*"),
    Break("an interrupt leaves a push that waits", SPEECH,
          "    if (epoch != epoch_) return Accept::kAccepted;\n", "",
          "speak *C25InterruptWakesAPushThatWaitsForRoomAndDropsItsText"),
    Break("every element loads its own model", "gst/gstqttsloader.cpp",
          "qtts::Engine::Acquire(options", "qtts::Engine::Load(options", "states *C26*"),
    Break("the queue takes everything", SPEECH,
          "      if (!queue_.HasRoom(part)) return false;\n", "", "input *C15*"),
    Break("room is not announced", SPEECH,
          "  monitor_->Announce();  // there is room\n", "", "input *C15*"),
    Break("text that is late counts as an underrun", OUTPUT,
          "priv->in_utterance && !priv->frame->awaited_text && ", "priv->in_utterance && ", "live *TextThatComesLate*"),
    Break("texts are logged at INFO", PROPERTIES,
          "GST_DEBUG_OBJECT(self, \"queued '%s'\", text);", "GST_INFO_OBJECT(self, \"queued '%s'\", text);",
          "errors *C30*"),
    Break("a latency that changes is not told", PROPERTIES,
          "    gst_element_post_message(GST_ELEMENT(self), gst_message_new_latency(GST_OBJECT(self)));\n", "",
          "live *C24*"),
]


def build(folder: pathlib.Path, program: str) -> None:
    subprocess.run(["ninja", "-C", folder / "build", f"tests/gst/gst-{program}"], check=True, stdout=subprocess.DEVNULL)


def passes(folder: pathlib.Path, tests: str) -> bool:
    program, pattern = tests.split()
    environment = dict(os.environ, GST_PLUGIN_PATH="", GST_REGISTRY=str(folder / "registry"),
                       GST_PRESET_PATH=str(ROOT / "data" / "presets"), XDG_DATA_HOME=str(folder / "data-home"))
    try:
        run = subprocess.run([folder / "build" / "tests" / "gst" / f"gst-{program}", f"--gtest_filter={pattern}"],
                             env=environment, timeout=LIMIT, check=False, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return False
    if " 0 tests from" in run.stdout:
        sys.exit(f"no test of gst-{program} is called {pattern}")
    return run.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="breaks whose names contain this")
    names = parser.parse_args().names
    chosen = [b for b in BREAKS if not names or any(name in b.name for name in names)]
    unnoticed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "source"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns("build*", ".git", "corpus"))
        subprocess.run(["meson", "setup", folder / "build", folder, "-Dtests=enabled", "-Dcuda=disabled", "-Dexamples=disabled",
                        "-Dbenchmarks=disabled", "-Doptimization=1"], check=True, stdout=subprocess.DEVNULL)
        for tests in sorted({b.tests for b in chosen}):
            build(folder, tests.split()[0])
            if not passes(folder, tests):
                sys.exit(f"{tests} fails before anything is broken")
        for b in chosen:
            path = folder / b.file
            whole = path.read_text()
            if whole.count(b.before) != 1:
                sys.exit(f"{b.name}: its place is not in {b.file} any more")
            path.write_text(whole.replace(b.before, b.after))
            build(folder, b.tests.split()[0])
            noticed = not passes(folder, b.tests)
            path.write_text(whole)
            print(f"{'noticed' if noticed else 'UNNOTICED'}: {b.name} ({b.tests})", flush=True)
            if not noticed:
                unnoticed.append(b.name)
    if unnoticed:
        sys.exit(f"{len(unnoticed)} of {len(chosen)} breaks went unnoticed")


main()
