#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tests the page of examples/serve in a real Chromium: speech, words underlined one after the other, stop, and the
display of the load and of the device; its layout on phones. Takes pictures for review: BUILD_DIR/serve-page*.png.
   tests/nightly/serve-page.py BUILD_DIR
"""
import atexit
import os
import pathlib
import re
import subprocess
import sys

from chromium import PHONES, Chromium, Failure, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = "The river was wide and slow, and the boats went down it one after the other."


def check(condition, what):
    if not condition:
        raise Failure(what)
    print("ok:", what)


def start(build):
    """A server of the plugin in the build folder; its address."""
    environment = dict(os.environ, GST_PLUGIN_PATH=str(build / "gst"), QTTS_VOICE_PATH=str(ROOT / "data/voice"),
                       QTTS_SERVE_VENV=str(build / "serve-venv"))
    process = subprocess.Popen([ROOT / "examples/serve/run", "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process.stdout.readline().partition(": ")[2].strip()


def check_phones(browser, address, build):
    for width, height in PHONES:
        for mobile in (False, True):  # a narrow window has a keyboard, and little room to say so
            page = browser.open(address, width=width, height=height, scale=2, mobile=mobile)
            wait_for("the connection", lambda: page.text("#note") == "Ready.")
            wait_for("the voices", lambda: page.run("document.querySelectorAll('#voice option').length") == 5)
            assert page.run("document.querySelector('#voice').value") == "grace", "the model's default is chosen"
            wait_for("the load", lambda: page.text("#load"))
            page.picture(build / f"serve-page-{width}{'-mobile' if mobile else ''}.png")
            page.check_phone(["#speak", "#stop"])
            check(True, f"the page fits {width} x {height}")
            page.close()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    address = start(build)
    with Chromium() as browser:
        page = browser.open(address, width=900, height=640)
        wait_for("the connection", lambda: page.text("#note") == "Ready.")
        check(page.run("document.querySelector('#stop').disabled"), "nothing can be stopped before anything is spoken")
        wait_for("the device", lambda: re.match(r"qttssrc on (cpu|cuda).*\.", page.text("#device")))
        check("hello.mp3" in page.text("#curl"), "a command to try is shown")

        page.type("#text", TEXT)
        page.click("#speak")
        words = []

        def look():
            word = page.text("#said .now")
            if word and word not in words[-1:]:
                words.append(word)
            return len(words) >= 6

        wait_for("words to be underlined", look)
        page.picture(build / "serve-page.png")
        check(" ".join(words) in TEXT.replace(",", ""), f"words are underlined in their order: {words}")
        check(re.match(r"First sound after \d+\.\d ms\.", page.text("#note")), "the time to the first sound is shown")
        wait_for("the sentence to be over", lambda: re.match(r"[3-9]\.\d s of speech; .*; seed \d+\.", page.text("#note")))
        check(page.text("#said .spoken") == TEXT, "all of it is shown as spoken")

        page.type("#text", " ".join([TEXT] * 5))
        page.click("#speak")
        wait_for("the load", lambda: page.text("#load").startswith("1 of 64 slots"))
        page.click("#stop")
        wait_for("the stop", lambda: page.text("#note").startswith("Stopped; "))
        wait_for("the load to fall", lambda: page.text("#load").startswith("0 of 64 slots"))
        check(not page.run("document.querySelector('#speak').disabled"), "it can speak again")

        page.type("#text", "!!!")
        page.click("#speak")
        wait_for("a problem", lambda: "nothing to say" in page.text("#problem"))
        check_phones(browser, address, build)
        check(page.problems == [], f"no problem on the console: {page.problems}")


main()
