# SPDX-License-Identifier: LGPL-2.1-or-later
"""Formats of the sound: what a format does to samples (S16LE, 24 kHz, mono), piece by piece.

A compressed format is a pipeline of its own for each utterance, since muxers want an end of the stream.
"""
import asyncio
import struct

from .speaker import RATE, Gst

# Media type, and the elements that encode; none for what needs no encoder.
FORMATS = {
    "pcm": ("audio/pcm", ""),
    "wav": ("audio/wav", ""),
    # Without the delays the first page would wait for more sound.
    "opus": ("audio/ogg", "opusenc audio-type=voice bitrate=32000 ! oggmux max-delay=0 max-page-delay=20000000"),
    "flac": ("audio/flac", "flacenc"),
    "mp3": ("audio/mpeg", "lamemp3enc target=bitrate bitrate=64 cbr=true"),
    "aac": ("audio/aac", "avenc_aac bitrate=64000 ! aacparse ! audio/mpeg,stream-format=adts"),
}


WAV_HEADER = 44  # bytes


def available(name):
    """Whether the elements of the format are installed."""
    elements = [part.split()[0] for part in FORMATS[name][1].split(" ! ") if part and "/" not in part.split()[0]]
    return all(Gst.ElementFactory.find(element) for element in elements)


def check_default(name):
    """RuntimeError if the format of requests that name none cannot be made."""
    if not available(name):
        raise RuntimeError(f"--response-format: the encoder of {name} is not installed. Install GStreamer's plug-ins "
                           "(Debian: gstreamer1.0-plugins-good, gstreamer1.0-plugins-bad, gstreamer1.0-libav), or choose wav.")


def wav_header(size=None):
    """The header of a WAV file with `size` bytes of samples. Without a size both fields have the largest value."""
    data, file = (0xFFFFFFFF, 0xFFFFFFFF) if size is None else (size, size + 36)
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", file, b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16, b"data", data)


class Plain:
    """pcm and wav."""

    def __init__(self, name):
        self._header = wav_header() if name == "wav" else b""

    async def encode(self, sound):
        header, self._header = self._header, b""
        return header + sound

    async def finish(self):
        return await self.encode(b"")

    def close(self):
        pass


class Encoder:
    """A compressed format."""

    def __init__(self, name):
        self._pipeline = Gst.parse_launch(
            f"appsrc name=in format=time caps=audio/x-raw,format=S16LE,rate={RATE},channels=1,layout=interleaved ! "
            f"audioconvert ! audioresample ! {FORMATS[name][1]} ! appsink name=out sync=false async=false")
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
        encoded = self._pull()
        for _ in range(0 if self._begun else 5):
            await asyncio.sleep(0.002)
            encoded += self._pull()
        self._begun = True
        return encoded

    async def finish(self):
        """The rest. RuntimeError if the encoder failed."""
        self._in.end_of_stream()
        encoded = self._pull()
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


def make(name):
    return Encoder(name) if FORMATS[name][1] else Plain(name)
