# SPDX-License-Identifier: LGPL-2.1-or-later
"""Limits of the process: descriptors and threads. A server that would run out of them does not start."""
import os
import pathlib
import resource

# An idle pipeline has two descriptors and one thread, an encoder two more descriptors; a connection has one descriptor.
# Encoders share a thread for each processor.
DESCRIPTORS = {"process": 96, "connection": 1, "utterance": 4}
THREADS = {"process": 32 + len(os.sched_getaffinity(0)), "connection": 0, "utterance": 1}


def check(sessions, slots, connections):
    """Raises RuntimeError with one sentence. Raises the limit of descriptors as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for what, have, costs, remedy in (
            ("open files", hard, DESCRIPTORS, "ulimit -n"),
            ("threads", _most_threads(), THREADS, "ulimit -u, or pids.max of the cgroup")):
        need = costs["process"] + connections * costs["connection"] + min(sessions, slots) * costs["utterance"]
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
