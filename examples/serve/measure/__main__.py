# SPDX-License-Identifier: LGPL-2.1-or-later
"""Figures of the front. examples/serve/bench calls it; its manual is there."""
import argparse
import asyncio
import contextlib
import json
import resource
import sys

from . import report

ALL = ("first", "stop", "storm", "streams", "idle", "poisson")


def row(name, figure):
    return f"  {name:<24} n {figure['n']:>6}   p50 {figure['p50']:8.2f}   p95 {figure['p95']:8.2f}   p99 {figure['p99']:8.2f} ms"


async def measure(arguments, results):
    from . import figures, local  # need GStreamer and websockets, which --load does without

    @contextlib.asynccontextmanager
    async def server(*options, instant=False):
        if arguments.url:
            there = local.client.Server(arguments.url)
            await local.ready(there)
            yield there, None
            return
        environment = {"GST_PLUGIN_PATH": arguments.instant} if instant else {}
        if arguments.model and not instant:
            options += ("--model-path", arguments.model)
        async with local.started(*options, environment=environment) as started:
            yield started

    def show(title, load):
        print(f"{title} ({load})", flush=True)

    if "first" in arguments.what:
        with report.Load() as load:
            async with server() as (there, _):
                results["first"] = figures_of = await figures.first_sound(there, arguments.model, arguments.count,
                                                                                 alone=not arguments.url)
        show("First sound, from the request's last byte, in turns", load.text)
        for way, figure in figures_of.items():
            print(row(way, figure))
        for way, base in (("HTTP", "in-process"), ("WebSocket", "in-process, streaming")):
            over = {share: figures_of[way][share] - figures_of[base][share] for share in ("p50", "p95")}
            print(f"  {way} over {base}: p50 {over['p50']:+.2f}, p95 {over['p95']:+.2f} ms")
    if "stop" in arguments.what:
        with report.Load() as load:
            async with server() as (there, _):
                results["stop"] = found = await figures.stopping(there, arguments.count)
        show("Disconnect (HTTP) or input.cancel (WebSocket) to the engine stopped", load.text)
        print(row("disconnect", found["disconnect"]))
        print(row("input.cancel", found["input.cancel"]))
        print(f"  bytes of sound after audio.cancelled: {found['bytes after audio.cancelled']}")
    if "storm" in arguments.what:
        with report.Load() as load:
            async with server("--sessions", "1024", "--max-wait", "10") as (there, _):
                results["storm"] = found = await figures.storm(there)
        show("Cancelled at once", load.text)
        print("  " + ", ".join(f"{name}: {value:g}" for name, value in found.items()))
    if "streams" in arguments.what:
        results["streams"] = []
        engine = f"server at {arguments.url}" if arguments.url else "engine that costs nothing"
        print(f"Live streams, {engine}: lateness for listeners who begin with the first frame")
        for websocket in (False, True):
            for pace in arguments.paces:
                for count in arguments.streams:
                    async with server("--sessions", str(count + 64), instant=True) as (there, process):
                        found = await figures.streams(there, process, count, pace, arguments.seconds, websocket)
                    results["streams"].append({"websocket": websocket, **found})
                    name = f"{'WebSocket' if websocket else 'HTTP'} {count:>4}, pace {pace:g} s"
                    own = "" if arguments.url else f"server {found['server_cores']:.2f} cores, "
                    print(row(name, found["late"]) + f"   first sound p95 {found['first']['p95']:.1f} ms, {own}"
                          f"client {found['client_cores']:.2f}, broken {found['broken']} ({found['load']})", flush=True)
    if "idle" in arguments.what:
        with report.Load() as load:
            async with server("--sessions", "1024") as (there, process):
                results["idle"] = found = await figures.idle_sessions(there, process)
        show("Idle WebSocket sessions", load.text)
        print("  " + ", ".join(f"{name}: {value:.2f}" for name, value in found.items()))
    if "poisson" in arguments.what:
        results["poisson"] = []
        print("Requests that arrive at random over HTTP: first sound")
        for rate in arguments.rates:
            async with server() as (there, _):
                found = await figures.poisson(there, rate, arguments.seconds)
            results["poisson"].append(found)
            print(row(f"{rate:g} requests/s", found["first"]) + f"   refused {found['refused']}, broken {found['broken']} "
                  f"({found['load']})", flush=True)


def numbers(kind):
    return lambda text: [kind(number) for number in text.split(",")]


def main():
    if "--load" in sys.argv[1:]:
        from . import load  # its options are its own
        return load.main()
    parser = argparse.ArgumentParser("examples/serve/bench",
                                     epilog="--load loads the server as its clients would: --load --help has the options of that")
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(ALL) + " (default: all)")
    parser.add_argument("--model", default="", help="model folder (default: the bundled voice)")
    parser.add_argument("--url", help="measure a server, or a fleet, that runs already: all but idle")
    parser.add_argument("--instant", help="folder of the plugin whose engine costs nothing, for streams")
    parser.add_argument("--count", type=int, default=100, help="utterances for first and stop")
    parser.add_argument("--streams", type=numbers(int), default=[100, 200, 500, 1000], help="streams at once")
    parser.add_argument("--paces", type=numbers(float), default=[2.0], help="seconds ahead, for streams")
    parser.add_argument("--rates", type=numbers(float), default=[1, 10, 20], help="requests a second, for poisson")
    parser.add_argument("--seconds", type=float, default=20, help="length of each measurement of streams and poisson")
    parser.add_argument("--json", help="write all figures into this file, too")
    arguments = parser.parse_args()
    for what in arguments.what:
        if what not in ALL:
            parser.error(f"{what!r} is none of {', '.join(ALL)}")
    if arguments.url and "idle" in arguments.what:
        parser.error("idle needs a server of its own: it looks at its process")
    arguments.what = arguments.what or [what for what in ALL if what != "idle" or not arguments.url]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(report.machine())
    results = {"machine": report.machine()}
    asyncio.run(measure(arguments, results))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0


sys.exit(main())
