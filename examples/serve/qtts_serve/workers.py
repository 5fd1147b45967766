# SPDX-License-Identifier: LGPL-2.1-or-later
"""Threads for work that takes a processor, such as encoding: as many as there are processors, whatever the number of
utterances."""
import asyncio
import collections
import os
import queue
import threading


class Workers:
    """Runs functions in the order in which they were given. The event loop is woken once for all that are done by then."""

    def __init__(self, count=None):
        self._count = count or len(os.sched_getaffinity(0))
        self._jobs = queue.SimpleQueue()
        self._done = collections.deque()
        self._woken = False  # _deliver() will be called
        self._threads = 0
        self._idle = 0  # threads without a job, less the jobs that wait for one

    def run(self, function, *arguments):
        """A future of the function's result. A cancelled one does not keep the function from being called."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self._idle <= 0 and self._threads < self._count:
            self._threads += 1
            self._idle += 1
            threading.Thread(target=self._work, name="encoder", daemon=True).start()
        self._idle -= 1
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
            self._done.append((future, result, error))
            if not self._woken:
                self._woken = True
                try:
                    loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed, and nobody waits
                    self._woken = False
            del loop, future, function, arguments, result, error  # not kept until the next job

    def _deliver(self):
        self._woken = False  # before the first is taken: what is done from now on wakes the loop again
        while self._done:
            future, result, error = self._done.popleft()
            self._idle += 1
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
