# SPDX-License-Identifier: LGPL-2.1-or-later
"""Threads for work that takes a processor, such as encoding: as many as there are processors, whatever the number of
utterances. A ThreadPoolExecutor's own futures and locks would cost as much as taking sound out of a pipeline."""
import asyncio
import collections
import contextlib
import os
import queue
import threading

NAME = "encoder"  # of the threads, also for the system: measurements tell their processor time apart


class Workers:
    """Begins functions in the order in which they were given."""

    def __init__(self, count=None):
        self._count = count or len(os.sched_getaffinity(0))
        self._jobs = queue.SimpleQueue()
        self._threads = 0
        self._results = None  # of the event loop that gave the last job

    def run(self, function, *arguments):
        """A future of the function's result. A cancelled one does not keep the function from being called."""
        loop = asyncio.get_running_loop()
        if self._results is None or self._results.loop is not loop:
            self._results = _Results(loop)
        future = loop.create_future()
        if self._threads < self._count:
            self._threads += 1
            threading.Thread(target=self._work, name=NAME, daemon=True).start()
        self._jobs.put((self._results, future, function, arguments))
        return future

    def _work(self):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="ascii") as file:
            file.write(NAME)
        while True:
            results, future, function, arguments = self._jobs.get()
            result, error = None, None
            try:
                result = function(*arguments)
            except Exception as failure:
                error = failure
            results.put(future, result, error)
            del results, future, function, arguments, result, error  # not kept until the next job


class _Results:
    """Results on their way to an event loop, which is woken once for all that are there: a call of the system each."""

    def __init__(self, loop):
        self.loop = loop
        self._waiting = collections.deque()
        self._is_told = False  # _take() will be called

    def put(self, future, result, error):
        """On any thread."""
        self._waiting.append((future, result, error))
        if self._is_told:
            return
        self._is_told = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._take)

    def _take(self):
        self._is_told = False  # before the first look: what is put from now on tells of itself
        while self._waiting:
            future, result, error = self._waiting.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
