#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Speaks a text into a WAV file and tells when each word begins: signals and messages in a GLib main loop.
   speak.py TEXT out.wav
The file appears when it is whole; Ctrl-C keeps what was spoken until then.
"""
import os
import sys
import wave

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst  # noqa: E402

if sys.argv[1:] in (["--help"], ["-h"]):
    print(__doc__)
    sys.exit()
if len(sys.argv) != 3:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
text, path = sys.argv[1:]
partial = os.path.join(os.path.dirname(path), f".qttssrc-{os.getpid()}")
Gst.init(None)
try:
    pipeline = Gst.parse_launch("qttssrc name=speech ! appsink name=out sync=false emit-signals=true max-buffers=8 "
                                "caps=audio/x-raw,format=S16LE")
except GLib.Error as error:
    sys.exit(error.message)
pipeline.get_by_name("speech").set_property("text", text)
loop = GLib.MainLoop()
problems = []


def on_sample(out):
    buffer = out.emit("pull-sample").get_buffer()
    sound.writeframes(buffer.extract_dup(0, buffer.get_size()))
    return Gst.FlowReturn.OK


def on_message(_bus, message):
    structure = message.get_structure()
    if message.type == Gst.MessageType.ERROR:
        problems.append(message.parse_error().gerror.message)
        loop.quit()
    elif message.type == Gst.MessageType.EOS:
        loop.quit()
    elif message.type == Gst.MessageType.ELEMENT and structure.get_name() == "qtts-text-progress":
        begin = structure.get_value("offset-chars")
        word = text[begin:begin + structure.get_value("length-chars")]
        print(f"{structure.get_value('running-time') / Gst.SECOND:6.2f} s  {word}")


interrupted = False
with wave.open(partial, "wb") as sound:
    sound.setnchannels(1)
    sound.setsampwidth(2)
    sound.setframerate(24000)
    pipeline.get_by_name("out").connect("new-sample", on_sample)
    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message", on_message)
    pipeline.set_state(Gst.State.PLAYING)
    try:
        loop.run()
    except KeyboardInterrupt:
        interrupted = True
    pipeline.set_state(Gst.State.NULL)
    seconds = sound.getnframes() / sound.getframerate()
if problems or seconds == 0:
    os.unlink(partial)
else:
    os.replace(partial, path)
    print(f"wrote {path}: {seconds:.2f} s of speech")
sys.exit(problems[0] if problems else 130 if interrupted else 0)
