# SPDX-License-Identifier: LGPL-2.1-or-later
"""The ASGI application: create_app(). One engine for each process, so one process for each GPU."""
import asyncio
import contextlib
import logging
import pathlib

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from .access import Access, page_policy
from .errors import ApiError, mistake
from .front import Front
from .settings import Settings
from .speaker import Gst
from .speech_route import Speech
from .stream_route import Stream
from .tracing import InLogLines, Tracing

PAGE = pathlib.Path(__file__).parents[1] / "page.html"
LOOPBACK = ("127.0.0.1", "::1")

log = logging.getLogger("qtts_serve")
log.addFilter(InLogLines())


def create_app(settings=None, on_fatal=None):
    """`settings`: those of the environment, if None. `on_fatal`: see Front. The front is app.state.front.

    The model is loaded in the background; until then requests are refused with 503. `await front.loaded()` waits.
    """
    settings = settings or Settings.from_environment()
    Gst.init(None)

    @contextlib.asynccontextmanager
    async def lifespan(application):
        loading = asyncio.create_task(application.state.front.load())
        yield
        loading.cancel()
        application.state.front.close()

    front = Front(settings, on_fatal)
    routes = _Routes(front)
    middleware = [Middleware(Access, settings)]
    if settings.origins:
        # Without credentials: a gateway's log-in is no business of other sites' pages.
        middleware.append(Middleware(CORSMiddleware, allow_origins=settings.origins, allow_methods=["*"], allow_headers=["*"],
                                     allow_private_network=True,
                                     expose_headers=["x-qtts-seed", "x-qtts-replica", "x-qtts-fingerprint", "x-qtts-queue-ms",
                                                     "x-qtts-ignored", "x-request-id", "traceparent", "retry-after",
                                                     "content-range"]))
    handlers = {HTTPException: _on_http_exception, Exception: _on_mistake}
    application = _Application(middleware=middleware, lifespan=lifespan, exception_handlers=handlers, routes=[
        Route("/v1/audio/speech", Speech(front), methods=["GET", "HEAD", "POST"]),
        WebSocketRoute("/v1/audio/speech/stream", Stream(front)),
        Route("/v1/audio/voices", routes.voices),
        Route("/v1/models", routes.models),
        Route("/v1/models/{name:path}", routes.one_model),
        Route("/health/live", routes.live),
        Route("/health/ready", routes.ready),
        Route("/metrics", routes.metrics),
        Route("/drain", routes.drain, methods=["POST"]),
        Route("/load", routes.load),
        Route("/", routes.page),
    ])
    application.state.front = front
    return application


class _Application(Starlette):
    def build_middleware_stack(self):
        """Tracing is outside of everything, so that also the answer to a mistake has its headers."""
        return Tracing(super().build_middleware_stack())


class _Routes:
    """The small ones."""

    def __init__(self, front):
        self._front = front
        self._draining = None
        self._page = PAGE.read_bytes()
        self._page_headers = {"content-security-policy": page_policy(self._page), "referrer-policy": "no-referrer",
                              "cache-control": "no-cache"}

    async def voices(self, _request):
        """`aliases`: those of `voices` that are other names, each with the voice that it is; null for a model's one voice.
        `default`: the voice of a request that names none; null likewise. `styles`: those of voices that have several takes."""
        catalogue = self._front.catalogue
        return JSONResponse({"voices": list(dict.fromkeys([*catalogue.speakers, *catalogue.aliases])),
                             "default": self._front.model.get("voice"), "aliases": catalogue.aliases,
                             "styles": catalogue.styles, "languages": self._front.model.get("languages", [])})

    async def models(self, _request):
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self._front.catalogue.models]})

    async def one_model(self, request):
        name = request.path_params["name"]
        if name not in self._front.catalogue.models:
            error = ApiError(404, f"The model {name[:100]!r} is not served here; {', '.join(self._front.catalogue.models)} is.",
                             "model", "model_not_found")
            return JSONResponse(error.body(), 404)
        return JSONResponse(self._model(name))

    def _model(self, name):
        """`root`: the name of the model that this name stands for; `device`: on which it runs, null while it is loaded."""
        front = self._front
        return {"id": name, "object": "model", "created": 0, "owned_by": "qttssrc", "root": front.settings.names[0],
                "device": front.model.get("device")}

    async def live(self, _request):
        front = self._front
        if front.device_lost or front.failure:
            return JSONResponse({"live": False, "reason": front.failure}, 503)
        return JSONResponse({"live": True})

    async def ready(self, _request):
        front = self._front
        reason = front.failure or ("draining" if front.draining else "" if front.ready else "loading")
        ready = front.answer_balancer()
        return JSONResponse({"ready": ready, **({"reason": reason} if reason else {})}, 200 if ready else 503)

    async def load(self, _request):
        """For the page: what is going on now."""
        front = self._front
        return JSONResponse({"slots": front.slots.total, "busy": front.busy, "waiting": front.waiting,
                             "sessions": front.sessions, "sessions_limit": front.settings.sessions})

    async def metrics(self, _request):
        return Response(self._front.metrics.text(), media_type="text/plain; version=0.0.4")

    async def drain(self, request):
        if request.client is None or request.client.host not in LOOPBACK or "x-forwarded-for" in request.headers:
            return JSONResponse(ApiError(404, "Only this machine may drain.").body(), 404)
        self._draining = self._draining or asyncio.create_task(self._front.drain())
        return JSONResponse({"draining": True}, 202)

    async def page(self, _request):
        return Response(self._page, media_type="text/html", headers=self._page_headers)


async def _on_mistake(_request, _exception):
    """The exception is logged by who runs this application; this line says which request it was."""
    log.error("a request failed: a mistake in this program")
    return JSONResponse(mistake().body(), 500)


async def _on_http_exception(_request, exception):
    """Starlette's own errors, in OpenAI's form."""
    body = {"error": {"message": exception.detail, "type": "invalid_request_error", "param": None, "code": None}}
    return JSONResponse(body, exception.status_code, exception.headers)
