# SPDX-License-Identifier: LGPL-2.1-or-later
# Check: 55
"""Recordings from strangers: the places that they name are neither touched nor told about."""
import base64
import contextlib
import ctypes
import json
import os
import socket

import hostile_recordings
import pytest

from conftest import needs_generator, of

TEXT = "Any words."
FRAMES = 2

pytestmark = needs_generator


class Bait:
    """A listener on loopback and a file that can be cloned from. Both notice when anybody comes."""

    def __init__(self, folder):
        self.file = folder / "secret.wav"
        _, plain = hostile_recordings.decoded("127.0.0.1:1", self.file)["wav-chunks"]
        self.file.write_bytes(plain)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        libc = ctypes.CDLL(None, use_errno=True)
        self._watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        in_access, in_open = 0x1, 0x20
        assert libc.inotify_add_watch(self._watch, os.fsencode(self.file), in_access | in_open) >= 0

    def close(self):
        self._listener.close()
        os.close(self._watch)

    def check(self):
        """Fails if anybody came."""
        with contextlib.suppress(BlockingIOError):
            self._listener.accept()
            raise AssertionError("the listener was connected to")
        with contextlib.suppress(BlockingIOError):
            os.read(self._watch, 4096)
            raise AssertionError("the secret file was opened")


@pytest.fixture
def bait(tmp_path):
    made = Bait(tmp_path)
    yield made
    made.close()


def as_data_url(server, recording):
    data_url = "data:audio/wav;base64," + base64.b64encode(recording).decode()
    status, _, body = server.speech(input=TEXT, seed=1, max_new_tokens=FRAMES, ref_audio=data_url)
    return status, body


def as_upload(server, recording):
    fields = {"input": TEXT, "seed": "1", "max_new_tokens": str(FRAMES), "response_format": "pcm", "pace": "0"}
    form = "".join(f'--xxx\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                   for name, value in fields.items()).encode()
    form += (b'--xxx\r\nContent-Disposition: form-data; name="ref_audio"; filename="me.wav"\r\n'
             b"Content-Type: audio/wav\r\n\r\n" + recording + b"\r\n--xxx--\r\n")
    status, _, body = server.request("POST", "/v1/audio/speech", form, {"content-type": "multipart/form-data; boundary=xxx"})
    return status, body


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
@pytest.mark.parametrize("send", [as_data_url, as_upload])
def test_places_that_a_file_names_are_not_touched_and_not_told_about(start, model, bait, tmp_path, send):
    server = start("--model-path", model)
    good = hostile_recordings.refused(bait.host, bait.file)
    bad = hostile_recordings.refused("127.0.0.1:1", tmp_path / "none.wav")
    assert len(good) > 45
    for name, recording in good.items():
        status, body = send(server, recording)
        assert status == 400, name
        assert json.loads(body)["error"]["message"].startswith("ref_audio: "), name
        # The same words, whether the place exists or not.
        assert send(server, bad[name]) == (status, body), name
        bait.check()


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
@pytest.mark.parametrize("send", [as_data_url, as_upload])
def test_recordings_are_decoded_without_following_their_links(start, model, bait, send):
    server = start("--model-path", model)
    for name, (recording, plain) in hostile_recordings.decoded(bait.host, bait.file).items():
        status, sound = send(server, recording)
        assert status == 200 and len(sound) == FRAMES * 3840, name
        assert send(server, plain) == (200, sound), name
        bait.check()


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
def test_a_damaged_recording_is_told_in_words_for_clients(start, model):
    server = start("--model-path", model)
    for recording, kind in ((b"RIFF\0\0\0\0WAVE" + bytes(100), "WAV"), (b"OggS" + bytes(100), "Ogg")):
        status, body = as_upload(server, recording)
        message = json.loads(body)["error"]["message"]
        assert status == 400 and message.startswith(f"ref_audio: is damaged, or no {kind}. Give speech as WAV"), message


@pytest.mark.parametrize("model", ["tiny-base-0b6"], indirect=True)
def test_a_session_does_not_follow_a_playlist(start, model, bait):
    server = start("--model-path", model)
    playlist = hostile_recordings.refused(bait.host, bait.file)["hls-address"]
    with server.stream() as stream:
        data_url = "data:audio/wav;base64," + base64.b64encode(playlist).decode()
        sound, messages = stream.say(TEXT, max_new_tokens=FRAMES, ref_audio=data_url)
        assert not sound
        assert of(messages, "error")[0]["message"].startswith("ref_audio: is no recording of a kind that is read")
    bait.check()
