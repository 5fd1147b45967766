# SPDX-License-Identifier: LGPL-2.1-or-later
"""The front of examples/serve as a Ray Serve application: one replica a card.

fleet.yaml names `application` here. The front, its routes and its limits are those of one machine; this file adds only
what Ray asks of a deployment: build the app in the replica, say when the card is lost, and report slots to scale by.
"""
import asyncio
import math

import ray
from qtts_serve.app import create_app
from qtts_serve.settings import Settings
from ray import serve
from uvicorn.protocols.websockets import auto


# Ray lets a replica that ends be reached for 30 s, until no HAProxy sends it anything; only then the front may refuse.
UNREACHED = 20  # seconds
ASK = 2  # seconds between two questions


class BehindHaproxy:
    """The front as HAProxy and Ray need it.

    It has no connection that stays: HAProxy would send others over connections to a replica that has just died, and those
    are lost, where one that cannot be connected goes to another replica. A new one takes a fraction of a millisecond.

    Ray tells balancers that a replica ends, and not the application; so it asks as they do. Without that, sessions would
    be cut when Ray's patience ends; told, the front closes them after their utterance.

    Ray gives every request an `x-request-id`, and every answer over HTTP the same one; the front's own is left out then.
    """

    def __init__(self, application):
        self._application = application
        self._watch = None

    async def __call__(self, scope, receive, send):
        if self._watch is None and scope["type"] != "lifespan":
            self._watch = asyncio.create_task(self._drain_with_ray(scope["server"][1]))

        async def closing(message):
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", [])
                           if header[0] != b"x-request-id" or header not in scope["headers"]]
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        await self._application(scope, receive, closing if scope["type"] == "http" else send)

    async def _drain_with_ray(self, port):
        while await reachable(port):
            await asyncio.sleep(ASK)
        await asyncio.sleep(UNREACHED)
        await self._application.state.front.drain()


class Session(auto.AutoWebSocketsProtocol):
    """A WebSocket in uvicorn, which Ray starts with the protocol that uvicorn chooses.

    Ray stops listening 30 s after it told balancers, and lets requests come to their end. uvicorn, told to stop listening,
    closes WebSockets at once. Here the front closes them, after their utterance.
    """

    def shutdown(self):
        if not self.handshake_complete:
            super().shutdown()


async def reachable(port):
    """Whether Ray tells balancers to send requests to this replica."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /-/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()


@serve.deployment(name="Voice")
@serve.ingress()
class Voice:
    def __init__(self, settings: dict):
        context = serve.get_replica_context()
        replica = f"{ray.util.get_node_ip_address()}-{context.replica_id.unique_id}"
        self.settings = Settings(**{"drain_delay": 0, **settings, "replica": replica})

    def __serve_build_asgi_app__(self):
        auto.AutoWebSocketsProtocol = Session
        self.front_app = create_app(self.settings)
        return BehindHaproxy(self.front_app)

    async def check_health(self) -> None:
        """Ray asks before it sends the first request, and every few seconds. A replica that has lost its card is
        replaced: only a new process can use the card again."""
        front = self.front_app.state.front
        await front.loaded()
        if front.device_lost:
            raise RuntimeError("the GPU is lost to this process")

    def record_autoscaling_stats(self) -> dict[str, float]:
        front = self.front_app.state.front
        return {"busy": float(front.busy + front.waiting), "slots": float(front.slots.total)}


def by_busy_slots(context, target: float = 0.7):
    """Replicas so that of all slots the share `target` is busy; utterances that wait for a slot count as busy."""
    metrics = context.aggregated_metrics or {}
    busy = metrics.get("busy", {})
    slots = metrics.get("slots", {})
    wanted = context.target_num_replicas
    if slots:
        wanted = math.ceil(sum(busy.values()) / (target * sum(slots.values()) / len(slots)))
    least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
    return max(least, min(most, wanted)), {}


def application(arguments: dict):
    """Makes the Settings of the front from `args` of fleet.yaml."""
    return Voice.bind(arguments)
