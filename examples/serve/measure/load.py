# SPDX-License-Identifier: LGPL-2.1-or-later
"""examples/serve/bench --load: the server under load, as its clients see it. --help is the manual; the clients are in
listeners.py, each in a process of its own."""
import argparse
import asyncio
import contextlib
import json
import math
import os
import pathlib
import shlex
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from . import report, tables

FOLDER = pathlib.Path(__file__).resolve().parents[1]  # of the module measure

PROTOCOLS = ("http", "websocket", "growing")
FORMATS = ("pcm", "wav", "opus")
# Sentences of everyday speech, where no file has others.
SENTENCES = (
    "Hello, my name is Anna and I live in London.", "Please leave your message after the tone.",
    "The weather will be sunny and warm tomorrow afternoon.", "Can you tell me where the nearest hospital is?",
    "I would like to order two cups of coffee and a sandwich.", "The next train to Boston leaves at seven o'clock.",
    "She opened the window and looked at the garden.", "Thank you for calling, we will be with you shortly.",
    "Turn left at the traffic light and then go straight ahead.", "The door is locked and I cannot find my keys.",
    "He has been waiting for the doctor since nine in the morning.", "The new software update is ready to install.")
# Threads of a server whose processor time is told apart, by name. All others are the engine's.
THREADS = {"server_main_thread_cores": report.MAIN, "server_encoder_cores": report.ENCODER, "server_streaming_cores": "speech:src"}
NO_CORES = dict.fromkeys(("server_cores", *THREADS))
EXTRA = 30.0  # seconds at most, in which the last requests of a rate begin to speak
LISTENERS_OF_PROCESS = 250
SECONDS_OF_REQUEST = 15  # about as long a request speaks, to guess how many do

MANUAL = """\
Loads a server as its clients would and tells what they heard. One measurement for each protocol, format and
number, one after the other:

  --listeners N,...  N listeners at any time, each on a connection of its own. Whose player has played all of an
                     utterance begins the next one.
  --rates X,...      requests that arrive at random (Poisson), X a second.
  --whole N,...      N requests at any time without a clock (pace 0); an answer that has come is followed by the next
                     request: seconds of sound a second.

A measurement of listeners takes --ramp and --seconds, one of rates --seconds and at most 30 more, in which the last
ones begin; what speaks then is cut off. Without --url, each measurement starts a server of its own, so it begins cold.

first byte   from the request's last byte (a WebSocket: its first piece of text) to the first byte of sound.
             Connections are made before, and kept for a listener's next utterance.
             Of growing text, the number of pieces that had been sent by then is told, and the time from the last of
             them: the model needs some words before it can speak.
audible      until the first 10 ms at or above -45 dBFS have come. "heard" is when a player that began with the first
             byte plays them: silence before them counts. Only the first 2 s of an utterance are looked at; how many
             had nothing audible in them is told. Opus is decoded for it, if libopus is installed.
gaps         times when a player that began with the first byte had nothing to play. It goes on when sound comes.
refused      answered with 429 or 503, or the WebSocket's error "overloaded". A listener asks again after Retry-After,
             or after 1 s if there is none.
broken       answered with another error, cut off, or silent for --patience.
cores        processor time a second: of the server with its child processes (also of its main threads alone, which are
             its event loops, of its encoders and of the element's streaming threads; the rest is the engine's) and,
             apart, of the clients. The server is the started one, or the process --server-pid.
"""


def ints(text):
    return [int(number) for number in text.split(",")]


def floats(text):
    return [float(number) for number in text.split(",")]


def span(text):
    """A-B, or A for A-A."""
    low, _, high = text.partition("-")
    low, high = int(low), int(high or low)
    if not 0 <= low <= high:
        raise ValueError(text)
    return low, high


def among(allowed):
    def read(text):
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
        return names
    return read


def make_parser():
    parser = argparse.ArgumentParser("examples/serve/bench --load", description=MANUAL,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    what = parser.add_argument_group("what is measured (at least one)")
    what.add_argument("--listeners", type=ints, default=[], metavar="N,...", help="constant listeners")
    what.add_argument("--rates", type=floats, default=[], metavar="X,...", help="requests a second")
    what.add_argument("--whole", type=ints, default=[], metavar="N,...", help="requests at a time, without a clock")
    what.add_argument("--protocols", type=among(PROTOCOLS), default=["http"], metavar="P,...",
                      help="http, websocket (the text at once), growing (a WebSocket whose text comes word by word); "
                           "--whole is measured over http (default: http)")
    what.add_argument("--formats", type=among(FORMATS), default=["pcm"], metavar="F,...",
                      help="pcm, wav, opus (default: pcm)")
    what.add_argument("--ramp", type=float, default=4.0, metavar="S",
                      help="seconds in which all listeners begin (default: 4)")
    what.add_argument("--seconds", type=float, default=30.0, metavar="S", help="length of a measurement (default: 30)")
    what.add_argument("--pace", type=float, default=2.0, metavar="S",
                      help="seconds by which sound may run ahead, as the request's field (default: 2)")
    text = parser.add_argument_group("what is spoken")
    text.add_argument("--words", type=span, default=(5, 40), metavar="A-B",
                      help="words of a text, at random (default: 5-40)")
    text.add_argument("--frames", type=span, default=(100, 280), metavar="A-B",
                      help="max_new_tokens: A for the shortest, B for the longest text. Random checkpoints do not end "
                           "by themselves. 0: not sent (default: 100-280)")
    text.add_argument("--tokens-per-second", type=float, default=20.0, metavar="X",
                      help="at which growing text comes, 4 tokens being 3 words (default: 20)")
    text.add_argument("--sentences", metavar="FILE", help="one sentence a line (default: a dozen of its own)")
    text.add_argument("--voice", metavar="NAME", help="of the requests (default: the server's)")
    text.add_argument("--seed", type=int, default=1, metavar="N", help="of texts and arrivals (default: 1)")
    server = parser.add_argument_group("server")
    server.add_argument("--url", metavar="URL", help="measure the one at http://HOST:PORT, which runs already")
    server.add_argument("--server-pid", type=int, metavar="PID", help="its process on this machine, for its cores")
    server.add_argument("--model", metavar="DIR",
                        help="model folder for a server of its own (default: the bundled voice)")
    server.add_argument("--server", default="", metavar="OPTIONS",
                        help='more options for it: --server "--slots 1000 --max-wait 5". Sessions and slots are as '
                             "many as the listeners unless given here")
    server.add_argument("--front-alone", action="store_true",
                        help="the server of its own has an engine that costs nothing")
    # Folder of the plugin with that engine, which examples/serve/bench gives.
    server.add_argument("--instant", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=int, metavar="N",
                        help="client processes (default: one for 250 listeners, at most half of the processors)")
    parser.add_argument("--patience", type=float, default=30.0, metavar="S",
                        help="seconds without a byte after which an utterance is broken (default: 30)")
    parser.add_argument("--json", metavar="FILE", help="write all figures into this file, too")
    return parser


class Clients:
    """The client processes of one measurement. They are ready, and do nothing until begin()."""

    @classmethod
    async def start(cls, tasks):
        self = cls()
        self._processes = [await asyncio.create_subprocess_exec(
            sys.executable, "-m", "measure.listeners", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(FOLDER)}) for _ in tasks]
        for process, task in zip(self._processes, tasks):
            process.stdin.write(json.dumps(task).encode() + b"\n")
        for process in self._processes:
            if await process.stdout.readline() != b"ready\n":
                self.kill()
                raise RuntimeError("a client process does not start")
        return self

    def begin(self, when):
        for process in self._processes:
            process.stdin.write(f"{when}\n".encode())

    async def results(self):
        """Returns what each of them heard."""
        return await asyncio.gather(*map(self._result, self._processes))

    @staticmethod
    async def _result(process):
        text = await process.stdout.read()
        if await process.wait():
            raise RuntimeError(f"a client process ended with status {process.returncode}")
        return json.loads(text)

    def kill(self):
        for process in self._processes:
            if process.returncode is None:
                process.kill()


def numbers_of(task, processes):
    """Returns the task of each process."""
    return [{**task, "process": number, "processes": processes,
             "listeners": list(range(number, task["total"], processes))} for number in range(processes)]


def read_sentences(path):
    if path is None:
        return list(SENTENCES)
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def get(url):
    """Returns the body of a page, an empty one if there is none."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError):
        return ""


def is_idle(url):
    """Returns whether no slot is busy, as far as the server tells."""
    lines = (line.split() for line in get(url + "/metrics").splitlines())
    return all(float(line[1]) == 0 for line in lines if len(line) == 2 and line[0] == "qtts_slots_busy")


async def wait_until_idle(url, limit=60.0):
    until = time.monotonic() + limit
    while not await asyncio.to_thread(is_idle, url):
        if time.monotonic() > until:
            raise RuntimeError(f"{url}: slots are busy for {limit:g} s. Measure a server that nobody else uses.")
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def server(arguments, count):
    """Yields the address of the server that is measured, and the Tree of its process, or None."""
    if arguments.url:
        url = arguments.url.rstrip("/")
        if not await asyncio.to_thread(get, url + "/v1/audio/voices"):
            raise RuntimeError(f"{url} does not answer; --url is the address of a server that runs")
        await wait_until_idle(url)
        yield url, report.Tree(arguments.server_pid) if arguments.server_pid else None
        return
    from . import local  # needs GStreamer, which a client of a server elsewhere does without

    options = ["--sessions", str(count + 64)]
    if not arguments.front_alone:
        options += ["--slots", str(max(count, 64))]
    if arguments.model:
        options += ["--model-path", arguments.model]
    environment = {"GST_PLUGIN_PATH": arguments.instant} if arguments.front_alone else {}
    async with local.started(*options, *shlex.split(arguments.server), environment=environment) as (there, process):
        yield there.url, report.Tree(process.pid)


def server_cores(before, after, seconds):
    """Returns the processor time a second between two looks: of all, and of the threads that are the front's."""
    (all_before, threads_before), (all_after, threads_after) = before, after
    return {"server_cores": (all_after - all_before) / seconds,
            **{figure: (threads_after[name] - threads_before[name]) / seconds for figure, name in THREADS.items()}}


async def measure(arguments, kind, number, protocol, form):
    """Returns the figures of one load."""
    listening = number if kind != "rates" else math.ceil(number * SECONDS_OF_REQUEST)
    most = max(1, len(os.sched_getaffinity(0)) // 2)
    processes = arguments.clients or min(math.ceil(listening / LISTENERS_OF_PROCESS), most)
    async with server(arguments, max(listening, 64)) as (url, tree):
        parts = urllib.parse.urlsplit(url)
        task = {
            "host": parts.hostname, "port": parts.port or 80, "netloc": parts.netloc, "protocol": protocol,
            "format": form, "pace": 0.0 if kind == "whole" else arguments.pace, "voice": arguments.voice,
            "words": arguments.words, "frames": arguments.frames, "tokens_per_second": arguments.tokens_per_second,
            "sentences": read_sentences(arguments.sentences), "seed": arguments.seed, "patience": arguments.patience,
            "ramp": arguments.ramp if kind == "listeners" else 0.0, "seconds": arguments.seconds, "extra": EXTRA,
            "rate": number if kind == "rates" else 0, "total": number if kind != "rates" else 0}
        clients = await Clients.start(numbers_of(task, processes))
        try:
            begin = time.monotonic() + 0.5
            clients.begin(begin)
            reading = asyncio.create_task(clients.results())
            await asyncio.sleep(begin + task["ramp"] - time.monotonic())
            used = [tree.seconds(), tree.threads()] if tree else []
            with report.Load() as busy:
                await asyncio.sleep(begin + task["ramp"] + task["seconds"] - time.monotonic())
            if tree:
                used = server_cores(used, [tree.seconds(), tree.threads()], task["seconds"])
            results = await reading
        finally:
            clients.kill()
    return {
        "kind": kind, "number": number, "protocol": protocol, "format": form, "pace": task["pace"],
        "ramp": task["ramp"], "seconds": task["seconds"], "words": arguments.words, "frames": arguments.frames,
        "clients": processes, **tables.merge(results, task["ramp"]),
        "sound_per_second": sum(result["sound"] for result in results) / task["seconds"],
        **(used if tree else NO_CORES),
        "client_cores": sum(result["processor"] for result in results) / task["seconds"], "load": busy.text}


async def run(arguments, results):
    print(tables.head(), flush=True)
    loads = [(kind, number, protocol, form) for kind in ("listeners", "rates") for protocol in arguments.protocols
             for form in arguments.formats for number in getattr(arguments, kind)]
    loads += [("whole", number, "http", form) for form in arguments.formats for number in arguments.whole]
    for load in loads:
        figures = await measure(arguments, *load)
        results["loads"].append(figures)
        print(tables.table_row(figures) + "\n" + tables.notes(figures), end="", flush=True)


def main():
    parser = make_parser()
    arguments = parser.parse_args()
    if not (arguments.listeners or arguments.rates or arguments.whole):
        parser.error("give at least one of --listeners, --rates and --whole")
    if arguments.server_pid and not arguments.url:
        parser.error("--server-pid is the process of the server at --url, which is not given")
    if arguments.url and (arguments.model or arguments.server or arguments.front_alone):
        parser.error("--model, --server and --front-alone are for a server of its own, not for that at --url")
    if arguments.url and not arguments.url.startswith("http://"):
        parser.error(f"--url: {arguments.url!r} does not begin with http://; the clients have no TLS")
    if arguments.front_alone and not arguments.instant:
        parser.error("--front-alone needs the plugin that examples/serve/bench builds; call that, or give its folder "
                     "as --instant")
    if arguments.server_pid and not os.path.exists(f"/proc/{arguments.server_pid}"):
        parser.error(f"--server-pid: there is no process {arguments.server_pid} on this machine")
    results = {"machine": report.machine(), "url": arguments.url, "loads": []}
    print(results["machine"])
    try:
        asyncio.run(run(arguments, results))
    except RuntimeError as error:
        sys.exit(f"examples/serve/bench --load: {error}")
    finally:
        # The figures before a failure are kept.
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)
    return 0
