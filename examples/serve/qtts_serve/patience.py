# SPDX-License-Identifier: LGPL-2.1-or-later
"""Waiting with a limit."""
import asyncio


async def within(seconds, coroutine):
    """The result of `coroutine`. TimeoutError after `seconds`. Sets a timer only if the coroutine has to wait, which a
    write to a client that reads does not: a timer costs as much as the write."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return end.value
    async with asyncio.timeout(seconds):
        return await _Rest(coroutine, waits_for)


class _Rest:
    """A coroutine from its first wait on."""

    def __init__(self, coroutine, waits_for):
        self._coroutine, self._waits_for = coroutine, waits_for

    def __await__(self):
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(value)
        except StopIteration as end:
            return end.value
