# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests beside a measurement, which tell whether a server, or a fleet, loses any."""
import asyncio
import math
import random
import time

from . import client

TEXT = "Good morning, how are you?"


class Requests:
    """Short requests at random times, `rate` a second, each on a connection of its own, until it is left. No more than
    `most` at once: a busy machine is not asked for what it cannot do. `fields` are those of each request.

    `lost` has (time at which it was asked, why) for each that was not answered whole; `slowest` is in seconds.
    """

    def __init__(self, server, rate, most=math.inf, **fields):
        self._server, self._rate, self._most, self._fields = server, rate, most, fields
        self.begun, self.lost, self.slowest = 0, [], 0.0

    async def __aenter__(self):
        self._tasks = []
        self._pacer = asyncio.create_task(self._pace())
        return self

    async def __aexit__(self, *_):
        self._pacer.cancel()
        await asyncio.gather(self._pacer, return_exceptions=True)
        await asyncio.gather(*self._tasks)

    async def _pace(self):
        chance = random.Random(1)
        while True:
            if sum(not task.done() for task in self._tasks) < self._most:
                self._tasks.append(asyncio.create_task(self._ask()))
            await asyncio.sleep(chance.expovariate(self._rate))

    async def _ask(self):
        self.begun += 1
        asked = time.perf_counter()
        try:
            answer = await self._server.speech(TEXT, limit=60, pace=0, **self._fields)
        except (client.Broken, TimeoutError, OSError) as error:
            self.lost.append((asked, f"{type(error).__name__} {error}"))
            return
        if answer.status != 200:
            self.lost.append((asked, f"{answer.status} {bytes(answer.body[:200]).decode()}"))
        self.slowest = max(self.slowest, time.perf_counter() - asked)

    def text(self):
        return f"{len(self.lost)} of {self.begun} requests lost" + "".join(f"; {why}" for _, why in self.lost[:3])
