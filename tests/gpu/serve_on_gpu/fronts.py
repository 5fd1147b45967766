# SPDX-License-Identifier: LGPL-2.1-or-later
"""Processes that are measured: fronts of the server, and HAProxy in front of them."""
import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

from measure import client, local

from .run import HAPROXY


class Front:
    """A server process on a port of its own, for some of the cards."""

    def __init__(self, run, cards=None, port=0, element="", sessions=None, name="front"):
        self.port = port
        environment = {**os.environ, **run.visible(cards)}
        slots = run.options.slots
        self.log = run.out / f"{name}.log"
        self._file = open(self.log, "ab")
        self._began = time.perf_counter()
        element = f"device={run.device} codec-precision={run.options.codec_precision} {element}"
        options = ["--port", str(port), "--element", element, "--slots", str(slots),
                   "--sessions", str(sessions or 2 * slots + 64), "--replica", name, "--model-path", run.model]
        if not run.gpu:
            options += ["--max-wait", "60"]  # a busy processor is late, and does not refuse
        self.process = subprocess.Popen([sys.executable, "-m", "qtts_serve", *options], env=environment,
                                        stdout=subprocess.PIPE, stderr=self._file)
        self.server = None
        self.ready_after = None

    async def ready(self, limit=90):
        """Waits until it speaks. Returns itself."""
        line = (await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), limit)).decode()
        if not (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)):
            raise RuntimeError(f"the server does not start; {self.log} says why")
        self.port = int(found.group(1))
        self.server = client.Server(found.group())
        speaks = asyncio.create_task(local.ready(self.server, limit))
        while not speaks.done():
            if self.process.poll() is not None:
                speaks.cancel()
                raise RuntimeError(f"the server ended; {self.log} says why")
            await asyncio.wait([speaks], timeout=0.05)
        speaks.result()
        self.ready_after = time.perf_counter() - self._began
        return self

    def kill(self):
        """Ends it without a word. Returns when."""
        when = time.perf_counter()
        self.process.send_signal(signal.SIGKILL)
        return when

    async def end(self, limit=90):
        """Lets it drain. Returns its status."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), limit)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._file.close()


@contextlib.asynccontextmanager
async def fronts(run, *arguments):
    """Fronts with these arguments, started at once, all ready. The list may be changed: its fronts are closed."""
    begun = []
    try:
        for keywords in arguments:
            begun.append(Front(run, **keywords))
        await asyncio.gather(*(front.ready() for front in begun))
        yield begun
    finally:
        for front in begun:
            front.close()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


# Beyond a fleet's rules, a request that is answered with 503 goes to another front. In a fleet Ray tells HAProxy.
CONFIGURATION = """\
global
  maxconn {MAXCONN}
  hard-stop-after {HARD_STOP_AFTER_S}s
defaults
  mode http
  timeout connect {TIMEOUT_CONNECT_S}s
  timeout client {TIMEOUT_CLIENT_S}s
  timeout server {TIMEOUT_SERVER_S}s
  timeout http-request 30s
  timeout queue 5s
  retries 3
  retry-on {RETRY_ON} 503
  option redispatch 1
  option abortonclose
  option http-no-delay
frontend all
  bind 127.0.0.1:{port} backlog 4096
  default_backend fronts
backend fronts
  balance leastconn
  option httpchk GET /health/ready
{servers}
"""
PREFIX = "RAY_SERVE_HAPROXY_"


class Balancer:
    """HAProxy in front of fronts, with the times and rules that a fleet's has (deploy/environment.sh)."""

    def __init__(self, run, ports):
        values = {name.removeprefix(PREFIX): value for name, value in os.environ.items() if name.startswith(PREFIX)}
        self.port = free_port()
        check = f"check inter {values['HEALTH_CHECK_INTER']} fall 2 rise 1"
        servers = "\n".join(f"  server front{i} 127.0.0.1:{port} {check}" for i, port in enumerate(ports))
        configuration = run.out / "haproxy.cfg"
        configuration.write_text(CONFIGURATION.format(port=self.port, servers=servers, **values))
        self._log = open(run.out / "haproxy.log", "ab")
        self.process = subprocess.Popen([str(HAPROXY / "haproxy"), "-db", "-f", str(configuration)], stdout=self._log,
                                        stderr=self._log,
                                        env={**os.environ, "LD_LIBRARY_PATH": str(HAPROXY / "lib")})
        self.server = client.Server(f"http://127.0.0.1:{self.port}")

    async def __aenter__(self):
        await local.ready(self.server, 20)
        return self

    async def __aexit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._log.close()
