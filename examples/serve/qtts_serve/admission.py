# SPDX-License-Identifier: LGPL-2.1-or-later
"""Admission of utterances. The server refuses before the engine does: a request that gets no slot within a bounded time."""
import asyncio
import collections
import math

from .errors import ApiError


RELEASES = 32  # utterances whose times in a slot are remembered
LONGEST_RETRY = 60  # seconds


class Slots:
    """Slots of the model, first come, first served.

    A caller gets a place, a future that is done once the slot is there. A place ends in one of two ways: give_up(), or
    release() when the engine is done. It may be cancelled at any time before.
    """

    def __init__(self, total, max_wait):
        self.total = total
        self.busy = 0
        self._max_wait = max_wait
        self._waiting = collections.deque()
        self._held = collections.deque(maxlen=RELEASES)  # seconds

    @property
    def waiting(self):
        return len(self._waiting)

    def retry_after(self):
        """Returns the seconds, 1 to LONGEST_RETRY, after which a slot can be expected behind those that wait, if all slots
        are held for as long as the last ones were."""
        if not self._held:
            return 1
        interval = sum(self._held) / len(self._held) / self.total  # between two slots that become free
        return min(max(math.ceil(interval * (len(self._waiting) + 1)), 1), LONGEST_RETRY)

    def ask(self):
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._grant()
        return place

    async def wait(self, place):
        """ApiError 429 after the longest wait."""
        if place.done() and not place.cancelled():
            return
        try:
            async with asyncio.timeout(self._max_wait):
                await place
        except TimeoutError:
            raise ApiError(429, f"All {self.total} slots are busy, and none became free within {self._max_wait:g} s. "
                                "Try again later.", code="overloaded", retry_after=self.retry_after()) from None

    def give_up(self, place):
        """For who got no slot, or got one in the moment in which it was not wanted any more."""
        if place in self._waiting:
            self._waiting.remove(place)
        elif not place.cancelled():
            self.release()

    def release(self, held=None):
        """`held`: seconds for which an utterance had the slot."""
        self.busy -= 1
        if held is not None:
            self._held.append(held)
        self._grant()

    def _grant(self):
        while self._waiting and self.busy < self.total:
            place = self._waiting.popleft()
            if not place.cancelled():
                self.busy += 1
                place.set_result(None)
