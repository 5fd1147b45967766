# SPDX-License-Identifier: LGPL-2.1-or-later
"""Notes of a measurement beside its figures: the machine, and how busy it was."""
import collections
import contextlib
import os
import platform
import statistics
import time

MAIN, ENCODER = "main", "encoder"


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values, unit=1000.0):
    """p50, p95 and p99, by default in milliseconds of seconds."""
    return {"n": len(values), "p50": statistics.median(values) * unit, "p95": quantile(values, 0.95) * unit,
            "p99": quantile(values, 0.99) * unit}


def machine():
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                 if line.startswith("model name")), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {name}, Python {platform.python_version()}"


class Load:
    """How busy the machine was while something ran: the load, and the processors' time that others took."""

    def __enter__(self):
        self._begin = self._idle(), time.perf_counter(), sum(os.times()[:4])
        return self

    def __exit__(self, *_):
        idle, begin, own = self._begin
        wall = (time.perf_counter() - begin) * len(os.sched_getaffinity(0))
        self.idle = (self._idle() - idle) / wall
        self.own = (sum(os.times()[:4]) - own) / wall
        self.text = f"load {os.getloadavg()[0]:.1f}, {100 * self.idle:.0f} % of the processors idle"

    @staticmethod
    def _idle():
        """Seconds, of the processors that this process may use."""
        with open("/proc/stat", encoding="utf-8") as file:
            fields = {line.split()[0]: line.split() for line in file if line.startswith("cpu")}
        return sum(int(fields[f"cpu{number}"][4]) for number in os.sched_getaffinity(0)) / os.sysconf("SC_CLK_TCK")


class Process:
    """Processor time and memory of a process and its threads."""

    def __init__(self, pid):
        self.pid = pid

    def seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        """Bytes, without pages of files."""
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))


class Tree:
    """Processor time of a process with its threads and all child processes."""

    def __init__(self, pid):
        self.pid = pid

    def seconds(self):
        """Returns the seconds of all, those of children that have ended included."""
        processes = self._processes()
        # Fields 11 to 14 behind the name are utime, stime, cutime and cstime.
        return sum(sum(map(int, processes[pid][11:15])) for pid in self._members(processes)) / os.sysconf("SC_CLK_TCK")

    def threads(self):
        """Returns the seconds of the threads that run, by name: MAIN for main threads, of a server of Python those of its event
        loops. A process that encodes is ENCODER."""
        seconds = collections.Counter()
        for pid in self._members(self._processes()):
            for name, *fields in _stats(f"/proc/{pid}/task"):
                number = fields[-1]
                seconds[MAIN if number == str(pid) and name != ENCODER else name] += _thread_seconds(f"/proc/{pid}/task/{number}", fields)
        return seconds

    @staticmethod
    def _processes():
        return {int(fields[-1]): fields for _, *fields in _stats("/proc")}

    def _members(self, processes):
        if self.pid not in processes:
            raise RuntimeError(f"there is no process {self.pid}")
        members, count = {self.pid}, 0
        while len(members) > count:
            count = len(members)
            members |= {pid for pid, fields in processes.items() if int(fields[1]) in members}
        return members


def _thread_seconds(folder, fields):
    """Returns the processor time of a thread: exact, where the kernel tells that. In ticks of 10 ms most of the time of hundreds
    of threads that do little would be lost."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"{folder}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) * 1e-9
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stats(folder):
    """Yields the name and the fields behind it of each process or thread in a folder of /proc; the last one is its number."""
    for number in filter(str.isdigit, os.listdir(folder)):
        try:
            with open(f"{folder}/{number}/stat", encoding="utf-8", errors="replace") as file:
                head, _, fields = file.read().rpartition(")")
                yield [head.partition("(")[2], *fields.split(), number]
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
