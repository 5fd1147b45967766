#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Speaks a text into a WAV file and tells when each word begins: signals and messages in a GLib main loop.
   speak.py TEXT out.wav ["PROPERTIES"]
PROPERTIES are further ones of the element, as gst-launch-1.0 takes them: "speaker=hugh seed=1". The file appears when
it is whole, and after an error not at all; Ctrl-C keeps what was spoken until then. Warnings and errors go to standard
error; the exit status is 0 only if everything was spoken.
"""
import os
import sys
import wave

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst  # noqa: E402


class Application:
    """A pipeline that speaks `text` into the open WAV file `sound`."""

    def __init__(self, text, properties, sound):
        self.text = text
        self.sound = sound
        self.error = ""
        self.loop = GLib.MainLoop()
        self.pipeline = Gst.parse_launch(f"qttssrc name=speech {properties} ! appsink name=out sync=false "
                                         "emit-signals=true max-buffers=8 caps=audio/x-raw,format=S16LE")
        self.pipeline.get_by_name("speech").set_property("text", text)
        self.pipeline.get_by_name("out").connect("new-sample", self.on_sample)
        bus = self.pipeline.get_bus()
        bus.add_signal_watch()
        bus.connect("message", self.on_message)

    def run(self):
        """Speaks. False if Ctrl-C has ended it."""
        self.pipeline.set_state(Gst.State.PLAYING)
        try:
            self.loop.run()
            return True
        except KeyboardInterrupt:
            return False
        finally:
            self.pipeline.set_state(Gst.State.NULL)

    def on_sample(self, out):
        """On the streaming thread. PyGObject prints an exception of a callback and goes on, so none may leave it."""
        buffer = out.emit("pull-sample").get_buffer()
        try:
            self.sound.writeframes(buffer.extract_dup(0, buffer.get_size()))
            return Gst.FlowReturn.OK
        except OSError as error:  # such as a full disk
            self.error = self.error or str(error)
            return Gst.FlowReturn.ERROR  # the element then posts an error

    def on_message(self, _bus, message):
        if message.type == Gst.MessageType.ERROR:
            self.error = self.error or message.parse_error().gerror.message
            self.loop.quit()
        elif message.type == Gst.MessageType.WARNING:
            print(message.parse_warning().gerror.message, file=sys.stderr)
        elif message.type == Gst.MessageType.EOS:
            self.loop.quit()
        elif message.type == Gst.MessageType.ELEMENT and message.has_name("qtts-text-progress"):
            structure = message.get_structure()
            begin = structure.get_value("offset-chars")
            word = self.text[begin:begin + structure.get_value("length-chars")]
            print(f"{structure.get_value('running-time') / Gst.SECOND:6.2f} s  {word}")


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    text, path, *properties = sys.argv[1:]
    partial = os.path.join(os.path.dirname(path), f".qttssrc-{os.getpid()}")
    Gst.init(None)
    try:
        with wave.open(partial, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(24000)
            application = Application(text, " ".join(properties), sound)
            complete = application.run()
            seconds = sound.getnframes() / sound.getframerate()
        if application.error or seconds == 0:
            return application.error or "Nothing was spoken."
        os.replace(partial, path)
        print(f"wrote {path}: {seconds:.2f} s of speech")
        return 0 if complete else 130
    except GLib.Error as error:  # of the pipeline's description: no element qttssrc, no such property
        return error.message
    except OSError as error:
        return str(error)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


sys.exit(main())
