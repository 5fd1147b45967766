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
  kill       with several cards: one of two fronts is killed while --kill-listeners N listen through HAProxy. Its listeners
             see it, and go on with the other front
  update     with several cards: a front after the other is replaced while --update-rate X requests a second come
  clients    the messages of vLLM-Omni's client, OpenAI's, LiveKit's and Pipecat's clients as far as they are installed

The engine's own figure (bench-load, the same streams without a server) stands before that of the clients.
"""
import argparse
import asyncio
import contextlib
import glob
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

from measure import client, local, report
from measure.requests import Requests

SOURCE = pathlib.Path(__file__).resolve().parent
BUILD = SOURCE.parent / "build"
HAPROXY = SOURCE.parent / "haproxy"
CLIENTS = SOURCE.parent / "clients"  # packages of PyPI of clients, in other versions than the server's
SENTENCES = SOURCE / "data/recipe/test_sentences.txt"
PARTS = ("first", "listeners", "poisson", "whole", "opus", "cold", "cards", "kill", "update", "clients")
SAID = "It is twenty-one dollars and fifty cents, five kilometers."
STORY = " ".join(["The river was wide and slow, and the boats went down it one after the other."] * 3)


class Failures:
    """Checks that failed. A failed one does not hide those after it."""

    def __init__(self):
        self.failed = []

    def check(self, condition, text):
        print(f"  {'ok' if condition else 'FAILED'}: {text}", flush=True)
        if not condition:
            self.failed.append(text)


class Front:
    """A server process on a port of its own, for some of the cards."""

    def __init__(self, run, cards=None, port=0, element="", slots=None, name="front"):
        self.port = port
        environment = dict(os.environ)
        if run.gpu and cards is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, cards))
        element = f"device={'cuda' if run.gpu else 'cpu'} {element}"
        slots = slots or run.options.slots
        self.log = run.out / f"{name}.log"
        self._file = open(self.log, "ab")
        self._began = time.perf_counter()
        options = ["--port", str(port), "--element", element, "--slots", str(slots), "--sessions", str(2 * slots + 64),
                   "--replica", name, "--model-path", run.model]
        self.process = subprocess.Popen([sys.executable, "-m", "qtts_serve", *options], env=environment, stdout=subprocess.PIPE,
                                        stderr=self._file)
        self.server = None
        self.ready_after = None

    async def ready(self, limit=90):
        """Waits until it speaks; seconds from its start."""
        line = (await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), limit)).decode()
        if not (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)):
            raise RuntimeError(f"the server does not start; {self.log} says why")
        self.port = int(found.group(1))
        self.server = client.Server(found.group())
        speaks = asyncio.create_task(local.ready(self.server, limit))
        while not speaks.done():
            if self.process.poll() is not None:
                speaks.cancel()
                raise RuntimeError(f"the server ended; {self.log} says why")
            await asyncio.wait([speaks], timeout=0.05)
        speaks.result()
        self.ready_after = time.perf_counter() - self._began
        return self

    def kill(self):
        """Ends it without a word; when."""
        when = time.perf_counter()
        self.process.send_signal(signal.SIGKILL)
        return when

    async def end(self, limit=90):
        """Lets it drain; its status."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), limit)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._file.close()


@contextlib.asynccontextmanager
async def fronts(run, *arguments):
    """Fronts with these arguments, started at once, all ready."""
    begun = []
    try:
        for keywords in arguments:
            begun.append(Front(run, **keywords))
        await asyncio.gather(*(front.ready() for front in begun))
        yield begun
    finally:
        for front in begun:
            front.close()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Balancer:
    """HAProxy in front of fronts, with the times and rules that a fleet's has (deploy/environment.sh). Beyond these, a
    request that is answered with 503 goes to another front: one that drains refuses before HAProxy's checks know. In a
    fleet Ray tells HAProxy."""

    def __init__(self, run, ports):
        def value(name):
            return os.environ[f"RAY_SERVE_HAPROXY_{name}"]

        self.port = free_port()
        servers = "\n".join(f"  server front{i} 127.0.0.1:{port} check inter {value('HEALTH_CHECK_INTER')} fall 2 rise 1"
                            for i, port in enumerate(ports))
        configuration = run.out / "haproxy.cfg"
        configuration.write_text(f"""\
global
  maxconn {value('MAXCONN')}
  hard-stop-after {value('HARD_STOP_AFTER_S')}s
defaults
  mode http
  timeout connect {value('TIMEOUT_CONNECT_S')}s
  timeout client {value('TIMEOUT_CLIENT_S')}s
  timeout server {value('TIMEOUT_SERVER_S')}s
  timeout http-request 30s
  timeout queue 5s
  retries 3
  retry-on {value('RETRY_ON')} 503
  option redispatch 1
  option abortonclose
frontend all
  bind 127.0.0.1:{self.port} backlog 4096
  default_backend fronts
backend fronts
  balance leastconn
  option httpchk GET /health/ready
{servers}
""")
        self._log = open(run.out / "haproxy.log", "ab")
        self.process = subprocess.Popen([str(HAPROXY / "haproxy"), "-db", "-f", str(configuration)], stdout=self._log,
                                        stderr=self._log, env={**os.environ, "LD_LIBRARY_PATH": str(HAPROXY / "lib")})
        self.server = client.Server(f"http://127.0.0.1:{self.port}")

    async def __aenter__(self):
        await local.ready(self.server, 20)
        return self

    async def __aexit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._log.close()


class Run:
    """Options, the model and results, which the parts share."""

    def __init__(self, options, out):
        self.options, self.out = options, out
        self.gpu = (BUILD / "cuda/libqtts-cuda.so").exists()
        self.cards = options.cards or (len(glob.glob("/dev/nvidia[0-9]*")) if self.gpu else 1)
        self.model = str(SOURCE / "data/voice")
        self.size = "bundled"
        self.results = {}
        self._engine = {}  # lines of bench-load by its options
        self.failures = Failures()
        self.checks = self.failures.check

    def command(self, name, arguments, limit, environment=None):
        """Runs a program for at most so many seconds and returns its output, also a part of it."""
        log = self.out / f"{self.size}.{name}.log"
        with open(log, "wb") as file:
            try:
                status = subprocess.run(list(map(str, arguments)), stdout=file, stderr=subprocess.STDOUT, timeout=limit,
                                        env={**os.environ, **(environment or {})}, check=False).returncode
            except subprocess.TimeoutExpired:
                status = f"not ended within {limit:g} s"
        text = log.read_text(errors="replace")
        if status != 0:
            self.checks(False, f"{name}: {status}; {log} has all of it")
        return text

    def generate(self, size):
        self.size = size
        self.model = f"/tmp/model-{size}"
        if not os.path.isdir(self.model):
            begin = time.perf_counter()
            self.command("generate", [BUILD / "tests/golden/generator/qtts-random-checkpoint", "--preset", f"{size}-custom", "--merges",
                                      SOURCE / "tests/golden/vocabulary/merges.txt", self.model], 120)
            print(f"random checkpoint of the {size} after {time.perf_counter() - begin:.1f} s", flush=True)

    def engine(self, name, *options, cards=None):
        """bench-load's figures of the same load, without a server; measured once for the same load."""
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))} if cards and self.gpu else None
        arguments = ("--device", "cuda" if self.gpu else "cpu", "--sentences", SENTENCES, "--voices", self.options.slots, *options)
        key = (self.size, str(environment), *map(str, arguments))
        if key not in self._engine:
            text = self.command(f"{name}.engine", [BUILD / "tests/bench/bench-load", self.model, *arguments], self.options.limit, environment)
            self._engine[key] = [re.sub(r"  +", " ", line) for line in text.splitlines()
                                 if line.startswith(("requests", "first sound", "underruns", "throughput"))]
        for line in self._engine[key]:
            print(f"  engine: {line}")
        self.results.setdefault(name, {})[f"{self.size} engine"] = self._engine[key]
        sys.stdout.flush()

    def load(self, name, url, *options, pid=None):
        """Runs measure --load: the figures of clients."""
        file = self.out / f"{self.size}.{name}.json"
        # Frames are those of bench-load, for a random model does not end by itself.
        text = self.command(name, [sys.executable, "-m", "measure", "--load", "--url", url, *(["--server-pid", pid] if pid else []),
                                   "--sentences", SENTENCES, "--json", file, *options], self.options.limit)
        print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)
        with contextlib.suppress(OSError, ValueError):
            self.results.setdefault(name, {})[f"{self.size} clients"] = json.loads(file.read_text())


# --- parts of one card

async def first(run):
    print("-- first: one listener", flush=True)
    file = run.out / f"{run.size}.first.json"
    text = run.command("first", [sys.executable, "-m", "measure", "first", "--count", run.options.count, "--json", file,
                                 *(["--model", run.model] if run.model else [])], run.options.limit,
                       {"QTTS_SERVE_ELEMENT": f"device={'cuda' if run.gpu else 'cpu'}"})
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)
    with contextlib.suppress(OSError, ValueError):
        run.results.setdefault("first", {})[run.size] = json.loads(file.read_text())


def ramp_frames(run):
    return ("--frames", "100-280" if run.gpu else "20-60")


async def loads(run, wanted):
    """The parts that one server serves: the engine's own first, as both do not fit into a card."""
    options = run.options
    table = []  # a part, its heading, bench-load's options, the load's
    for count in options.listeners if "listeners" in wanted else ():
        table.append((f"listeners-{count}", f"{count} listeners, PCM",
                      ("--streams", count, "--ramp", 4, "--seconds", options.seconds + 4, *ramp_frames(run)),
                      ("--listeners", count, "--ramp", 4, "--seconds", options.seconds, "--protocols", options.protocols, *ramp_frames(run))))
    for count in options.opus_listeners if "opus" in wanted else ():
        table.append((f"opus-{count}", f"{count} listeners, Opus",
                      ("--streams", count, "--ramp", 4, "--seconds", options.seconds + 4, *ramp_frames(run)),
                      ("--listeners", count, "--ramp", 4, "--seconds", options.seconds, "--formats", "opus", *ramp_frames(run))))
    frames = ("--frames", "30-95" if run.gpu else "10-30")
    for rate in options.rates if "poisson" in wanted else ():
        table.append((f"poisson-{rate:g}", f"{rate:g} requests a second at random",
                      ("--poisson", rate, "--seconds", options.seconds, *frames),
                      ("--rates", rate, "--seconds", options.seconds, *frames)))
    if "whole" in wanted:
        table.append(("whole", f"{options.whole} requests at any time without a clock",
                      ("--books", options.whole, "--seconds", options.seconds, "--frames", "60-250" if run.gpu else "10-40"),
                      ("--whole", options.whole, "--seconds", options.seconds, "--frames", "60-250" if run.gpu else "10-40")))
    if not table:
        return
    for name, heading, engine, _ in table:
        print(f"-- {heading}: the engine", flush=True)
        run.engine(name, *engine)
    async with fronts(run, {"name": f"{run.size}.front"}) as (front,):
        print(f"-- a server, ready after {front.ready_after:.1f} s", flush=True)
        for name, heading, _, clients in table:
            print(f"-- {heading}: clients", flush=True)
            await asyncio.to_thread(run.load, name, front.server.url, *clients, pid=front.process.pid)


async def cold(run):
    count, options = run.options.cold, run.options
    print(f"-- cold: {count} listeners within 4 s of the start", flush=True)
    run.engine("cold", "--streams", count, "--ramp", 4, "--seconds", options.seconds + 4, *ramp_frames(run))
    async with fronts(run, {"name": f"{run.size}.cold"}) as (front,):
        print(f"  ready after {front.ready_after:.1f} s", flush=True)
        await asyncio.to_thread(run.load, "cold", front.server.url, "--listeners", count, "--ramp", 4, "--seconds", options.seconds,
                                *ramp_frames(run), pid=front.process.pid)


# --- parts of several cards

async def cards(run):
    each, seconds = run.options.card_listeners, run.options.seconds
    counts = [count for count in (1, 2, 4, 8) if count <= run.cards]
    for count in counts:
        listeners = each * count
        print(f"-- cards: {count}, {listeners} listeners", flush=True)
        if run.gpu:
            run.engine(f"cards-{count}", "--spread", "--streams", listeners, "--ramp", 4, "--seconds", seconds + 4,
                       *ramp_frames(run), cards=range(count))
        common = ("--listeners", listeners, "--ramp", 4, "--seconds", seconds, *ramp_frames(run))
        async with fronts(run, *({"cards": [card], "name": f"{run.size}.card{card}"} for card in range(count))) as begun:
            async with Balancer(run, [front.port for front in begun]) as balancer:
                print("  a front a card, HAProxy:", flush=True)
                await asyncio.to_thread(run.load, f"cards-{count}-haproxy", balancer.server.url, *common)
        if run.gpu and count > 1:
            async with fronts(run, {"cards": range(count), "element": f"cuda-device-id=-1 voices={run.options.slots}", "slots": count * run.options.slots,
                                    "name": f"{run.size}.all"}) as (front,):
                print("  one process, cuda-device-id=-1:", flush=True)
                await asyncio.to_thread(run.load, f"cards-{count}-process", front.server.url, *common, pid=front.process.pid)


async def update(run):
    """Replaces a front after the other, as a rolling update does, while requests come."""
    count = 2
    print("-- a rolling update under load", flush=True)
    if run.cards < count:
        print("  left out: there is one card")
        return
    begun = []
    try:
        ports = [free_port() for _ in range(count)]
        begun = [Front(run, cards=[card], port=port, name=f"{run.size}.old{card}") for card, port in enumerate(ports)]
        await asyncio.gather(*(front.ready() for front in begun))
        async with Balancer(run, ports) as balancer, Requests(balancer.server, run.options.update_rate, max_new_tokens=12) as requests:
            began = time.perf_counter()
            for card, port in enumerate(ports):
                status = await begun[card].end()
                run.checks(status == 0, f"the old front of card {card} ended after what it spoke, status {status}")
                begun[card].close()
                begun[card] = await Front(run, cards=[card], port=port, name=f"{run.size}.new{card}").ready()
                await asyncio.sleep(3)  # until HAProxy's checks have seen it
            took = time.perf_counter() - began
            names = {(await balancer.server.speech("Yes.", pace=0, max_new_tokens=5)).headers.get("x-qtts-replica") for _ in range(6)}
        run.checks(not requests.lost, f"{requests.text()} while all fronts were replaced, in {took:.0f} s")
        run.checks(all(name and ".new" in name for name in names), f"new fronts alone answer: {', '.join(map(str, sorted(names, key=str)))}")
        run.results.setdefault("update", {})[run.size] = {"requests": requests.begun, "lost": len(requests.lost), "seconds": took}
    finally:
        for front in begun:
            front.close()


async def kill(run):
    """kill -9 of one of two fronts in mid-speech."""
    count = run.options.kill_listeners
    print(f"-- kill -9 of one of two fronts, {count} listeners", flush=True)
    if run.cards < 2:
        print("  left out: there is one card")
        return
    fields = {"pace": 1.0, "max_new_tokens": 150 if run.gpu else 60}
    async with fronts(run, *({"cards": [card], "name": f"{run.size}.kill{card}"} for card in range(2))) as begun:
        async with Balancer(run, [front.port for front in begun]) as balancer, Requests(balancer.server, 2, max_new_tokens=12) as requests:
            answers = []
            for seed in range(count):
                answer = await balancer.server.connect()
                balancer.server.speak(answer, STORY, keep=True, seed=seed, **fields)
                answers.append(answer)
            await asyncio.gather(*(answer.until(lambda a: a.size >= 8 * client.FRAME_BYTES, 60) for answer in answers))
            refused = [answer.status for answer in answers if answer.status != 200]
            lost = f"{run.size}.kill0"
            its = [number for number, answer in enumerate(answers) if answer.headers.get("x-qtts-replica") == lost]
            killed = begun[0].kill()
            seen, first, resumed, other = [], [], {}, 0

            async def follow(number):
                nonlocal other
                answer = answers[number]
                try:
                    await answer.until(lambda a: a.whole, 90)
                    other += number not in its
                    return
                except client.Broken:
                    if number not in its:
                        return
                seen.append(answer.closed - killed)
                heard = answer.size // client.FRAME_BYTES
                rest = await balancer.server.speech(STORY, seed=number, start_frame=heard, **fields,
                                                    headers={"x-qtts-fingerprint": answer.headers["x-qtts-fingerprint"]})
                if rest.status == 200 and rest.pieces:
                    first.append(rest.pieces[0][0] - killed)
                    resumed[number] = bytes(answer.body[:heard * client.FRAME_BYTES]) + bytes(rest.body)

            await asyncio.gather(*(follow(number) for number in range(count)))
            # Whole answers of the front that is left, to compare.
            wholes = await asyncio.gather(*(begun[1].server.speech(STORY, seed=number, **{**fields, "pace": 0}) for number in its))
            equal = sum(bytes(whole.body) == resumed.get(number) for number, whole in zip(its, wholes))
    run.checks(not refused, f"all {count} were spoken, by both fronts: {len(its)} by the one that was killed")
    run.checks(0 < len(its) < count, "both had listeners")
    run.checks(other == count - len(its), f"{other} of {count - len(its)} listeners of the other front heard all")
    if its:
        figure = report.summary(seen) if seen else {}
        run.checks(len(seen) == len(its) and max(seen) < run.options.seen_limit,
                   f"{len(seen)} of {len(its)} listeners saw it" + (f" after p50 {figure['p50']:.1f}, p95 {figure['p95']:.1f}, at most "
                                                                    f"{1000 * max(seen):.1f} ms" if seen else ""))
        run.checks(equal == len(its), f"{equal} of {len(its)} went on with the other card, equal byte for byte" +
                   (f"; new sound after p50 {report.summary(first)['p50']:.0f}, at most {1000 * max(first):.0f} ms" if first else ""))
    after = [why for asked, why in requests.lost if asked >= killed]
    run.checks(not after, f"{len(after)} requests of after the kill lost, {len(requests.lost) - len(after)} of before, of {requests.begun}")
    run.results.setdefault("kill", {})[run.size] = {
        "listeners": count, "of the killed": len(its), "seen": seen, "new sound": first, "equal": equal, "others whole": other,
        "requests": requests.begun, "lost": requests.lost}


# --- clients of others

async def clients(run):
    print("-- clients", flush=True)
    fields = {"max_new_tokens": 20}
    async with fronts(run, {"name": f"{run.size}.clients"}) as (front,):
        whole = await front.server.speech("Good morning.", seed=7, pace=0, non_streaming_mode=False, **fields)
        session = await front.server.session(seed=7, **fields)
        utterance = await session.begin("Good morning.")
        await utterance.until(lambda u: u.done)
        run.checks(bytes(utterance.body) == bytes(whole.body) and len(whole.body) > client.FRAME_BYTES,
                   f"vLLM-Omni's messages over a WebSocket: the samples of HTTP, {len(whole.body) // 2}")
        again = await session.begin(STORY)
        await again.until(lambda u: u.pieces)
        await session.send("input.cancel")
        await again.until(lambda u: u.done)
        run.checks(again.cancelled is not None and again.after_cancel == 0, "input.cancel: no sound after audio.cancelled")
        await session.close()
        # Numbers become words with ICU, whose data are packed in part only.
        written, said = [bytes((await front.server.speech(text, seed=7, pace=0, normalize=how, language="english", **fields)).body)
                         for text, how in (("It is $21.50, 5 km.", "spoken"), (SAID, "none"))]
        run.checks(written == said, f"numbers are spoken as words: the samples of {SAID!r}, {len(said) // 2}")
        environment = {"OPENAI_BASE_URL": f"{front.server.url}/v1", "OPENAI_API_KEY": "none"}
        for name, program in OTHERS.items():
            done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                                           env={**os.environ, **environment, "PYTHONPATH": str(CLIENTS)}, check=False)
            if "ModuleNotFoundError" in done.stderr:
                print(f"  left out: {name}: not packed ({done.stderr.strip().splitlines()[-1]})")
            else:
                run.checks(done.returncode == 0, f"{name}: {(done.stdout or done.stderr).strip()[-200:]}")


OTHERS = {
    "OpenAI's client": """
import openai
with openai.OpenAI().audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input="Good morning.", response_format="pcm", extra_body={"max_new_tokens": 20}) as answer:
    size = sum(map(len, answer.iter_bytes()))
assert size > 3840, size
print(size // 2, "samples")
""",
    "Pipecat's": """
import asyncio, os
from pipecat.frames.frames import EndFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner
class Listener(FrameProcessor):
    size = 0
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.size += len(frame.audio)
        await self.push_frame(frame, direction)
async def main():
    service = OpenAITTSService(base_url=os.environ["OPENAI_BASE_URL"], api_key="none",
                               settings=OpenAITTSService.Settings(model="tts-1", voice="alloy"))
    listener = Listener()
    worker = PipelineWorker(Pipeline([service, listener]))
    await worker.queue_frames([TTSSpeakFrame("Good morning."), EndFrame()])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    assert listener.size > 3840, listener.size
    print(listener.size // 2, "samples")
asyncio.run(main())
""",
    "LiveKit's": """
import asyncio, os
from livekit.plugins import openai
async def main():
    service = openai.TTS(base_url=os.environ["OPENAI_BASE_URL"], api_key="none", model="qttssrc", voice="alloy", response_format="pcm")
    size = 0
    async with service.synthesize("Good morning.") as stream:
        async for event in stream:
            size += len(bytes(event.frame.data))
    assert size > 3840, size
    print(size // 2, "samples")
asyncio.run(main())
""",
}


def numbers(kind):
    return lambda text: [kind(number) for number in text.split(",")]


async def main():
    parser = argparse.ArgumentParser("serve-on-gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--parts", default=" ".join(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="0.6b 1.7b", help=argparse.SUPPRESS)
    parser.add_argument("--cards", type=int, default=0, help="cards; without a GPU, fronts that stand for cards (default: those there are)")
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
    parser.add_argument("--seen-limit", type=float, default=0.1, help="seconds in which listeners have to see that their front was killed")
    parser.add_argument("--update-rate", type=float, default=4, help="requests a second during the rolling update")
    parser.add_argument("--seconds", type=int, default=12, help="of each measurement of load")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a program is ended")
    options = parser.parse_args()
    wanted = options.parts.split()
    for part in wanted:
        if part not in PARTS:
            parser.error(f"PARTS: {part!r} is none of {', '.join(PARTS)}")
    run = Run(options, options.out)
    options.slots = options.slots or (1024 if run.gpu else 16)
    print(report.machine(), flush=True)
    for size in options.sizes.split() if run.gpu else ("bundled",):
        print(f"== {size}, {run.cards} cards", flush=True)
        if run.gpu:
            run.generate(size)
        parts = {"first": first, "cold": cold, "kill": kill, "update": update, "cards": cards, "clients": clients}
        for part in ("first", "loads", "cold", "kill", "update", "cards", "clients"):
            try:
                if part == "loads":
                    await loads(run, wanted)
                elif part in wanted:
                    await parts[part](run)
            except Exception as error:  # the parts after it are measured all the same
                run.checks(False, f"{part}: {error!r}")
        if run.gpu:
            shutil.rmtree(run.model, ignore_errors=True)
    (options.out / "results.json").write_text(json.dumps({"machine": report.machine(), "failed": run.failures.failed, **run.results}, indent=1))
    return 1 if run.failures.failed else 0


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.exit(asyncio.run(main()))
