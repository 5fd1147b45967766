#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Speaks a text into a WAV file and tells when each word begins: signals and messages in a GLib main loop.
   speak.py TEXT out.wav
"""
import sys
import wave

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst  # noqa: E402

text, path = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
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


with wave.open(path, "wb") as sound:
    sound.setnchannels(1)
    sound.setsampwidth(2)
    sound.setframerate(24000)
    pipeline.get_by_name("out").connect("new-sample", on_sample)
    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message", on_message)
    pipeline.set_state(Gst.State.PLAYING)
    loop.run()
    pipeline.set_state(Gst.State.NULL)
sys.exit(problems[0] if problems else 0)
