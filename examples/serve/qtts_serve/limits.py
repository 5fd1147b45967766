# SPDX-License-Identifier: LGPL-2.1-or-later
"""Limits of the process: descriptors and threads. A server that would run out of them does not start."""
import os
import pathlib
import resource

# A pipeline has two descriptors and one thread; a connection has one descriptor, and so has a process that encodes, which
# counts as a thread.
DESCRIPTORS = {"process": 96, "connection": 1, "utterance": 2, "encoding": 1}
THREADS = {"process": 32, "connection": 0, "utterance": 1, "encoding": 1}
UTTERANCES = 32  # of a process that encodes, before there is another one. In Opus these take a seventh of a processor.


def encoding_processes(utterances):
    """How many processes encode for so many utterances: no more than there are processors."""
    return min(len(os.sched_getaffinity(0)), -(-utterances // UTTERANCES))


def raise_descriptors():
    """As far as it goes. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def check(sessions, slots, connections):
    """Raises RuntimeError with one sentence. Raises the limit of descriptors as far as it goes."""
    for what, have, costs, remedy in (
            ("open files", raise_descriptors(), DESCRIPTORS, "ulimit -n"),
            ("threads", _most_threads(), THREADS, "ulimit -u, or pids.max of the cgroup")):
        utterances = min(sessions, slots)
        need = (costs["process"] + connections * costs["connection"] + utterances * costs["utterance"] +
                encoding_processes(utterances) * costs["encoding"])
        if have != resource.RLIM_INFINITY and have < need:
            raise RuntimeError(f"The limit of {what} is {have}; {sessions} sessions and {slots} slots need {need}. "
                               f"Raise it ({remedy}), or lower --sessions.")


def _most_threads():
    limits = []
    if resource.getrlimit(resource.RLIMIT_NPROC)[1] != resource.RLIM_INFINITY:
        limits.append(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        try:
            most = pathlib.Path("/sys/fs/cgroup" + line.split(":", 2)[2], "pids.max").read_text().strip()
        except OSError:
            continue
        if most != "max":
            limits.append(int(most))
    return min(limits, default=resource.RLIM_INFINITY)
