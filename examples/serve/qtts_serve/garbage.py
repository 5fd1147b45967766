# SPDX-License-Identifier: LGPL-2.1-or-later
"""When Python looks for garbage that refers to itself, which holds the event loop for 0.4 us an object that it looks at.

By itself it looks once so many more objects were made than freed. Among a thousand streams as many end as begin: there
are tens of thousands of young objects by then, and all listeners wait for 20 to 90 ms. Here young objects are looked at
often, while they are few, and are old after that. Old garbage is found when nobody speaks; connections leave none.
"""
import asyncio
import gc
import time

YOUNG = 0.1  # seconds between two collections of young objects
FULL = 60.0  # seconds between two full collections, which are made when nobody speaks
# Seconds after which one is made although somebody speaks: among a thousand streams it takes some 0.1 s.
OVERDUE = 3600.0


class Garbage:
    """`clock`: seconds, of any beginning."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._full = clock()  # when all objects were looked at
        self._timer = None

    def start(self):
        """The objects that there are now are not looked at again. From now on nothing else collects."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._full = self._clock()
        self._wait()

    def stop(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.enable()

    def rest(self):
        """Nobody speaks."""
        if self._timer is not None and self._clock() > self._full + FULL:
            self._full = self._clock()
            asyncio.get_running_loop().call_soon(gc.collect)

    def _wait(self):
        self._timer = asyncio.get_running_loop().call_later(YOUNG, self._look)

    def _look(self):
        overdue = self._clock() > self._full + OVERDUE
        gc.collect(2 if overdue else 1)
        if overdue:
            self._full = self._clock()
        self._wait()
