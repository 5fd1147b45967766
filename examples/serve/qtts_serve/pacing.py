# SPDX-License-Identifier: LGPL-2.1-or-later
"""When sound is written.

The first two frames of an utterance are written at once, then what has gathered in 160, then in 320 ms: each write
costs more than the sound in it. A listener with less sound in hand gets the next before that is played. An answer
without a pace gets what has gathered in 80 ms at most. All streams share one timer, which runs only while somebody
sleeps.
"""
import asyncio
import heapq
import itertools
import math

TICK = 0.01  # seconds
FRAME = 0.08  # seconds
FRAME_TICKS = round(FRAME / TICK)
RESERVE = 0.04  # seconds of sound that a listener still has when the next is written
GATHERED = 32  # frames that gather between two writes of an answer without a pace, if they come as fast as before


class Timer:
    """One timer of the event loop for all sleepers, who wake at ticks of 10 ms: first those whose listeners have nothing to
    play soonest, and in each turn of the event loop WOKEN of them. New requests and first sounds come between."""

    SLOTS = 32  # ticks of the longest sleep
    WOKEN = 16  # each takes some 0.1 ms

    def __init__(self):
        self._slots = [[] for _ in range(self.SLOTS)]
        self._now = 0
        self._sleepers = 0
        self._handle = None
        self._awake = []  # a heap of those whose tick has come
        self._order = itertools.count()
        self._wakes = False  # _wake() will be called

    def sleep(self, ticks, until=math.inf):
        """A future that is done after 1 to SLOTS ticks; cancel() or set_result() ends the sleep early. `until`: when, by the
        event loop's clock, the sleeper's listener has played all."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._slots[(self._now + ticks) % self.SLOTS].append((until, next(self._order), future))
        self._sleepers += 1
        if self._handle is None:
            self._due = loop.time() + TICK
            self._handle = loop.call_at(self._due, self._tick, loop)
        return future

    def _tick(self, loop):
        now = loop.time()
        while self._due <= now:  # a busy event loop is late, and does not lengthen a sleep by more than that
            self._advance()
            self._due += TICK
        if not self._wakes:
            self._wake(loop)
        self._handle = loop.call_at(self._due, self._tick, loop) if self._sleepers else None

    def _advance(self):
        self._now = (self._now + 1) % self.SLOTS
        slot = self._slots[self._now]
        self._slots[self._now] = []
        self._sleepers -= len(slot)
        for sleeper in slot:
            heapq.heappush(self._awake, sleeper)

    def _wake(self, loop):
        left = self.WOKEN
        while self._awake and left:
            future = heapq.heappop(self._awake)[-1]
            if not future.done():
                future.set_result(None)
                left -= 1
        self._wakes = bool(self._awake)
        if self._wakes:
            loop.call_soon(self._wake, loop)


class Pace:
    """How far the sound of an utterance may run ahead, and when it is looked for. `ahead`: seconds after the first two frames;
    0 = without limit. `held`: seconds of what was written that an encoder may keep back."""

    def __init__(self, ahead, held=0.0):
        self.ahead = ahead
        self._held = held
        self._begin = None
        self.frames = 0  # written; not whole where silence was cut from the first one
        self._writes = 0
        self._missed = 0  # looks in a row that found no sound, of a listener who has none either

    def begin(self, now):
        self._begin = now

    def allowed(self, now):
        """Frames that may be written now."""
        if self.ahead == 0:
            return math.inf
        if self._begin is None:
            return 2
        return int(2 + (now - self._begin + self.ahead) / FRAME - self.frames)

    def late(self, now):
        """Seconds by which the next frame is late, for a listener who began with the first."""
        return now - self._begin - self.frames * FRAME

    def until(self):
        """When a listener who began with the first frame has played all that was written."""
        return math.inf if self._begin is None else self._begin + self.frames * FRAME - self._held

    def delay(self, seconds):
        """The listener waited so long."""
        if self._begin is not None:
            self._begin += seconds

    def expect(self):
        """Sound comes soon: it is looked for often again."""
        self._missed = 0

    def pause(self, now, pulled):
        """Ticks until the next look. `pulled`: frames that this one found."""
        if pulled or self.allowed(now) <= 0:
            self._missed = 0
            return self._until_next_write(now, pulled)
        if self._begin is not None and self.ahead and (in_hand := -self.late(now) - self._held) > 0:
            self._missed = 0
            return max(1, min(FRAME_TICKS, int(in_hand / 2 / TICK)))
        # A listener who has nothing waits. Looks become rare: an engine that is too slow is not asked 100 times a second.
        self._missed += 1
        return min(1 << self._missed - 1, Timer.SLOTS)

    def _until_next_write(self, now, pulled):
        self._writes += 1
        if self.frames < 2:
            return 1
        if self.ahead == 0:
            # Fewer than READY_FRAMES_WHOLE gather meanwhile; a client that plays them keeps three quarters of what it has.
            in_hand = -self.late(now) / 4 / TICK
            return max(1, min(FRAME_TICKS, int(in_hand), GATHERED // max(1, pulled)))
        longest = 2 * FRAME_TICKS if self._writes < 4 else 4 * FRAME_TICKS
        in_hand = -self.late(now) - self._held - RESERVE
        return max(1, min(longest, int(self.ahead / 2 / TICK), int(in_hand / TICK)))
