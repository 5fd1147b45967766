# SPDX-License-Identifier: LGPL-2.1-or-later
"""Access: the host names that the server answers to, the web pages that may use it, and the headers that keep its
own page from being misused."""
import base64
import contextlib
import functools
import hashlib
import ipaddress
import re
import socket
import urllib.parse

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from .errors import ApiError

# uri-host and port of RFC 9110, without user names and percent encoding, which no client of this server needs.
AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{0,5})?")
ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
# Host names of requests that are kept with what they are: most requests have one of a few.
HOSTS = 64
# Every answer: a browser takes it for what content-type says, and shows it in no frame of another page.
HEADERS = ((b"x-content-type-options", b"nosniff"), (b"content-security-policy", b"frame-ancestors 'none'"))


def is_origin(text):
    """Whether a browser could send it in `Origin`, in this spelling."""
    return ORIGIN.fullmatch(text) is not None


def is_pattern(text):
    """Whether `text` is a host name, an address, `*.` and a domain, or `*`."""
    return text == "*" or AUTHORITY.fullmatch(text.removeprefix("*.")) is not None and ":" not in text.rpartition("]")[2]


@functools.lru_cache(HOSTS)
def host_of(authority):
    """The host in `Host`, in lower case; None if that is malformed."""
    match = AUTHORITY.fullmatch(authority)
    return match and match[1].lower().removesuffix(".")


@functools.lru_cache(HOSTS)
def is_address(host):
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host.strip("[]")))
    return False


class Names:
    """Names under which this server is asked for: addresses, localhost, the machine's name, and those allowed.

    A page of another site whose name resolves to this server (DNS rebinding) is of the server's own origin for a browser.
    Its name tells them apart. An address cannot be rebound.
    """

    def __init__(self, listening, allowed):
        machine = socket.gethostname().lower()
        self._own = {"localhost", machine, machine.partition(".")[0] + ".local", listening.lower()}
        self._own |= {pattern for pattern in allowed if "*" not in pattern}
        self._domains = tuple(pattern[1:] for pattern in allowed if pattern.startswith("*."))
        self._any = "*" in allowed

    def owns(self, host):
        """Whether `host` is a name that no other site has."""
        return is_address(host) or host in self._own or host.endswith(self._domains or ("\0",))

    def answers(self, host):
        return self._any or self.owns(host)


class Access:
    """ASGI middleware. Refuses a request whose `Host` is not this server's, and pages of other sites.

    By RFC 9112 (3.2), a request without `Host`, with several, or with a malformed one is answered with 400; HTTP/1.0 may
    have none, which no browser sends. By RFC 9110 (15.5.20), one for another host is answered with 421: the server is not
    the one that can answer for it. Programs send no `Origin`.
    """

    def __init__(self, app, settings):
        self._app = app
        self._names = Names(settings.host, settings.hosts)
        self._origins = set(settings.origins)

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message):
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                own = message.get("headers", [])
                given = {name for name, _ in own}
                message = {**message, "headers": [*own, *(header for header in HEADERS if header[0] not in given)]}
            await send(message)

        headers = Headers(scope=scope)
        error = self._refused_host(scope, headers.getlist("host")) or self._refused_page(scope, headers)
        if error is None:
            await self._app(scope, receive, send_with_headers)
            return
        error.log()
        response = JSONResponse(error.body(), error.status)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send_with_headers).send_denial_response(response)
        else:
            await response(scope, receive, send_with_headers)

    def _refused_host(self, scope, hosts):
        if not hosts and scope["http_version"] == "1.0":
            return None
        if len(hosts) != 1:
            return ApiError(400, f"The request has {len(hosts)} Host headers; it needs one.", code="invalid_host")
        host = host_of(hosts[0])
        if host is None:
            return ApiError(400, "The Host header is malformed: it has to be a name or an address, and a port if wanted.",
                            code="invalid_host")
        if not self._names.answers(host):
            return ApiError(421, f'This server does not answer as "{host}". Ask for it by its address, or start it with '
                                 f"--allow-host {host}.", code="unknown_host")
        return None

    def _refused_page(self, scope, headers):
        if "*" in self._origins:
            return None
        origin = headers.get("origin")
        # A browser that only embeds an address sends no Origin.
        embedded = headers.get("sec-fetch-site") == "cross-site" and not origin and scope["path"].startswith("/v1/")
        if embedded or origin and origin not in self._origins and not self._is_own(origin, headers.get("host", "")):
            return ApiError(403, f"Pages of {origin or 'other sites'} may not use this server; --allow-origin lets them.",
                            code="other_site")
        return None

    def _is_own(self, origin, authority):
        """The page of this server, under a name that no other site can take."""
        return urllib.parse.urlsplit(origin).netloc == authority and self._names.owns(host_of(authority) or "")


def page_policy(page):
    """Content-Security-Policy of the page: its own script and style, by their hashes; connections to this server alone."""
    def hashes(tag):
        found = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), page, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'" for part in found)

    return (f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
