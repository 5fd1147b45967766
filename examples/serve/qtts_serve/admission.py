# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who may speak now. The server refuses before the engine does: what gets no slot within a bounded time is refused."""
import asyncio
import collections

from .errors import ApiError


class Slots:
    """Slots of the model, first come, first served."""

    def __init__(self, total, max_wait):
        self.total = total
        self.busy = 0
        self._max_wait = max_wait
        self._waiting = collections.deque()

    @property
    def waiting(self):
        return len(self._waiting)

    def try_acquire(self):
        """Takes a slot if one is free. release() it when the engine is done."""
        if self.busy >= self.total or self._waiting:
            return False
        self.busy += 1
        return True

    async def acquire(self):
        """Waits for a slot, as try_acquire(). ApiError 429 after the longest wait."""
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await asyncio.wait_for(asyncio.shield(granted), self._max_wait)
        except asyncio.TimeoutError:
            if not granted.done():
                raise ApiError(429, f"All {self.total} slots are busy, and none became free within {self._max_wait:g} s. "
                                    "Try again later.", code="overloaded", retry_after=1) from None
        except asyncio.CancelledError:
            if granted.done():
                self.release()
            raise
        finally:
            if granted in self._waiting:
                self._waiting.remove(granted)

    def release(self):
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.busy -= 1
