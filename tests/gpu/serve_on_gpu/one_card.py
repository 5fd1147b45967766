# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts that one card serves."""
import asyncio
import dataclasses

from .fronts import fronts


async def first(run):
    print("-- first: one listener", flush=True)
    element = f"device={run.device} codec-precision={run.options.codec_precision}"
    run.measure("first", "first", "--count", run.options.count, "--model", run.model,
                environment={"QTTS_SERVE_ELEMENT": element})


@dataclasses.dataclass
class Load:
    """A load, for bench-load and for clients."""
    part: str
    heading: str
    engine: tuple
    clients: tuple


def streams(run, count):
    """Returns the options of bench-load for so many streams at any time."""
    return ("--streams", count, "--ramp", 4, "--seconds", run.options.engine_seconds + 4, *stream_frames(run))


def listeners(run, count):
    """Returns those of clients for the same."""
    return ("--listeners", count, "--ramp", 4, "--seconds", run.options.seconds, *stream_frames(run))


def stream_frames(run):
    return run.frames("100-280", "20-60")


def pcm(run, count):
    return Load(f"listeners-{count}", f"{count} listeners, PCM", streams(run, count),
                (*listeners(run, count), "--protocols", run.options.protocols))


def opus(run, count):
    return Load(f"opus-{count}", f"{count} listeners, Opus", streams(run, count),
                (*listeners(run, count), "--formats", "opus"))


def poisson(run, rate):
    frames = run.frames("30-95", "10-30")
    return Load(f"poisson-{rate:g}", f"{rate:g} requests a second at random",
                ("--poisson", rate, "--seconds", run.options.engine_seconds, *frames),
                ("--rates", rate, "--seconds", run.options.seconds, *frames))


def whole(run, count):
    frames = run.frames("60-250", "10-40")
    return Load("whole", f"{count} requests at any time without a clock",
                ("--books", count, "--seconds", run.options.engine_seconds, *frames),
                ("--whole", count, "--seconds", run.options.seconds, *frames))


def chosen(run, wanted):
    """Returns the loads of the wanted parts."""
    options = run.options
    numbers = {"listeners": (pcm, options.listeners), "opus": (opus, options.opus_listeners),
               "poisson": (poisson, options.rates), "whole": (whole, [options.whole])}
    return [load(run, number) for part, (load, of_part) in numbers.items() if part in wanted for number in of_part]


async def loads(run, wanted):
    """The parts that share a server: the engine's own first, as both do not fit into a card."""
    table = chosen(run, wanted)
    if not table:
        return
    for load in table:
        print(f"-- {load.heading}: the engine", flush=True)
        run.engine(load.part, *load.engine)
    async with fronts(run, {"name": f"{run.size}.front"}) as (front,):
        print(f"-- a server, ready after {front.ready_after:.1f} s", flush=True)
        for load in table:
            print(f"-- {load.heading}: clients", flush=True)
            await asyncio.to_thread(run.load, load.part, front.server.url, *load.clients, pid=front.process.pid)


async def cold(run):
    count = run.options.cold
    print(f"-- cold: {count} listeners within 4 s of the start", flush=True)
    run.engine("cold", *streams(run, count))
    async with fronts(run, {"name": f"{run.size}.cold"}) as (front,):
        print(f"  ready after {front.ready_after:.1f} s", flush=True)
        await asyncio.to_thread(run.load, "cold", front.server.url, *listeners(run, count), pid=front.process.pid)
