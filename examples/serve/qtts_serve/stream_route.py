# SPDX-License-Identifier: LGPL-2.1-or-later
"""GET /v1/audio/speech/stream: a WebSocket with vLLM-Omni's messages, for utterances one after the other, whose text may
come in pieces while they are spoken."""
import asyncio
import collections
import contextlib
import itertools
import json
import logging

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from . import fields, formats, tracing
from .errors import ApiError, mistake
from .off_loop import off_loop
from .patience import within
from .utterance import Cancelled, Utterance

log = logging.getLogger("qtts_serve")

GOING_AWAY, POLICY_VIOLATION, FAILED, TRY_AGAIN = 1001, 1008, 1011, 1013
# Messages in a row that make no sense; then the session is ended.
MOST_MISTAKES = 100
# Without session.config: sound as it comes.
DEFAULT = {"response_format": "pcm", "stream_audio": True}
# Utterances whose text came while another was spoken.
MOST_WAITING = 64
# Numbers for the utterances of this process.
NUMBERS = itertools.count(1)


class Turn:
    """An utterance of a session. Its text is open until input.done, also when it has failed before: what still comes
    belongs to it, and is not one more utterance."""

    def __init__(self, index, wishes):
        self.index = index
        self.wishes = wishes
        self.pieces = []  # of text, until the engine has it
        self.text = ""  # the beginning that was there when its turn came
        self.leading = 0  # white space at the beginning
        self.characters = 0
        self.tail = ""  # the last characters, as many as a part may have; without parts all
        self.text_ended = False
        self.over = False  # nothing more is spoken of it
        self.cancelled = False
        self.waiting = None  # the Utterance, from the time when it waits for a slot
        self.utterance = None  # the same, from the time when it takes text
        self.changed = asyncio.Event()

    def add(self, text):
        self.characters += len(text)
        if self.utterance is not None:
            self.utterance.add(text)
        else:
            self.pieces.append(text)
            self.changed.set()

    def end_text(self):
        self.text_ended = True
        self.changed.set()
        if self.utterance is not None:
            self.utterance.end_text()

    def cancel(self):
        self.cancelled = self.text_ended = True
        self.changed.set()
        if self.waiting is not None:
            self.waiting.cancel()

    @property
    def blank(self):
        return not any(piece.strip() for piece in self.pieces)


class Stream:
    """The route, as an ASGI application."""

    def __init__(self, front):
        self._front = front

    async def __call__(self, scope, receive, send):
        socket = WebSocket(scope, receive, send)
        code = 101
        try:
            with self._front.session("websocket"):
                await socket.accept()
                await Session(self._front, socket).run()
        except ApiError as error:
            code = error.status
            error.log()
            await socket.send_denial_response(JSONResponse(error.body(), error.status, error.headers()))
        except Exception:
            code = 500
            raise
        finally:
            self._front.metrics.requests.labels("stream", str(code)).inc()


class Session:
    """One connection."""

    def __init__(self, front, socket):
        self._front = front
        self._socket = socket
        self._wishes = fields.read_session(DEFAULT, front.settings, front.catalogue)
        self._turns = collections.deque()  # the first is being spoken
        self._more = asyncio.Event()
        self._open = None  # the turn that text goes to
        self._timed_out = False  # the last turn was ended because its text was late: its input.done is still to come
        self._count = 0

    async def run(self):
        tasks = [asyncio.create_task(part()) for part in (self._listen, self._speak_turns, self._leave)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except WebSocketDisconnect:
            pass
        except Exception:
            # The client is told, whatever it was.
            with contextlib.suppress(WebSocketDisconnect):
                await self._send_error(mistake())
            await self._close(FAILED)
            raise
        finally:
            for turn in self._turns:
                turn.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- from the client

    async def _listen(self):
        mistakes = 0  # in a row
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                for turn in self._turns:
                    turn.cancel()
                return
            try:
                if await self._take(message):
                    return
                mistakes = 0
            except ApiError as error:
                await self._send_error(error)
                mistakes += 1
                if mistakes == MOST_MISTAKES:
                    await self._close(POLICY_VIOLATION)
                    return
            # Messages that have come already would be taken one after the other, and nothing else be done.
            await asyncio.sleep(0)

    async def _take(self, message):
        """Does what a message says. Returns whether the session is over."""
        text = message.get("text") or ""
        try:
            content = await off_loop(len(text), fields.read_json, text)
        except ValueError:
            raise ApiError(400, "A message has to be JSON in a text frame.", code="invalid_json") from None
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "session.config":
            if self._turns or self._open:
                raise ApiError(400, "session.config is for between utterances: wait for session.done.", code="invalid_state")
            wishes = await off_loop(len(text), fields.read_session, content, self._front.settings, self._front.catalogue)
            self._front.check_tokens(wishes.texts)
            self._wishes = wishes
        elif kind == "input.text":
            self._take_text(content.get("text"))
        elif kind == "input.done":
            self._take_done()
        elif kind == "input.cancel":
            await self._cancel()
        elif kind == "session.close":
            await self._close(1000)
            return True
        else:
            raise ApiError(400, f"The message type {fields.shown(kind)} is unknown: it may be session.config, input.text, input.done, "
                                "input.cancel, session.close.", "type", "unknown_type")
        return False

    def _take_text(self, text):
        if not isinstance(text, str):
            raise fields.bad_field("text", "has to be a string.")
        if self._open is None:
            if not text:
                return
            self._open_turn()
        turn = self._open
        if turn.over:
            return
        settings, part = self._front.settings, self._front.part_characters
        most = min(settings.max_characters, settings.max_held_characters if turn.wishes.whole else settings.max_characters)
        if turn.characters + len(text) > most:
            self._end_too_long(f"more than {most} characters")
        text = fields.clean(text)
        turn.tail += text
        if not self._front.has_few_tokens(turn.tail) and self._front.tokens_at_once(turn.tail) > settings.max_tokens:
            self._end_too_long(f"more than {settings.max_tokens} tokens of the model at once")
        turn.tail = turn.tail[-part:] if part else turn.tail
        turn.add(text)

    def _end_too_long(self, what):
        self._open.over = True
        self._open.end_text()
        raise ApiError(413, f"The utterance has {what}; the rest is not spoken. Send input.done more often.", "text", "too_long")

    def _open_turn(self):
        if self._front.refusing.is_set():
            raise ApiError(503, "This server is about to end. Ask another one.", code="draining")
        if len(self._turns) > MOST_WAITING:
            raise ApiError(429, f"{MOST_WAITING} utterances of this session wait already.", code="overloaded")
        self._timed_out = False
        self._open = Turn(self._count, self._wishes)
        self._count += 1
        self._turns.append(self._open)
        self._more.set()

    def _take_done(self):
        turn, self._open = self._open, None
        if turn is not None:
            turn.end_text()
        elif self._timed_out:
            self._timed_out = False
        else:  # as vLLM-Omni has it: an utterance without text
            self._open_turn()
            self._take_done()

    async def _cancel(self):
        self._open = None
        self._timed_out = False
        if all(turn.over for turn in self._turns):
            await self._send({"type": "audio.cancelled", "frames": 0, "text_spoken_chars": 0})
        for turn in self._turns:
            turn.cancel()

    # --- to the client

    async def _speak_turns(self):
        while True:
            while not self._turns:
                self._more.clear()
                await self._more.wait()
            turn = self._turns[0]
            try:
                await self._speak(turn)
            except Cancelled:
                await self._send_cancelled(turn, 0, 0)
            except (WebSocketDisconnect, asyncio.CancelledError):
                raise
            except Exception as error:
                if not isinstance(error, ApiError):
                    log.exception("an utterance failed: a mistake in this program")
                    error = mistake()
                await self._send_error(error, turn)
                await self._send({"type": "audio.done", "utterance_index": turn.index, "sentence_index": 0,
                                  "reason": "error", "frames": 0, "total_bytes": 0, "error": True})
            turn.over = True
            # A failed turn takes the rest of its text with it.
            while not turn.text_ended:
                turn.changed.clear()
                await turn.changed.wait()
            await self._send({"type": "session.done", "utterance_index": turn.index,
                              "total_sentences": 0 if turn.blank else 1})
            self._turns.popleft()

    async def _speak(self, turn):
        while turn.blank and not turn.text_ended:
            turn.changed.clear()
            await turn.changed.wait()
        if turn.cancelled:
            await self._send_cancelled(turn, 0, 0)
            return
        if turn.blank:
            return
        turn.waiting = Utterance(self._front, "websocket", "growing", turn.wishes.progress)
        with turn.wishes.with_files() as settings:
            async with turn.waiting as utterance:
                try:
                    await self._speak_with(turn, utterance, settings)
                finally:
                    turn.utterance = None

    async def _speak_with(self, turn, utterance, settings):
        utterance.begin(settings)
        self._give_text(turn, utterance)
        encoder = await self._front.encoders.make(turn.wishes.response_format, turn.wishes.sample_rate)
        try:
            await self._stream(turn, utterance, encoder)
        finally:
            encoder.close()

    def _give_text(self, turn, utterance):
        """The text so far; from now on it goes to the engine as it comes."""
        text = turn.text = "".join(turn.pieces)
        turn.leading = len(text) - len(text.lstrip())  # which the element drops
        utterance.add(text)
        turn.utterance = utterance
        if turn.text_ended:
            utterance.end_text()

    async def _stream(self, turn, utterance, encoder):
        wishes, total, kept = turn.wishes, 0, []

        async def write(data):
            nonlocal total
            total += len(data)
            if data and wishes.whole:
                kept.append(data)
            elif data:
                await self._send_bytes(data)

        began = False
        async for sound in utterance.sound(wishes.pace, held=encoder.held):
            if not began:
                began = True
                await self._send_start(turn, utterance)
            await self._send_words(turn, utterance)
            await write(await encoder.encode(sound))
        spoken = utterance.spoken
        if not turn.text_ended and not utterance.cancelled:
            # The text was late, or the utterance failed.
            self._end_early(turn, spoken)
        if utterance.cancelled:
            await self._send_cancelled(turn, utterance.frames, spoken.spoken_characters, total)
            return
        if spoken.finished == "error":
            await self._send_error(ApiError(500, spoken.problem, code="engine_failed"), turn)
        else:
            await self._send_words(turn, utterance)
            await write(await encoder.finish())
        if kept:
            data = b"".join(kept)
            if wishes.response_format == "wav":  # whose length is known by now
                data = formats.wav_header(len(data) - formats.WAV_HEADER, wishes.sample_rate) + data[formats.WAV_HEADER:]
            await self._send_bytes(data)
        await self._send({"type": "audio.done", "utterance_index": turn.index, "sentence_index": 0, **spoken.summary(),
                          "frames": utterance.frames, "total_bytes": total, "error": spoken.finished == "error"})

    def _end_early(self, turn, spoken):
        """The sound is over and the text is not. After a failure, further text is dropped until its input.done; after an
        utterance that waited too long for text, the next text is a new one."""
        if spoken.finished != "error" and self._open is turn:
            self._open = None
            self._timed_out = True
            turn.end_text()

    async def _send_start(self, turn, utterance):
        request = tracing.current()
        ignored = self._front.ignored(turn.wishes)
        await self._send({"type": "audio.start", "utterance_index": turn.index, "sentence_index": 0,
                          "sentence_text": turn.text, "format": turn.wishes.response_format,
                          "sample_rate": turn.wishes.sample_rate, "channels": 1, "seed": utterance.spoken.seed, "id": f"{self._front.settings.replica}-{next(NUMBERS)}",
                          "request_id": request.id, "traceparent": request.traceparent,
                          **({"ignored": ignored} if ignored else {})})

    async def _send_words(self, turn, utterance):
        words, utterance.spoken.words = utterance.spoken.words, []
        if turn.wishes.progress:
            for word in words:
                await self._send({"type": "audio.progress", "utterance_index": turn.index, **word,
                                  "offset": word["offset"] + turn.leading})

    async def _send_cancelled(self, turn, frames, characters, total=0):
        await self._send({"type": "audio.cancelled", "utterance_index": turn.index, "frames": frames,
                          "text_spoken_chars": characters})
        await self._send({"type": "audio.done", "utterance_index": turn.index, "sentence_index": 0,
                          "reason": "interrupted", "frames": frames, "total_bytes": total, "error": False})

    async def _send_error(self, error, turn=None):
        error.log()
        body = error.body()["error"]
        await self._send({"type": "error", **{name: body[name] for name in ("message", "code", "param")},
                          "utterance_index": turn.index if turn else None})

    async def _send(self, message):
        await self._write(self._socket.send_text(json.dumps(message)))

    async def _send_bytes(self, data):
        await self._write(self._socket.send_bytes(data))

    async def _write(self, sending):
        """WebSocketDisconnect where the client is gone, or reads nothing for too long."""
        try:
            await within(self._front.settings.slow_reader, sending)
        except TimeoutError:
            log.warning("a client read nothing for %g s; it is disconnected", self._front.settings.slow_reader)
            await self._close(TRY_AGAIN)
            raise WebSocketDisconnect(TRY_AGAIN) from None

    async def _leave(self):
        """Before the server ends: closes the session after what is being spoken, or when the time for that is over."""
        await self._front.refusing.wait()
        while any(turn.text_ended or not turn.blank for turn in self._turns):
            if self._front.ending:
                for turn in self._turns:
                    turn.cancel()
            await asyncio.sleep(0.02)
        await self._close(GOING_AWAY)

    async def _close(self, code):
        with contextlib.suppress(RuntimeError, TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(1):
                await self._socket.close(code)
