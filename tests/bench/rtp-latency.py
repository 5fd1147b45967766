#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""How soon the first RTP packet of an utterance arrives after its first frame left the live element.

usage: rtp-latency.py [UTTERANCES]     in `meson devenv`; needs python3-gi and gir1.2-gstreamer-1.0
"""
import select
import socket
import statistics
import sys
import time

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402

FORMATS = {
    "opus": "opusenc audio-type=voice frame-size=20 ! rtpopuspay",
    "l16": "rtpL16pay min-ptime=20000000 max-ptime=20000000",
    "pcmu": "audio/x-raw,rate=8000 ! audiobuffersplit output-buffer-duration=1/50 ! mulawenc ! "
            "rtppcmupay min-ptime=20000000 max-ptime=20000000",
}


def measure(encoder, count):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    pipeline = Gst.parse_launch(f"qttssrc name=src is-live=true idle-mode=wait seed=1 ! audioconvert ! audioresample ! {encoder} ! "
                                f"udpsink processing-deadline=0 host=127.0.0.1 port={receiver.getsockname()[1]}")
    source = pipeline.get_by_name("src")
    frames = []

    def on_frame(_pad, _info):
        frames.append(time.monotonic())
        return Gst.PadProbeReturn.OK

    source.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, on_frame)
    pipeline.set_state(Gst.State.PLAYING)
    pipeline.get_state(10 * Gst.SECOND)
    delays = []
    for number in range(count + 1):
        frames.clear()
        source.emit("speak", "Hello.", None)
        if not select.select([receiver], [], [], 30)[0]:
            sys.exit("no packet within 30 s")
        arrival = time.monotonic()
        if number > 0:  # the first one waits for the model
            delays.append(1000 * (arrival - frames[0]))
        while select.select([receiver], [], [], 0.5)[0]:
            receiver.recv(65536)
    pipeline.set_state(Gst.State.NULL)
    return sorted(delays)


def main():
    Gst.init(None)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for name, encoder in FORMATS.items():
        delays = measure(encoder, count)
        print(f"{name:5} first frame to first packet: median {statistics.median(delays):.1f} ms, "
              f"p95 {delays[int(0.95 * (count - 1))]:.1f} ms, worst {delays[-1]:.1f} ms, {count} utterances")


if __name__ == "__main__":
    main()
