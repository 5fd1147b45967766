# SPDX-License-Identifier: LGPL-2.1-or-later
"""Garbage that refers to itself: what connections leave, and when it is looked for."""
import asyncio
import collections
import functools
import gc
import socket
import struct
import types
import unittest.mock

import pytest
import uvicorn
import websockets.sync.client

from qtts_serve import garbage
from qtts_serve.connection import Connection, Door, Messages
from qtts_serve.garbage import Garbage

CONNECTIONS = 20
REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"


async def application(scope, receive, send):
    """Answers a request, or the messages of a WebSocket."""
    await receive()
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"sound"})
        return
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": "sound"})


def ask(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(REQUEST)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += connection.recv(1000)


def ask_in_part(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(REQUEST[:10])


def ask_and_break_off(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(REQUEST)
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # with a reset


def talk(port):
    with websockets.sync.client.connect(f"ws://127.0.0.1:{port}") as connection:
        connection.send("text")
        assert connection.recv() == "sound"


def is_servers(thing):
    """Whether it belongs to a connection of the server."""
    module = type(thing).__module__
    return module.startswith(("qtts_serve.", "uvicorn.", "asyncio.", "websockets.server")) or isinstance(thing, Connection)


@pytest.mark.parametrize("load", [ask, ask_in_part, ask_and_break_off, talk])
def test_a_lost_connection_leaves_no_garbage_that_refers_to_itself(load):
    settings = types.SimpleNamespace(header_timeout=60, most_connections=100, most_connections_of_address=100)
    door = Door(settings, unittest.mock.MagicMock())
    lost = []

    class Noted(Connection):
        def connection_lost(self, error):
            super().connection_lost(error)
            lost.append(None)

    async def use(port, times):
        want = len(lost) + times
        for _ in range(times):
            await asyncio.to_thread(load, port)
        while len(lost) < want:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # the application ends, too

    async def main():
        server = uvicorn.Server(uvicorn.Config(application, host="127.0.0.1", port=0, lifespan="off", log_config=None,
                                               http=functools.partial(Noted, door), ws=Messages, ws_per_message_deflate=False))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        await use(port, 1)  # makes what is made once
        gc.collect()
        gc.disable()
        try:
            await use(port, CONNECTIONS)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return collections.Counter(type(thing).__qualname__ for thing in gc.garbage if is_servers(thing))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
            server.should_exit = True
            await serving

    left = asyncio.run(asyncio.wait_for(main(), 60))
    assert not left, left


# --- when it is looked for

class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def collected():
    """Generations that were collected, in turn."""
    generations = []
    with unittest.mock.patch.object(garbage.gc, "collect", lambda generation=2: generations.append(generation)), \
            unittest.mock.patch.object(garbage.gc, "freeze"), unittest.mock.patch.object(garbage, "YOUNG", 0.001):
        yield generations
    assert gc.isenabled()


def test_young_objects_are_looked_at_often_and_all_when_nobody_speaks(collected):
    async def main():
        clock = Clock()
        collector = Garbage(clock)
        collector.rest()
        assert collected == []  # not before the start
        collector.start()
        assert not gc.isenabled() and collected == [2]
        collector.rest()
        while len(collected) < 4:
            await asyncio.sleep(0.001)
        assert set(collected[1:]) == {1}
        clock.now += garbage.FULL + 1
        collector.rest()
        while 2 not in collected[1:]:
            await asyncio.sleep(0.001)
        collector.rest()
        await asyncio.sleep(0.005)
        assert collected[1:].count(2) == 1
        collector.stop()
        count = len(collected)
        await asyncio.sleep(0.005)
        assert len(collected) == count

    asyncio.run(main())


def test_all_objects_are_looked_at_once_an_hour_even_if_somebody_speaks(collected):
    async def main():
        clock = Clock()
        collector = Garbage(clock)
        collector.start()
        for _ in range(3):
            clock.now += garbage.OVERDUE + 1
            full = collected.count(2)
            while collected.count(2) == full:
                await asyncio.sleep(0.001)
        while collected[-3:] != [1, 1, 1]:
            await asyncio.sleep(0.001)
        assert collected.count(2) == 4
        collector.stop()

    asyncio.run(main())
