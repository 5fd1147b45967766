# SPDX-License-Identifier: LGPL-2.1-or-later
"""Threads for work that takes a processor, such as encoding: as many as there are processors, whatever the number of
utterances. A ThreadPoolExecutor's own futures and locks would cost as much as taking sound out of a pipeline."""
import asyncio
import contextlib
import os
import queue
import threading


class Workers:
    """Begins functions in the order in which they were given."""

    def __init__(self, count=None):
        self._count = count or len(os.sched_getaffinity(0))
        self._jobs = queue.SimpleQueue()
        self._threads = 0

    def run(self, function, *arguments):
        """A future of the function's result. A cancelled one does not keep the function from being called."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self._threads < self._count:
            self._threads += 1
            threading.Thread(target=self._work, name="encoder", daemon=True).start()
        self._jobs.put((loop, future, function, arguments))
        return future

    def _work(self):
        while True:
            loop, future, function, arguments = self._jobs.get()
            result, error = None, None
            try:
                result = function(*arguments)
            except Exception as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_finish, future, result, error)
            del loop, future, function, arguments, result, error  # not kept until the next job


def _finish(future, result, error):
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
