# SPDX-License-Identifier: LGPL-2.1-or-later
"""The load generator, examples/serve/bench --load: its arithmetic and its protocols with made-up arrivals, and what it
says of a server."""
import array
import asyncio
import collections
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from measure import heard, listeners, load, report, rows, tables
from qtts_serve.encoders import Encoders

ROOT = pathlib.Path(__file__).resolve().parents[3]
TASK = {"format": "pcm", "protocol": "http", "netloc": "here", "pace": 2.0, "voice": None, "tokens_per_second": 20.0,
        "patience": 5.0}


def sine(level, milliseconds):
    """A sine of 1 kHz at 24 kHz with this RMS in dB of full scale, as bytes."""
    peak = 32768 * 10 ** (level / 20) * math.sqrt(2)
    return array.array("h", (round(peak * math.sin(math.tau * n / 24)) for n in range(24 * milliseconds))).tobytes()


def silence(milliseconds):
    return bytes(48 * milliseconds)


# --- a player's clock; times are binary fractions, so sums of them are exact

def play(*arrivals):
    player = heard.Player()
    for now, have in arrivals:
        player.arrive(now, have)
    return player


def test_a_player_that_always_has_sound():
    player = play((8.0, 0.25), (8.25, 0.5), (8.25, 2.0), (9.5, 4.0))
    assert (player.first, player.begin, player.gaps, player.longest, player.silent) == (8.0, 8.0, 0, 0.0, 0.0)
    assert player.plays(1.5) == 9.5


def test_a_player_goes_on_after_a_gap_later():
    # A gap from 8.25 to 8.5; without its delay the last piece would be late, too.
    player = play((8.0, 0.25), (8.5, 0.5), (8.75, 1.0))
    assert (player.first, player.begin, player.gaps, player.long_gaps, player.longest, player.silent) == \
        (8.0, 8.25, 1, 1, 0.25, 0.25)
    assert player.plays(1.0) == 9.25


def test_gaps_are_counted_by_their_length():
    short = 2 ** -8
    assert short < heard.LONG_GAP
    player = play((0.0, 0.25), (0.25 + short, 0.5), (1.0 + short, 1.0), (1.5 + short, 2.0))
    assert (player.gaps, player.long_gaps, player.longest, player.silent) == (2, 1, 0.5, 0.5 + short)


# --- audible sound

@pytest.mark.parametrize("level, found", [(-44.9, 0.05), (-45.1, None)])
def test_the_level_of_audible_sound(level, found):
    ear = heard.Ear()
    ear.take(silence(50) + sine(level, 100))
    assert ear.audible == found


def test_one_loud_sample_is_not_audible():
    ear = heard.Ear()
    ear.take(array.array("h", [2000] + [0] * 4799).tobytes())
    assert ear.audible is None


@pytest.mark.parametrize("piece", [1, 7, 479, 480, 481, 10000])
def test_sound_in_pieces(piece):
    ear, sound = heard.Ear(), silence(30) + sine(-20, 30)
    for begin in range(0, len(sound), piece):
        ear.take(sound[begin:begin + piece])
    assert ear.audible == 0.03


def test_sound_is_not_looked_for_for_ever():
    ear = heard.Ear()
    ear.take(silence(int(1000 * heard.LOOKED_AT)))
    assert not ear.listens
    ear.take(sine(-20, 100))
    assert ear.audible is None


@pytest.mark.parametrize("name, header", [("pcm", b""), ("wav", b"h" * 44)])
@pytest.mark.parametrize("piece", [1, 100, 4000])
def test_seconds_of_samples(name, header, piece):
    utterance = heard.Heard(name, 1.0)
    sound = header + silence(20) + sine(-20, 30)
    for number, begin in enumerate(range(0, len(sound), piece)):
        utterance.take(2.0 + number, sound[begin:begin + piece])
    assert utterance.seconds == 0.05 and utterance.first_byte == 2.0
    assert utterance.player.first == 2.0 + len(header) // piece, "with the first sample, not with the header"
    last = len(header) + 48 * 30 - 1  # byte of the first audible window
    assert utterance.audible == 2.0 + last // piece


def test_heard_is_when_a_player_comes_to_it():
    utterance = heard.Heard("pcm", 1.0)
    utterance.take(2.0, silence(250))
    assert utterance.audible is None
    utterance.take(2.125, silence(250) + sine(-20, 20))
    assert (utterance.first_byte, utterance.audible, utterance.heard) == (2.0, 2.125, 2.5)


@pytest.fixture(scope="module")
def ogg():
    """0.4 s of silence and 0.6 s of a tone as the server encodes it, and the samples that it was made of."""
    command = ["ffmpeg", "-v", "error", "-f", "s16le", "-ar", "24000", "-ac", "1", "-i", "-", "-c:a", "libopus",
               "-b:a", "32k", "-page_duration", "20000", "-f", "ogg", "-"]
    return subprocess.run(command, input=silence(400) + sine(-20, 600), check=True, capture_output=True).stdout


@pytest.mark.parametrize("piece", [1, 333, 1 << 20])
def test_seconds_of_opus(ogg, piece):
    opus = heard.Opus()
    seconds = []
    for begin in range(0, len(ogg), piece):
        opus.take(ogg[begin:begin + piece])
        seconds.append(opus.seconds)
    assert seconds == sorted(seconds) and opus.seconds == pytest.approx(1.0, abs=1e-6)
    assert opus.ear.audible == pytest.approx(0.4, abs=0.02), "an encoder rounds the beginning of a tone"


def test_opus_without_libopus(ogg, monkeypatch):
    monkeypatch.setattr(heard.Decoder, "_library", False)
    opus = heard.Opus()
    opus.take(ogg)
    assert opus.ear.deaf and opus.ear.audible is None and opus.seconds == pytest.approx(1.0, abs=1e-6)


def test_what_is_not_ogg():
    with pytest.raises(ValueError, match="no Ogg"):
        heard.Opus().take(b"RIFF" + bytes(40))


# --- protocols

class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.written, self.aborted = b"", False

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True


def receive(connection, data, piece):
    for begin in range(0, len(data), piece):
        part = data[begin:begin + piece]
        connection.get_buffer(-1)[:len(part)] = part
        connection.buffer_updated(len(part))


def spoken(kind, data, piece, prepare=b"", **task):
    """The result of an utterance whose answer is `data`, in pieces of so many bytes; the connection."""
    async def one():
        connection = kind({**TASK, **task})
        connection.transport = Wire()
        opening = asyncio.create_task(connection.prepare(None))
        await asyncio.sleep(0)
        receive(connection, prepare, piece)
        await opening
        connection.speak(["One", "two."], 100)
        receive(connection, data, piece)
        assert connection.ended.done()
        return await asyncio.gather(connection.ended, return_exceptions=True), connection
    (result,), connection = asyncio.run(one())
    return result, connection


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PIECES = pytest.mark.parametrize("piece", [1, 2, 3, 50, 1 << 16])


@PIECES
def test_an_answer_in_chunks(piece):
    body = b"1e0\r\n" + bytes(480) + b"\r\n" + b"12;x=y\r\n" + bytes(18) + b"\r\n0\r\n"
    body += b"X-Qtts-Reason: complete\r\nx-other: 1\r\n\r\n"
    result, connection = spoken(listeners.Http, CHUNKED + body, piece)
    assert result == "complete" and connection.heard.seconds == 498 / 48000
    request = connection.transport.written.decode()
    assert request.startswith("POST /v1/audio/speech HTTP/1.1\r\nHost: here\r\n")
    assert json.loads(request.split("\r\n\r\n")[1]) == {
        "input": "One two.", "response_format": "pcm", "pace": 2.0, "max_new_tokens": 100}


@PIECES
def test_an_answer_without_trailers_and_one_more(piece):
    result, connection = spoken(listeners.Http, CHUNKED + b"2\r\nab\r\n0\r\n\r\n", piece)
    assert result == "not told" and connection.heard.seconds == 2 / 48000

    async def again():
        connection.speak(["Three."], None)
        receive(connection, CHUNKED + b"4\r\nabcd\r\n0\r\n\r\n", piece)
        return await connection.ended

    assert asyncio.run(again()) == "not told" and connection.heard.seconds == 4 / 48000


@PIECES
@pytest.mark.parametrize("status, fields, after", [(429, "Retry-After: 7\r\n", 7.0), (503, "", None)])
def test_a_refusal(piece, status, fields, after):
    answer = f"HTTP/1.1 {status} No\r\n{fields}Content-Length: 4\r\n\r\nbusy".encode()
    result, connection = spoken(listeners.Http, answer, piece)
    assert isinstance(result, listeners.Refused) and result.retry_after == after and connection.heard.first_byte is None


@PIECES
def test_an_error(piece):
    body = b'{"error": {"message": "No voice."}}'
    result, _ = spoken(listeners.Http, b"HTTP/1.1 400 Bad\r\ncontent-length: %d\r\n\r\n" % len(body) + body, piece)
    assert isinstance(result, listeners.Broken) and str(result) == "status 400: No voice."


def test_a_malformed_answer():
    result, connection = spoken(listeners.Http, CHUNKED + b"zz\r\n", 100)
    assert isinstance(result, listeners.Broken) and "malformed" in str(result) and connection.transport.aborted


def test_an_answer_that_is_cut_off():
    async def one():
        connection = listeners.Http(TASK)
        connection.transport = Wire()
        connection.speak(["One."], None)
        receive(connection, CHUNKED + b"4\r\nab", 100)
        connection.connection_lost(None)
        return await connection.ended

    with pytest.raises(listeners.Broken, match="cut off"):
        asyncio.run(one())


def message(**fields):
    return frame(1, json.dumps(fields).encode())


def frame(kind, payload):
    size = len(payload)
    if size < 126:
        head = bytes((size,))
    else:
        head = b"\x7e" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x7f" + size.to_bytes(8, "big")
    return bytes((0x80 | kind,)) + head + payload


def sent(data):
    """Frames of a client: kind and payload."""
    frames = []
    while data:
        size, begin = data[1] & 127, 2
        assert data[1] & 128, "a client's frames are masked"
        if size == 126:
            size, begin = int.from_bytes(data[2:4], "big"), 4
        mask, payload = data[begin:begin + 4], data[begin + 4:begin + 4 + size]
        frames.append((data[0] & 15, bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))))
        data = data[begin + 4 + size:]
    return frames


OPENED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
DONE = message(type="audio.done", reason="complete") + message(type="session.done")


@pytest.mark.parametrize("size, piece", [(10, 1), (300, 1), (300, 2), (300, 3), (300, 1 << 16), (70000, 500),
                                         (70000, 1 << 18)])
def test_an_utterance_of_a_session(size, piece):
    data = message(type="audio.start") + frame(2, bytes(size)) + frame(9, b"ping") + frame(2, bytes(20)) + DONE
    result, connection = spoken(listeners.WebSocket, data, piece, OPENED, protocol="websocket")
    assert result == "complete" and connection.heard.seconds == (size + 20) / 48000
    head, _, rest = connection.transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"GET /v1/audio/speech/stream ")
    *texts, (kind, payload) = sent(rest)
    assert (kind, payload) == (10, b"ping")
    assert [json.loads(text) for _, text in texts] == [
        {"type": "session.config", "stream_audio": True, "response_format": "pcm", "pace": 2.0},
        {"type": "input.text", "text": "One two."}, {"type": "input.done"}]


@PIECES
def test_a_session_that_is_busy(piece):
    data = message(type="error", code="overloaded", message="Busy.", utterance_index=0) + DONE
    result, connection = spoken(listeners.WebSocket, data, piece, OPENED, protocol="websocket")
    assert isinstance(result, listeners.Refused) and result.retry_after is None and not connection.transport.aborted


def test_settings_that_a_session_does_not_take():
    data = message(type="error", code="invalid_value", message="No voice.", utterance_index=None)
    result, connection = spoken(listeners.WebSocket, data, 100, OPENED, protocol="websocket")
    assert isinstance(result, listeners.Broken) and str(result) == "invalid_value: No voice."
    assert connection.transport.aborted


def test_a_session_that_is_closed():
    result, _ = spoken(listeners.WebSocket, frame(8, (1001).to_bytes(2, "big")), 100, OPENED, protocol="websocket")
    assert isinstance(result, listeners.Broken) and str(result) == "closed with 1001"


def test_a_session_that_is_refused():
    with pytest.raises(listeners.Refused) as refusal:
        spoken(listeners.WebSocket, b"", 100, b"HTTP/1.1 429 No\r\nretry-after: 3\r\n\r\n", protocol="websocket")
    assert refusal.value.retry_after == 3.0


def test_growing_text_comes_word_by_word():
    async def one():
        connection = listeners.WebSocket({**TASK, "protocol": "growing", "tokens_per_second": 1e6})
        connection.transport = Wire()
        opening = asyncio.create_task(connection.prepare(None))
        await asyncio.sleep(0)
        receive(connection, OPENED, 100)
        await opening
        connection.transport.written = b""
        connection.speak(["One", "two", "three."], None)
        assert len(sent(connection.transport.written)) == 1
        while len(sent(connection.transport.written)) < 4:
            await asyncio.sleep(0)
        return [json.loads(text) for _, text in sent(connection.transport.written)]

    *texts, done = asyncio.run(one())
    assert [text["text"] for text in texts] == ["One", " two", " three."] and done == {"type": "input.done"}


# --- texts, arrivals, figures

def test_texts_have_as_many_words_and_frames_as_asked():
    texts = listeners.Texts({"sentences": load.SENTENCES, "words": (5, 40), "frames": (100, 280)}, "seed")
    drawn = [texts.draw() for _ in range(500)]
    assert {len(words) for words, _ in drawn} == set(range(5, 41))
    assert all(words[-1].endswith(".") for words, _ in drawn)
    assert all(frames == round(100 + (len(words) - 5) / 35 * 180) for words, frames in drawn)
    same = listeners.Texts({"sentences": load.SENTENCES, "words": (5, 40), "frames": (100, 280)}, "seed")
    assert [same.draw() for _ in range(500)] == drawn


def test_texts_whose_frames_the_server_decides():
    texts = listeners.Texts({"sentences": ["One two three."], "words": (4, 4), "frames": (0, 0)}, 1)
    assert texts.draw() == (["One", "two", "three.", "One."], None)


def test_arrivals_of_all_processes_have_the_rate():
    tasks = load.numbers_of({"seed": 1, "rate": 100.0, "total": 0}, 4)
    times = [list(listeners.arrivals(task, 10.0, 110.0)) for task in tasks]
    assert all(10 < one[0] and one[-1] < 110 and one == sorted(one) for one in times)
    assert sum(map(len, times)) == pytest.approx(10000, rel=0.03) and times[0] != times[1]


def test_listeners_are_dealt_to_processes():
    tasks = load.numbers_of({"total": 10}, 4)
    assert [task["listeners"] for task in tasks] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_quantiles():
    assert tables.summary([]) == {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}
    assert tables.summary([0.5]) == {"n": 1, "p50": 500, "p95": 500, "p99": 500, "max": 500}
    assert tables.summary(list(range(200, 0, -1)), 1) == {"n": 200, "p50": 100.5, "p95": 191, "p99": 199, "max": 200}


def row(listener, begin, first, **others):
    fields = {"listener": listener, "begin": begin, "first_byte": first, "first_sound": first, "audible": first,
              "heard": first, "pieces": None, "from_piece": None, "gaps": 0, "long_gaps": 0, "longest": 0.0, "silent": 0.0, "sound": 5.0,
              "outcome": "complete", "age": 20.0, **others}
    return [fields[name] for name in listeners.ROW]


def result(utterances, retry_after=(), broken=None, deaf=False):
    return {"utterances": utterances, "retry_after": list(retry_after), "broken": broken or {}, "late": [0.001],
            "sound": 1.0, "processor": 0.1, "deaf": deaf}


def test_figures_of_all_processes():
    figures = tables.merge([
        result([row(0, 0.0, 0.25), row(0, 8.0, 0.5, gaps=3, long_gaps=1, longest=0.25, silent=0.375),
                row(2, 1.0, None, sound=0.0, outcome=None, age=3.0)], [2.0, None], {"cut off": 1}),
        result([row(1, 2.0, 1.0, audible=None, heard=None),
                row(3, 3.0, 2.0, audible=None, heard=None, sound=1.0, outcome=None),
                row(3, 9.0, 0.5, gaps=1, longest=0.005, silent=0.005)], [4.0], {"cut off": 2})], ramp=4.0)
    assert figures["utterances"] == 6
    assert figures["first_byte"] == {"n": 5, "p50": 500, "p95": 2000, "p99": 2000, "max": 2000}
    assert figures["first_sound_ramp"]["n"] == 3
    assert figures["first_sound_full"] == {"n": 2, "p50": 500, "p95": 500, "p99": 500, "max": 500}
    assert figures["audible"]["n"] == 3
    assert figures["never_audible"] == {"number": 1, "of": 4}, "listener 3 was cut off before it could be audible"
    assert figures["unheard_at_end"] == {"utterances": 1, "longest": 3000}
    gaps = figures["gaps"]
    assert (gaps["number"], gaps["long"], gaps["longest"]) == (4, 1, 250)
    assert (gaps["utterances"], gaps["long_utterances"], gaps["listeners"]) == (2, 1, [0, 3])
    assert (gaps["ramp"], gaps["begin"]) == (0, [8.0, 9.0])
    assert figures["refused"]["number"] == 3 and figures["refused"]["without_retry_after"] == 1
    assert figures["refused"]["retry_after"]["max"] == 4.0 and figures["broken"] == {"cut off": 3}
    assert figures["reasons"] == {"complete": 4, "cut by the end": 2}


def test_growing_text_counts_from_the_piece_that_let_it_speak():
    connection = listeners.Heard("pcm", 100.0)
    for when in (100.0, 100.0625, 100.125):
        connection.give_piece(when)
    connection.take(100.15625, b"\1\0" * 480)
    connection.give_piece(100.1875)  # behind the first sound
    growing = dict(zip(listeners.ROW, listeners.Utterance(0, connection).row(100.0, 101.0)))
    assert (growing["first_sound"], growing["pieces"], growing["from_piece"]) == (0.15625, 3, 0.03125)
    whole = listeners.Heard("pcm", 100.0)
    whole.take(100.5, b"\1\0" * 480)
    row_of_whole = listeners.Utterance(1, whole).row(100.0, 101.0)
    figures = tables.merge([result([list(growing.values()), row_of_whole])], 0.0)
    assert figures["pieces"]["n"] == 1 and figures["pieces"]["max"] == 3 and figures["from_piece"]["p50"] == 31.25


def test_figures_without_libopus():
    assert tables.merge([result([row(0, 0.0, 0.25)]), result([], deaf=True)], 0.0)["never_audible"] is None


def table_figures():
    """Those of a measurement without fault."""
    figures = {"kind": "listeners", "number": 4, "protocol": "http", "format": "pcm", "clients": 2, "load": "load 1",
               "sound_per_second": 4.0, **load.NO_CORES, "client_cores": 0.1}
    return figures | tables.merge([result([row(0, 0.0, 0.25)])], 4.0)


def test_the_table_tells_what_went_wrong():
    fine = table_figures()
    assert "gaps" not in tables.notes(fine) and "broken" not in tables.notes(fine) and "never" not in tables.notes(fine)
    bad = fine | tables.merge([result([row(7, 0.0, 0.25, gaps=1, long_gaps=1, longest=0.25, silent=0.25),
                                          row(8, 0.0, 0.25, audible=None)], [3.0], {"cut off": 2})], 4.0)
    for words in ("never audible: 1 of 2 utterances", "gaps in 1 utterances", "the longest 250.0 ms",
                  "1 of these utterances began in the ramp; the first after 0.0 s, half until 0.0, the last after 0.0",
                  "of 1 listeners: 7", "retry-after of 1: p50 3, at most 3 s", "broken: 2 cut off"):
        assert words in tables.notes(bad)
    assert len({len(line) for line in (tables.table_row(fine), tables.table_row(bad))}) == 1


def test_rows_of_a_plot():
    def figures(number, protocol="http", **others):
        return {"kind": "listeners", "protocol": protocol, "format": "pcm", "number": number, "utterances": 4,
                "server_cores": 0.5, "client_cores": 0.25, "gaps": {"long_utterances": 1},
                "audible": {"n": 4, "p50": 10.5, "p95": 20, "p99": 30}, **others}

    deaf = {"audible": {"n": 0}, "first_sound": {"n": 4, "p50": 1, "p95": 2, "p99": 3}, "server_cores": None}
    found = rows.blocks([figures(64), figures(8), figures(8, "growing", **deaf), figures(1, kind="rates")], "listeners")
    assert rows.text(found) == ('"http pcm"\n8\t10.5\t20\t30\t25\t0.5\t0.25\n64\t10.5\t20\t30\t25\t0.5\t0.25\n\n\n'
                                '"growing pcm"\n8\t1\t2\t3\t25\t-\t0.25\n')


@pytest.mark.skipif(shutil.which("gnuplot") is None, reason="gnuplot is not installed")
def test_the_plot(tmp_path):
    loads = [{"kind": "listeners", "protocol": protocol, "format": "pcm", "number": number, "utterances": 4,
              "server_cores": None, "client_cores": 0.25, "gaps": {"long_utterances": 0},
              "audible": {"n": 4, "p50": number, "p95": 2 * number, "p99": 3 * number}}
             for protocol in ("http", "growing") for number in (8, 64)]
    (tmp_path / "load.json").write_text(json.dumps({"loads": loads}))
    command = ["gnuplot", "-c", "doc/draw-listeners", str(tmp_path / "load.json")]
    drawn = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert drawn.returncode == 0 and drawn.stderr == "" and drawn.stdout.rstrip().endswith("</svg>")
    assert all(f">{text}<" in drawn.stdout for text in ("http pcm", "growing pcm", "8", "64", "listeners"))


def test_processor_time_of_a_tree():
    with subprocess.Popen([sys.executable, "-c", "import sys; sum(range(10**7)); print(flush=True); sys.stdin.read()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        alone, tree = report.Process(os.getpid()), report.Tree(os.getpid())
        assert report.Tree(child.pid).seconds() > 0
        # Looking takes time, too: what should be less is read first. Each figure is in ticks of 10 ms.
        parts = alone.seconds() + report.Tree(child.pid).seconds()
        assert tree.seconds() >= parts - 0.04
        threads = tree.threads()
        assert 0 < threads[report.MAIN] <= sum(threads.values()) <= tree.seconds() + 0.04
        before = tree.seconds()
    assert tree.seconds() >= before, "the time of a child stays when it has ended"
    with pytest.raises(RuntimeError, match="no process"):
        report.Tree(2 ** 30).seconds()


def test_processor_time_of_a_servers_threads():
    async def main():
        encoders = Encoders()
        encoder = await encoders.make("flac", 24000)
        await encoder.encode(bytes(3840))
        encoder.close()
        try:
            return report.Tree(os.getpid()).threads()
        finally:
            encoders.close()

    assert asyncio.run(main())["encoder"] > 0
    before, after = (2.0, {report.MAIN: 1.0}), (6.0, {report.MAIN: 2.0, "encoder": 1.0, "cuda": 1.0})
    figures = load.server_cores(*((seconds, collections.Counter(names)) for seconds, names in (before, after)), 2.0)
    assert figures == {"server_cores": 2.0, "server_main_thread_cores": 0.5, "server_encoder_cores": 0.5,
                       "server_streaming_cores": 0.0}
    told = tables.notes(table_figures() | figures)
    assert "its main thread 0.50, encoders 0.50, streaming threads 0.00" in told


# --- a server

def bench(*options):
    command = [sys.executable, "-m", "measure", "--load", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options, words", [
    ([], "at least one of --listeners"),
    (["--listeners", "2", "--server-pid", "1"], "--url"),
    (["--listeners", "2", "--url", "http://x", "--front-alone"], "not for that at --url"),
    (["--listeners", "2", "--url", "https://x"], "no TLS"),
    (["--listeners", "2", "--front-alone"], "--instant"),
    (["--listeners", "2", "--url", "http://x", "--server-pid", str(2 ** 30)], "no process"),
    (["--listeners", "two"], "--listeners"),
    (["--listeners", "2", "--formats", "mp3"], "'mp3' is none of"),
    (["--listeners", "2", "--words", "9-5"], "--words"),
    (["--listeners", "2", "--url", "http://127.0.0.1:9"], "http://127.0.0.1:9 does not answer"),
])
def test_options_that_make_no_sense(options, words):
    ended = bench(*options)
    assert ended.returncode != 0 and words in ended.stderr and "Traceback" not in ended.stderr


def test_listeners_of_a_server(server, tmp_path):
    options = [] if server.process is None else ["--server-pid", str(server.process.pid)]
    ended = bench("--url", server.address, *options, "--protocols", "http,websocket,growing",
                  "--formats", "pcm,wav,opus", "--listeners", "2", "--whole", "1", "--clients", "2",
                  "--ramp", "0.1", "--seconds", "1", "--frames", "20-30", "--json", str(tmp_path / "out.json"))
    assert ended.returncode == 0, ended.stderr
    loads = json.loads((tmp_path / "out.json").read_text())["loads"]
    assert len(loads) == 12 and {(one["protocol"], one["format"]) for one in loads} == {
        (protocol, form) for protocol in load.PROTOCOLS for form in load.FORMATS}
    for one in loads:
        assert one["broken"] == {} and one["refused"]["number"] == 0, one
        assert set(one["reasons"]) <= {"complete", "max-duration", "cut by the end"}, one
    # How much is heard in a second depends on the machine; the requests below are all waited for.
    assert sum(one["utterances"] for one in loads) > 0


def test_requests_at_random(server, tmp_path):
    ended = bench("--url", server.address, "--rates", "4", "--seconds", "2", "--clients", "2", "--frames", "5-5",
                  "--protocols", "http,websocket,growing", "--json", str(tmp_path / "out.json"))
    assert ended.returncode == 0, ended.stderr
    loads = json.loads((tmp_path / "out.json").read_text())["loads"]
    task = {"seed": 1, "rate": 4.0, "total": 0}
    arrivals = sum(len(list(listeners.arrivals(part, 0.0, 2.0))) for part in load.numbers_of(task, 2))
    assert [one["protocol"] for one in loads] == ["http", "websocket", "growing"]
    for one in loads:
        assert one["broken"] == {} and one["refused"]["number"] == 0
        assert one["utterances"] == one["first_byte"]["n"] == one["first_sound"]["n"] == arrivals


@pytest.mark.parametrize("protocol", ["http", "websocket"])
def test_a_full_server(start, tmp_path, protocol):
    server = start("--sessions", "1")
    with server.stream():
        ended = bench("--url", server.address, "--protocols", protocol, "--rates", "4", "--seconds", "1",
                      "--clients", "1", "--json", str(tmp_path / "out.json"))
    assert ended.returncode == 0, ended.stderr
    one, = json.loads((tmp_path / "out.json").read_text())["loads"]
    arrivals = list(listeners.arrivals(load.numbers_of({"seed": 1, "rate": 4.0, "total": 0}, 1)[0], 0.0, 1.0))
    assert one["utterances"] == 0
    assert one["refused"]["number"] == one["refused"]["retry_after"]["n"] == len(arrivals) > 0
    assert "retry-after of" in ended.stdout
