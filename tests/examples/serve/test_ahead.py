# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of long texts that are made ahead of their turn: interruptions, and others who want their slots.

The model never ends a part by itself: the guard against runaways does, after as many frames as its text allows. Each part
has more than the engine keeps of one that is ahead, so it stands still, with its slot, until its turn comes; and the first
part stands still while the client reads nothing."""
import json
import signal
import socket
import subprocess

import pytest

from conftest import FRAME, GENERATOR, PATIENCE, element, frames, needs_generator, wait_for

TEXT = "Hello there."
LONG = " ".join(["Each sentence of this text is a part."] * 3)
PARTS, PART_LENGTH = 3, 40
SHORT = 20  # frames of a short answer
KEPT = 375  # frames that the engine keeps of a part ahead

pytestmark = needs_generator


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ahead") / "model"
    subprocess.run([GENERATOR, "--preset", "tiny-custom-0b6", folder], check=True, capture_output=True)
    return str(folder)


@pytest.fixture
def begin(start, model):
    """Starts servers in which a long text may use all slots. `max_wait`: nanoseconds for which an utterance waits for a slot
    of the engine."""
    def begin(max_wait=0):
        return start("--model-path", model, "--slots", str(PARTS), "--ahead", str(PARTS), "--slow-reader", str(2 * PATIENCE),
                     "--drain-timeout", str(2 * PATIENCE), "--element", f"part-length={PART_LENGTH} max-wait={max_wait}")

    return begin


@pytest.fixture
def whole(model):
    """The long text, part after part."""
    sound = element(LONG, seed=1, part_length=PART_LENGTH, model_path=model)
    assert frames(sound) > PARTS * KEPT
    return sound


@pytest.fixture
def short(model):
    """The short answer."""
    return element(TEXT, seed=1, model_path=model, max_duration=SHORT * 80_000_000)


def ask_and_not_read(server, **fields):
    """An answer with the long text, in whose connection only some frames find room: the server bounds what it sends ahead."""
    client = socket.socket()
    client.settimeout(PATIENCE)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.connect((server.host, server.port))
    connection = server.connection()
    connection.sock = client
    fields = {"input": LONG, "seed": 1, "response_format": "pcm", **fields}
    connection.request("POST", "/v1/audio/speech", json.dumps(fields))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def wait_for_parts_ahead(server):
    """Returns once parts ahead use all slots but the utterance's own."""
    wait_for("parts ahead in all slots", lambda: server.metric("qtts_slots_ahead") == PARTS - 1)


def test_parts_ahead_are_counted(begin, whole):
    server = begin()
    assert server.metric("qtts_slots_ahead") == server.metric("qtts_parts_ahead_total") == 0
    response = ask_and_not_read(server)
    wait_for_parts_ahead(server)
    assert server.metric("qtts_slots_busy") == 1
    assert response.read() == whole
    assert server.metric("qtts_slots_ahead") == 0
    assert server.metric("qtts_parts_ahead_total") == PARTS - 1
    assert server.metric("qtts_parts_preempted_total") == 0


def test_a_listener_gets_the_slot_of_a_part_ahead(begin, whole, short):
    """It does not wait: the engine would refuse it."""
    server = begin()
    response = ask_and_not_read(server)
    wait_for_parts_ahead(server)
    status, _, sound = server.speech(input=TEXT, seed=1, max_new_tokens=SHORT, pace=1)
    assert status == 200 and sound == short
    wait_for("the part to be made again", lambda: server.metric("qtts_parts_ahead_total") == PARTS)
    assert server.metric("qtts_parts_preempted_total") == 1
    assert response.read() == whole


def test_listeners_get_all_slots_but_the_utterances_own(begin, whole):
    server = begin()
    response = ask_and_not_read(server)
    wait_for_parts_ahead(server)
    listeners = [ask_and_not_read(server, pace=1) for _ in range(PARTS - 1)]
    assert server.metric("qtts_slots_busy") == PARTS
    assert server.metric("qtts_slots_ahead") == 0
    assert server.metric("qtts_parts_preempted_total") == PARTS - 1
    for listener in listeners:
        listener.close()
    assert response.read() == whole


def test_a_client_that_leaves_frees_all_slots(begin, short):
    server = begin(max_wait=2 * PATIENCE * 10**9)
    response = ask_and_not_read(server)
    wait_for_parts_ahead(server)
    response.close()
    server.wait_until_idle()
    wait_for("the slots of its parts", lambda: server.metric("qtts_slots_ahead") == 0)
    assert server.metric("qtts_parts_preempted_total") == 0, "nobody was given their slots"
    # Their slots are taken as long as they do not read.
    listeners = [ask_and_not_read(server, pace=1) for _ in range(PARTS - 1)]
    assert server.speech(input=TEXT, seed=1, max_new_tokens=SHORT)[2] == short
    assert server.metric("qtts_slots_busy") == PARTS - 1
    for listener in listeners:
        listener.close()


def test_drain_lets_the_answer_end(begin, whole):
    server = begin()
    response = ask_and_not_read(server)
    wait_for_parts_ahead(server)
    spoken = server.metric("qtts_utterances_total")
    assert server.request("POST", "/drain")[0] == 202
    wait_for("it to be told", lambda: server.get("/health/ready")[0] == 503)
    status, error = server.refusal(input=TEXT)
    assert (status, error["code"]) == (503, "draining")
    assert server.metric("qtts_slots_ahead") == PARTS - 1, "its parts are made as before"
    assert response.read() == whole
    wait_for("the utterance to be over", lambda: server.metric("qtts_utterances_total") == spoken + 1)
    assert server.metric("qtts_parts_ahead_total") == PARTS - 1
    assert server.stop()[1] == 0


def test_going_on_within_a_part_that_was_ahead(begin, whole):
    """A server dies while its client hears the second part, which was begun ahead. Another one speaks the rest."""
    first, second = begin(), begin()
    response = ask_and_not_read(first)
    wait_for_parts_ahead(first)
    heard = response.read(frames(whole) // PARTS * 3 // 2 * FRAME)
    first.stop(signal.SIGKILL)
    response.close()
    same = {"x-qtts-fingerprint": response.headers["x-qtts-fingerprint"]}
    status, _, rest = second.speech(same, input=LONG, seed=1, start_frame=frames(heard))
    assert status == 200 and heard + rest == whole
    assert second.metric("qtts_parts_ahead_total") == PARTS - 1
