# SPDX-License-Identifier: LGPL-2.1-or-later
"""Host names, pages of other sites, and the headers that browsers obey."""
import base64
import contextlib
import hashlib
import json
import re
import socket

import pytest
from websockets.exceptions import InvalidStatus

import hostile
from conftest import element
from qtts_serve import access

TEXT = "Hi."
GETS = ("/", "/load", "/metrics", "/v1/models", "/v1/audio/voices", "/health/live", "/health/ready", "/v1/audio/speech?input=Hi.")


def request(line, *hosts):
    return b"\r\n".join([line, *(b"Host: " + host for host in hosts), b"Connection: close", b"", b""])


@pytest.mark.parametrize("host, status", [
    (b"127.0.0.1", 200), (b"127.0.0.1:1", 200), (b"[::1]:8080", 200), (b"192.0.2.7:80", 200), (b"localhost", 200),
    (b"LOCALHOST:8080", 200), (b"localhost.", 200), (socket.gethostname().encode(), 200),
    (b"evil.example", 421), (b"evil.example:8080", 421), (b"localhost.evil.example", 421), (b"127.0.0.1.evil.example", 421),
    (b"", 400), (b"a b", 400), (b"localhost, evil.example", 400), (b"user@localhost", 400), (b"localhost/x", 400),
    (b"localhost:80a", 400), (b"\xff", 400), (b"%6c", 400), (b"localhost:", 200),
])
def test_names(server, host, status):
    """DNS rebinding: a browser takes a name of another site that resolves to this server for that site."""
    assert hostile.ask(server, request(b"GET /health/live HTTP/1.1", host)) == status


@pytest.mark.parametrize("path", GETS)
def test_every_route_looks_at_the_name(server, path):
    for method in ("GET", "HEAD"):
        status, headers, body = server.request(method, path, headers={"Host": "evil.example"})
        assert status == 421 and headers["content-type"] == "application/json"
        assert method == "HEAD" or "--allow-host evil.example" in json.loads(body)["error"]["message"]
    status, _, _ = server.speech({"Host": "evil.example"}, input=TEXT)
    assert status == 421
    with hostile.connected(server) as client:
        assert hostile.handshake(client, host=b"evil.example") == 421


def test_one_name_for_each_request(server):
    assert hostile.ask(server, request(b"GET /health/live HTTP/1.1")) == 400
    assert hostile.ask(server, request(b"GET /health/live HTTP/1.1", b"localhost", b"localhost")) == 400
    assert hostile.ask(server, request(b"GET /health/live HTTP/1.0")) == 200  # which has no Host by itself
    assert hostile.ask(server, request(b"GET /health/live HTTP/1.0", b"evil.example")) == 421


def test_names_that_are_allowed(start):
    server = start("--allow-host", "speech.example,*.voices.example")
    for host, status in (("speech.example", 200), ("Speech.Example:443", 200), ("a.b.voices.example", 200), ("voices.example", 421),
                         ("evilspeech.example", 421), ("localhost", 200)):
        assert server.request("GET", "/health/live", headers={"Host": host})[0] == status, host
    # The page under such a name is the server's own.
    assert server.speech({"Host": "speech.example", "Origin": "https://speech.example"}, input=TEXT)[0] == 200
    assert server.speech({"Host": "speech.example", "Origin": "https://evil.example"}, input=TEXT)[0] == 403
    server = start("--allow-host", "*")
    assert server.request("GET", "/health/live", headers={"Host": "evil.example"})[0] == 200
    # Names are not known then: a page is not the server's own because it says so.
    assert server.speech({"Host": "evil.example", "Origin": "http://evil.example"}, input=TEXT)[0] == 403


def test_the_name_that_it_listens_on():
    assert access.Names("Speech.Example", []).answers("speech.example")
    assert not access.Names("0.0.0.0", []).answers("speech.example")


def test_pages_of_other_sites(start):
    server = start("--allow-origin", "https://speech.example")
    own = f"http://{server.host}:{server.port}"
    for origin, status in ((own, 200), ("https://speech.example", 200), ("https://evil.example", 403), ("null", 403),
                           ("http://127.0.0.1:1", 403)):
        assert server.speech({"Origin": origin}, input=TEXT)[0] == status, origin
        with contextlib.ExitStack() as stack:
            if status == 403:
                stack.enter_context(pytest.raises(InvalidStatus))
            stack.enter_context(server.stream(origin=origin))
    _, headers, _ = server.speech({"Origin": "https://speech.example"}, input=TEXT)
    assert headers["access-control-allow-origin"] == "https://speech.example" and "Origin" in headers["vary"]


def test_all_pages(start):
    server = start("--allow-origin", "*")
    for origin in ("https://evil.example", "null"):
        status, headers, sound = server.speech({"Origin": origin}, input=TEXT, seed=1)
        assert status == 200 and sound == element(TEXT, seed=1)
        assert headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in headers
        assert "x-qtts-seed" in headers["access-control-expose-headers"]
        with server.stream(origin=origin) as stream:
            assert stream.say(TEXT, seed=1)[0] == element("", (TEXT,), seed=1)
    status, headers, _ = server.request("OPTIONS", "/v1/audio/speech", headers={
        "Origin": "https://evil.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type",
        "Access-Control-Request-Private-Network": "true"})
    assert status == 200 and headers["access-control-allow-origin"] == "*" and "POST" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-private-network"] == "true"
    # An <audio> of another site.
    assert server.request("GET", "/v1/audio/speech?input=Hi.", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200


@pytest.mark.parametrize("path", (*GETS, "/nowhere"))
def test_headers_that_browsers_obey(server, path):
    _, headers, _ = server.get(path)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers.get_all("content-security-policy") and "frame-ancestors 'none'" in headers["content-security-policy"]


def test_the_page_runs_its_own_script_alone(server):
    _, headers, page = server.get("/")
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'" and "unsafe" not in headers["content-security-policy"]
    for tag in ("script", "style"):
        parts = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>".encode(), page, re.DOTALL)
        assert parts
        for part in parts:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'" in policy[f"{tag}-src"]
    # Attributes with script or style would not work.
    assert not re.search(rb"<[^>]*\s(on[a-z]+|style)=", page)


@pytest.mark.parametrize("path", GETS)
def test_head(server, path):
    """The headers of GET without a body, and without speaking."""
    server.wait_until_idle()
    utterances = server.metric("qtts_utterances_total")
    status, headers, body = server.request("HEAD", path)
    assert status == 200 and body == b""
    assert headers["content-type"] == server.get(path)[1]["content-type"]
    if "speech" in path:
        server.wait_until_idle()
        assert server.metric("qtts_utterances_total") == utterances + 1  # of GET
        assert server.request("HEAD", "/v1/audio/speech")[0] == 400
        assert server.request("HEAD", path + "&model=other")[0] == 400
