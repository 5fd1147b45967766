# SPDX-License-Identifier: LGPL-2.1-or-later
"""POST /v1/audio/speech: a text, whole; its sound is streamed. GET with the fields in the address, for programs that
can only fetch; HEAD, for those that look before."""
import asyncio
import base64
import contextlib
import functools
import json
import logging

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from . import fields, formats, ranges, tracing
from .errors import ApiError, bad_field
from .extensions import HOLD_NEXT, TRAILERS
from .off_loop import off_loop
from .patience import within
from .utterance import Utterance

log = logging.getLogger("qtts_serve")

SLACK = 64 << 10  # bytes of a body beside its text and its recording
# Bytes of a form that its parser gets at once: a form that is made to be slow takes a millisecond for them.
PIECE = 8 << 10
WRITE = 64 << 10  # bytes of a part that are written at once


# A request that is not read to its end ends its connection.
CLOSE = {"connection": "close"}


class Gone(Exception):
    """The client left in the midst of its request."""


class Speech:
    """The route, as an ASGI application."""

    def __init__(self, front):
        self._front = front

    async def __call__(self, scope, receive, send):
        answer = Answer(self._front, send, scope.get("extensions", {}))
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
        failed = 500
        try:
            # A place among the sessions is for whoever has asked: slow bodies keep nobody out.
            self._front.admit()
            wishes, headers = await self._read(scope, receive), Headers(scope=scope)
            self._front.check_tokens(wishes.texts)
            self._check_fingerprint(wishes, headers)
            if scope["method"] == "HEAD":
                await answer.head(wishes)
                return
            part = None
            if scope["method"] == "GET" and "range" in headers:
                wishes.settings.setdefault("seed", ranges.seed_of_address(scope["query_string"]))
                part = ranges.Range.of(headers, wishes, ranges.tag(wishes, self._front.model["fingerprint"]))
            with self._front.session("http"):
                watcher = asyncio.create_task(watch())
                await answer.speak(wishes, part)
        except ApiError as error:
            await answer.refuse(error)
        except Gone:
            gone = True
        except asyncio.CancelledError:
            failed = 503
            if not gone:
                raise
            request.uncancel()
        finally:
            if watcher is not None:
                watcher.cancel()
            self._front.metrics.requests.labels("speech", "499" if gone else str(answer.status or failed)).inc()

    async def _read(self, scope, receive):
        """The wishes. ApiError for what makes no sense."""
        settings, catalogue = self._front.settings, self._front.catalogue
        if scope["method"] != "POST":
            return fields.read_request(fields.read_address(scope["query_string"]), settings, catalogue)
        headers = Headers(scope=scope)
        async with contextlib.aclosing(self._parts(receive, headers)) as parts:
            if headers.get("content-type", "").startswith("multipart/form-data"):
                return fields.read_request(await _read_form(headers, parts, settings), settings, catalogue)
            body = b"".join([part async for part in parts])
        return await off_loop(len(body), _read_body, body, settings, catalogue)

    async def _parts(self, receive, headers):
        """Yields the parts of the body. Refuses one that is too long or too slow; bodies of all requests share one limit."""
        settings, loop, front = self._front.settings, asyncio.get_running_loop(), self._front
        most = settings.max_recording * 4 // 3 + settings.max_characters * 12 + SLACK
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            raise _too_long(most)
        size, begin = 0, loop.time()
        try:
            while True:
                try:
                    message = await within(begin + settings.body_timeout + size / settings.body_rate - loop.time(), receive())
                except TimeoutError:
                    raise ApiError(408, f"The request did not come to its end in time: {size} bytes in "
                                        f"{loop.time() - begin:.1f} s.", code="timeout", headers=CLOSE) from None
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                front.take_body(len(part))
                if size > most:
                    raise _too_long(most)
                yield part
                if not message.get("more_body", False):
                    return
        finally:
            front.take_body(-size)

    def _check_fingerprint(self, wishes, headers):
        """Going on in mid-utterance is exact only where everything is the same."""
        own, given = self._front.model["fingerprint"], headers.get("x-qtts-fingerprint")
        if wishes.start_frame and given != own:
            raise ApiError(409, f"This replica's fingerprint is {own}, not {given}: the rest would not fit. Begin anew, or "
                                "ask a replica with the same model, device and precision.", "start_frame", "other_replica")


class Answer:
    """The response to one request: headers when the first sound is there, then sound, or an error."""

    def __init__(self, front, send, extensions):
        self._front = front
        self._send = send
        self._end_with = extensions.get(TRAILERS)  # takes trailers, where the server has them
        self._hold_next = extensions.get(HOLD_NEXT)
        self._utterance = None
        self.status = 0  # none was sent
        self.complete = False  # the last chunk was sent

    def cancel(self):
        """The client is gone: stops the engine at once."""
        if self._utterance is not None:
            self._utterance.cancel()

    async def speak(self, wishes, part=None):
        """The sound as it comes; or a part of it, once all of it is there. Before a client has the end of its answer, the
        request's files and its slot are free."""
        end = None
        with wishes.with_files() as settings:
            self._utterance = Utterance(self._front, "http", "whole", wishes.progress)
            async with self._utterance as utterance:
                utterance.say(wishes.text, settings)
                encoder = await self._front.encoders.make(wishes.response_format, wishes.sample_rate)
                try:
                    end = await (self._make_whole(utterance, encoder, wishes, part) if part or wishes.whole else
                                 self._stream(utterance, encoder, wishes))
                except ApiError as error:
                    # Without events the body ends without its last chunk, by which a client sees that sound is missing.
                    if not (self.status and wishes.events):
                        raise
                    await self._event(error.body() | {"type": "speech.audio.error"})
                    end = functools.partial(self._end, None)
                finally:
                    encoder.close()
        if end is not None:
            await end()

    async def head(self, wishes):
        """The headers of the answer to GET, as far as they are known without speaking."""
        self.status = 200
        await self._send_start(self._encoded({"content-type": _media_type(wishes), **_ranges(wishes)}), followed=False)
        await self._body(b"", more=False)

    async def _make_whole(self, utterance, encoder, wishes, part):
        """Returns what sends all of the sound, a part of it, or an object with it. None if nothing is to be sent."""
        sound = bytearray()
        async for piece in utterance.sound(0, wishes.start_frame):
            sound += await encoder.encode(piece)
        if utterance.cancelled:
            return None
        spoken = utterance.spoken
        if spoken.finished == "error":
            raise ApiError(500, spoken.problem, code="engine_failed")
        sound += await encoder.finish()
        if wishes.response_format == "wav":  # whose length is known by now
            sound[:formats.WAV_HEADER] = formats.wav_header(len(sound) - formats.WAV_HEADER, wishes.sample_rate)
        if wishes.json:
            return functools.partial(self._send_at_once, _object(wishes, spoken, sound),
                                     self._headers(utterance, wishes) | _seed(spoken))
        headers = self._headers(utterance, wishes) | _seed(spoken) | _summary(spoken)
        if not part:
            return functools.partial(self._send_at_once, sound, headers)
        first, last = part.cut(len(sound))
        return functools.partial(self._send_at_once, sound[first:last + 1], {
            **headers, "content-range": f"bytes {first}-{last}/{len(sound)}",
            "etag": ranges.tag(wishes, self._front.model["fingerprint"])}, 206)

    async def _send_at_once(self, body, headers, status=200):
        self.status = status
        await self._send_start(self._encoded({**headers, "content-length": str(len(body))}), followed=bool(body))
        for begin in range(0, len(body), WRITE):
            if self._utterance.cancelled:
                return
            await self._body(bytes(body[begin:begin + WRITE]), more=begin + WRITE < len(body))

    async def _stream(self, utterance, encoder, wishes):
        """Sends the sound as it comes. Returns what ends the answer; None if the client is gone. ApiError if the utterance
        breaks off."""
        # Made while the engine makes the first sound, which is not to wait for them.
        tracing.current()
        headers = self._headers(utterance, wishes)
        if self._end_with is not None and not wishes.events:
            headers["trailer"] = ", ".join(_summary(utterance.spoken))
        headers = self._encoded(headers)
        async for sound in utterance.sound(wishes.pace, wishes.start_frame, encoder.held):
            data = await encoder.encode(sound)
            if self.status == 0:
                await self._start(utterance, headers, followed=bool(data))
            await self._send_words(utterance, wishes)
            await self._write(wishes, data)
        if utterance.cancelled:
            return None
        if self.status == 0:  # the break was at the end
            await self._start(utterance, headers)
        spoken = utterance.spoken
        if spoken.finished == "error":
            log.error("an utterance broke off: %s", spoken.problem)
            raise ApiError(500, spoken.problem, code="engine_failed")
        await self._send_words(utterance, wishes)
        await self._write(wishes, await encoder.finish())
        if wishes.events:
            characters = len(wishes.text)
            await self._event({"type": "speech.audio.done", **spoken.summary(), "usage": {
                "input_tokens": characters, "output_tokens": spoken.frames, "total_tokens": characters + spoken.frames}})
        return functools.partial(self._end, None if wishes.events else _summary(spoken))

    async def _end(self, trailers):
        if self._end_with is not None and trailers:
            self._end_with(trailers)
        await self._body(b"", more=False)

    async def refuse(self, error):
        if self.status:
            return
        error.log()
        self.status = error.status
        body = json.dumps(error.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self._front.headers(),
                   **error.headers()}
        await self._send({"type": "http.response.start", "status": error.status, "headers": _encode(headers)})
        await self._body(body, more=False)

    async def _start(self, utterance, headers, followed=False):
        self.status = 200
        await self._send_start([*headers, *_encode(_seed(utterance.spoken))], followed)

    def _headers(self, utterance, wishes):
        """Those that are known before there is sound: all but the seed."""
        ignored = self._front.ignored(wishes)
        return {"content-type": _media_type(wishes), "x-qtts-queue-ms": str(round(utterance.waited * 1000)), **_ranges(wishes),
                **({"x-qtts-ignored": ", ".join(ignored)} if ignored else {})}

    async def _send_words(self, utterance, wishes):
        words, utterance.spoken.words = utterance.spoken.words, []
        if wishes.progress:
            for word in words:
                await self._event({"type": "speech.audio.word", **_word(wishes, word)})

    async def _send_start(self, headers, followed):
        """`headers`: encoded. `followed`: a body that is not empty is sent next."""
        if followed and self._hold_next is not None:
            self._hold_next()
        await self._send({"type": "http.response.start", "status": self.status, "headers": headers})

    def _encoded(self, headers):
        """With those that every answer of this route has."""
        return _encode({**headers, "cache-control": "no-store", **self._front.headers()})

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
            await within(self._front.settings.slow_reader,
                         self._send({"type": "http.response.body", "body": data, "more_body": more}))
        except TimeoutError:
            log.warning("a client read nothing for %g s; its request is ended", self._front.settings.slow_reader)
            self.cancel()


def _encode(headers):
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def _seed(spoken):
    return {"x-qtts-seed": str(spoken.seed)}


def _summary(spoken):
    """How an utterance ended, as fields of a header or behind the last chunk."""
    coverage = "unknown" if spoken.coverage is None else f"{spoken.coverage:.4f}"
    return {"x-qtts-reason": spoken.finished, "x-qtts-coverage": coverage, "x-qtts-words-skipped": str(len(spoken.skipped)),
            "x-qtts-words-repeated": str(len(spoken.repeated))}


def _word(wishes, word):
    """A word of the text and its time in the sound, in seconds."""
    offset, length = word["offset"], word["length"]
    return {"word": wishes.text[offset:offset + length], "start": round(word["time"], 4),
            "end": round(word["time"] + word["duration"], 4), "offset": offset, "estimated": word["estimated"]}


def _object(wishes, spoken, sound):
    """The answer in JSON."""
    words = {"words": [_word(wishes, word) for word in spoken.words]} if wishes.progress else {}
    return json.dumps({"audio": base64.b64encode(sound).decode(), "format": wishes.response_format,
                       "sample_rate": wishes.sample_rate, "seed": spoken.seed, **spoken.summary(), **words}).encode()


def _media_type(wishes):
    if wishes.json:
        return "application/json"
    return "text/event-stream" if wishes.events else formats.media_type(wishes.response_format, wishes.sample_rate)


def _ranges(wishes):
    return {"accept-ranges": "bytes" if ranges.are_possible(wishes) else "none"}


def _too_long(most):
    return ApiError(413, f"The request has more than {most} bytes.", code="too_long")


def _read_body(body, settings, catalogue):
    try:
        given = fields.read_json(body)
    except ValueError as error:
        raise ApiError(400, f"The request is not JSON: {error}.", code="invalid_json") from None
    return fields.read_request(given, settings, catalogue)


async def _read_form(headers, parts, settings):
    """A form as fields; a recording as bytes."""
    async def pieces():
        async for part in parts:
            for begin in range(0, len(part), PIECE):
                yield part[begin:begin + PIECE]
                await asyncio.sleep(0)

    try:
        form = await MultiPartParser(headers, pieces(), max_files=1, max_fields=fields.MOST_FIELDS,
                                     max_part_size=settings.max_characters * 4 + SLACK).parse()
    except MultiPartException as error:
        raise ApiError(400, f"The form cannot be read: {error.message}.", code="invalid_form") from None
    pairs = []
    for name, value in form.multi_items():
        if not isinstance(value, str):
            if name != "ref_audio":
                raise bad_field(name, 'may not be a file; only "ref_audio" may.')
            value = await value.read()
        pairs.append((name, value))
    return fields.read_strings(pairs)
