# SPDX-License-Identifier: LGPL-2.1-or-later
"""The things that all parts share: options, the model, programs that measure, results and checks."""
import contextlib
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = SOURCE.parent / "build"
HAPROXY = SOURCE.parent / "haproxy"
CLIENTS = SOURCE.parent / "clients"  # packages of PyPI of clients, in other versions than the server's
SENTENCES = SOURCE / "data/recipe/test_sentences.txt"
ENGINE_LINES = ("requests", "first sound", "cards", "underruns", "throughput")  # of bench-load, that are shown


def visible_cards():
    """Returns the names that CUDA_VISIBLE_DEVICES has for the cards that may be used."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",") if names else [str(card) for card in range(len(glob.glob("/dev/nvidia[0-9]*")))]


class Run:
    """One call of serve-on-gpu. Its model changes with the size that is measured."""

    def __init__(self, options, out):
        self.options, self.out = options, out
        self.gpu = (BUILD / "cuda/libqtts-cuda.so").exists()
        self.device = "cuda" if self.gpu else "cpu"
        self._cards = visible_cards() if self.gpu else ["0"]
        self.cards = options.cards or len(self._cards)
        self.model = str(SOURCE / "data/voice")
        self.size = "bundled"
        self.results = {}
        self.failed = []  # checks; a failed one does not hide those after it
        self._engine = {}  # lines of bench-load by its options

    def check(self, condition, text):
        print(f"  {'ok' if condition else 'FAILED'}: {text}", flush=True)
        if not condition:
            self.failed.append(text)

    def record(self, part, figures, what=""):
        """Keeps figures of the size that is measured: `what` tells those of one part apart."""
        self.results.setdefault(part, {})[f"{self.size} {what}".strip()] = figures

    def visible(self, cards):
        """Returns the environment of a program that uses these cards; None: all."""
        if cards is None or not self.gpu:
            return {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(self._cards[card] for card in cards)}

    def frames(self, of_gpu, of_cpu):
        """Returns the option for the lengths of utterances: a processor is slower, and the bundled voice ends."""
        return ("--frames", of_gpu if self.gpu else of_cpu)

    def command(self, name, arguments, environment=None):
        """Runs a program for at most --limit seconds and returns its output, also a part of it."""
        log, limit = self.out / f"{self.size}.{name}.log", self.options.limit
        with open(log, "wb") as file:
            try:
                status = subprocess.run(list(map(str, arguments)), stdout=file, stderr=subprocess.STDOUT, timeout=limit,
                                        env={**os.environ, **(environment or {})}, check=False).returncode
            except subprocess.TimeoutExpired:
                status = f"not ended within {limit:g} s"
        text = log.read_text(errors="replace")
        if status != 0:
            self.check(False, f"{name}: {status}; {log} has all of it")
        return text

    def generate(self, size):
        """Makes the random checkpoint of a size, which the parts measure from now on."""
        self.size = size
        self.model = f"/tmp/model-{size}"
        if not os.path.isdir(self.model):
            begin = time.perf_counter()
            self.command("generate", [BUILD / "tests/golden/generator/qtts-random-checkpoint", "--preset",
                                      f"{size}-custom", "--merges", SOURCE / "tests/golden/vocabulary/merges.txt",
                                      self.model])
            print(f"random checkpoint of the {size} after {time.perf_counter() - begin:.1f} s", flush=True)

    def engine(self, part, *options, cards=None):
        """Prints bench-load's figures of the same load, without a server; measured once for the same load."""
        arguments = ("--device", self.device, "--codec-precision", self.options.codec_precision,
                     "--sentences", SENTENCES, "--voices", self.options.slots, *options)
        key = (self.size, str(cards), *map(str, arguments))
        if key not in self._engine:
            text = self.command(f"{part}.engine", [BUILD / "tests/bench/bench-load", self.model, *arguments],
                                self.visible(cards))
            lines = [line for line in text.splitlines() if line.startswith(ENGINE_LINES)]
            self._engine[key] = [re.sub(r"  +", " ", line) for line in lines]
        for line in self._engine[key]:
            print(f"  engine: {line}", flush=True)
        self.record(part, self._engine[key], "engine")

    def measure(self, part, *arguments, what="", environment=None):
        """Runs the module measure, prints its output and keeps its figures."""
        file = self.out / f"{self.size}.{part}.json"
        text = self.command(part, [sys.executable, "-m", "measure", *arguments, "--json", file], environment)
        print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)
        with contextlib.suppress(OSError, ValueError):
            self.record(part, json.loads(file.read_text()), what)

    def load(self, part, url, *options, pid=None):
        """The figures of clients under load."""
        server = ("--server-pid", pid) if pid else ()
        self.measure(part, "--load", "--url", url, *server, "--sentences", SENTENCES, *options, what="clients")
