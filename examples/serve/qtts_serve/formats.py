# SPDX-License-Identifier: LGPL-2.1-or-later
"""Formats and rates of the sound: their names, media types and encoders."""
import dataclasses
import functools
import struct
import typing

from . import opus
from .speaker import RATE, Gst

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


def _factories(elements):
    """Those of the elements of a pipeline; None for each that is not installed."""
    names = [part.split()[0] for part in elements.split(" ! ") if part]
    return [Gst.ElementFactory.find(name) for name in names if "/" not in name]


@functools.cache
def available(name):
    """Whether the encoder of the format is installed."""
    if FORMATS[name].stream is not None:
        return opus.available()
    return all(_factories(FORMATS[name].elements))


def load():
    """Loads all libraries that the formats need, as far as they are installed: those of AAC take 0.1 s."""
    opus.available()
    for elements in (RESAMPLE, "appsink", *(form.elements for form in FORMATS.values())):
        for factory in filter(None, _factories(elements)):
            factory.load()


def check_default(name):
    """RuntimeError if the format of requests that name none cannot be made."""
    if not available(name):
        raise RuntimeError(f"--response-format: the encoder of {name} is not installed. Install GStreamer's plug-ins "
                           "(Debian: gstreamer1.0-plugins-good, gstreamer1.0-plugins-bad, gstreamer1.0-libav), or choose wav.")


def media_type(name, rate):
    """With the rate where the bytes do not tell it and it is not the model's own."""
    form = FORMATS[name]
    return f"{form.media};rate={rate}" if form.names_rate and rate != RATE else form.media


def held(name, rate):
    """Seconds of sound that are kept back at most."""
    return FORMATS[name].held(rate) + (RESAMPLER_HELD if rate != RATE else 0.0)


def wav_header(size=None, rate=RATE):
    """The header of a WAV file with `size` bytes of samples. Without a size both fields have the largest value."""
    data, file = (0xFFFFFFFF, 0xFFFFFFFF) if size is None else (size, size + 36)
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", file, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", data)
