# SPDX-License-Identifier: LGPL-2.1-or-later
"""Processes that encode. `python -m qtts_serve.encoding` is their template: for each socket that comes over the one that is its
standard input, it forks a process that encodes what comes over that, until its other end is closed. The server (encoders.py)
has the other ends.

In a process of its own an encoder does not wait for the server's event loop, nor the event loop for it: Python runs one of a
process' threads at a time. A library that crashes takes some utterances with it, not the server. A fork is there in a
millisecond and shares the memory of what is loaded, where a program of its own takes 250 ms and 50 MB.
"""
import contextlib
import gc
import os
import signal
import socket
import struct

from . import formats, limits
from .samples import Sink
from .speaker import RATE, Gst

NAME = "encoder"  # of the processes, for the system: measurements tell its processor time apart
# The number of an encoder, what it is to do, bytes that follow: the format's name and the rate; sound.
REQUEST = struct.Struct("<QBI")
OPEN, PUSH, END, CLOSE = range(4)
# To PUSH and END, in their order: whether it failed, bytes that follow, which are encoded sound or a reason.
ANSWER = struct.Struct("<?I")
READ_AHEAD = 256 << 10  # bytes

CAPS = f"audio/x-raw,format=S16LE,rate={RATE},channels=1,layout=interleaved"


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


class Stages:
    """Resampler and encoder of an utterance, as far as its format needs them."""

    def __init__(self, name, rate):
        form = formats.FORMATS[name]
        resample = "" if rate == RATE else formats.RESAMPLE.format(rate=rate)
        elements = " ! ".join(filter(None, (resample, form.elements)))
        self._stages = [Pipeline(elements)] if elements else []
        if form.stream is not None:
            self._stages.append(form.stream(rate))

    def push(self, sound):
        for stage in self._stages:
            sound = stage.push(sound)
        return sound

    def end(self):
        sound = b""
        for stage in self._stages:
            sound = stage.push(sound) + stage.end()
        return sound

    def close(self):
        for stage in self._stages:
            stage.close()


class Failed:
    """In place of stages that could not be made."""

    def __init__(self, error):
        self._error = error

    def push(self, _sound):
        raise self._error

    def end(self):
        raise self._error

    def close(self):
        pass


class Encoders:
    """Those of this process, by number."""

    def __init__(self):
        self._open = {}

    def do(self, number, what, data):
        """The bytes that are there now: none for an encoder that is closed. None for what has no answer."""
        if what == OPEN:
            name, rate = data.decode().split()
            try:
                self._open[number] = Stages(name, int(rate))
            except Exception as error:
                self._open[number] = Failed(error)
        elif what == CLOSE:
            self._open.pop(number).close()
        elif number not in self._open:
            return b""
        else:
            return self._open[number].push(data) if what == PUSH else self._open[number].end()
        return None


def serve(channel):
    """Does what is asked for, until the other end of `channel` is closed."""
    encoders = Encoders()
    with channel.makefile("rb", READ_AHEAD) as requests:
        while len(header := requests.read(REQUEST.size)) == REQUEST.size:
            number, what, size = REQUEST.unpack(header)
            data = requests.read(size)
            failed = False
            try:
                answer = encoders.do(number, what, data)
            except Exception as error:
                failed, answer = True, (str(error) or repr(error)).encode()
            if what in (PUSH, END):
                channel.sendall(ANSWER.pack(failed, len(answer)) + answer)


def fork(control, descriptor):
    """A process that encodes for the other end of the socket `descriptor`."""
    if os.fork():
        os.close(descriptor)
        return
    try:
        control.close()
        with contextlib.suppress(ConnectionError), socket.socket(fileno=descriptor) as channel:
            serve(channel)
    finally:
        os._exit(0)


def main():
    # They are for the server, which still needs its encoders then.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(NAME)
    limits.raise_descriptors()  # an encoder has two
    Gst.init(None)
    formats.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    gc.freeze()  # a collection would write to the memory that they share
    with socket.socket(fileno=0) as control:
        while descriptors := socket.recv_fds(control, 1, 1)[1]:
            fork(control, descriptors[0])


if __name__ == "__main__":
    main()
