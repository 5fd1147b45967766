# SPDX-License-Identifier: LGPL-2.1-or-later
"""One utterance, from its slot to its last frame, as both routes have it."""
import asyncio
import logging
import math
import time

from .errors import ApiError
from .pacing import Pace, Timer
from .speaker import FRAME_BYTES, FRAME_SAMPLES, RATE, frames_of

log = logging.getLogger("qtts_serve")

# A pipeline that does not come to rest within this time after an interrupt is thrown away.
LONGEST_REST = 2.0  # seconds
# Ticks after which the warning that says why an utterance failed has come, if there is one.
LONGEST_WARNING = 50


class Cancelled(Exception):
    """cancel() was called before the utterance had a slot."""


class Utterance:
    """Use it as an asynchronous context: entering waits for a slot, leaving stops the engine and frees everything.

    `protocol` and `layout` are labels of metrics. `tells_words`: gathers `spoken.words`.
    """

    def __init__(self, front, protocol, layout, tells_words=False):
        self._front = front
        self._protocol, self._layout, self._tells_words = protocol, layout, tells_words
        self._asked = time.monotonic()
        self._sleep = None
        self._place = None  # among those who wait for a slot
        self._holds_slot = False
        self._speaker = None
        self._begun = False  # the element has been given text
        self._waits_for_start = False
        self._pace = None
        self._silence = 0.0  # seconds that the listener has waited for the next frame
        self.cancelled = False
        self.growing = False  # more text may come
        self.waited = 0.0  # seconds for a slot
        self._first_sound = 0.0  # seconds from the text to the first sound
        self._samples = 0  # written
        self._noted = 0  # frames of them that metrics have
        self._real_time = True  # somebody listens while it is made

    async def __aenter__(self):
        slots = self._front.slots
        self._place = slots.ask()
        try:
            await self._wait_for_slot()
            self._speaker = self._front.pool.take()
        except BaseException:
            slots.give_up(self._place)
            raise
        self._holds_slot = True
        self.waited = time.monotonic() - self._asked
        # In the next turn of the event loop: by then the element has its text.
        asyncio.get_running_loop().call_soon(self._front.metrics.wait.observe, self.waited)
        self._speaker.on_change, self._speaker.tells_words = self._changed, self._tells_words
        self._front.utterances.add(self)
        return self

    async def _wait_for_slot(self):
        try:
            await self._front.slots.wait(self._place)
        except ApiError:
            self._front.metrics.utterances.labels("refused").inc()
            raise
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():
                raise
        if self.cancelled:
            raise Cancelled

    async def __aexit__(self, *_):
        speaker = self._speaker
        self._front.utterances.discard(self)
        self._note_sound()
        try:
            if self._begun:
                await self._come_to_rest()
                self._count(self.spoken)
        finally:
            self._speaker = None  # which others use from now on
            self._release()
            self._front.pool.give_back(speaker)

    async def _come_to_rest(self):
        """Stops the engine and drops what nobody reads, so that the pipeline can speak again. One that does not come to
        rest is of no more use."""
        speaker = self._speaker
        if not self.spoken.finished:
            speaker.interrupt()
        deadline = time.monotonic() + LONGEST_REST
        try:
            while not speaker.drop() and time.monotonic() < deadline:
                await self._pause(1)
        finally:
            if not speaker.exhausted():
                speaker.broken = speaker.broken or "did not come to rest"

    @property
    def frames(self):
        """Frames of 80 ms that were written. The last one may be shorter, by silence cut from the beginning."""
        return frames_of(self._samples)

    @property
    def spoken(self):
        return self._speaker and self._speaker.spoken

    # --- text

    def say(self, text, settings):
        """The whole text. ApiError 400 if it is refused."""
        self._begin(settings, self._speaker.say, text)
        self._begun = True
        self._front.metrics.characters.inc(len(text))

    def begin(self, settings):
        """Text follows by add(). ApiError 400 if the settings are refused."""
        self._begin(settings, self._speaker.begin)
        self.growing = True

    def _begin(self, settings, function, *arguments):
        self._real_time = settings.get("real-time", True)
        try:
            function(*arguments, settings)
        except BaseException:  # whatever it was, the pipeline waits for text as before
            self._front.metrics.utterances.labels("refused").inc()
            raise

    def add(self, text):
        if not self.spoken.finished:
            self._speaker.add(text)
            self._begun = True
            self._front.metrics.characters.inc(len(text))
            if self._pace is not None:
                self._pace.expect()
            self._wake()

    def end_text(self):
        if self.growing:
            self.growing = False
            self._speaker.end_text()

    def cancel(self):
        """Stops the engine. sound() ends, or the waiting for a slot with Cancelled."""
        self.cancelled = True
        if self._place is not None:
            self._place.cancel()
        if self._speaker is not None and self.spoken is not None and not self.spoken.finished:
            self._speaker.interrupt()
        self._wake()

    # --- sound

    async def sound(self, ahead, start_frame=0, held=0.0):
        """The sound, in pieces of one frame or more, at its pace. `held`: seconds of it that an encoder may keep back.
        ApiError if there is none."""
        speaker, spoken = self._speaker, self.spoken
        pace, skip = Pace(ahead, held), start_frame * FRAME_BYTES
        self._pace = pace
        while not self.cancelled:
            now = time.monotonic()
            frames, piece = [], b""
            if spoken.started:
                # No more at once than is ready, so that others have their turn.
                frames = speaker.pull(speaker.most_ready if skip else min(pace.allowed(now), speaker.most_ready))
                piece = b"".join(frames)
                skipped = min(skip, len(piece))
                skip -= skipped
                piece = piece[skipped:]
            if piece:
                if self._samples == 0:
                    pace.begin(now)
                    self._first_sound = now - self._asked
                self._samples += len(piece) // 2
                pace.frames = self._samples / FRAME_SAMPLES
                self._silence = 0.0
                yield piece
                self._note_sound()
            if speaker.exhausted():
                break
            if not frames and not spoken.finished:
                self._watch_gap(pace, now)
            await self._pause(self._ticks(pace, len(frames), skip), pace.until(), spoken.started)
        if spoken.finished in ("error", "busy"):
            await self._wait_for_problem()
        if self.frames == 0 and not self.cancelled and (start_frame == 0 or start_frame > spoken.frames):
            raise self._no_sound(start_frame)

    def _note_sound(self):
        """Tells metrics of sound that was written, after the write: nobody waits for it then."""
        frames, metrics = self.frames, self._front.metrics
        if frames == self._noted:
            return
        if self._noted == 0:
            metrics.first_frame.observe(self.spoken.first_frame_latency)
            metrics.first_sound.labels(self._protocol, self._layout).observe(self._first_sound)
        metrics.frames.inc(frames - self._noted)
        self._noted = frames

    def _ticks(self, pace, pulled, skip):
        """How long to sleep."""
        if not self.spoken.started:
            return Timer.SLOTS  # a message ends it
        if skip or pulled >= self._speaker.most_ready:  # more was ready than the appsink holds
            return 1
        return pace.pause(time.monotonic(), pulled)

    def _watch_gap(self, pace, now):
        """No frame is ready. Notes silence that is heard, and ends a growing utterance whose text is late for too long."""
        late = pace.late(now) if self.frames else now - self._asked - self._silence
        if late <= 0:
            return
        pace.delay(late)
        if self.frames and self.growing:
            self._front.metrics.stalled.inc(late)
        elif self.frames and self._real_time and self._silence == 0:
            self._front.metrics.underruns.inc()
        self._silence += late
        if self.growing and self._silence > self._front.settings.text_timeout:
            self.end_text()

    async def _wait_for_problem(self):
        """The warning that says why comes a moment after the end."""
        for _ in range(LONGEST_WARNING):
            if self.spoken.explained or self.cancelled:
                break
            await self._pause(1)

    def _no_sound(self, start_frame):
        spoken = self.spoken
        if spoken.finished == "busy" or spoken.full:
            return ApiError(429, "The model has no slot, memory or time for another utterance. Try again later.",
                            code="overloaded", retry_after=self._front.slots.retry_after())
        if spoken.finished == "nothing-to-say":
            return ApiError(400, "There is nothing to say in the text: no letter, number or currency sign.", "input",
                            "nothing_to_say")
        if spoken.finished != "error":
            return ApiError(400, f'"start_frame" is {start_frame}, and the utterance has {spoken.frames} frames.',
                            "start_frame", "invalid_value")
        if spoken.about_text:
            return ApiError(400, spoken.problem, spoken.field, code="refused")
        return ApiError(500, spoken.problem or "The engine failed.", code="engine_failed")

    # --- sleeping

    async def _pause(self, ticks, until=math.inf, started=True):
        self._waits_for_start = not started
        self._sleep = self._front.timer.sleep(ticks, until)
        try:
            await self._sleep
        finally:
            self._sleep = None

    def _wake(self):
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def _changed(self):
        spoken = self.spoken
        if spoken is None:
            return
        if spoken.finished:
            self._release()
            self._wake()
        elif spoken.started and self._waits_for_start:
            self._waits_for_start = False
            self._wake()

    # --- the end

    def _release(self):
        """The engine is done: the slot is free, though sound may still be waiting for its reader."""
        if self._holds_slot:
            self._holds_slot = False
            self._front.slots.release(time.monotonic() - self._asked - self.waited)

    def _count(self, spoken):
        metrics, reason = self._front.metrics, spoken.finished or "error"
        log.info("spoken (%s, %s): %s, %d frames, %.0f ms for a slot, %.1f ms to the first sound", self._protocol,
                 self._layout, reason, self.frames, 1000 * self.waited, 1000 * self._first_sound)
        metrics.utterances.labels(reason).inc()
        metrics.audio.inc(self._samples / RATE)
        metrics.dropped.inc(max(0, spoken.frames - self.frames))
