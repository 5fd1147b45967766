# SPDX-License-Identifier: LGPL-2.1-or-later
"""The parts of serve-on-gpu, which sets up the folder that this runs in. `serve-on-gpu --help-parts` prints this:

  first      one listener: text to first sound over HTTP and WebSocket, in turns with the element in the same process
  listeners  --listeners N,... streams at any time, for --seconds
  poisson    --rates X,... requests a second at random
  whole      --whole N requests at any time without a clock: seconds of sound a second
  opus       --opus-listeners N,... streams in Opus
  cold       --cold N streams that begin within 4 s of a server's start
  cards      with several cards: --card-listeners N streams a card, first of a front a card behind HAProxy, then of one
             process with cuda-device-id=-1
  kill       with several cards: one of two fronts is killed while --kill-listeners N listen through HAProxy. Its
             listeners see it, and go on with the other front
  update     with several cards: a front after the other is replaced while --update-rate X requests a second come
  clients    the messages of vLLM-Omni's client; OpenAI's, LiveKit's and Pipecat's clients as far as they are packed

The engine's own figure (bench-load, the same streams without a server) stands before that of the clients.
"""
import argparse
import asyncio
import json
import pathlib
import resource
import shutil
import sys

from measure import report

from .one_card import cold, first, loads
from .other_clients import clients
from .run import Run
from .several_cards import cards, kill, update

OF_LOADS = ("listeners", "poisson", "whole", "opus")  # which share a server
# In the order in which they run. `loads` are those of OF_LOADS.
FUNCTIONS = {"first": first, "loads": None, "cold": cold, "kill": kill, "update": update, "cards": cards,
             "clients": clients}
PARTS = ("first", *OF_LOADS, "cold", "cards", "kill", "update", "clients")


def numbers(kind):
    return lambda text: [kind(number) for number in text.split(",")]


def parse():
    parser = argparse.ArgumentParser("serve-on-gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--parts", default=" ".join(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="0.6b 1.7b", help=argparse.SUPPRESS)
    parser.add_argument("--cards", type=int, default=0,
                        help="cards; without a GPU, fronts that stand for cards (default: those there are, or of "
                             "CUDA_VISIBLE_DEVICES)")
    parser.add_argument("--codec-precision", choices=("exact", "fast"), default="exact",
                        help="of every engine and server")
    parser.add_argument("--slots", type=int, default=0, help="of a front (default: 1024; on the CPU 16)")
    parser.add_argument("--count", type=int, default=60, help="utterances of `first`")
    parser.add_argument("--listeners", type=numbers(int), default=[64, 500])
    parser.add_argument("--opus-listeners", type=numbers(int), default=[500])
    parser.add_argument("--protocols", default="http", help="of `listeners`: http, websocket, growing")
    parser.add_argument("--rates", type=numbers(float), default=[1, 10, 20, 100])
    parser.add_argument("--whole", type=int, default=1024)
    parser.add_argument("--cold", type=int, default=900)
    parser.add_argument("--card-listeners", type=int, default=500)
    parser.add_argument("--kill-listeners", type=int, default=64)
    parser.add_argument("--seen-limit", type=float, default=0.1,
                        help="seconds in which listeners have to see that their front was killed")
    parser.add_argument("--update-rate", type=float, default=4, help="requests a second during the rolling update")
    parser.add_argument("--seconds", type=int, default=12, help="of each measurement of load")
    parser.add_argument("--engine-seconds", type=int, default=0,
                        help="of the engine's own measurement of the same load (default: those of --seconds)")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a program is ended")
    options = parser.parse_args()
    options.parts = options.parts.split()
    options.engine_seconds = options.engine_seconds or options.seconds
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"PARTS: {part!r} is none of {', '.join(PARTS)}")
    return options


async def measure(run):
    """All wanted parts with the model of `run`. A part that fails does not keep those after it from being measured."""
    for part, function in FUNCTIONS.items():
        try:
            if part == "loads":
                await loads(run, run.options.parts)
            elif part in run.options.parts:
                await function(run)
        except Exception as error:
            run.check(False, f"{part}: {error!r}")


def keep(run):
    """Writes the results so far: also those before a time limit of the machine."""
    results = {"machine": report.machine(), "failed": run.failed, **run.results}
    (run.out / "results.json").write_text(json.dumps(results, indent=1))


async def main():
    options = parse()
    run = Run(options, options.out)
    options.slots = options.slots or (1024 if run.gpu else 16)
    print(report.machine(), flush=True)
    for size in options.sizes.split() if run.gpu else ("bundled",):
        print(f"== {size}, {run.cards} cards", flush=True)
        if run.gpu:
            run.generate(size)
        await measure(run)
        if run.gpu:
            shutil.rmtree(run.model, ignore_errors=True)
        keep(run)
    return 1 if run.failed else 0


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.exit(asyncio.run(main()))
