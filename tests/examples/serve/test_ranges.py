# SPDX-License-Identifier: LGPL-2.1-or-later
"""Range on GET /v1/audio/speech, as players of web pages ask."""
import struct
import urllib.parse

import pytest

from conftest import element
from qtts_serve import fields, ranges

TEXT = "Good morning."


def address(**given):
    return "/v1/audio/speech?" + urllib.parse.urlencode({"input": TEXT, "pace": 0, **given})


def part(server, path, asked, **headers):
    return server.request("GET", path, headers={"Range": asked, **headers})


def test_as_safari_asks(server):
    """The first two bytes, then the whole as a part, of an address without a seed."""
    path = address(response_format="wav")
    status, headers, body = part(server, path, "bytes=0-1")
    assert (status, body) == (206, b"RI")
    first, last, total = map(int, headers["content-range"].removeprefix("bytes ").replace("/", "-").split("-"))
    assert (first, last) == (0, 1) and headers["content-length"] == "2" and headers["accept-ranges"] == "bytes"
    status, again, body = part(server, path, f"bytes=0-{total - 1}")
    assert status == 206 and len(body) == total and again["content-range"] == f"bytes 0-{total - 1}/{total}"
    assert again["etag"] == headers["etag"] and again["x-qtts-seed"] == headers["x-qtts-seed"]
    assert struct.unpack("<I", body[40:44])[0] == total - 44
    assert body[44:] == element(TEXT, seed=int(headers["x-qtts-seed"]))
    assert int(headers["x-qtts-seed"]) < 2**53


@pytest.mark.parametrize("response_format", ranges.REPEATABLE)
def test_parts_make_up_the_whole(server, response_format):
    path = address(seed=1, response_format=response_format)
    _, headers, begin = part(server, path, "bytes=0-999")
    total = int(headers["content-range"].rpartition("/")[2])
    parts = [begin, part(server, path, "bytes=1000-1999")[2], part(server, path, "bytes=2000-")[2]]
    whole = b"".join(parts)
    assert len(whole) == total
    assert part(server, path, "bytes=-500")[2] == whole[-500:]
    assert part(server, path, f"bytes=-{total + 5}")[2] == whole
    streamed = server.get(path)[2]
    assert streamed[44:] == whole[44:] if response_format == "wav" else streamed == whole
    tag = headers["etag"]
    assert part(server, path, "bytes=0-9", **{"If-Range": tag})[0] == 206
    assert part(server, path, "bytes=0-9", **{"If-Range": '"other"'})[0] == 200


@pytest.mark.parametrize("asked", ["bytes=0-", "bytes=0-1,3-4", "bytes=5-2", "bytes=-", "bytes", "items=0-1", "bytes=a-b",
                                   "bytes=" + "9" * 400 + "-"])
def test_what_is_answered_with_the_whole(server, asked):
    status, headers, body = part(server, address(seed=1, response_format="pcm"), asked)
    assert status == 200 and body == element(TEXT, seed=1) and "content-range" not in headers


def test_beyond_the_end(server):
    path = address(seed=1, response_format="pcm")
    for asked in ("bytes=99999999-", "bytes=99999999-999999999", "bytes=-0"):
        status, headers, _ = part(server, path, asked)
        assert status == 416 and headers["content-range"] == f"bytes */{len(element(TEXT, seed=1))}"


def test_what_has_no_parts(server):
    """Ogg has random numbers in its pages; POST and HEAD have no ranges."""
    assert part(server, address(seed=1, response_format="opus"), "bytes=0-1")[0] == 200
    assert server.get(address(seed=1, response_format="opus"))[1]["accept-ranges"] == "none"
    assert part(server, address(seed=1, stream_format="sse"), "bytes=0-1")[0] == 200
    assert server.speech({"Range": "bytes=0-1"}, input=TEXT, seed=1)[2] == element(TEXT, seed=1)
    assert server.request("HEAD", address(seed=1, input="a " * 2049))[1]["accept-ranges"] == "none"
    status, headers, _ = server.request("HEAD", address(seed=1), headers={"Range": "bytes=0-1"})
    assert status == 200 and headers["accept-ranges"] == "bytes" and "content-range" not in headers


def test_an_address_has_one_seed():
    seeds = {ranges.seed_of_address(b"input=%d" % number) for number in range(100)}
    assert len(seeds) == 100 and max(seeds) < fields.EXACT <= 2 * max(seeds)
    assert ranges.seed_of_address(b"input=1") == ranges.seed_of_address(b"input=1")
