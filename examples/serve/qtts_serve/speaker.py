# SPDX-License-Identifier: LGPL-2.1-or-later
"""One pipeline, qttssrc ! appsink, that speaks one utterance after the other; and a pool of them.

Everything here runs on the event loop's thread: messages come by the descriptor of the bus, sound is pulled, so no
streaming thread of GStreamer ever runs Python. All pipelines of a process share one engine.
"""
import asyncio
import contextvars
import dataclasses
import functools
import logging

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import GLib, GObject, Gst, GstApp  # noqa: E402, F401  (GstApp gives appsink its methods)

from .errors import ApiError  # noqa: E402
from .samples import Reports, Sink  # noqa: E402
from .wording import for_clients  # noqa: E402

RATE = 24000
FRAME_SAMPLES = 1920
FRAME_BYTES = 2 * FRAME_SAMPLES
# Sound that is kept ready beyond what the engine itself makes ahead: for a listener, and for who takes all that is made,
# at each tick of the timer.
READY_FRAMES, READY_FRAMES_WHOLE = 8, 32
# Settings that are kept as the element takes them: most requests have those of one before, and they are made in 0.1 ms.
STRUCTURES = 64

log = logging.getLogger("qtts_serve")

# Types of the settings that are not strings. The element converts whole numbers, and refuses those out of range.
TYPES = {"seed": GObject.TYPE_INT64, "rate": GObject.TYPE_DOUBLE, "temperature": GObject.TYPE_DOUBLE, "top-k": GObject.TYPE_INT64,
         "top-p": GObject.TYPE_DOUBLE, "repetition-penalty": GObject.TYPE_DOUBLE, "max-duration": GObject.TYPE_UINT64,
         "max-wait": GObject.TYPE_UINT64, "retry": GObject.TYPE_INT64, "real-time": GObject.TYPE_BOOLEAN,
         "parallel-parts": GObject.TYPE_INT64,
         "target-loudness": GObject.TYPE_DOUBLE, "trim-leading-silence": GObject.TYPE_BOOLEAN, "prepare-reference": GObject.TYPE_BOOLEAN}


RESOURCE, STREAM = (GLib.quark_to_string(kind.quark()) for kind in (Gst.ResourceError, Gst.StreamError))
# Warnings about what was asked for, and about what there is too little of.
ABOUT_REQUEST = {(RESOURCE, Gst.ResourceError.SETTINGS), (RESOURCE, Gst.ResourceError.NOT_FOUND),
                 (RESOURCE, Gst.ResourceError.OPEN_READ), (STREAM, Gst.StreamError.NOT_IMPLEMENTED)}
FULL = {(RESOURCE, Gst.ResourceError.BUSY), (RESOURCE, Gst.ResourceError.NO_SPACE_LEFT)}


def frames_of(samples):
    """Frames of 80 ms, of which the last one may be shorter."""
    return -(-samples // FRAME_SAMPLES)


def structure(name, settings):
    """Must not be changed: another call with the same settings returns it again."""
    return _structure(name, tuple(settings.items()))


@functools.lru_cache(STRUCTURES)
def _structure(name, settings):
    result = Gst.Structure.new_empty(name)
    for field, value in settings:
        kind = TYPES.get(field, GObject.TYPE_STRING)
        result.set_value(field, GObject.Value(kind, value))
    return result


@dataclasses.dataclass
class Spoken:
    """The utterance being spoken, as far as the element's messages have told."""
    started: bool = False
    seed: int = -1
    first_frame_latency: float = 0.0  # seconds
    begin: int = 0  # running time
    finished: str = ""  # the reason, once it is over
    samples: int = 0  # all there are, once it is over
    spoken_characters: int = 0
    pulled: int = 0  # samples
    words: list = dataclasses.field(default_factory=list)  # progress that was not taken yet
    coverage: float | None = None  # share of the text that was spoken; None: not known
    skipped: list = dataclasses.field(default_factory=list)  # words that were not spoken
    repeated: list = dataclasses.field(default_factory=list)  # words that were spoken again
    retries: int = 0  # how often it was made again
    problem: str = ""  # the last warning, which may be of the utterance before
    explained: bool = False  # it came after the end, and says why the utterance failed
    field: str | None = None  # field that the problem is about, if it names one
    about_text: bool = False  # the problem is the text or a setting
    full: bool = False  # it got no memory or no slot

    @property
    def frames(self):
        """Frames of 80 ms of the sound, of which the last one may be shorter. The engine's own are longer or shorter than
        80 ms where the speed is not 1."""
        return frames_of(self.samples)

    def summary(self):
        """How it ended, for a client."""
        known = {} if self.coverage is None else {"coverage": round(self.coverage, 4), "skipped": self.skipped,
                                                  "repeated": self.repeated}
        return {"reason": self.finished, "frames": self.frames, **known, "retries": self.retries}


class Speaker:
    """A pipeline in PLAYING, which waits for text. `on_change` is called when a message has changed `spoken`; `on_lost` with a
    sentence and the card when that is lost. `card`: the number of its GPU; None: the one that the element chooses."""

    def __init__(self, settings, on_lost, card=None):
        self.card = card
        self.on_change = None
        self.spoken = None
        self.broken = ""  # the error after which this pipeline is of no use
        self.loaded = False
        self.tells_words = False  # in `spoken`
        self.most_ready = READY_FRAMES  # frames that wait for pull()
        self._recording = ""
        self._on_lost = on_lost
        # No preroll: an idle pipeline has nothing to preroll with. The front ends growing utterances itself, and keeps
        # the slots; a second is for one that the engine is just giving back.
        voices = f"voices={settings.slots}" if settings.slots else ""
        self._pipeline = Gst.parse_launch(
            f"qttssrc name=speech idle-mode=wait segmentation=stream utterance-timeout={2**64 - 1} "
            f"max-text-length={2**32 - 1} max-queued-text={2**32 - 1} max-wait={Gst.SECOND} {voices} {settings.element} ! "
            f"appsink name=sound sync=false async=false caps=audio/x-raw,format=S16LE")
        self._speech = self._pipeline.get_by_name("speech")
        self._sound = Sink(self._pipeline.get_by_name("sound"))
        self._trims = None  # as it was set last: setting a property takes up to 0.1 ms
        self._properties = [specification.name for specification in self._speech.list_properties()]
        if settings.model_path:
            self._speech.set_property("model-path", settings.model_path)
        if card is not None:
            self._speech.set_property("device", "cuda")
            self._speech.set_property("cuda-device-id", card)
        self._bus = self._pipeline.get_bus()
        self._reports = Reports(self._bus)
        self._descriptor = self._bus.get_pollfd().fd
        # In a context without the request that this pipeline happens to be made for: it speaks for others after that.
        contextvars.Context().run(asyncio.get_running_loop().add_reader, self._descriptor, self._take_urgent)
        # The text pad of the element is fed from a pad without an element: no thread, no queue.
        self._text = Gst.Pad.new("text", Gst.PadDirection.SRC)
        self._text.set_active(True)
        self._text.link(self._speech.request_pad_simple("sink"))
        self._pipeline.set_state(Gst.State.PLAYING)
        self._text.push_event(Gst.Event.new_stream_start("text"))
        self._text.push_event(Gst.Event.new_caps(Gst.Caps.from_string("text/x-raw,format=utf8")))
        segment = Gst.Segment()
        segment.init(Gst.Format.BYTES)
        self._text.push_event(Gst.Event.new_segment(segment))

    def close(self):
        """Ends the pipeline, on a thread of its own: that waits for the streaming thread."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        loop.run_in_executor(None, self._pipeline.set_state, Gst.State.NULL)

    # --- speaking

    def say(self, text, settings):
        """Begins an utterance with its whole text. ApiError 400 if the element refuses it."""
        settings = self._prepare(settings)
        if self._speech.emit("speak", text, structure("params", settings)) == 0:
            self._refuse("There is no text to speak.")

    def begin(self, settings):
        """Begins an utterance that grows by add(). ApiError 400 if the element refuses the settings."""
        settings = self._prepare(settings)
        event = Gst.Event.new_custom(Gst.EventType.CUSTOM_DOWNSTREAM, structure("qtts/set-voice", settings))
        if not self._text.push_event(event):
            self._refuse("The settings were refused.")

    def add(self, text):
        self._text.push(Gst.Buffer.new_wrapped(text.encode()))

    def end_text(self):
        self._text.push_event(
            Gst.Event.new_custom(Gst.EventType.CUSTOM_DOWNSTREAM, Gst.Structure.new_empty("qtts/end-utterance")))

    def interrupt(self):
        """Stops the engine; `spoken.finished` follows within a message."""
        self._speech.emit("interrupt")
        self._take_messages()

    def pull(self, most):
        """Up to so many frames that are ready, each as bytes."""
        frames = []
        while len(frames) < most:
            # The message that a frame exists comes just before the frame: the first one is waited for.
            frame = self._sound.pull(2 * Gst.MSECOND if self.spoken.pulled == 0 and not self.spoken.finished else 0)
            if frame is None:
                break
            frames.append(frame)
            self.spoken.pulled += len(frame) // 2
        return frames

    def drop(self):
        """Drops the sound that is ready. Returns whether the utterance is exhausted()."""
        while self.pull(READY_FRAMES_WHOLE):
            pass
        return self.exhausted()

    def exhausted(self):
        """Whether the utterance is over and all its sound was pulled."""
        return bool(self.spoken.finished) and self.spoken.pulled >= self.spoken.samples

    def stats(self):
        return self._speech.get_property("stats")

    def part_length(self):
        return self._speech.get_property("part-length")

    def supports_instructions(self):
        return self._speech.get_property("supports-instruct")

    def count_tokens(self, text):
        """The model's, for a text; of one too long for it the bytes, which are no fewer."""
        count = self._speech.emit("count-tokens", text)
        return count if count >= 0 else len(text.encode())

    def usual_voice(self):
        """The preset voice of a request that names none; None if the model has none."""
        return self._speech.get_property("speaker") or self._speech.get_property("default-speaker")

    def listed(self, name):
        """A property that is a list of strings."""
        return self._speech.get_property(name)

    # --- messages

    def _prepare(self, settings):
        """Sets what belongs to the pipeline, and returns the settings of the utterance."""
        self._take_messages()
        self.spoken = Spoken()
        self._recording = settings.get("reference-audio", "")
        settings = dict(settings)
        trims = settings.pop("trim-leading-silence", True)
        if trims != self._trims:
            Gst.util_set_object_arg(self._speech, "trim-leading-silence", "true" if trims else "false")
            self._trims = trims
        self.most_ready = READY_FRAMES if settings.get("real-time", True) else READY_FRAMES_WHOLE
        self._sound.set_max_buffers(self.most_ready)
        return settings

    def _refuse(self, otherwise):
        self._take_messages()
        raise ApiError(400, self.spoken.problem or otherwise, self.spoken.field, code="refused")

    def _take_urgent(self):
        """There are messages. Where the first is that sound begins, the others are left for the next turn of the event loop,
        in which the sound is written before."""
        if self.spoken is None or self.spoken.started or self.tells_words or (start := self._reports.pop_start()) is None:
            self._take_messages()
            return
        self._take_start(*start)
        if self.on_change is not None:
            self.on_change()

    def _take_messages(self):
        while self._reports.pending(drop_progress=not self.tells_words):
            message = self._bus.pop()
            kind = message.type
            if kind == Gst.MessageType.ELEMENT:
                self._take_report(message.get_structure())
            elif kind == Gst.MessageType.WARNING:
                self._take_warning(message.parse_warning()[0])
            elif kind == Gst.MessageType.ERROR:
                self._take_error(message)
            elif kind == Gst.MessageType.PROGRESS:
                progress, _, _ = message.parse_progress()
                self.loaded = self.loaded or progress == Gst.ProgressType.COMPLETE
        if self.on_change is not None:
            self.on_change()

    def _take_report(self, report):
        name, spoken = report.get_name(), self.spoken
        if spoken is None:
            return
        if name == "qtts-utterance-started":
            self._take_start(*map(report.get_value, ("seed", "first-frame-latency", "running-time")))
        elif name == "qtts-text-progress":
            spoken.words.append({"offset": report.get_value("offset-chars"), "length": report.get_value("length-chars"),
                                 "time": (report.get_value("running-time") - spoken.begin) / Gst.SECOND,
                                 "duration": report.get_value("duration") / Gst.SECOND,
                                 "estimated": report.get_value("estimated")})
        elif name == "qtts-utterance-finished":
            spoken.finished = report.get_value("reason")
            spoken.samples = report.get_value("samples")
            spoken.spoken_characters = report.get_value("text-spoken-chars")
            spoken.retries = report.get_value("retries")
            if report.get_value("measured"):
                spoken.coverage = report.get_value("coverage")
                spoken.skipped, spoken.repeated = list(report.get_value("skipped")), list(report.get_value("repeated"))

    def _take_start(self, seed, first_frame_latency, running_time):
        spoken = self.spoken
        spoken.started = True
        spoken.seed = seed
        spoken.first_frame_latency = first_frame_latency / Gst.SECOND
        spoken.begin = running_time

    def _take_warning(self, error):
        if self.spoken is None:
            log.warning("%s", error.message)
            return
        if error.message.startswith(("the reference recording", "the transcript")):
            log.warning("a recording of a request: %s", error.message)
        kind = (error.domain, error.code)
        self._note_problem(error.message)
        self.spoken.explained = bool(self.spoken.finished)
        self.spoken.about_text = kind in ABOUT_REQUEST
        self.spoken.full = kind in FULL

    def _note_problem(self, message):
        """In words for a client, who knows a recording by the name of the field."""
        log.debug("the element: %s", message)
        if self._recording:
            message = message.replace(self._recording, "ref_audio")
        self.spoken.problem, self.spoken.field = for_clients(message, self._properties)

    def _take_error(self, message):
        error, _ = message.parse_error()
        self.broken = self.broken or error.message
        if self.spoken is not None and not self.spoken.finished:
            self._note_problem(error.message)
            self.spoken.explained = True
            self.spoken.finished = "error"
            self.spoken.samples = self.spoken.pulled
        if self.loaded and error.matches(Gst.LibraryError.quark(), Gst.LibraryError.INIT):
            self._on_lost(error.message, self.card)
