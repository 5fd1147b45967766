# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of several cards. Without a GPU, fronts on processors stand for cards."""
import asyncio
import time

from measure import client, report
from measure.requests import Requests

from .fronts import Balancer, Front, free_port, fronts
from .one_card import listeners, streams

# --- listeners on 1, 2, 4 and 8 cards


async def cards(run):
    for count in (1, 2, 4, 8):
        if count <= run.cards:
            await on_cards(run, count)


async def on_cards(run, count):
    number = run.options.card_listeners * count
    print(f"-- cards: {count}, {number} listeners", flush=True)
    run.engine(f"cards-{count}", "--spread", *streams(run, number), cards=range(count))
    print("  a front a card, HAProxy:", flush=True)
    async with fronts(run, *one_each(run, count, "card")) as begun, Balancer(run, ports(begun)) as balancer:
        await asyncio.to_thread(run.load, f"cards-{count}-haproxy", balancer.server.url, *listeners(run, number))
    if count > 1:
        print("  one process, cuda-device-id=-1:", flush=True)
        async with fronts(run, of_all(run, count)) as (front,):
            await asyncio.to_thread(run.load, f"cards-{count}-process", front.server.url, *listeners(run, number),
                                    pid=front.process.pid)


def one_each(run, count, name):
    """Returns the arguments of a front for each card."""
    return [{"cards": [card], "name": f"{run.size}.{name}{card}"} for card in range(count)]


def of_all(run, count):
    """Returns those of one front for all cards, each of which has the slots of a front."""
    return {"cards": range(count), "element": "cuda-device-id=-1", "sessions": count * run.options.slots + 64,
            "name": f"{run.size}.all"}


def ports(begun):
    return [front.port for front in begun]


# Requests beside a measurement at once: a processor is not asked for what it cannot do.
MOST_REQUESTS = 8

# --- a rolling update

SEEN_BY_BALANCER = 3  # seconds after which HAProxy's checks have seen a new front


async def update(run):
    """Replaces a front after the other, as a rolling update does, while requests come."""
    print("-- a rolling update under load", flush=True)
    if run.cards < 2:
        print("  left out: there is one card")
        return
    olds = [{**keywords, "port": free_port()} for keywords in one_each(run, 2, "old")]
    async with fronts(run, *olds) as begun, Balancer(run, ports(begun)) as balancer:
        async with Requests(balancer.server, run.options.update_rate, MOST_REQUESTS, max_new_tokens=12) as requests:
            began = time.perf_counter()
            for card, old in enumerate(list(begun)):
                begun[card] = await replace(run, card, old)
            took = time.perf_counter() - began
            names = {await replica(balancer.server) for _ in range(6)}
    run.check(not requests.lost, f"{requests.text()} while all fronts were replaced, in {took:.0f} s")
    run.check(all(".new" in name for name in names), f"new fronts alone answer: {', '.join(sorted(names))}")
    run.record("update", {"requests": requests.begun, "lost": len(requests.lost), "seconds": took})


async def replace(run, card, old):
    """Ends a front and starts another one on its port, which it returns once the balancer knows it."""
    status = await old.end()
    run.check(status == 0, f"the old front of card {card} ended after what it spoke, status {status}")
    old.close()
    new = Front(run, cards=[card], port=old.port, name=f"{run.size}.new{card}")
    try:
        await new.ready()
        await asyncio.sleep(SEEN_BY_BALANCER)
    except BaseException:
        new.close()
        raise
    return new


async def replica(server):
    """Returns the name of the front that answers a request."""
    return (await server.speech("Yes.", pace=0, max_new_tokens=5)).headers.get("x-qtts-replica") or "none"


# --- kill -9 of one of two fronts in mid-speech

# Some 25 s, of which FRAMES are spoken: nobody has heard all of it when everybody has heard the first frames.
STORY = " ".join(["The river was wide and slow, and the boats went down it one after the other."] * 5)
FRAMES = 150
HEARD = 8  # frames that a listener has before the front is killed
SPOKEN = {"pace": 1.0, "max_new_tokens": FRAMES}


class Listener:
    """Hears STORY through the balancer, with a seed of its own, and goes on with another front if its one is killed."""

    def __init__(self, server, seed):
        self._server, self.seed = server, seed
        self.answer = None
        self.whole = False
        self.seen = None  # when it saw that its front is gone
        self.first = None  # when the first sound of the rest came
        self.resumed = b""  # all sound, once it went on

    async def begin(self):
        """Asks, and waits until a front speaks: the next request goes to the one with fewer connections."""
        self.answer = await self._server.connect()
        self._server.speak(self.answer, STORY, keep=True, seed=self.seed, **SPOKEN)
        await self.answer.until(lambda a: a.status, 60)

    async def hear(self):
        await self.answer.until(lambda a: a.size >= HEARD * client.FRAME_BYTES, 60)

    def hears(self, front_name):
        return self.answer.headers.get("x-qtts-replica") == front_name

    async def to_the_end(self):
        """Hears the rest of the answer, or what another front makes of it."""
        try:
            await self.answer.until(lambda a: a.whole, 90)
            self.whole = True
        except client.Broken:
            self.seen = self.answer.closed
            await self._go_on()

    async def _go_on(self):
        heard = self.answer.size // client.FRAME_BYTES
        fingerprint = {"x-qtts-fingerprint": self.answer.headers["x-qtts-fingerprint"]}
        rest = await self._server.speech(STORY, seed=self.seed, start_frame=heard, headers=fingerprint, **SPOKEN)
        if rest.status == 200 and rest.pieces:
            self.first = rest.pieces[0][0]
            self.resumed = bytes(self.answer.body[:heard * client.FRAME_BYTES]) + bytes(rest.body)

    async def equals_whole(self, server):
        """Whether it heard the same as in an answer without a break."""
        whole = await server.speech(STORY, seed=self.seed, **{**SPOKEN, "pace": 0})
        return bytes(whole.body) == self.resumed


async def kill(run):
    count = run.options.kill_listeners
    print(f"-- kill -9 of one of two fronts, {count} listeners", flush=True)
    if run.cards < 2:
        print("  left out: there is one card")
        return
    async with fronts(run, *one_each(run, 2, "kill")) as begun, Balancer(run, ports(begun)) as balancer:
        heard = [Listener(balancer.server, seed) for seed in range(count)]
        for listener in heard:
            await listener.begin()
        async with Requests(balancer.server, 2, MOST_REQUESTS, max_new_tokens=12) as requests:
            await asyncio.gather(*(listener.hear() for listener in heard))
            refused = [listener for listener in heard if listener.answer.status != 200]
            its = [listener for listener in heard if listener.hears(f"{run.size}.kill0") and not listener.answer.whole]
            killed = begun[0].kill()
            await asyncio.gather(*(listener.to_the_end() for listener in heard))
            equal = sum(await asyncio.gather(*(listener.equals_whole(begun[1].server) for listener in its)))
    others = [listener for listener in heard if listener not in its]
    whole = sum(listener.whole for listener in others)
    run.check(not refused, f"all {count} were spoken, by both fronts: {len(its)} by the one that was killed")
    run.check(its and others, "both had listeners")
    run.check(whole == len(others), f"{whole} of {len(others)} listeners of the other front heard all")
    seen = [listener.seen - killed for listener in its if listener.seen]
    sounded = [listener.first - killed for listener in its if listener.first]
    if its:
        check_seen(run, seen, len(its))
        check_resumed(run, sounded, equal, len(its))
    check_requests(run, requests, killed)
    run.record("kill", {"listeners": count, "of the killed": len(its), "seen": seen, "new sound": sounded,
                        "equal": equal, "others whole": whole, "requests": requests.begun, "lost": requests.lost})


def check_seen(run, seen, number):
    """`seen`: seconds after which the listeners of the killed front, `number` of them, saw it."""
    text = f"{len(seen)} of {number} listeners saw it"
    if seen:
        figure = report.summary(seen)
        text += f" after p50 {figure['p50']:.1f}, p95 {figure['p95']:.1f}, at most {1000 * max(seen):.1f} ms"
    run.check(len(seen) == number and max(seen) < run.options.seen_limit, text)


def check_resumed(run, sounded, equal, number):
    """`sounded`: seconds from the kill to the first sound of another front."""
    text = f"{equal} of {number} went on with the other card, equal byte for byte"
    if sounded:
        text += f"; new sound after p50 {report.summary(sounded)['p50']:.0f}, at most {1000 * max(sounded):.0f} ms"
    run.check(equal == number, text)


def check_requests(run, requests, killed):
    """Those that were asked before the kill may have been spoken by the killed front."""
    after = [why for asked, why in requests.lost if asked >= killed]
    run.check(not after, f"{len(after)} requests of after the kill lost, {len(requests.lost) - len(after)} of before, "
                         f"of {requests.begun}")
