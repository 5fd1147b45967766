# SPDX-License-Identifier: LGPL-2.1-or-later
"""POST /v1/audio/speech: a text, whole; its sound is streamed. GET with the fields in the address, for programs that
can only fetch."""
import asyncio
import base64
import json
import logging

from starlette.datastructures import Headers, QueryParams
from starlette.formparsers import MultiPartException, MultiPartParser

from . import encoders, fields
from .errors import ApiError, bad_field
from .utterance import Utterance

log = logging.getLogger("qtts_serve")

SLACK = 64 << 10  # bytes of a body beside its text and its recording


class Gone(Exception):
    """The client left in the midst of its request."""


class Speech:
    """The route, as an ASGI application."""

    def __init__(self, front):
        self._front = front

    async def __call__(self, scope, receive, send):
        answer = Answer(self._front, send)
        request = asyncio.current_task()
        gone = False

        async def watch():
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            if not answer.complete:  # after a whole answer the server tells of a disconnect too
                gone = True
                answer.cancel()
                request.cancel()

        watcher = None
        try:
            with self._front.session("http"):
                wishes = fields.read_request(await self._read(scope, receive), self._front.settings, self._front.catalogue)
                self._check_fingerprint(wishes, Headers(scope=scope))
                watcher = asyncio.create_task(watch())
                await answer.speak(wishes)
        except ApiError as error:
            await answer.refuse(error)
        except Gone:
            gone = True
        except asyncio.CancelledError:
            if not gone:
                raise
            request.uncancel()
        finally:
            if watcher is not None:
                watcher.cancel()
            self._front.metrics.requests.labels("speech", "499" if gone else str(answer.status)).inc()

    async def _read(self, scope, receive):
        """The fields."""
        if scope["method"] == "HEAD":
            raise ApiError(405, "Nothing is spoken without being sent: GET or POST it.")
        if scope["method"] == "GET":
            return fields.read_strings(QueryParams(scope["query_string"]).multi_items())
        headers = Headers(scope=scope)
        try:
            async with asyncio.timeout(self._front.settings.slow_reader):
                if headers.get("content-type", "").startswith("multipart/form-data"):
                    return await _read_form(headers, self._parts(receive))
                return fields.read_json(b"".join([part async for part in self._parts(receive)]))
        except ValueError as error:
            raise ApiError(400, f"The request is not JSON: {error}.", code="invalid_json") from None
        except TimeoutError:
            raise ApiError(408, "The request did not come to its end in time.", code="timeout") from None

    async def _parts(self, receive):
        """Of the body, as far as it is not too long."""
        settings = self._front.settings
        most = settings.max_recording * 4 // 3 + settings.max_characters * 12 + SLACK
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            size += len(message.get("body", b""))
            if size > most:
                raise ApiError(413, f"The request has more than {most} bytes.", code="too_long")
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return

    def _check_fingerprint(self, wishes, headers):
        """Going on in mid-utterance is exact only where everything is the same."""
        own, given = self._front.model["fingerprint"], headers.get("x-qtts-fingerprint")
        if wishes.start_frame and given != own:
            raise ApiError(409, f"This replica's fingerprint is {own}, not {given}: the rest would not fit. Begin anew, or "
                                "ask a replica with the same model, device and precision.", "start_frame", "other_replica")


class Answer:
    """The response to one request: headers when the first sound is there, then sound, or an error."""

    def __init__(self, front, send):
        self._front = front
        self._send = send
        self._utterance = None
        self.status = 0  # none was sent
        self.complete = False  # the last chunk was sent

    def cancel(self):
        """The client is gone: stops the engine at once."""
        if self._utterance is not None:
            self._utterance.cancel()

    async def speak(self, wishes):
        with wishes.with_recording() as settings:
            self._utterance = Utterance(self._front, "http", "whole")
            async with self._utterance as utterance:
                utterance.say(wishes.text, settings)
                encoder = encoders.make(wishes.response_format)
                try:
                    await self._stream(utterance, encoder, wishes)
                finally:
                    encoder.close()

    async def _stream(self, utterance, encoder, wishes):
        async for sound in utterance.sound(wishes.pace, wishes.start_frame):
            if self.status == 0:
                await self._start(utterance, wishes)
            await self._write(wishes, await encoder.encode(sound))
        if utterance.cancelled:
            return
        if self.status == 0:  # the break was at the end
            await self._start(utterance, wishes)
        spoken = utterance.spoken
        if spoken.finished == "error":
            # The body ends without its last chunk, by which a client sees that sound is missing.
            log.error("an utterance broke off: %s", spoken.problem)
            if not wishes.events:
                return
            await self._event(ApiError(500, spoken.problem, code="engine_failed").body() | {"type": "speech.audio.error"})
        else:
            await self._write(wishes, await encoder.finish())
            if wishes.events:
                characters = len(wishes.text)
                await self._event({"type": "speech.audio.done", "reason": spoken.finished, "frames": spoken.frames, "usage": {
                    "input_tokens": characters, "output_tokens": spoken.frames, "total_tokens": characters + spoken.frames}})
        await self._body(b"", more=False)

    async def refuse(self, error):
        if self.status:
            return
        error.log()
        self.status = error.status
        body = json.dumps(error.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self._front.headers(),
                   **error.headers()}
        await self._send({"type": "http.response.start", "status": error.status, "headers": _encoded(headers)})
        await self._body(body, more=False)

    async def _start(self, utterance, wishes):
        self.status = 200
        media_type = "text/event-stream" if wishes.events else encoders.FORMATS[wishes.response_format][0]
        headers = {"content-type": media_type, "x-qtts-seed": str(utterance.spoken.seed),
                   "x-qtts-queue-ms": str(round(utterance.waited * 1000)), "cache-control": "no-store",
                   **self._front.headers()}
        if ignored := self._front.ignored(wishes):
            headers["x-qtts-ignored"] = ", ".join(ignored)
        await self._send({"type": "http.response.start", "status": 200, "headers": _encoded(headers)})

    async def _write(self, wishes, data):
        if data and wishes.events:
            await self._event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
        elif data:
            await self._body(data)

    async def _event(self, event):
        await self._body(f"data: {json.dumps(event)}\n\n".encode())

    async def _body(self, data, more=True):
        self.complete = not more
        try:
            async with asyncio.timeout(self._front.settings.slow_reader):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            log.warning("a client read nothing for %g s; its request is ended", self._front.settings.slow_reader)
            self.cancel()


def _encoded(headers):
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


async def _read_form(headers, stream):
    """A form as fields; a recording as a data URL."""
    try:
        form = await MultiPartParser(headers, stream, max_files=1, max_fields=40, max_part_size=1 << 20).parse()
    except MultiPartException as error:
        raise ApiError(400, f"The form cannot be read: {error.message}.", code="invalid_form") from None
    pairs = []
    for name, value in form.multi_items():
        if not isinstance(value, str):
            if name != "ref_audio":
                raise bad_field(name, 'may not be a file; only "ref_audio" may.')
            recording = base64.b64encode(await value.read()).decode()
            value = f"data:{value.content_type or 'application/octet-stream'};base64,{recording}"
        pairs.append((name, value))
    return fields.read_strings(pairs)
