# SPDX-License-Identifier: LGPL-2.1-or-later
"""Formats and rates of the sound: what they do to samples (S16LE, 24 kHz, mono), piece by piece.

A compressed format, and any sound at another rate, is a pipeline of its own for each utterance: muxers want an end of the
stream, and a resampler has a state.
"""
import asyncio
import dataclasses
import struct

from .speaker import RATE, Gst

# The rates of `sample_rate`. 24 kHz is the model's own.
RATES = (8000, 16000, 22050, 24000, 44100, 48000)
TELEPHONE = (8000,)


@dataclasses.dataclass(frozen=True)
class Format:
    media: str  # media type
    elements: str = ""  # the encoder; none for samples as they are
    rates: tuple = RATES  # the first is the default, unless the model's own is among them
    names_rate: bool = False  # the media type has a rate: the bytes do not tell it

    @property
    def rate(self):
        """The rate of a request that names none."""
        return RATE if RATE in self.rates else self.rates[0]


FORMATS = {
    "pcm": Format("audio/pcm", names_rate=True),
    "wav": Format("audio/wav"),
    # Without the delays the first page would wait for more sound. The rates are those that Opus has an encoder for.
    "opus": Format("audio/ogg", "opusenc audio-type=voice bitrate=32000 ! oggmux max-delay=0 max-page-delay=20000000",
                   (8000, 16000, 24000, 48000)),
    "flac": Format("audio/flac", "flacenc"),
    "mp3": Format("audio/mpeg", "lamemp3enc target=bitrate bitrate=64 cbr=true"),
    "aac": Format("audio/aac", "avenc_aac bitrate=64000 ! aacparse ! audio/mpeg,stream-format=adts"),
    # The bytes of G.711, as telephones have them. Types of RFC 3551.
    "g711_ulaw": Format("audio/PCMU", "mulawenc", TELEPHONE, names_rate=True),
    "g711_alaw": Format("audio/PCMA", "alawenc", TELEPHONE, names_rate=True),
}

# audioresample's quality, of 10. Aliases and images are below -90 dB and the passband is flat to 0.85 of the Nyquist
# frequency, both as exact as S16; it holds back 10 ms of sound (4 has -80 dB, 10 holds back 16 ms).
RESAMPLER = "audioresample quality=8"
# From samples at 24 kHz to another rate. In floating-point, and without dither: the same sound has the same bytes.
RESAMPLE = (f"audioconvert ! audio/x-raw,format=F32LE ! {RESAMPLER} ! audio/x-raw,rate={{rate}} ! "
            "audioconvert dithering=none ! audio/x-raw,format=S16LE")

WAV_HEADER = 44  # bytes


def available(name):
    """Whether the elements of the format are installed."""
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

    def __init__(self, header):
        self._header = header

    async def encode(self, sound):
        header, self._header = self._header, b""
        return header + sound

    async def finish(self):
        return await self.encode(b"")

    def close(self):
        pass


class Encoder:
    """A compressed format, or another rate. `header` comes before all else."""

    def __init__(self, elements, rate, header=b""):
        convert = "audioconvert ! audioresample" if rate == RATE else RESAMPLE.format(rate=rate)
        self._pipeline = Gst.parse_launch(
            f"appsrc name=in format=time caps=audio/x-raw,format=S16LE,rate={RATE},channels=1,layout=interleaved ! "
            + " ! ".join(filter(None, (convert, "audioconvert" if elements else "", elements)))
            + " ! appsink name=out sync=false async=false")
        self._header = header
        self._plain = not elements  # samples come as soon as they are resampled
        self._in = self._pipeline.get_by_name("in")
        self._out = self._pipeline.get_by_name("out")
        self._samples = 0
        self._begun = False
        self._pipeline.set_state(Gst.State.PLAYING)

    async def encode(self, sound):
        """Returns the bytes encoded so far. At first it waits a little for this sound, so that the first write has some."""
        buffer = Gst.Buffer.new_wrapped(sound)
        count = len(sound) // 2
        buffer.pts = self._samples * Gst.SECOND // RATE
        buffer.duration = count * Gst.SECOND // RATE
        self._samples += count
        self._in.push_buffer(buffer)
        header, self._header = self._header, b""
        encoded = header + self._pull()
        for _ in range(0 if self._begun else 5):
            if self._plain and len(encoded) > len(header):
                break
            await asyncio.sleep(0.002)
            encoded += self._pull()
        self._begun = True
        return encoded

    async def finish(self):
        """The rest. RuntimeError if the encoder failed."""
        self._in.end_of_stream()
        encoded = self._header + self._pull()
        while not self._out.get_property("eos"):
            message = self._pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
            if message is not None:
                raise RuntimeError(message.parse_error()[0].message)
            await asyncio.sleep(0.005)
            encoded += self._pull()
        return encoded + self._pull()

    def _pull(self):
        parts = []
        while (sample := self._out.try_pull_sample(0)) is not None:
            buffer = sample.get_buffer()
            parts.append(buffer.extract_dup(0, buffer.get_size()))
        return b"".join(parts)

    def close(self):
        asyncio.get_running_loop().run_in_executor(None, self._pipeline.set_state, Gst.State.NULL)


def make(name, rate):
    header = wav_header(rate=rate) if name == "wav" else b""
    elements = FORMATS[name].elements
    return Encoder(elements, rate, header) if elements or rate != RATE else Plain(header)
