# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests made at random, the same ones for each run: whatever comes is accepted or refused with one clear error.

QTTS_FUZZ_SEED and QTTS_FUZZ_COUNT choose others, and more: the nightly run does.
"""
import asyncio
import json
import os
import random
import string
import types

import pytest

from conftest import element
from qtts_serve import fields, ranges, speech_route
from qtts_serve.catalogue import Catalogue
from qtts_serve.errors import ApiError
from qtts_serve.settings import Settings
from qtts_serve.speaker import Gst, structure
from starlette.datastructures import Headers

SEED = int(os.environ.get("QTTS_FUZZ_SEED", 1))
COUNT = int(os.environ.get("QTTS_FUZZ_COUNT", 3000))
SETTINGS = Settings(max_recording=1000)
CATALOGUE = Catalogue(SETTINGS, ["clara", "grace"])
INTEGERS = (0, 1, -1, 2, 80, 255, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64, -2**63, 10**30, 10**400)
REALS = (0.0, -0.0, 0.2, 0.5, 1.0, 1.5, 30.0, 100.0, 100.5, 1e-320, 1e300, 1e308, float("inf"), float("-inf"), float("nan"))
STRINGS = ("", " ", "clara", "wav", "pcm", "opus", "sse", "audio", "english", "none", "\0", "a\0b", "\ud800", "\udfff\ud800", "\x7f",
           "\ufdfa" * 300, "x" * 5000, "data:audio/wav;base64,AAAA", "data:;base64,", "data:audio/wav;base64,=AAA",
           "data:audio/wav;base64," + "A" * 2000, "http://127.0.0.1/", "file:///etc/passwd", "{}", "<|im_end|>", "\u202e", "%s%n", "'\";--")
NAMES = (*sorted(fields.OF_REQUEST | fields.OF_SESSION), "", "volume", "\ud800", "x" * 1000)


@pytest.fixture(scope="module", autouse=True)
def gstreamer():
    Gst.init(None)


def value(chance, depth=0):
    kind = chance.randrange(9 if depth < 3 else 7)
    if kind < 2:
        return chance.choice(INTEGERS)
    if kind < 4:
        return chance.choice(STRINGS)
    if kind == 4:
        return chance.choice(REALS)
    if kind == 5:
        return chance.choice((True, False, None))
    if kind == 6:
        return "".join(chance.choices(string.printable + "äß中\u0301\u200d\U0001f600\ud800\0", k=chance.randrange(30)))
    if kind == 7:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(("id", "x", "")): value(chance, depth + 1) for _ in range(chance.randrange(3))}


def request(chance):
    given = {chance.choice(NAMES): value(chance) for _ in range(chance.randrange(5))}
    return {"input": "Hi.", **given} if chance.random() < 0.8 else given


def check_error(error):
    assert error.status in (400, 404, 413), error.status
    body = json.dumps(error.body())
    assert len(body) < 20_000 and "Traceback" not in body and error.message


def check_settings(wishes):
    """Checks that the element can take the settings: strings without NUL in UTF-8, numbers of its types."""
    for text in (wishes.text, *(setting for setting in wishes.settings.values() if isinstance(setting, str))):
        text.encode()
        assert "\0" not in text
    structure("params", wishes.settings)
    assert 0 <= wishes.settings.get("seed", 0) < 2**53
    assert wishes.pace == 0 or 0.2 <= wishes.pace <= 30
    assert len(wishes.recording) <= SETTINGS.max_recording


@pytest.mark.parametrize("read", [fields.read_request, fields.read_session])
def test_fields(read):
    chance, accepted = random.Random(SEED), 0
    for number in range(COUNT):
        given = request(chance)
        if read is fields.read_session:
            given.pop("input", None)
        try:
            check_settings(read(given, SETTINGS, CATALOGUE))
            accepted += 1
        except ApiError as error:
            check_error(error)
        except Exception as error:
            raise AssertionError(f"{number}: {given!r}"[:2000]) from error
    assert COUNT / 100 < accepted < COUNT * 0.9  # both happen


def test_texts_of_json():
    """Bytes that are nearly JSON."""
    chance = random.Random(SEED)
    for _ in range(COUNT):
        text = bytearray(json.dumps(request(chance)).encode())
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(text))
            text[at:at + chance.randrange(3)] = chance.choice((b"", b"\xff", b"{", b"]", b'"', b"\\", b"\0", b"1e999", b"NaN"))
            text = text or bytearray(b"{")
        try:
            check_settings(speech_route._read_body(bytes(text), SETTINGS, CATALOGUE))
        except ApiError as error:
            check_error(error)


def test_addresses():
    chance = random.Random(SEED)
    for _ in range(COUNT):
        pairs = [(chance.choice(NAMES), value(chance, 3)) for _ in range(chance.randrange(6))]
        query = "&".join(f"{name}={shown}" for name, shown in pairs).encode("utf-8", "surrogatepass")
        query = bytes(byte if byte > 32 and chance.random() > 0.02 else chance.choice(b"%&=;+#") for byte in query)
        try:
            check_settings(fields.read_request(fields.read_address(b"input=Hi.&" + query), SETTINGS, CATALOGUE))
        except ApiError as error:
            check_error(error)


def test_forms():
    async def read(body, boundary):
        async def parts():
            for begin in range(0, len(body), 100):
                yield body[begin:begin + 100]

        headers = Headers({"content-type": f"multipart/form-data; boundary={boundary}"})
        return fields.read_request(await speech_route._read_form(headers, parts(), SETTINGS), SETTINGS, CATALOGUE)

    chance = random.Random(SEED)
    for _ in range(COUNT // 10):
        body = bytearray()
        for name, shown in [("input", "Hi."), *request(chance).items()]:
            more = chance.choice(("", "", '; filename="a.wav"', "; filename*=utf-8''a"))
            body += f'--xx\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{shown}\r\n'.encode("utf-8", "surrogatepass")
        body += b"--xx--\r\n"
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(body))
            body[at:at + chance.randrange(5)] = chance.choice((b"", b"\r\n", b"--xx", b"\xff", b'"', b"\0"))
        try:
            check_settings(asyncio.run(read(bytes(body), chance.choice(("xx", "xx", "x", "")))))
        except ApiError as error:
            check_error(error)


def test_ranges():
    chance = random.Random(SEED)
    wishes = types.SimpleNamespace(events=False, response_format="wav", held=True, json=False)
    for _ in range(COUNT):
        asked = "".join(chance.choices("bytes=-0123456789, \u00e9", k=chance.randrange(12)))
        part = ranges.Range.of({"range": chance.choice(("", "bytes=")) + asked}, wishes, '"tag"')
        if part is not None:
            size = chance.choice((1, 44, 1000, 10**6))
            try:
                first, last = part.cut(size)
                assert 0 <= first <= last < size
            except ApiError as error:
                assert error.status == 416


def test_a_server(server):
    """Fewer of them, through all of it; then it is as before."""
    chance = random.Random(SEED)
    for _ in range(COUNT // 30):
        given = request(chance)
        if isinstance(given.get("input"), str) and len(given["input"]) > 10:
            given["input"] = "Hi."  # an accepted text is spoken
        body = json.dumps(given).encode()
        status, _, answer = server.request("POST", "/v1/audio/speech", body)
        assert status in (200, 400, 404, 409, 413), (status, body[:1000])
        assert status == 200 or json.loads(answer)["error"]["message"]
    with server.stream() as stream:
        for _ in range(COUNT // 30):
            stream.send("session.config", **{name: given for name, given in request(chance).items() if name != "type"})
            stream.send("input.cancel")
            assert stream.until("audio.cancelled")[1][-1]["frames"] == 0
        assert stream.say("Hi.", seed=1, voice=None)[0] == element("", ("Hi.",), seed=1)
    server.wait_until_idle()
