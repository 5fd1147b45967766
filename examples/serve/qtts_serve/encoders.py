# SPDX-License-Identifier: LGPL-2.1-or-later
"""Formats and rates of the sound: what they do to samples (S16LE, 24 kHz, mono), piece by piece.

A compressed format, and any sound at another rate, has a pipeline or an encoder of its own for each utterance: both have a
state, and an end.
"""
import dataclasses
import functools
import struct
import threading
import typing

from . import opus
from .samples import Sink
from .speaker import RATE, Gst
from .workers import Workers

# The rates of `sample_rate`. 24 kHz is the model's own.
RATES = (8000, 16000, 22050, 24000, 44100, 48000)
TELEPHONE = (8000,)


@dataclasses.dataclass(frozen=True)
class Format:
    media: str  # media type
    elements: str = ""  # the encoder; none for samples as they are, or with `stream`
    stream: type | None = None  # the encoder, where it is none of GStreamer's
    held: typing.Callable = lambda rate: 0.0  # seconds of sound that the encoder keeps back at most, at a rate
    rates: tuple = RATES  # the first is the default, unless the model's own is among them
    names_rate: bool = False  # the media type has a rate: the bytes do not tell it

    @property
    def rate(self):
        """The rate of a request that names none."""
        return RATE if RATE in self.rates else self.rates[0]


FORMATS = {
    "pcm": Format("audio/pcm", names_rate=True),
    "wav": Format("audio/wav"),
    # The rates are those that Opus has an encoder for.
    "opus": Format("audio/ogg", stream=opus.Stream, held=lambda _rate: opus.HELD, rates=(8000, 16000, 24000, 48000)),
    # A block of its own length, 0.2 s at 24 kHz, would keep the first two frames back, and is no smaller.
    "flac": Format("audio/flac", "flacenc blocksize=480", held=lambda rate: 480 / rate),
    "mp3": Format("audio/mpeg", "lamemp3enc target=bitrate bitrate=64 cbr=true",
                  held=lambda rate: (4608 if rate > 24000 else 1920) / rate),
    "aac": Format("audio/aac", "audioconvert ! avenc_aac bitrate=64000 ! aacparse ! audio/mpeg,stream-format=adts",
                  held=lambda rate: 2048 / rate),
    # The bytes of G.711, as telephones have them. Types of RFC 3551.
    "g711_ulaw": Format("audio/PCMU", "mulawenc", rates=TELEPHONE, names_rate=True),
    "g711_alaw": Format("audio/PCMA", "alawenc", rates=TELEPHONE, names_rate=True),
}

# audioresample's quality, of 10. Aliases and images are below -90 dB and the passband is flat to 0.85 of the Nyquist
# frequency, both as exact as S16; it holds back 10 ms of sound (4 has -80 dB, 10 holds back 16 ms).
RESAMPLER = "audioresample quality=8"
RESAMPLER_HELD = 0.01  # seconds
# From samples at 24 kHz to another rate. In floating-point, and without dither: the same sound has the same bytes.
RESAMPLE = (f"audioconvert ! audio/x-raw,format=F32LE ! {RESAMPLER} ! audio/x-raw,rate={{rate}} ! "
            "audioconvert dithering=none ! audio/x-raw,format=S16LE")

WAV_HEADER = 44  # bytes

CAPS = f"audio/x-raw,format=S16LE,rate={RATE},channels=1,layout=interleaved"
WORKERS = Workers()


@functools.cache
def available(name):
    """Whether the encoder of the format is installed."""
    if FORMATS[name].stream is not None:
        return opus.available()
    elements = [part.split()[0] for part in FORMATS[name].elements.split(" ! ") if part and "/" not in part.split()[0]]
    return all(Gst.ElementFactory.find(element) for element in elements)


def check_default(name):
    """RuntimeError if the format of requests that name none cannot be made."""
    if not available(name):
        raise RuntimeError(f"--response-format: the encoder of {name} is not installed. Install GStreamer's plug-ins "
                           "(Debian: gstreamer1.0-plugins-good, gstreamer1.0-plugins-bad, gstreamer1.0-libav), or choose wav.")


def media_type(name, rate):
    """With the rate where the bytes do not tell it and it is not the model's own."""
    form = FORMATS[name]
    return f"{form.media};rate={rate}" if form.names_rate and rate != RATE else form.media


def wav_header(size=None, rate=RATE):
    """The header of a WAV file with `size` bytes of samples. Without a size both fields have the largest value."""
    data, file = (0xFFFFFFFF, 0xFFFFFFFF) if size is None else (size, size + 36)
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", file, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", data)


class Plain:
    """pcm and wav at the model's rate."""

    held = 0.0

    def __init__(self, header):
        self._header = header

    async def encode(self, sound):
        header, self._header = self._header, b""
        return header + sound

    async def finish(self):
        return await self.encode(b"")

    def close(self):
        pass


class Pipeline:
    """Elements of GStreamer, which get the model's sound. There is no thread in it."""

    def __init__(self, elements):
        self._samples = 0
        self._pipeline = Gst.parse_launch(f"{elements} ! appsink name=out sync=false async=false wait-on-eos=false")
        self._out = Sink(self._pipeline.get_by_name("out"))
        self._pad = Gst.Pad.new("sound", Gst.PadDirection.SRC)
        self._pad.set_active(True)
        self._pad.link(self._pipeline.find_unlinked_pad(Gst.PadDirection.SINK))
        self._pipeline.set_state(Gst.State.PLAYING)
        self._pad.push_event(Gst.Event.new_stream_start("sound"))
        self._pad.push_event(Gst.Event.new_caps(Gst.Caps.from_string(CAPS)))
        segment = Gst.Segment()
        segment.init(Gst.Format.TIME)
        self._pad.push_event(Gst.Event.new_segment(segment))

    def push(self, sound):
        """The bytes that are there now."""
        if sound:
            buffer = Gst.Buffer.new_wrapped(sound)
            count = len(sound) // 2
            buffer.pts = self._samples * Gst.SECOND // RATE
            buffer.duration = count * Gst.SECOND // RATE
            self._samples += count
            if self._pad.push(buffer) != Gst.FlowReturn.OK:
                self._raise_error("the encoder takes no more sound")
        return self._out.pull_all()

    def end(self):
        """The rest. RuntimeError if an element failed."""
        self._pad.push_event(Gst.Event.new_eos())
        self._raise_error()
        return self._out.pull_all()

    def _raise_error(self, otherwise=""):
        """RuntimeError with the element's reason; without one `otherwise`, if given."""
        message = self._pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
        reason = message.parse_error()[0].message if message is not None else otherwise
        if reason:
            raise RuntimeError(reason)

    def close(self):
        self._pipeline.set_state(Gst.State.NULL)


class Encoder:
    """A compressed format, or another rate. `header` comes before all else.

    Its stages have no thread: WORKERS make them, push sound into them and take out the bytes.
    """

    def __init__(self, name, rate, header=b""):
        self._format = FORMATS[name]
        self._rate = rate
        self._header = header
        self.held = self._format.held(rate) + (RESAMPLER_HELD if rate != RATE else 0.0)
        self._stages = []
        self._in_use = threading.Lock()  # by a worker: a cancelled task does not end its work
        self._closed = False
        self._ready = WORKERS.run(self._open)
        self._ready.add_done_callback(_take_exception)

    async def encode(self, sound):
        """Returns the bytes that are there once this sound is encoded."""
        await self._ready
        header, self._header = self._header, b""
        return header + await WORKERS.run(self._push, sound)

    async def finish(self):
        """The rest. RuntimeError if the encoder failed."""
        await self._ready
        header, self._header = self._header, b""
        return header + await WORKERS.run(self._end)

    def close(self):
        WORKERS.run(self._close).add_done_callback(_take_exception)

    # --- on a worker

    def _open(self):
        with self._in_use:
            if self._closed:
                return
            resample = "" if self._rate == RATE else RESAMPLE.format(rate=self._rate)
            elements = " ! ".join(filter(None, (resample, self._format.elements)))
            if elements:
                self._stages.append(Pipeline(elements))
            if self._format.stream is not None:
                self._stages.append(self._format.stream(self._rate))

    def _push(self, sound):
        with self._in_use:
            if self._closed:
                return b""
            for stage in self._stages:
                sound = stage.push(sound)
            return sound

    def _end(self):
        with self._in_use:
            if self._closed:
                return b""
            sound = b""
            for stage in self._stages:
                sound = stage.push(sound) + stage.end()
            return sound

    def _close(self):
        with self._in_use:
            self._closed = True
            for stage in self._stages:
                stage.close()


def _take_exception(future):
    """For a future that nobody may await."""
    if not future.cancelled():
        future.exception()


def make(name, rate):
    header = wav_header(rate=rate) if name == "wav" else b""
    encodes = FORMATS[name].elements or FORMATS[name].stream or rate != RATE
    return Encoder(name, rate, header) if encodes else Plain(header)
