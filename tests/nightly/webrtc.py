#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Uses the WebRTC example in a real Chromium: is it heard, does it stop, does it come back, and how soon is
it heard. What is heard is read from the track itself, behind the browser's jitter buffer, not from what the
page shows.
   tests/nightly/webrtc.py BUILD_DIR [--pictures DIR] [--utterances N] [--browsers N]
"""
import argparse
import atexit
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from chromium import Chromium, Failure, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = "Good morning, how are you today?"
LONG = ("The river was wide and slow, and the boats went down it one after the other. "
        "Nobody on the bank said a word until the last of them had passed the bridge.")
SOUND = -60  # dBFS; what is louder is sound, as in the page

# Loudness of each 10 ms that come out of the browser's decoder: [time in ms, dBFS].
LISTEN = """(() => {
  window.heard = [];
  const reader = new MediaStreamTrackProcessor({track: peer.getReceivers()[0].track}).readable.getReader();
  (async () => {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const samples = new Float32Array(value.numberOfFrames);
      value.copyTo(samples, {planeIndex: 0, format: "f32-planar"});
      value.close();
      let peak = 1e-6;
      for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
      window.heard.push([performance.now(), 20 * Math.log10(peak)]);
    }
  })();
  document.addEventListener("click", (event) => { if (event.target.id) window.clicked = event.timeStamp; }, true);
})()"""


class Server:
    def __init__(self, build, port=0, voice=ROOT / "data/voice"):
        environment = dict(os.environ, GST_PLUGIN_PATH=str(build / "gst"), QTTS_VOICE_PATH=str(voice))
        self.process = subprocess.Popen([build / "examples/webrtc/qtts-webrtc", "--port", str(port)],
                                        env=environment, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        line = self.process.stdout.readline()
        if not line.startswith("Open "):
            raise Failure("the server does not start")
        self.url = line.split()[1]
        self.port = int(re.search(r":(\d+)/", self.url).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=60) != 0:
            raise Failure(f"the server ended with {self.process.returncode}")

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) // 1024


def check(condition, what):
    if not condition:
        raise Failure(what)
    print("ok:", what)


def connect(page):
    wait_for("the connection", lambda: page.text("#state") == "Connected")
    page.run(LISTEN)


def loudest(page, begin=0):
    return page.run(f"Math.max(-120, ...window.heard.filter(([time]) => time >= {begin}).map(([, level]) => level))")


def speak(page, text):
    before = page.run("said.children.length")
    page.type("#text", text)
    page.click("#speak")
    wait_for("the text to be accepted", lambda: page.run("said.children.length") > before)


def idle(page):
    return page.run("utterances.size === 0")


def quiet(page):
    """Nothing heard for 300 ms."""
    return page.run(f"(() => {{ const last = window.heard.slice(-30);"
                    f"return last.length === 30 && last.every(([, level]) => level < {SOUND}); }})()")


def test_speech(page):
    check(page.run("peer.getReceivers()[0].track.readyState") == "live", "an audio track was received")
    check(page.run("$('#speakers').hidden === (model.speakers.length === 0)"), "voices are those of the model")
    time.sleep(0.5)
    check(loudest(page) < SOUND, "silence before anything is said")
    speak(page, SHORT)
    wait_for("sound", lambda: loudest(page) > -30)
    wait_for("the end of the utterance", lambda: idle(page))
    check(page.text("#said li .spoken") == SHORT, "the page shows all words as spoken")
    loud = page.run("window.heard.filter(([, level]) => level > -40).length")
    check(loud > 60, f"{loud * 10} ms of the sound are loud")
    check(page.text("#latency") != "First sound: –", "the page shows the latency")


def test_interrupt(page):
    wait_for("silence", lambda: quiet(page))
    speak(page, LONG)
    wait_for("some words", lambda: len(page.text("#said li:last-child .spoken")) > 20)
    page.click("#stop")
    clicked = page.run("window.clicked")
    wait_for("silence", lambda: quiet(page))
    last = page.run(f"Math.max(0, ...window.heard.filter(([, level]) => level > {SOUND}).map(([time]) => time))")
    check(last - clicked < 500, f"an interrupt silences it, after {last - clicked:.0f} ms")
    check(idle(page) and page.run("$('#said li:last-child').className") == "interrupted", "the page knows of it")
    spoken = page.text("#said li:last-child .spoken")
    check(0 < len(spoken) < len(LONG) and LONG.startswith(spoken), f"and shows how far it came: {spoken[-20:]!r}")


def test_errors(page):
    page.run("send({type: 'speak', text: '  '})")
    wait_for("the error", lambda: not page.run("problem.hidden"))
    check("not accepted" in page.text("#problem"), "blank text is refused in the page")
    page.run("send({type: 'sing'})")
    wait_for("the error", lambda: "sing" in page.text("#problem"))
    page.run("socket.send('{')")
    wait_for("the error", lambda: "sing" not in page.text("#problem"))
    page.click("#problem button")
    check(page.run("problem.hidden"), "an error can be dismissed")


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def measure(page, count):
    """Click to first sound: in the track behind the jitter buffer, and as the page shows it."""
    in_track, in_page, synthesis = [], [], []
    for index in range(count):
        wait_for("silence", lambda: idle(page) and quiet(page))
        time.sleep(0.1 + 0.013 * index)
        speak(page, SHORT)
        clicked = page.run("window.clicked")
        first = wait_for("sound", lambda: page.run(
            f"(window.heard.find(([time, level]) => time > {clicked} && level > {SOUND}) || [0])[0]"))
        in_track.append(first - clicked)
        wait_for("the end", lambda: idle(page))
        shown = re.search(r"(\d+) ms", page.text("#latency"))
        if shown:
            in_page.append(float(shown.group(1)))
        synthesis.append(float(re.search(r"([\d.]+) ms", page.text("#said li:last-child small")).group(1)))
    jitter = page.run("peer.getStats().then((all) => { for (const item of all.values()) if (item.type === 'inbound-rtp')"
                      "return [1000 * item.jitterBufferDelay / item.jitterBufferEmittedCount,"
                      "item.concealmentEvents, item.packetsLost]; })")
    print(f"latency of {count} utterances, median / p95 in ms, load averages {os.getloadavg()[0]:.1f} and {os.getloadavg()[1]:.1f}:")
    for name, values in (("click to first sound, as the page hears it", in_page),
                         ("click to first sound, in the track", in_track),
                         ("text to first frame, in the element", synthesis)):
        print(f"  {name}: {statistics.median(values or [0]):.1f} / {percentile(values or [0], 0.95):.1f}")
    print(f"jitter buffer: {jitter[0]:.1f} ms on average, {jitter[1]} times without a packet (once after each utterance), {jitter[2]} lost")


def test_reload(page):
    page.reload()
    connect(page)
    speak(page, SHORT)
    wait_for("sound", lambda: loudest(page) > -30)
    check(True, "a reloaded page speaks again")
    wait_for("the end", lambda: idle(page))


def test_many(chromium, server, count):
    before = server.memory()
    pages = [chromium.open(server.url) for _ in range(count)]
    for page in pages:
        connect(page)
    print(f"{count} browsers: {(server.memory() - before) / count:.1f} MB of the server's memory each")
    for page in pages:
        speak(page, SHORT)
    for page in pages:
        wait_for("sound", lambda p=page: loudest(p) > -30)
    for page in pages:
        wait_for("the end", lambda p=page: idle(p))
    complete = [page.run("$('#said li').className") for page in pages]
    check(complete == ["complete"] * count, f"{count} browsers are spoken to at once")
    check(not any(page.problems for page in pages), "without an error")
    for page in pages:
        page.close()


def test_restart(page, server, build):
    server.stop()
    wait_for("the loss to be shown", lambda: page.text("#state") == "Reconnecting" and not page.run("problem.hidden"))
    server = Server(build, server.port)
    wait_for("the connection", lambda: page.text("#state") == "Connected")
    check(page.run("problem.hidden"), "the page reconnects to a server that was started again")
    return server


def test_failure(chromium, build):
    """The page comes back by itself when a pipeline of the server has failed."""
    with tempfile.TemporaryDirectory() as folder:
        voice = pathlib.Path(folder) / "voice"
        shutil.copytree(ROOT / "data/voice", voice)
        server = Server(build, voice=voice)
        page = chromium.open(server.url)
        connect(page)
        voice.rename(voice.with_name("elsewhere"))
        page.run("socket.close()")
        wait_for("the failure to be shown", lambda: "no such folder" in page.text("#problem"))
        check(page.text("#state") == "Reconnecting", "a pipeline that fails is told, and tried again")
        voice.with_name("elsewhere").rename(voice)
        connect(page)
        check(page.run("problem.hidden"), "the page has a pipeline again without being reloaded")
        speak(page, SHORT)
        wait_for("sound", lambda: loudest(page) > -30)
        page.close()
        server.stop()


def take_pictures(chromium, server, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in (("desktop", {}), ("desktop-dark", {"dark": True}),
                          ("phone", {"width": 390, "height": 780, "scale": 2, "mobile": True}),
                          ("small-phone", {"width": 320, "height": 568, "scale": 2, "mobile": True})):
        page = chromium.open(server.url, **options)
        connect(page)
        page.picture(folder / f"{name}-empty.png")
        speak(page, SHORT)
        wait_for("the end", lambda: idle(page))
        speak(page, LONG)
        wait_for("some words", lambda: len(page.text("#said li:last-child .spoken")) > 20)
        page.click("#stop")
        wait_for("the stop", lambda: idle(page))
        speak(page, LONG)
        wait_for("some words", lambda: len(page.text("#said li:last-child .spoken")) > 40)
        page.picture(folder / f"{name}-speaking.png")
        page.run("complain('The server does not answer.')")
        page.picture(folder / f"{name}-problem.png")
        page.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--utterances", type=int, default=30)
    parser.add_argument("--browsers", type=int, default=10)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if arguments.pictures:
        server = Server(build)
        with Chromium() as chromium:
            take_pictures(chromium, server, arguments.pictures)
        server.stop()
        return
    server = Server(build)
    with Chromium() as chromium:
        page = chromium.open(server.url)
        connect(page)
        test_speech(page)
        test_interrupt(page)
        test_errors(page)
        measure(page, arguments.utterances)
        test_reload(page)
        test_many(chromium, server, arguments.browsers)
        check(not page.problems, f"no errors on the page's console {page.problems or ''}")
        server = test_restart(page, server, build)
        test_failure(chromium, build)
    server.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        main()
    except Failure as failure:
        print("failed:", failure)
        sys.exit(1)
