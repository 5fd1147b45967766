# SPDX-License-Identifier: LGPL-2.1-or-later
"""qtts-serve: the application under uvicorn, on one machine."""
import asyncio
import functools
import logging
import socket
import sys

import uvicorn

from . import connection
from .app import create_app
from .settings import Settings

# A client that is gone without a word is noticed by the kernel, which asks after so many seconds of silence. It costs the
# event loop nothing, where pings of hundreds of silent sessions do.
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL = 20, 10
WRITE_BUFFER = 128 << 10  # bytes of a connection in the kernel: with uvicorn's own, 4 s of sound
TICK = 0.1  # seconds between two calls of Server.on_tick(), by uvicorn
# Connections that wait in the kernel, and those of them that are accepted in one turn of the event loop: some 0.1 ms each.
BACKLOG, ACCEPTED = 2048, 16


class Server(uvicorn.Server):
    """Drains at the first signal, ends at once at the second."""

    front = None
    _draining = None
    _last_tick = None

    def handle_exit(self, sig, frame):
        if self._draining is not None or self.front is None:
            super().handle_exit(sig, frame)
        else:
            self._draining = asyncio.run_coroutine_threadsafe(self._drain(), self.loop)

    async def _drain(self):
        await self.front.drain()
        self.should_exit = True

    async def serve(self, sockets=None):
        self.loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets=None):
        await super().startup(sockets)
        for listening in sockets:
            listening.listen(BACKLOG)  # asyncio has set as many as it accepts at once

    async def on_tick(self, counter):
        now = self.loop.time()
        if self._last_tick is not None:
            self.front.metrics.loop_delay.observe(max(0.0, now - self._last_tick - TICK))
        try:
            return await super().on_tick(counter)
        finally:
            self._last_tick = self.loop.time()


def listen(settings):
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit these: a reader that takes nothing is noticed soon, and a write to it does not last for ever.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER // 2)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.slow_reader * 1000) + 10_000)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.bind((settings.host, settings.port))
    listening.listen(BACKLOG)
    return listening


def main():
    settings = Settings.from_arguments()
    logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s: %(message)s")
    if settings.log_level == "info":
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # tells of every WebSocket, and of every malformed request
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # the client is told
    try:
        listening = listen(settings)
    except OSError as error:
        sys.exit(f"{settings.host}:{settings.port}: {error.strerror}; --port chooses another one")
    failures = []

    def on_fatal(message):
        failures.append(message)
        server.should_exit = True

    application = create_app(settings, on_fatal)
    door = connection.Door(settings, application.state.front.metrics)
    server = Server(uvicorn.Config(
        application, log_config=None, access_log=False, server_header=False, backlog=ACCEPTED,
        http=functools.partial(connection.Connection, door), ws=connection.Messages,
        ws_ping_interval=settings.ping_interval or None, ws_ping_timeout=30,
        ws_max_size=settings.max_recording * 4 // 3 + (1 << 20), ws_per_message_deflate=False, timeout_graceful_shutdown=5))
    server.front = application.state.front
    host, port = listening.getsockname()[:2]
    print(f"qtts-serve: http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
    server.run(sockets=[listening])
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
