# SPDX-License-Identifier: LGPL-2.1-or-later
"""x-request-id and traceparent: in answers, and in the log lines of their request."""
import json
import logging
import re

import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient
from websockets.exceptions import InvalidStatus

from conftest import of, wait_for
from qtts_serve.app import create_app
from qtts_serve.settings import Settings
from qtts_serve.tracing import InLogLines, Request, parse

TEXT = "Hi."
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize("given, flags", [
    (TRACEPARENT, 1),
    (f"00-{TRACE}-{PARENT}-00", 0),
    (f"00-{TRACE}-{PARENT}-ff", 3),  # only flags with a meaning are kept
    (f"cc-{TRACE}-{PARENT}-01", 1),
    (f"cc-{TRACE}-{PARENT}-01-what-comes-later", 1),
    (f"cc-{TRACE}-{PARENT}-01.what-comes-later", None),
    (f"00-{TRACE}-{PARENT}-01-more", None),
    (f"ff-{TRACE}-{PARENT}-01", None),
    (f"00-{'0' * 32}-{PARENT}-01", None),
    (f"00-{TRACE}-{'0' * 16}-01", None),
    (f"00-{TRACE.upper()}-{PARENT}-01", None),
    (f"00-{TRACE[1:]}-{PARENT}-01", None),
    (f"00-{TRACE}-{PARENT}-1", None),
    (f"00-{TRACE}-{PARENT}", None),
    (f"00-{TRACE[:-1]}g-{PARENT}-01", None),
    ("", None),
])
def test_traceparent(given, flags):
    assert parse(given) == (None if flags is None else (TRACE, PARENT, flags))


def request(*headers):
    return Request.of(Headers(raw=[(name.encode(), value.encode("latin-1")) for name, value in headers]))


def test_what_is_valid_is_kept():
    found = request(("x-request-id", "a.B_9~:+/=@-"), ("traceparent", f"cc-{TRACE}-{PARENT}-05-more"))
    assert found == Request("a.B_9~:+/=@-", TRACE, TRACEPARENT)
    assert request(("x-request-id", "a" * 128)).id == "a" * 128


@pytest.mark.parametrize("headers", [
    (),
    (("x-request-id", ""), ("traceparent", "no trace")),
    (("x-request-id", "a b"), ("traceparent", f"00-{'0' * 32}-{PARENT}-01")),
    (("x-request-id", "a" * 129), ("traceparent", "")),
    (("x-request-id", 'a"b'),),
    (("x-request-id", "100%s"),),
    (("x-request-id", "\u00e4"),),
    (("x-request-id", "a"), ("x-request-id", "b"), ("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)),
])
def test_what_is_not_valid_is_replaced(headers):
    found, another = request(*headers), request(*headers)
    assert re.fullmatch("[0-9a-f]{32}", found.id)
    assert parse(found.traceparent)[0] == found.trace and found.traceparent.endswith("-00")
    assert found.id != another.id and found.trace != another.trace
    assert PARENT not in found.traceparent


def ids(headers):
    return {"x-request-id": headers["x-request-id"], "traceparent": headers["traceparent"]}


GIVEN = {"x-request-id": "mine-1", "traceparent": TRACEPARENT}


def test_answers_have_them(server):
    for fields, status in ((dict(input=TEXT), 200), (dict(input=TEXT, voice="nobody"), 400), ({}, 400)):
        found, headers, _ = server.speech(GIVEN, **fields)
        assert (found, ids(headers)) == (status, GIVEN)
        assert headers.get_all("x-request-id") == ["mine-1"]
    assert ids(server.get("/v1/models")[1]) != ids(server.get("/v1/models")[1])
    for path in ("/health/ready", "/nowhere"):
        assert ids(server.request("GET", path, headers=GIVEN)[1]) == GIVEN
    assert ids(server.speech({**GIVEN, "Origin": "http://evil.example"}, input=TEXT)[1]) == GIVEN


def test_a_session_has_them(server):
    with server.stream(additional_headers=GIVEN) as stream:
        assert ids(stream.socket.response.headers) == GIVEN
        for _ in range(2):
            start = of(stream.say(TEXT)[1], "audio.start")[0]
            assert (start["request_id"], start["traceparent"]) == ("mine-1", TRACEPARENT)
    with server.stream() as stream:
        start = of(stream.say(TEXT)[1], "audio.start")[0]
        assert {"x-request-id": start["request_id"], "traceparent": start["traceparent"]} == ids(stream.socket.response.headers)
        assert start["traceparent"] != TRACEPARENT
    with pytest.raises(InvalidStatus) as refusal, server.stream(additional_headers=GIVEN, origin="http://evil.example"):
        pass
    assert ids(refusal.value.response.headers) == GIVEN


def lines(server, request_id):
    return [line for line in server.said().splitlines() if f"(request {request_id}, trace " in line]


def test_log_lines_have_them(start):
    """Each line has the ids of its own request, also if a pipeline is reused. No line has text."""
    server = start()
    server.speech({"x-request-id": "first", "traceparent": TRACEPARENT}, input="Secret words.", seed=1)
    server.speech({"x-request-id": "second"}, input="Secret words.", voice="secret")
    server.speech({"x-request-id": "third"}, input="Secret words.", seed=1)
    server.speech({"x-request-id": "two words"}, input="Secret words.", seed=1)
    with server.stream(additional_headers={"x-request-id": "fourth"}) as stream:
        stream.say("Secret words.")
        stream.say("Secret words.")
        stream.say("Secret words.", language="secret")
    server.wait_until_idle()
    wait_for("its lines", lambda: len(lines(server, "fourth")) >= 3)
    assert f"(request first, trace {TRACE})" in lines(server, "first")[0]
    for request_id, reason in (("first", "complete"), ("second", "refused with 400"), ("third", "complete")):
        found = lines(server, request_id)
        assert len(found) == 1 and reason in found[0], found
    assert ["complete" in line for line in lines(server, "fourth")] == [True, True, False]
    assert len(re.findall(r"complete.* \(request [0-9a-f]{32}, trace [0-9a-f]{32}\)$", server.said(), re.MULTILINE)) == 1
    assert "two words" not in server.said() and "ecret" not in server.said()


def test_a_mistake_has_them(monkeypatch, caplog):
    """The answer has the ids, and the log names the request before the exception."""
    application = create_app(Settings(model_path="/nowhere"))

    def fail():
        raise ArithmeticError("on purpose")

    monkeypatch.setattr(application.state.front, "admit", fail)
    with caplog.at_level(logging.ERROR, "qtts_serve"):
        answer = TestClient(application, raise_server_exceptions=False).post("/v1/audio/speech", headers={**GIVEN, "host": "localhost"},
                                                                                        content="{}")
    assert answer.status_code == 500 and json.loads(answer.content)["error"]["code"] == "internal"
    assert ids(answer.headers) == GIVEN
    assert [message for message in caplog.messages if message.endswith(f"(request mine-1, trace {TRACE})")]


def test_lines_outside_of_requests_stay_as_they_are():
    record = logging.makeLogRecord({"msg": "100 %"})
    assert InLogLines().filter(record) and record.msg == "100 %"
