# SPDX-License-Identifier: LGPL-2.1-or-later
"""Work that would hold the event loop, on another thread."""
import asyncio

# Bytes. A recording of ten megabytes takes some tens of milliseconds, in which no sound would be written.
LONG = 256 << 10


async def off_loop(size, function, *arguments):
    """The result of `function`, which reads `size` bytes."""
    return function(*arguments) if size < LONG else await asyncio.to_thread(function, *arguments)
