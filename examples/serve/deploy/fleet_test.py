# SPDX-License-Identifier: LGPL-2.1-or-later
"""The test of a fleet; examples/serve/deploy/test sets it up, its manual is there.

This process stays outside and makes the machines; the tests themselves run in the first machine's network
(`--inside`), so that nothing they send can leave it.
"""
import argparse
import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from measure import client, figures, local, report
from measure.requests import Requests

HERE = pathlib.Path(__file__).resolve().parent
FLEET = HERE / "fleet"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PATIENCE = 180  # seconds for Ray to start, deploy or replace something; for broken code alone
MOST = 8  # other requests at once
SHORT = "Good morning, how are you?"
MORE = "and one more word, "
STORY = " ".join(["The river was wide and slow, and the boats went down it one after the other."] * 5)


class Machine:
    """A network namespace whose processes have process numbers, shared memory and Ray's folders of their own."""

    def __init__(self, name, address):
        self.name, self.address, self.init = name, address, None

    def start(self):
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self._unshare = subprocess.Popen(
            ["ip", "netns", "exec", self.name, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             "mkdir -p /tmp/ray /tmp/haproxy-serve && mount -t tmpfs tmpfs /tmp/ray && mount -t tmpfs tmpfs /tmp/haproxy-serve && "
             "mount -t tmpfs tmpfs /dev/shm && exec sleep infinity"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            # `ip netns exec` becomes unshare, whose only child is the first process of the machine.
            children = pathlib.Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
            if children and pathlib.Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep":
                self.init = int(children[0])
                return
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} does not start")

    def ip(self, *arguments):
        subprocess.run(["ip", "-n", self.name, *arguments], check=True)

    def command(self, *arguments):
        return ["nsenter", "--target", str(self.init), "--net", "--mount", "--pid", "--", *map(str, arguments)]

    def run(self, *arguments, **variables):
        done = subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=2 * PATIENCE, env={**environment(), **variables}, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} {arguments[1]} on {self.name}: {done.stdout[-2000:]}")
        return done.stdout

    def runs(self):
        return self._unshare.poll() is None

    def end(self):
        if self.runs():
            self._unshare.kill()  # and with it, by --kill-child, all processes of the machine
            self._unshare.wait()
        subprocess.run(["ip", "netns", "del", self.name], check=False)


def environment():
    """Environment of the machines: a home of their own, and patience with a busy one."""
    return {**os.environ, "HOME": "/tmp/ray", "XDG_CONFIG_HOME": "/tmp/ray", "RAY_raylet_start_wait_time_s": "180"}


REPLICA, CONTROLLER, HAPROXY = "ray::ServeReplica", "ray::ServeController", "haproxy"


def processes(init, name):
    """Processes of this name among those in the same process namespace as `init`."""
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (entry / "cmdline").read_bytes().partition(b"\0")[0].decode()
            if os.readlink(entry / "ns/pid") == namespace and program.rpartition("/")[2].startswith(name):
                found.append(int(entry.name))
    return found


def kill(init, name):
    """Ends the processes of this name without a word; when."""
    found = processes(init, name)
    if not found:
        raise RuntimeError(f"there is no process {name}")
    when = time.perf_counter()
    for process in found:
        os.kill(process, signal.SIGKILL)
    return when


class Check:
    """Names of checks that failed; a failed one does not hide those after it."""

    failed = []

    @classmethod
    def that(cls, condition, text):
        print(f"  {'ok' if condition else 'FAILED'}: {text}", flush=True)
        if not condition:
            cls.failed.append(text)


def machine_of(replica):
    return replica.split("-")[0]


async def replicas(server, count):
    """Names of the replicas that answer."""
    return {(await server.speech("Yes.", seed=1, pace=0)).headers.get("x-qtts-replica", "") for _ in range(count)}


async def until_replicas(servers, limit=PATIENCE):
    """Waits until the ingresses of all machines use a replica on each."""
    begin = time.perf_counter()
    while True:
        with contextlib.suppress(client.Broken, TimeoutError, OSError):
            used = [{machine_of(name) for name in await replicas(server, 8)} for server in servers]
            if all(machines >= {there.host for there in servers} for machines in used):
                return
        if time.perf_counter() - begin > limit:
            raise RuntimeError(f"after {limit:g} s not every machine has a replica in use")
        await asyncio.sleep(0.5)


async def http_on(server, machine, **fields):
    """An answer that this machine speaks, of which the first sound was heard."""
    for _ in range(40):
        answer = await server.connect()
        server.speak(answer, STORY, keep=True, **fields)
        await answer.until(lambda a: a.pieces)
        if machine_of(answer.headers["x-qtts-replica"]) == machine:
            return answer
        answer.transport.abort()
    raise RuntimeError(f"of 40 requests none went to {machine}")


async def session_on(server, machine, text=STORY, growing=False, **settings):
    """A session on this machine and its utterance, of which the first sound was heard."""
    others = []  # stay until the end: HAProxy chooses the replica with the fewest connections
    try:
        for _ in range(40):
            session = await server.session(**settings)
            utterance = await session.begin(text, growing)
            await utterance.until(lambda u: u.pieces)
            if machine_of(utterance.start["id"]) == machine:
                return session, utterance
            others.append(session)
    finally:
        await asyncio.gather(*(session.close() for session in others))
    raise RuntimeError(f"of 40 sessions none went to {machine}")


async def broken_at(waiting):
    """When an utterance broke; None if it came to its end."""
    try:
        await waiting
    except (client.Broken, client.websockets.ConnectionClosed):
        return time.perf_counter()
    return None


async def resume(server, cut, seed):
    """The rest of a broken utterance, as a client asks for it."""
    heard = len(cut.body) // client.FRAME_BYTES
    rest = await server.speech(STORY, seed=seed, start_frame=heard, pace=0,
                               headers={"x-qtts-fingerprint": cut.headers["x-qtts-fingerprint"]})
    if rest.status != 200:
        raise RuntimeError(bytes(rest.body))
    return bytes(cut.body[:heard * client.FRAME_BYTES]) + bytes(rest.body), rest


async def kill_a_replica(servers, inits, rate):
    here, there = servers
    whole = await here.speech(STORY, seed=7, pace=0)
    async with Requests(here, rate, MOST, seed=1) as load:
        cut = await http_on(here, there.host, seed=7, pace=1.0)
        session, utterance = await session_on(here, there.host, seed=7, pace=1.0)
        kept = await http_on(here, here.host, seed=7, pace=1.0)
        await asyncio.sleep(1.0)
        waiting = [asyncio.create_task(broken_at(cut.until(lambda a: a.whole, 60))),
                   asyncio.create_task(broken_at(utterance.until(lambda u: u.done)))]
        killed = kill(inits[1], REPLICA)
        broke = await asyncio.gather(*waiting)
        await session.close()
        spoke = [error for asked, error in load.lost if asked < killed]
        resumed, rest = await resume(here, cut, 7)
        again = rest.pieces[0][0] - killed
        await kept.until(lambda a: a.whole, 60)
        await until_replicas(servers)
        back = time.perf_counter() - killed
    after = [error for asked, error in load.lost if asked >= killed]
    Check.that(None not in broke, "both utterances that the killed replica spoke ended without their end")
    times = [1000 * (when - killed) for when in broke if when]
    print(f"  seen after {', '.join(f'{ms:.0f}' for ms in times)} ms (HTTP, WebSocket; wanted: 100), again two replicas after {back:.1f} s")
    Check.that(max(times, default=0) < 1000, "it was seen within a second")
    Check.that(bytes(kept.body) == bytes(whole.body), "what the other replica spoke is whole")
    Check.that(not after, f"0 of {load.begun} other requests lost later: {after or ''} ({len(spoke)} being spoken)")
    Check.that(resumed == bytes(whole.body), f"resumed with seed and start_frame it equals the whole, {len(resumed) // 2} samples; "
               f"new sound {again:.2f} s after the break")


async def kill_what_is_between(servers, inits, rate):
    """One machine's HAProxy, then Ray's controller, of which the sound needs neither to go on elsewhere."""
    here, there = servers
    whole = await here.speech(STORY, seed=7, pace=0)
    async with Requests(here, rate, MOST, seed=1) as load:
        through = await there.connect()
        there.speak(through, STORY, pace=1.0)
        await through.until(lambda a: a.pieces)
        kept = await http_on(here, there.host, seed=7, pace=1.0)
        killed = kill(inits[1], HAPROXY)
        broke = await broken_at(through.until(lambda a: a.whole, 60))
        await kept.until(lambda a: a.whole, 60)
        await local.ready(there, PATIENCE)
        back = time.perf_counter() - killed
        # As soon as Ray has noticed all of it.
        await until_replicas(servers)
    Check.that(broke is not None and broke - killed < 1, "what went through the killed HAProxy broke within a second")
    Check.that(bytes(kept.body) == bytes(whole.body), f"what its machine spoke through the other one is whole; it answers again after {back:.1f} s")
    Check.that(not load.lost, f"0 of {load.begun} requests to the other one lost: {[error for _, error in load.lost] or ''}")
    async with Requests(here, rate, MOST, seed=1) as load:
        kept = await http_on(here, there.host, seed=7, pace=1.0)
        killed = kill(inits[0], CONTROLLER)
        await kept.until(lambda a: a.whole, 60)
        while not processes(inits[0], CONTROLLER):
            if time.perf_counter() - killed > PATIENCE:
                raise RuntimeError("Ray's controller does not come back")
            await asyncio.sleep(0.5)
        await until_replicas(servers)
    Check.that(bytes(kept.body) == bytes(whole.body), "what was spoken when Ray's controller was killed is whole")
    Check.that(not load.lost, f"0 of {load.begun} requests lost with it: {[error for _, error in load.lost] or ''}; "
               f"the slowest took {load.slowest:.2f} s")


async def speak_after_silence(idle):
    """The session that has said nothing since the beginning still speaks."""
    utterance = await idle.begin(SHORT)
    await utterance.until(lambda u: u.done)
    Check.that(utterance.done["reason"] == "complete", "a session that was silent for a minute still speaks")
    await idle.close()


async def closed(session):
    """The code with which the server closes a session, and when."""
    await session.socket.wait_closed()
    return session.socket.close_code, time.perf_counter()


class Talk:
    """Three sessions with one replica: one is silent, one speaks a text that still grows when the replica refuses new
    ones, and ends later; the text of the third never ends."""

    @classmethod
    async def begin(cls, server, machine):
        self = cls()
        self._silent, said = await session_on(server, machine)
        await self._silent.send("input.cancel")
        await said.until(lambda u: u.done)
        self._growing, self._endless = [
            await session_on(server, machine, text=MORE, growing=True, seed=7, pace=0.2) for _ in range(2)]
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self):
        refusing = asyncio.create_task(closed(self._silent))
        never = asyncio.get_running_loop().create_future()
        return await asyncio.gather(refusing, self._grow(*self._growing, refusing), self._grow(*self._endless, never))

    @staticmethod
    async def _grow(session, utterance, refusing):
        """The utterance, its text, and the code with which the session was closed."""
        hearing = asyncio.create_task(utterance.until(lambda u: u.done, 4 * PATIENCE))
        pieces = [MORE]
        # Slowly, so that the speech keeps up on a busy machine; but text that is 10 s late ends the utterance.
        left = 3  # further pieces, 4 s each: until Ray has stopped listening, 8 s after the replica refuses
        while not hearing.done() and left:
            left -= refusing.done()
            pieces.append(MORE)
            await session.send("input.text", text=MORE)
            await asyncio.wait([hearing], timeout=4)
        if not hearing.done():
            pieces.append("that is all.")
            await session.send("input.text", text=pieces[-1])
            await session.send("input.done")
        await hearing
        while True:  # session.done
            try:
                await session.socket.recv()
            except client.websockets.ConnectionClosed:
                break
        return utterance, "".join(pieces), (await closed(session))[0]

    async def check(self, server, machine):
        (silent, _), (growing, text, growing_code), (endless, _, endless_code) = await asyncio.wait_for(self._task, 2 * PATIENCE)
        session = await server.session(seed=7, pace=0)
        again = await session.begin(text)
        await again.until(lambda u: u.done)
        await session.close()
        Check.that((silent, growing_code, endless_code) == (1001, 1001, 1001),
                   f"{machine}: all sessions were closed with 1001: {(silent, growing_code, endless_code)}")
        Check.that(growing.done["reason"] == "complete" and growing.body == again.body,
                   f"{machine}: a session that spoke went on to the end of its utterance: {growing.size / 48000:.0f} s of sound, "
                   f"{growing.done['reason']}, {again.size / 48000:.0f} s for the whole text, {again.done['reason']}")
        Check.that(endless.done["reason"] == "interrupted" and endless.cancelled is not None and not endless.after_cancel,
                   f"{machine}: one whose text did not end was told after {endless.size / 48000:.0f} s of sound")


async def update(servers, machines, rate):
    here, there = servers
    whole = await here.speech(STORY, seed=7, pace=0)
    before = await replicas(here, 8)
    idle = await here.session()
    talks = {machine: await Talk.begin(here, machine.host) for machine in servers}
    async with Requests(here, rate, MOST, seed=1) as load:
        closing = asyncio.create_task(closed(idle))
        speaking = await here.connect()
        here.speak(speaking, STORY, keep=True, seed=7, pace=0.2)
        begin = time.perf_counter()
        deployment = await asyncio.create_subprocess_exec(*machines[0].command(FLEET, *DEPLOY, "--set", "max_characters=4000"),
                                                          env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = await asyncio.wait_for(deployment.communicate(), 2 * PATIENCE)
        if deployment.returncode:
            raise RuntimeError(said.decode()[-2000:])
        await speaking.until(lambda a: a.whole, 60)
        while before & (now := await replicas(here, 8)):
            if time.perf_counter() - begin > 2 * PATIENCE:
                raise RuntimeError("replicas of before the update still answer")
        took = time.perf_counter() - begin
    code, when = await asyncio.wait_for(closing, PATIENCE)
    Check.that(code == 1001, f"a session that said nothing was closed with {code} after {when - begin:.0f} s")
    for machine, talk in talks.items():
        await talk.check(here, machine.host)
    Check.that(len(now) == 2 and not before & now, f"all replicas are new after {took:.0f} s")
    Check.that(not load.lost,
               f"0 of {load.begun} requests lost: {[error for _, error in load.lost] or ''}; the slowest took {load.slowest:.2f} s")
    Check.that(bytes(speaking.body) == bytes(whole.body), "an utterance that was spoken meanwhile is whole")


async def lose_a_machine(servers, machines, rate):
    here, there = servers
    async with Requests(here, rate, MOST, seed=1) as load:
        cut = await http_on(here, there.host, seed=7, pace=1.0)
        await asyncio.sleep(1.0)
        killed = time.perf_counter()
        machines[1].ip("link", "set", "eth0", "down")  # as if the plug was pulled: nobody is told
        os.kill(machines[1].init, signal.SIGKILL)
        await asyncio.sleep(30)
        resumed, _ = await resume(here, cut, 7)
    cut.transport.abort()
    whole = await here.speech(STORY, seed=7, pace=0)
    spoke = [error for asked, error in load.lost if asked < killed]
    after = [error for asked, error in load.lost if asked >= killed]
    Check.that(not after, f"0 of {load.begun} requests lost later: {after or ''} ({len(spoke)} being spoken); "
               f"the slowest took {load.slowest:.1f} s")
    Check.that(resumed == bytes(whole.body), "what it spoke was taken up by the other machine, sample for sample")


def ids_of_answer(server, headers):
    """Every line of it with such a name; client.Answer keeps one."""
    with contextlib.closing(http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)) as connection:
        connection.request("POST", "/v1/audio/speech", json.dumps({"input": SHORT}), headers)
        answer = connection.getresponse()
        answer.read()
        return [(name, value) for name in headers for value in answer.headers.get_all(name, [])]


async def first_sound(server, count=50):
    with report.Load() as load:
        found = await figures.first_sound(server, count=count)
    print(f"  ({load.text})")
    for way, base in (("HTTP", "in-process"), ("WebSocket", "in-process, streaming")):
        print(f"  {way}: p50 {found[way]['p50']:.1f}, p95 {found[way]['p95']:.1f} ms; over {base}: "
              f"p50 {found[way]['p50'] - found[base]['p50']:+.1f}, p95 {found[way]['p95'] - found[base]['p95']:+.1f} ms (wanted: +8, +15)")


FEW_SLOTS = 4
SCALING = ("deploy", "--cpu", "--per-machine", "1", "--set", f"slots={FEW_SLOTS}")
DEPLOY = ("deploy", "--cpu", "--replicas", "2", "--per-machine", "1", "--set", "drain_timeout=30")


async def scale(servers, machines):
    """One replica; with most of its slots busy two."""
    here, _ = servers
    await local.ready(here, PATIENCE)  # the other machine has no ingress as long as it has no replica
    Check.that(len(await replicas(here, 8)) == 1, "there is one replica")
    begin = time.perf_counter()
    sessions = [await here.session(pace=0.2) for _ in range(FEW_SLOTS)]

    # A growing utterance holds its slot without work while its text is late.
    async def hold(session):
        while True:
            await session.send("input.text", text="Wait a moment, ")
            await asyncio.sleep(4)

    holding = [asyncio.create_task(hold(session)) for session in sessions]
    draining = [asyncio.create_task(swallow(session)) for session in sessions]
    try:
        await until_replicas(servers)
        Check.that(True, f"with {FEW_SLOTS} of {FEW_SLOTS} slots busy there are two after {time.perf_counter() - begin:.0f} s")
    finally:
        for task in holding + draining:
            task.cancel()
        await asyncio.gather(*holding, *draining, return_exceptions=True)
        await asyncio.gather(*(session.close() for session in sessions))
    deployment = await asyncio.create_subprocess_exec(*machines[0].command(FLEET, *DEPLOY), env=environment(),
                                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = await asyncio.wait_for(deployment.communicate(), 2 * PATIENCE)
    if deployment.returncode:
        raise RuntimeError(said.decode()[-2000:])


async def swallow(session):
    async for _ in session.socket:
        pass


async def inside(arguments, machines):
    servers = [client.Server(f"http://{address}:8000") for address in ADDRESSES]
    begin = time.perf_counter()

    def stage(name):
        print(f"== {name} ({time.perf_counter() - begin:.0f} s, load {os.getloadavg()[0]:.1f})", flush=True)

    if arguments.figures:
        await until_replicas(servers)
        stage("first sound through HAProxy and Ray")
        await first_sound(servers[0], count=100)
        return 0
    stage("scaling by busy slots")
    await scale(servers, machines)
    stage("two machines")
    await until_replicas(servers)
    for server in servers:
        names = {machine_of(name) for name in await replicas(server, 8)}
        Check.that(names == set(ADDRESSES), f"the ingress of {server.host} uses the replicas of {', '.join(sorted(names))}")
    given = {"x-request-id": "mine", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    found = await asyncio.to_thread(ids_of_answer, servers[0], given)
    Check.that(found == [(name, value) for name, value in given.items()], f"an answer has the ids of its request, once: {found}")
    idle = await servers[0].session()
    idle_since = time.perf_counter()
    stage("first sound through HAProxy and Ray")
    await first_sound(servers[0])
    await asyncio.sleep(max(0, 60 - (time.perf_counter() - idle_since)))
    await speak_after_silence(idle)
    stage("a replica is killed in mid-speech")
    await kill_a_replica(servers, [machine.init for machine in machines], arguments.load)
    stage("an HAProxy and Ray's controller are killed")
    await kill_what_is_between(servers, [machine.init for machine in machines], arguments.load)
    stage("all replicas are replaced under load")
    await update(servers, machines, arguments.load)
    stage("a machine is lost under load")
    await lose_a_machine(servers, machines, arguments.load)
    stage("done")
    print(f"{len(Check.failed)} checks failed")
    return 1 if Check.failed else 0


def outside(arguments):
    names = [f"qtts-{os.getpid()}-{letter}" for letter in "ab"]
    machines = [Machine(name, address) for name, address in zip(names, ADDRESSES, strict=True)]
    # The machines end with this process, however it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begin = time.perf_counter()
    started = []
    try:
        for machine in machines:
            machine.start()
            started.append(machine)
        subprocess.run(["ip", "link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1]],
                       check=True)
        for machine in machines:
            machine.ip("link", "set", "lo", "up")
            machine.ip("addr", "add", f"{machine.address}/24", "dev", "eth0")
            machine.ip("link", "set", "eth0", "up")
        print(f"{report.machine()}, load {os.getloadavg()[0]:.1f}")
        said = machines[0].run(FLEET, "start", ADDRESSES[0])
        token = re.search(r"QTTS_FLEET_TOKEN=(\w+) ", said).group(1)
        machines[1].run(FLEET, "join", ADDRESSES[0], QTTS_FLEET_TOKEN=token)
        print(f"Ray on two machines after {time.perf_counter() - begin:.0f} s", flush=True)
        machines[0].run(FLEET, *(DEPLOY if arguments.figures else SCALING))
        print(f"deployed after {time.perf_counter() - begin:.0f} s", flush=True)
        result = subprocess.run(["nsenter", f"--net=/run/netns/{names[0]}", "--", sys.executable, "-m", "fleet_test", "--inside",
                                 *(f"{machine.name}:{machine.init}" for machine in machines), "--load", str(arguments.load),
                                 *(["--figures"] if arguments.figures else [])],
                                env=os.environ, timeout=570, check=False).returncode
    finally:
        if arguments.keep_logs:
            for machine in filter(Machine.runs, started):
                subprocess.run(machine.command("sh", "-c", f"mkdir -p {arguments.keep_logs}/{machine.name} && "
                                               f"cp -r /tmp/ray/session_latest/logs/. /tmp/haproxy-serve {arguments.keep_logs}/{machine.name}"),
                               check=False)
        for machine in started:
            machine.end()
    return result


def main():
    parser = argparse.ArgumentParser("examples/serve/deploy/test")
    parser.add_argument("--load", type=float, default=4.0, help="requests a second beside what is tested")
    parser.add_argument("--figures", action="store_true", help="only the first sound over in-process, in a minute")
    parser.add_argument("--keep-logs", type=pathlib.Path, help="folder for Ray's and HAProxy's logs")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is None:
        return outside(arguments)
    machines = []
    for machine, address in zip(arguments.inside, ADDRESSES, strict=True):
        name, init = machine.split(":")
        machines.append(Machine(name, address))
        machines[-1].init = int(init)
    return asyncio.run(inside(arguments, machines))


if __name__ == "__main__":
    sys.exit(main())
