# SPDX-License-Identifier: LGPL-2.1-or-later
"""Drives a headless Chromium over the DevTools protocol."""
import base64
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.request

import websocket

PATIENCE = 60  # seconds; only broken code reaches it


# Width and height of phones, in pixels of CSS: the smallest and the most common.
PHONES = ((360, 740), (390, 844))
# Elements that are seen, and reach beyond the window or have more in them than is seen. A name with dots at its end is
# shown whole elsewhere.
CUT_OFF = """[...document.querySelectorAll("body *")].filter((element) => {
  const box = element.getBoundingClientRect(), style = getComputedStyle(element);
  if (!box.width || !box.height || style.clipPath !== "none" || element.closest("#level")) return false;
  const cut = element.scrollWidth > element.clientWidth + 1 && style.display !== "inline" && style.overflowX !== "visible"
    && style.textOverflow !== "ellipsis";
  return cut || box.left < -.5 || box.right > innerWidth + .5;
}).map((element) => element.outerHTML.slice(0, 80))"""
# Selectors of buttons of which one stands below the other, or whose words take two lines.
WRAPPED = """(names) => {
  const buttons = names.map((name) => document.querySelector(name)), tops = buttons.map((button) => button.getBoundingClientRect().top);
  const lines = (button) => { const range = document.createRange(); range.selectNodeContents(button);
    return new Set([...range.getClientRects()].map((box) => Math.round(box.top / 8))).size; };
  return names.filter((_, i) => Math.abs(tops[i] - tops[0]) > 1 || lines(buttons[i]) > 1);
}"""


class Failure(Exception):
    pass


def wait_for(what, condition):
    """Polls until `condition()` returns a true value; returns it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failure(f"waited in vain for {what}")


class Chromium:
    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="qtts-chromium-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
             "--remote-allow-origins=*", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
             "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
             "--disable-backgrounding-occluded-windows", f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = pathlib.Path(self._profile.name) / "DevToolsActivePort"
        wait_for("Chromium to start", lambda: port_file.exists() and port_file.read_text().strip())
        self._port = int(port_file.read_text().split()[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        self._profile.cleanup()

    def open(self, url, width=1100, height=760, scale=1, mobile=False, dark=False):
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request) as answer:
            target = json.load(answer)
        page = Page(target["webSocketDebuggerUrl"])
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        if mobile:
            page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        if dark:
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        page.go(url)
        return page


class Page:
    def __init__(self, debugger_url):
        self._socket = websocket.create_connection(debugger_url, timeout=PATIENCE)
        self._last_id = 0
        self.problems = []  # exceptions and errors on the console
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self._last_id += 1
        self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._last_id:
                if "error" in message:
                    raise Failure(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message):
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"])

    def run(self, script):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=False)
        if "exceptionDetails" in result:
            raise Failure(f"{script[:80]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def go(self, url):
        self.call("Page.navigate", url=url)
        wait_for(url, lambda: self.run("document.readyState") == "complete" and self.run("location.href") == url)

    def reload(self):
        self.run("window.isOld = true")
        self.call("Page.reload")
        wait_for("the page again", lambda: self.run("!window.isOld && document.readyState === 'complete'"))

    def click(self, selector):
        """As with a mouse, so that the browser knows it was the user."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector):
        return self.run(f"(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();"
                        "return [box.x + box.width / 2, box.y + box.height / 2]; })()")

    def wheel(self, selector, distance):
        x, y = self.middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=distance)

    def key(self, name, code, control=False):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=2 if control else 0)

    def type(self, selector, text):
        self.run(f"document.querySelector('{selector}').focus(); document.querySelector('{selector}').select()")
        self.call("Input.insertText", text=text)

    def check_phone(self, buttons):
        """Fails if something is cut off, one of `buttons` wraps, or the page speaks of keys that a phone does not have."""
        found = self.run(CUT_OFF)
        if found:
            raise Failure(f"cut off: {found}")
        found = self.run(f"({WRAPPED})({json.dumps(buttons)})")
        if found:
            raise Failure(f"wrapped: {found}")
        if self.run("[...document.querySelectorAll('kbd')].some((key) => key.getBoundingClientRect().width > 0)"):
            raise Failure("a key is named, and there is no keyboard")

    def text(self, selector):
        return self.run(f"document.querySelector('{selector}').textContent")

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.call("Page.close")
        self._socket.close()
