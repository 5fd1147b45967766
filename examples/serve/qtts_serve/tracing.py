# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names that an answer and the log lines of one request share: `x-request-id`, and `traceparent` of W3C Trace Context."""
import contextvars
import dataclasses
import functools
import logging
import re
import secrets

from starlette.datastructures import Headers

# No white space, quote or %: an id is written into log lines as it is.
REQUEST_ID = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,128}")
TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# Flags of versions to come mean nothing here and are not passed on: sampled, and random trace id.
KNOWN_FLAGS = 0x03

_current = contextvars.ContextVar("request", default=None)


@dataclasses.dataclass(frozen=True)
class Request:
    id: str
    trace: str
    traceparent: str

    @classmethod
    def of(cls, headers):
        """Takes the client's names; another id or a new trace where one is absent, malformed, or there more than once."""
        ids, traces = headers.getlist("x-request-id"), headers.getlist("traceparent")
        new = secrets.token_hex(16 + 16 + 8)  # one call of the system
        own = ids[0] if len(ids) == 1 and REQUEST_ID.fullmatch(ids[0]) else new[:32]
        trace, parent, flags = (parse(traces[0]) if len(traces) == 1 else None) or (new[32:64], new[64:], 0)
        return cls(own, trace, f"00-{trace}-{parent}-{flags:02x}")

    def headers(self):
        return {"x-request-id": self.id, "traceparent": self.traceparent}


def parse(traceparent):
    """Trace id, parent id and flags of a valid `traceparent`, else None. Versions to come may have more at the end."""
    match = TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, parent, flags, more = match.groups()
    if version == "ff" or version == "00" and more or not int(trace, 16) or not int(parent, 16):
        return None
    return trace, parent, int(flags, 16) & KNOWN_FLAGS


class _Lazy:
    """The Request of a scope, made when somebody asks: before that, the engine gets the text."""

    def __init__(self, scope):
        self._scope = scope

    @functools.cached_property
    def request(self):
        return Request.of(Headers(scope=self._scope))


def current():
    """The request that the current task belongs to; None outside of requests."""
    lazy = _current.get()
    return lazy and lazy.request


class Tracing:
    """Gives every request its Request: for current(), and in the headers of its answer."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        lazy = _Lazy(scope)

        async def send_with_headers(message):
            if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
                own = ((name.encode(), value.encode()) for name, value in lazy.request.headers().items())
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        token = _current.set(lazy)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            _current.reset(token)


class InLogLines(logging.Filter):
    """Ends each line of a request with its ids."""

    def filter(self, record):
        request = current()
        if request is not None:
            record.msg = f"{record.msg} (request {request.id}, trace {request.trace})"
        return True
