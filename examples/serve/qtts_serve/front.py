# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of a server: its model, pipelines, slots and sessions; loading and draining."""
import asyncio
import contextlib
import hashlib
import json
import logging
import math
import pathlib
import re
import time

from . import formats, limits
from .admission import Slots
from .catalogue import Catalogue
from .encoders import Encoders
from .errors import ApiError
from .garbage import Garbage
from .metrics import PROTOCOLS, Metrics
from .pacing import Timer
from .pool import Pool
from .speaker import Gst, Speaker
from .utterance import Utterance

log = logging.getLogger("qtts_serve")

WARM_UP = "Ready."
# Bytes of all bodies that are being received.
MOST_BODIES = 256 << 20
# Tokens that a byte of a text can be: Unicode's normalization (NFC) makes at most three bytes of one, and a token has a byte
# at least.
TOKENS_OF_BYTE = 3
# Characters of the longest part of a text, of a model whose description does not say: the element's default.
LONGEST_PART = 400
# Seconds for which whoever has asked whether this server is ready is taken to send it requests.
BALANCED = 30.0


class Front:
    """`on_fatal` is called with a sentence when the process should end: the model cannot be loaded, the GPU is lost.
    `clock`: seconds, of any beginning, for is_balanced()."""

    def __init__(self, settings, on_fatal=None, clock=time.monotonic):
        self.settings = settings
        self._clock = clock
        self._asked = -math.inf  # when a balancer asked last
        self.on_fatal = on_fatal
        self.slots = Slots(settings.slots, settings.max_wait)
        self.pool = Pool(lambda card: Speaker(settings, self._lose, card))
        self.metrics = Metrics(self)
        self._sessions_of = {protocol: self.metrics.sessions.labels(protocol) for protocol in PROTOCOLS}
        self.timer = Timer()
        self.encoders = Encoders()
        self._garbage = Garbage()
        self.cards = 0  # on which the model is loaded; a processor counts as one
        self.device_lost = False
        self.draining = False
        self.refusing = asyncio.Event()  # no new utterances
        self.ending = False  # utterances that still speak are broken off
        self.failure = ""
        # languages, fingerprint, device, instruct: whether it heeds instructions, measured: speakers of known loudness
        self.model = {}
        self.part_characters = 0  # of the longest part of a text; 0: texts are not split
        self.catalogue = Catalogue(settings)
        self.utterances = set()  # those that are being spoken
        self._sessions = 0
        self._bodies = 0  # bytes of requests that are being received
        self._loaded = asyncio.Event()

    # --- for whoever operates this: probes, balancers, schedulers

    @property
    def ready(self):
        return self._loaded.is_set() and not self.failure and not self.draining and not self.device_lost

    def answer_balancer(self):
        """`ready`, for a balancer, which sends requests until it has asked again."""
        self._asked = self._clock()
        return self.ready

    def is_balanced(self):
        """Whether a balancer has asked lately."""
        return self._clock() - self._asked < BALANCED

    @property
    def busy(self):
        return self.slots.busy

    @property
    def sessions(self):
        return self._sessions

    @property
    def waiting(self):
        return self.slots.waiting

    async def loaded(self):
        """Waits until the model is loaded. RuntimeError if that failed."""
        await self._loaded.wait()
        if self.failure:
            raise RuntimeError(self.failure)

    async def load(self):
        """Loads the model and speaks once. Never raises: see `failure` and `on_fatal`."""
        begin = time.monotonic()
        try:
            self.encoders.prepare()
            await self._load()
            self.metrics.load.set(time.monotonic() - begin)
            log.info("ready after %.2f s: %s on %s, %d slots%s", time.monotonic() - begin, self.settings.names[0],
                     self.model["device"], self.slots.total, f" of {self.cards} cards" if self.cards > 1 else "")
        except (RuntimeError, ApiError) as error:
            self._fail(str(error))
        except Exception:
            log.exception("the model was not loaded")
            self._fail("The model was not loaded: a mistake in this program.")
        finally:
            self._loaded.set()

    async def drain(self):
        """Ends gracefully: not ready at once, refusing after drain_delay, and returns after the last utterance; what is
        still spoken after drain_timeout is broken off. Refuses at once if there is no session, and no balancer that would
        send one before it knows."""
        if not self.draining:
            self.draining = True
            log.info("draining")
            await asyncio.sleep(self.settings.drain_delay if self._sessions or self.is_balanced() else 0)
            self.refusing.set()
        await self.refusing.wait()  # /drain may have been called before the signal
        for seconds in (self.settings.drain_timeout, 2):
            deadline = time.monotonic() + seconds
            while self._sessions and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            self.ending = True
            for utterance in self.utterances:
                utterance.cancel()

    def close(self):
        self._garbage.stop()
        self.encoders.close()
        self.pool.close()

    # --- for the routes

    def admit(self):
        """ApiError if the server does not take requests now."""
        if self.device_lost or self.failure:
            raise ApiError(503, f"This server cannot speak any more: {self.failure}", code="device_lost", retry_after=10)
        if not self._loaded.is_set():
            raise ApiError(503, "The model is being loaded. Try again in a moment.", code="loading", retry_after=2)
        if self.refusing.is_set():
            raise ApiError(503, "This server is about to end. Ask another one.", code="draining", retry_after=1)
        if self._sessions >= self.settings.sessions:
            raise ApiError(429, f"All {self.settings.sessions} sessions are taken. Try again later.", code="overloaded",
                           retry_after=self.slots.retry_after())

    @contextlib.contextmanager
    def session(self, protocol):
        """A place among the sessions. ApiError where there is none."""
        self.admit()
        self._sessions += 1
        self._sessions_of[protocol].inc()
        try:
            yield
        finally:
            self._sessions -= 1
            self._sessions_of[protocol].dec()
            if self._sessions == 0:
                self._garbage.rest()

    def tokens_at_once(self, text):
        """No fewer than the model reads before it speaks: those of the text, or of its longest part. A token has a byte at
        least."""
        part = self.part_characters
        if not part or len(text) <= part:
            return self.pool.count_tokens(text)
        if 4 * part <= self.settings.max_tokens // 2:
            return 4 * part
        return max(self.pool.count_tokens(text[begin:begin + 2 * part]) for begin in range(0, len(text), part))

    def has_few_tokens(self, text):
        """Whether a text is so short that its tokens need not be counted, which takes 0.05 ms."""
        return TOKENS_OF_BYTE * len(text.encode()) <= self.settings.max_tokens

    def check_tokens(self, texts):
        """ApiError if the model would read more tokens of the texts, by field, before it speaks: at some milliseconds a
        token on a CPU. A text of rare characters has several tokens a character."""
        if self.has_few_tokens("".join(texts.values())):
            return
        counts = {field: self.tokens_at_once(text) if field == "input" else self.pool.count_tokens(text)
                  for field, text in texts.items()}
        most = self.settings.max_tokens
        if sum(counts.values()) > most:
            longest = max(counts, key=counts.get)
            raise ApiError(413, f'"{longest}" has {counts[longest]} tokens, of {sum(counts.values())} in all; at most {most} '
                                "are taken at once. Split or shorten it.", longest, "too_long")

    def take_body(self, size):
        """`size` more bytes of a body are in memory. ApiError if that is too much, in which case it counts all the same."""
        self._bodies += size
        if size > 0 and self._bodies > MOST_BODIES:
            raise ApiError(503, "Too many requests are being received. Try again in a moment.", code="overloaded", retry_after=1)

    def ignored(self, wishes):
        """Fields of a request that change nothing, for a header."""
        ignored = []
        chosen = self._take_of_instructions(wishes)
        if wishes.settings.get("instruct") and not self.model["instruct"] and chosen is None:
            ignored.append("instructions")
        if wishes.settings.get("target-loudness") and not self._is_measured(wishes, chosen):
            ignored.append("target_loudness")
        return ignored

    def _take_of_instructions(self, wishes):
        """The take of a voice file that the instructions choose; None if they choose none."""
        file = self.catalogue.file(wishes.settings.get("voice-file"))
        if file is None or "style" in wishes.settings or self.model["instruct"]:
            return None
        return file.take_of(wishes.settings.get("instruct", ""))

    def _is_measured(self, wishes, chosen):
        """Whether the loudness of the voice is known. A voice file of --element may have one, which is not looked into.
        `chosen`: the take that the instructions choose, or None."""
        file = self.catalogue.file(wishes.settings.get("voice-file"))
        if file is not None:
            return (chosen or file.take(wishes.settings.get("style", "")) or file.takes[0]).measured
        if wishes.recording:  # has the level of an example, which only a transcript makes of it
            return bool(wishes.settings.get("reference-text"))
        if "reference-audio" in self.settings.element:
            return "reference-text" in self.settings.element
        if "voice-file" in self.settings.element:
            return True
        return (wishes.settings.get("speaker") or self.model["voice"] or "").lower() in self.model["measured"]

    def headers(self):
        return {"x-qtts-replica": self.settings.replica, "x-qtts-fingerprint": self.model.get("fingerprint", "")}

    # --- loading

    async def _load(self):
        speaker = await self._load_cards()
        stats = speaker.stats()
        limits.check(self.settings.sessions, self.slots.total, self.settings.most_connections)
        self.catalogue = Catalogue(self.settings, speaker.listed("speakers"))
        self.catalogue.check()
        formats.check_default(self.settings.response_format)
        self.part_characters = part_characters(stats.get_value("model"), speaker.part_length())
        self.model = {"languages": speaker.listed("languages"), "voice": speaker.usual_voice(),
                      "device": stats.get_value("device"), "instruct": speaker.supports_instructions(),
                      "measured": set(description(stats.get_value("model")).get("loudness", ())),
                      "fingerprint": fingerprint(stats.get_value("model"), stats.get_value("device"))}
        self.metrics.build.info({"version": Gst.ElementFactory.find("qttssrc").get_plugin().get_version(),
                                 "model": self.settings.names[0], "device": self.model["device"]})
        await asyncio.gather(*(self._warm_up() for _ in range(self.cards)))  # each takes a slot of another card
        await self.pool.fill(min(self.slots.total, self.settings.sessions))
        self._garbage.start()

    async def _load_cards(self):
        """Loads the model on each card that the element may use: a new pipeline takes one without an engine first. Returns a
        pipeline."""
        loaded = {}  # slots of each card
        speakers = []
        try:
            while True:
                speakers.append(speaker := await self._load_speaker())
                stats = speaker.stats()
                if (card := stats.get_value("cuda-device-id")) in loaded:
                    break
                loaded[card] = stats.get_value("slots")
                if card < 0:
                    break  # the CPU
                speaker.card = card
            self.cards = len(loaded)
            self.slots.total = sum(loaded.values())
            if self.cards > 1:
                speaker.card = card
                self.pool.spread(loaded)
            else:
                speakers[0].card = None  # the engine chooses, as it did
        finally:
            for speaker in speakers:
                self.pool.give_back(speaker)
        return speakers[0]

    async def _load_speaker(self):
        try:
            speaker = self.pool.take()
        except Exception as error:  # GLib.Error of the pipeline's description, or no element qttssrc
            raise RuntimeError(str(error)) from None
        try:
            # The message that the model is loaded comes a moment before the element uses it.
            while not speaker.loaded or speaker.stats().get_value("slots") == 0:
                if speaker.broken:
                    raise RuntimeError(speaker.broken)
                await asyncio.sleep(0.005)
        except BaseException:
            self.pool.give_back(speaker)
            raise
        return speaker

    async def _warm_up(self):
        try:
            async with Utterance(self, "http", "warm-up") as utterance:
                utterance.say(WARM_UP, {})
                async for _ in utterance.sound(0):
                    pass
        except ApiError as error:
            if error.status != 400:
                raise
            log.info("not warmed up: %s", error.message)  # a model that needs a recording

    def _lose(self, message, card=None):
        if self.pool.lose(card):
            if self.slots.total != self.pool.slots:
                self.slots.total = self.pool.slots
                log.error("GPU %d is lost, %d slots are left until this server is started again: %s", card,
                          self.slots.total, message)
            return
        self.device_lost = True
        self._fail(message)

    def _fail(self, message):
        if not self.failure:
            self.failure = message
            log.error("%s", message)
            if self.on_fatal:
                self.on_fatal(message)


def part_characters(model, part_length):
    """The longest part of a text in characters, by the property part-length; 0: texts are not split."""
    if part_length >= 0:
        return part_length
    return description(model).get("text", {}).get("part_characters", LONGEST_PART)


def description(model):
    """The model's qttssrc.json, which the element has checked; empty if there is none."""
    with contextlib.suppress(OSError):
        return json.loads(pathlib.Path(model, "qttssrc.json").read_bytes())
    return {}


def fingerprint(model, device):
    """Names what the samples of a seed depend on beside the text: the weights, the device's kind and arithmetic."""
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(model).rglob("*")):
        if path.suffix in (".json", ".txt", ".safetensors", ".model") and path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.relative_to(model)} {size}\n".encode())
            with path.open("rb") as file:  # 64 parts of a file: reading gigabytes would take longer than loading
                for part in range(64):
                    file.seek(size * part // 64)
                    digest.update(file.read(4096))
    digest.update(re.sub(r",? *\d+ threads?", "", device).encode())
    return digest.hexdigest()[:16]
