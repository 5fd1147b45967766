#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tests the WebRTC example in a real Chromium: sound, stop, reconnection, and the time to first sound. The sound is
read from the track, behind the browser's jitter buffer, not from the page's display. Takes pictures of the page
on a desktop, on a phone and on a phone in landscape, for review.
   tests/nightly/webrtc.py BUILD_DIR [--pictures DIR] [--utterances N] [--browsers N]
With --pictures it only takes pictures, into DIR; otherwise they go to BUILD_DIR/webrtc-pictures.
"""
import argparse
import array
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
import wave

from chromium import PHONES, Chromium, Failure, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = "Good morning, how are you today?"
LONG = ("The river was wide and slow, and the boats went down it one after the other. "
        "Nobody on the bank said a word until the last of them had passed the bridge.")
SOUND = -60  # dBFS; above it is sound, as in the page

# Loudness of each 10 ms of the browser's decoder: [time in ms, dBFS].
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
  document.addEventListener("click", (event) => { window.clicked = event.timeStamp; }, true);
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


def press(page, name, selector="#said li:last-child"):
    """Presses the button of this name of a text. Its focus keeps the list from scrolling."""
    wait_for(f"the button {name}", lambda: page.run(
        f"(() => {{ const found = [...document.querySelectorAll('{selector} button')].find((one) => one.textContent === '{name}');"
        "document.querySelector('[data-pressed]')?.removeAttribute('data-pressed');"
        "if (!found || found.disabled) return false; found.focus(); found.dataset.pressed = ''; return true; })()"))
    page.click("[data-pressed]")


def idle(page):
    return page.run("utterances.size === 0")


def quiet(page):
    """True after 300 ms without sound."""
    return page.run(f"(() => {{ const last = window.heard.slice(-30);"
                    f"return last.length === 30 && last.every(([, level]) => level < {SOUND}); }})()")


def test_speech(page):
    check(page.run("peer.getReceivers()[0].track.readyState") == "live", "an audio track was received")
    time.sleep(0.5)
    check(loudest(page) < SOUND, "silence before anything is said")
    speak(page, SHORT)
    wait_for("sound", lambda: loudest(page) > -30)
    wait_for("the end of the utterance", lambda: idle(page))
    check(page.text("#said li .spoken") == SHORT, "the page shows all words as spoken")
    loud = page.run("window.heard.filter(([, level]) => level > -40).length")
    check(loud > 60, f"{loud * 10} ms of the sound are loud")
    note, title = page.text("#said li small"), page.run("$('#said li small').title")
    check(re.fullmatch(r"Spoken · heard after \d+ ms", note), f"one latency is shown: {note!r}")
    check("the model made the first sound in" in title, "its tooltip has the other")
    check(page.run("Math.abs($('#said').getBoundingClientRect().bottom - $('main').getBoundingClientRect().bottom) < 2"),
          "a short list sits above the composer")


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


def test_empty(page):
    wait_for("the model", lambda: page.run("!$('#empty').hidden"))
    check(page.text("#empty h2") == page.text("#model") == "Bundled English voice", "an empty page has the model's name")
    samples = page.run("[...document.querySelectorAll('#empty button')].map((one) => one.textContent)")
    check(len(samples) == 3, "and three sentences to try")
    check(page.run("[...$('#speakers select').options].map((one) => one.value)") == ["clara", "grace", "hugh", "owen", "ross"],
          "its speakers are offered")
    check(page.run("$('#speakers select').value") == "grace", "and its default is chosen")
    check(page.run("['#languages', '#instruct'].every((one) => $(one).hidden)"), "nothing is offered where there is no choice")
    page.click("#empty button")
    wait_for("sound", lambda: loudest(page) > -30)
    check(page.run("$('#empty').hidden") and page.text("#said p") == samples[0], "a click speaks one")
    wait_for("the end", lambda: idle(page) and quiet(page))


def test_choices(page):
    """The choices that a large model offers."""
    page.run("window.before = model; receive({type: 'model', name: 'Qwen3-TTS-12Hz-1.7B-CustomVoice', characters: 5000, instruct: 'style',"
             "speakers: ['ryan', 'vivian'], languages: ['chinese', 'english', 'french']})")
    check(page.run("['#speakers', '#languages', '#instruct'].every((one) => !$(one).hidden)"),
          "voices, languages and an instruction are offered by a model that has them")
    page.run("window.said_to_server = []; window.really = send; send = (message) => said_to_server.push(message)")
    page.type("#instruct input", "In a whisper")
    page.type("#text", SHORT)
    page.key("Enter", 13, control=True)
    check(page.run("said_to_server") == [{"type": "speak", "text": SHORT, "speaker": "ryan", "language": "auto", "instruct": "In a whisper"}],
          "and go with the text")
    page.run("send = really; sent = []; receive(before)")


def test_composer(page):
    check(page.run("$('#speak').disabled"), "nothing can be spoken of no text")
    check("Ctrl+Enter" in page.text("#speak") and "Esc" in page.text("#stop"), "the keys are shown")
    before = page.run("said.children.length")
    page.type("#text", SHORT)
    page.click("#speak")
    page.click("#speak")
    page.key("Enter", 13, control=True)
    check(page.run("text.value") == "", "Speak clears the text")
    page.type("#text", LONG)
    page.key("Enter", 13, control=True)
    wait_for("both texts", lambda: page.run("said.children.length") >= before + 2)
    check(page.text("#queue") == "1 waiting", "the page tells how many wait")
    page.key("Escape", 27)
    wait_for("the stop", lambda: idle(page))
    check(page.run("said.children.length") == before + 2, "a double click speaks once, Ctrl+Enter speaks and Esc stops")

    check(page.text("#count") == "0 / 5,000 characters", "the limit is shown")
    page.type("#text", "\N{GRINNING FACE}" * 5001)
    check(page.text("#count") == "1 character too many" and page.run("$('#speak').disabled"), "a text beyond it is not cut, and not sent")
    page.type("#text", "\N{GRINNING FACE}" * 5000)
    check(page.text("#count") == "5,000 / 5,000 characters" and not page.run("$('#speak').disabled"), "characters are counted as the server does")

    page.run("$('#languages select').append(new Option('klingon')); $('#languages select').value = 'klingon'")
    page.type("#text", SHORT)
    page.click("#speak")
    wait_for("the refusal", lambda: "does not speak this language" in page.text("#problem"))
    check(page.run("text.value") == SHORT, "a text that is refused is there again")
    page.run("$('#languages select').lastElementChild.remove(); complain(''); text.value = ''; update()")


def test_queue(page):
    wait_for("silence", lambda: idle(page) and quiet(page))
    page.run("said.replaceChildren(); update()")
    for text in [" ".join([LONG] * 4)] + [f"This is number {number}." for number in range(1, 16)]:
        speak(page, text)
    check(page.text("#queue") == "15 waiting", "texts wait")
    check(page.run("visible(said.children[0]) && !visible(said.children[15])"), "the list shows what is spoken, not the newest")
    page.wheel("#scroll", 3000)
    wait_for("the list to scroll", lambda: page.run("!visible(said.children[0]) && !$('#follow').hidden"))
    words = page.text("#said li .spoken")
    wait_for("more words", lambda: page.text("#said li .spoken") != words)
    check(page.run("!visible(said.children[0])"), "a user who scrolls is left alone")
    page.click("#follow")
    check(page.run("visible(said.children[0]) && $('#follow').hidden"), "and comes back with a click")
    page.run("$('#scroll').focus()")
    page.key("End", 35)
    wait_for("the list to scroll with a key", lambda: page.run("!visible(said.children[0]) && !$('#follow').hidden"))
    page.click("#follow")
    press(page, "Remove", "#said li:nth-child(15)")
    page.run("[...said.children].slice(1, 14).forEach((item) => item.querySelector('button').click())")
    wait_for("the removal", lambda: page.text("#queue") == "1 waiting")
    wait_for("the next text", lambda: page.run("said.children[15].className") == "current")
    wait_for("the end", lambda: idle(page))
    classes = page.run("[...said.children].map((item) => item.className)")
    check(classes == ["complete"] + ["removed"] * 14 + ["complete"], f"what was removed is not spoken, the rest is: {classes}")


def test_spoken(page, folder):
    """The buttons of a finished text: replay, copy, download."""
    wait_for("silence", lambda: idle(page) and quiet(page))
    speak(page, SHORT)
    wait_for("the end", lambda: idle(page) and quiet(page))
    page.run("window.loudest = FLOOR; window.watch = setInterval(() => { loudest = Math.max(loudest, sound.peak()); }, 5)")
    press(page, "Replay")
    wait_for("the replay", lambda: page.run("loudest > -30"))
    check(page.run("!replayer.paused && !$('#stop').disabled"), "it is heard again")
    page.key("Escape", 27)
    check(page.run("replayer.paused"), "until Esc")
    page.run("clearInterval(watch)")

    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    press(page, "Copy")
    wait_for("the copy", lambda: page.text("#told") == "Copied")
    check(page.run("navigator.clipboard.readText()") == SHORT, "its text is copied")

    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    press(page, "Download")
    file = folder / "good-morning-how-are-you-today.wav"
    wait_for("the file", lambda: file.exists() and file.stat().st_size > 0)
    with wave.open(str(file)) as sound:
        seconds, samples = sound.getnframes() / sound.getframerate(), array.array("h", sound.readframes(sound.getnframes()))
        check(sound.getparams()[:3] == (1, 2, 24000) and 1 < seconds < 6 and max(samples) > 2000, f"its sound is saved, {seconds:.1f} s")
        onset = next(number for number, sample in enumerate(samples) if abs(sample) > 98)
        check(onset <= 720, f"of the silence before it 10 ms and less than a packet of 20 ms are left: {onset} samples")

    speak(page, LONG)
    wait_for("some words", lambda: len(page.text("#said li:last-child .spoken")) > 20)
    page.click("#stop")
    wait_for("the stop", lambda: idle(page))
    press(page, "Replay")
    duration = wait_for("the replay", lambda: page.run("replayer.duration || 0"))
    check(0.5 < duration < 8, f"of a text that was stopped there is what was spoken: {duration:.1f} s")
    wait_for("its end", lambda: page.run("replayer.paused"))

    page.run("$('#volume').value = 30; $('#volume').dispatchEvent(new Event('input'))")
    page.reload()
    connect(page)
    check(page.run("[player.volume, replayer.volume]") == [0.3, 0.3], "the volume is kept")
    page.run("setVolume(100)")


# Contrast of each text with its background, by WCAG 2.2.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const luminance = (name) => {
    canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => value / 255)
      .map((value) => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  return Object.fromEntries([["ink", "card", 4.5], ["ink", "page", 4.5], ["quiet", "card", 4.5], ["quiet", "page", 4.5], ["waiting", "card", 4.5],
    ["accent", "card", 4.5], ["accent", "page", 4.5], ["on-accent", "accent", 4.5], ["alarm", "alarm-page", 4.5], ["alarm", "card", 4.5], ["edge", "card", 3],
  ].map(([a, b, least]) => {
    const [low, high] = [luminance("--" + a), luminance("--" + b)].sort((x, y) => x - y);
    return [`${a} on ${b}`, [(high + .05) / (low + .05), least]];
  }));
})()"""

SIZES = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844, "mobile": True},
         "phone-on-its-side": {"width": 844, "height": 390, "mobile": True},
         "small-phone": {"width": 360, "height": 740, "mobile": True}, "narrow-window": {"width": 360, "height": 740}}


def test_layout(chromium, server):
    """Everything is visible and reachable at every size, in both colour schemes."""
    for name, options in SIZES.items():
        for dark in (False, True):
            page = chromium.open(server.url, dark=dark, **options)
            connect(page)
            low = {pair: ratio for pair, (ratio, least) in page.run(CONTRAST).items() if ratio < least}
            check(not low, f"{name}, {'dark' if dark else 'light'}: contrast {low or ''}")
            page.run("model.instruct || receive({...model, instruct: 'style', speakers: ['a', 'b'], languages: ['chinese', 'english']})")
            outside = page.run(
                "[...document.querySelectorAll('button, select, input, textarea, #count, #level')].filter((one) => {"
                "const box = one.getBoundingClientRect(); return one.offsetParent && (box.left < 0 || box.right > innerWidth || box.top < 0"
                "|| box.bottom > innerHeight); }).map((one) => one.id || one.textContent)")
            check(not outside, f"{name}: all is inside the window {outside or ''}")
            if (options["width"], options["height"]) in PHONES:
                page.check_phone(["#stop", "#speak"])
            small = page.run("[...document.querySelectorAll('button, select, input:not([type=range])')].filter((one) => one.offsetParent"
                             "&& one.getBoundingClientRect().height < 32).map((one) => one.id || one.textContent)")
            check(not small, f"{name}: buttons are large enough {small or ''}")
            unnamed = page.run("[...document.querySelectorAll('button, select, input, textarea')].filter((one) => !one.labels?.length"
                               "&& !one.ariaLabel && !one.textContent.trim()).map((one) => one.id)")
            check(not unnamed, f"{name}: all has a name {unnamed or ''}")
            page.close()


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
    """Time from click to first sound: in the track behind the jitter buffer, and by the page's display."""
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
        shown = page.run("(({asked, synthesis}) => ({heard: asked?.after, synthesis}))(said.lastElementChild.utterance)")
        if "heard" in shown:
            in_page.append(shown["heard"])
        synthesis.append(shown["synthesis"])
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
    """The page reconnects by itself after a pipeline of the server has failed."""
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
    for name, options in SIZES.items():
        for dark in (False, True):
            scheme = "-dark" if dark else ""
            page = chromium.open(server.url, scale=2 if name == "phone" else 1, dark=dark, **options)
            connect(page)
            page.picture(folder / f"{name}-empty{scheme}.png")
            speak(page, SHORT)
            wait_for("the end", lambda: idle(page))
            speak(page, LONG)
            wait_for("some words", lambda: len(page.text("#said li:last-child .spoken")) > 20)
            page.click("#stop")
            wait_for("the stop", lambda: idle(page) and quiet(page))
            speak(page, LONG)
            speak(page, "And this one comes after it.")
            page.type("#text", "Something else is being written")
            wait_for("some words", lambda: len(page.text("#said li:nth-last-child(2) .spoken")) > 40)
            page.picture(folder / f"{name}-speaking{scheme}.png")
            page.run("receive({type: 'model', name: 'Qwen3-TTS-12Hz-1.7B-CustomVoice', characters: 5000, instruct: 'style',"
                     "speakers: ['aiden', 'ryan', 'vivian'], languages: ['chinese', 'english', 'french', 'german']});"
                     "complain('The server does not answer.')")
            page.picture(folder / f"{name}-problem{scheme}.png")
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
        test_empty(page)
        page.reload()
        connect(page)
        test_speech(page)
        test_interrupt(page)
        test_errors(page)
        test_choices(page)
        test_composer(page)
        test_queue(page)
        with tempfile.TemporaryDirectory() as folder:
            test_spoken(page, pathlib.Path(folder))
        measure(page, arguments.utterances)
        test_reload(page)
        test_many(chromium, server, arguments.browsers)
        test_layout(chromium, server)
        check(not page.problems, f"no errors on the page's console {page.problems or ''}")
        take_pictures(chromium, server, build / "webrtc-pictures")
        print("to look at:", build / "webrtc-pictures")
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
