# SPDX-License-Identifier: LGPL-2.1-or-later
"""The measurement of hostile requests; serve-hostile sets it up. Each kind is sent by a process of its own, again and again,
while this one asks the server and hears a voice of it."""
import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import conftest
import hostile
from qtts_serve.settings import Settings

KINDS = ("nothing", "endless_header", "many_fields", "half_headers", "endless_trailer", "waiting_bodies", "millions_of_values",
         "largest_recording", "tiny_chunks", "slow_form", "unwanted_body", "pipelined", "pings", "empty_frames", "messages",
         "odd_handshakes", "hostile_fields", "noise", "rare_characters", "connections")
# Growth that stays: of memory, what the allocator keeps of the largest request.
MEMORY = 96  # MiB
# Beyond what was measured with nothing: the time to an answer, and the pace of a voice. Far more than on a quiet machine,
# and less than a connection attempt that the kernel has to repeat.
LATE = 0.9  # seconds
TEXT = " ".join(["Please leave your message after the tone."] * 20)


def nothing(_server):
    time.sleep(0.1)


def waiting_bodies(server):
    stack, _ = hostile.slow_bodies(server)
    with stack:
        time.sleep(1)


def connections(server):
    """More than the server takes. It answers those that it refuses, or ends them."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(hostile.connected(server)) for _ in range(1000)]
        for client in clients[Settings().most_connections_of_address:]:
            hostile.answer(client)


@dataclasses.dataclass
class State:
    memory: float  # MiB
    descriptors: int
    threads: int
    pipelines: int

    @classmethod
    def of(cls, server):
        process = pathlib.Path(f"/proc/{server.process.pid}")
        words = dict(re.findall(r"(\w+):\s+(\d+)", (process / "status").read_text()))
        return cls(int(words["VmRSS"]) / 1024, len(os.listdir(process / "fd")), int(words["Threads"]),
                   int(server.metric("qtts_pipelines_idle")))


def loop_delays(server):
    """Ticks of the event loop that came late, by the least time in seconds."""
    text = server.get("/metrics")[2].decode()
    counts = [(float(bound.replace("+Inf", "inf")), float(count)) for bound, count in
              re.findall(r'qtts_loop_delay_seconds_bucket\{le="([^"]+)"\} (\S+)', text)]
    return {bound: counts[-1][1] - count for bound, count in counts}


def attack(server, kind, seconds):
    """The process that does it."""
    code = (f"import conftest, hostile, serve_hostile, time\nserver = conftest.Server(address={server.address!r})\n"
            f"attack = getattr(hostile, {kind!r}, None) or getattr(serve_hostile, {kind!r})\n"
            f"end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: attack(server)\n")
    here = str(pathlib.Path(__file__).parent)
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": here + ":" + os.environ["PYTHONPATH"]})


class Listener(threading.Thread):
    """Hears a voice at its pace, and notes by how much its sound was late."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self._server, self.late, self.ended = server, 0.0, False

    def run(self):
        while not self.ended:
            response = self._server.begin(input=TEXT, pace=0.5)
            begin, heard = None, 0
            while not self.ended and (sound := response.read1(1 << 14)):
                now = time.monotonic()
                begin = begin or now
                self.late = max(self.late, now - begin - heard / 48000)
                heard += len(sound)
            response.close()


def measure(server, kind, seconds):
    """Fractions of a second: the median and the longest time to an answer, and by how much sound was late at most."""
    listener = Listener(server)
    listener.start()
    process, answers = attack(server, kind, seconds), []
    while process.poll() is None:
        begin = time.monotonic()
        server.get("/health/live")
        answers.append(time.monotonic() - begin)
        time.sleep(0.02)
    listener.ended = True
    listener.join()
    if process.returncode:
        raise RuntimeError(f"{kind}: the process ended with {process.returncode}")
    return sorted(answers)[len(answers) // 2], max(answers), listener.late


def main():
    seconds = float(sys.argv[1])
    server = conftest.Server("--header-timeout", "2", "--body-timeout", "2", "--log-level", "warning")
    measure(server, "nothing", 1)  # pipelines are made
    problems, quiet = [], 0.0
    print(f"{'':20} {'answers, p50 / max':>20} {'sound late':>10} {'loop > 50 ms':>12}  memory, descriptors, threads, pipelines")
    for kind in KINDS:
        server.wait_until_idle()
        before, delays = State.of(server), loop_delays(server)
        middle, longest, late = measure(server, kind, seconds)
        server.wait_until_idle()
        conftest.wait_for("its connections to end", lambda: server.metric("qtts_connections") == 1)
        after = State.of(server)
        held = loop_delays(server)[0.05] - delays[0.05]
        print(f"{kind:20} {middle * 1000:8.1f} / {longest * 1000:6.1f} ms {late * 1000:7.0f} ms {held:12.0f}  "
              f"{before.memory:.0f} → {after.memory:.0f} MiB, {before.descriptors} → {after.descriptors}, "
              f"{before.threads} → {after.threads}, {before.pipelines} → {after.pipelines}", flush=True)
        quiet = quiet or max(longest, late)
        if after.memory > before.memory + MEMORY:
            problems.append(f"{kind}: {after.memory - before.memory:.0f} MiB are left")
        # A thread of the pool that closes pipelines may come, and a pipeline that it was needed for.
        if after.descriptors > before.descriptors + 8 or after.threads > before.threads + 8 or after.pipelines < before.pipelines:
            problems.append(f"{kind}: {before} became {after}")
        if max(longest, late) > quiet + LATE:
            problems.append(f"{kind}: others waited for {max(longest, late):.2f} s, with nothing for {quiet:.2f} s")
    said, status = server.stop()
    if "Traceback" in said or status:
        problems.append(said[-2000:])
    print("\n".join(problems) or "nothing is left, and nobody waited")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
