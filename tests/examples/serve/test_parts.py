# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of the server by themselves: waiting with a limit, writes that go out together, the encoders, messages."""
import asyncio
import itertools
import math
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
import types
import unicodedata
import unittest.mock

import pytest
from hostile_recordings import ogg_checksum

from qtts_serve import encoders, encoding, formats, opus, pacing
from qtts_serve.connection import Transport
from qtts_serve.errors import ApiError
from qtts_serve.front import TOKENS_OF_BYTE, Front
from qtts_serve.pacing import Pace
from qtts_serve.patience import within
from qtts_serve.samples import Reports
from qtts_serve.speaker import GObject, Gst, Speaker, Spoken, structure

Gst.init(None)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


# --- pauses between writes

def paced(frames, held=0.0, ahead=2.0):
    pace = Pace(ahead, held)
    pace.begin(100.0)
    pace.frames = frames
    return pace


@pytest.mark.parametrize("held", [0.0, 0.1])
@pytest.mark.parametrize("frames", [2, 3, 4])
@pytest.mark.parametrize("after", [0.0, 0.013, 0.05])
def test_the_next_write_comes_before_all_is_played(frames, after, held):
    ticks = paced(frames, held).pause(100.0 + after, pulled=1)
    assert ticks == 1 or after + ticks * pacing.TICK <= frames * pacing.FRAME - held - 0.02


def test_the_first_pause_is_shorter_for_what_an_encoder_keeps_back():
    assert paced(2).pause(100.0, pulled=2) == 12
    assert paced(2, held=0.1).pause(100.0, pulled=2) == 1


def test_a_listener_with_sound_in_hand_gets_it_in_few_writes():
    pace = paced(25)
    assert [pace.pause(100.0, pulled=1) for _ in range(4)] == [16, 16, 16, 32]


def test_a_listener_who_has_played_all_gets_sound_at_once():
    assert paced(2).pause(100.5, pulled=1) == 1


def test_a_late_frame_is_looked_for_the_more_often_the_less_there_is_to_play():
    assert paced(25).pause(100.0, pulled=0) == pacing.FRAME_TICKS  # no more than a frame comes meanwhile
    pace = paced(2, held=0.05)
    assert [pace.pause(100.005 + 0.01 * look, pulled=0) for look in range(11)] == [5, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    assert [pace.pause(100.12 + look, pulled=0) for look in range(5)] == [1, 2, 4, 8, 16]
    pace.expect()  # more text has come
    assert [pace.pause(106.0, pulled=0) for _ in range(7)] == [1, 2, 4, 8, 16, 32, 32]


def test_who_does_not_listen_is_looked_after_less_and_less():
    pace = paced(2, ahead=0)
    assert [pace.pause(100.0, pulled=0) for _ in range(7)] == [1, 2, 4, 8, 16, 32, 32]


@pytest.mark.parametrize("frames, pulled, ticks", [
    (2, 1, 4), (3, 1, 6), (100, 1, 8), (100, 4, 8), (100, 5, 6), (100, 8, 4), (100, 9, 3), (100, 31, 1)])
def test_an_answer_without_a_pace_gets_what_has_gathered(frames, pulled, ticks):
    assert paced(frames, ahead=0).pause(100.0, pulled) == ticks


def test_a_client_that_plays_an_answer_without_a_pace_keeps_most_of_its_sound():
    assert paced(2, ahead=0).pause(100.1, pulled=1) == 1
    assert paced(10, ahead=0).pause(100.6, pulled=1) == 5  # 0.2 s are in hand
    assert paced(10, ahead=0).pause(105.0, pulled=1) == 1


class Sleepers:
    """Sleep, and note the names of those that woke in each turn of the event loop."""

    def __init__(self, timer):
        self._timer, self.turns = timer, []

    async def sleep(self, name, ticks, until=math.inf):
        await self._timer.sleep(ticks, until)
        self.turns[-1].append(name)

    async def watch(self):
        while True:
            self.turns.append([])
            await asyncio.sleep(0)


def woken(sleeps):
    """Names of (name, ticks, until) in each turn in which one woke."""
    async def main():
        sleepers = Sleepers(pacing.Timer())
        watch = asyncio.create_task(sleepers.watch())
        await asyncio.gather(*(sleepers.sleep(*sleep) for sleep in sleeps))
        watch.cancel()
        return [turn for turn in sleepers.turns if turn]

    return run(main())


def test_of_those_whose_tick_has_come_who_runs_out_of_sound_first_wakes_first():
    turns = woken([("idle", 1), ("late", 1, 5.0), ("soon", 1, 2.0), ("sooner", 1, 1.0), ("idle, too", 1)])
    assert turns == [["sooner", "soon", "late", "idle", "idle, too"]]


def test_no_turn_of_the_event_loop_wakes_all_sleepers():
    count = 5 * pacing.Timer.WOKEN
    turns = woken([(number, 1, float(count - number)) for number in range(count)])
    assert sum(turns, []) == list(reversed(range(count)))
    assert all(len(turn) <= pacing.Timer.WOKEN for turn in turns)


def test_who_runs_out_of_sound_wakes_before_those_of_an_earlier_tick_who_do_not():
    async def main():
        sleepers = Sleepers(pacing.Timer())
        sleepers.turns.append([])
        with unittest.mock.patch.object(pacing.Timer, "WOKEN", 1):
            tasks = [asyncio.create_task(sleepers.sleep(number, 1)) for number in range(3)]
            tasks.append(asyncio.create_task(sleepers.sleep("urgent", 2, 1.0)))
            await asyncio.sleep(0)
            time.sleep(3 * pacing.TICK)  # both ticks are late
            await asyncio.gather(*tasks)
        return sleepers.turns[0]

    assert run(main()).index("urgent") < 3


def test_a_late_tick_does_not_move_those_after_it():
    async def main():
        timer = pacing.Timer()
        sleeps = [timer.sleep(ticks) for ticks in (1, 5, 10)]
        time.sleep(11 * pacing.TICK)
        for _ in range(4):  # turns
            await asyncio.sleep(0)
        assert all(sleep.done() for sleep in sleeps)

    run(main())


def test_a_sleeper_who_was_woken_early_is_passed_over():
    async def main():
        timer = pacing.Timer()
        sleeps = [timer.sleep(1, float(number)) for number in range(2 * pacing.Timer.WOKEN)]
        for early in sleeps[:-1]:
            early.set_result("early")
        assert await sleeps[-1] is None
        assert await timer.sleep(pacing.Timer.SLOTS) is None

    run(main())


class Listener:
    """Hears an utterance whose frames are made at these times, by the policy alone: there is no clock. Ticks come at `phase`
    and every 10 ms after it."""

    def __init__(self, made, held, phase):
        self.looks = self.silent = 0
        pace, written, began = Pace(2.0, held), 0, None
        now = made[0]  # a message tells of the first frame
        while written < len(made):
            self.looks += 1
            pulled = min(sum(when <= now for when in made) - written, max(0, pace.allowed(now)))
            if pulled:
                if written == 0:
                    pace.begin(now)
                    began = now
                self.silent += max(0.0, now - began - written * pacing.FRAME + held) if written else 0.0
                written += pulled
                pace.frames = written
            ticks = pace.pause(now, pulled)
            now = phase + pacing.TICK * (math.floor((now - phase) / pacing.TICK + 1e-6) + ticks)


def made_at(*pauses, frames=100):
    """Times of frames; the last pause is that of all further ones."""
    pauses = [*pauses, *pauses[-1:] * (frames - len(pauses))]
    return list(itertools.accumulate(pauses))


# The first frames as 500 listeners get them on a card, and later ones: the third comes as late as it may, a tick before what
# the encoder has given is played.
@pytest.mark.parametrize("phase", [0.001 * number for number in range(10)])
@pytest.mark.parametrize("held, pauses", [
    (0.0, (0.04, 0.01, 0.1, 0.072)), (opus.HELD, (0.04, 0.01, 0.1, 0.072)),
    (0.0, (0.04, 0.01, 0.139, 0.06)), (opus.HELD, (0.04, 0.01, 0.122, 0.06)),
    (0.0, (0.04, 0.05, 0.072)), (opus.HELD, (0.04, 0.04, 0.079)), (0.1, (0.04, 0.0, 0.04, 0.072)),
])
def test_a_frame_that_is_there_in_time_is_heard_in_time(held, pauses, phase):
    listener = Listener(made_at(*pauses), held, phase)
    assert listener.silent == pytest.approx(0.0, abs=1e-6)
    assert listener.looks < 5 * 100


def test_an_engine_that_is_too_slow_is_not_asked_at_each_tick():
    listener = Listener(made_at(0.04, 0.5), 0.0, 0.003)
    assert listener.silent > 40.0 and listener.looks < 8 * 100


# --- waiting with a limit

async def answer(future=None):
    return 7 if future is None else await future


def test_what_need_not_wait_sets_no_timer():
    async def main():
        asyncio.get_running_loop().call_at = None
        try:
            return await within(1000, answer())
        finally:
            del asyncio.get_running_loop().call_at

    assert run(main()) == 7


def test_what_waits_in_time():
    async def main():
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 8)
        return await within(1000, answer(future))

    assert run(main()) == 8


def test_what_waits_too_long_is_cancelled():
    async def main():
        future = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await within(0.001, answer(future))
        return future.cancelled()

    assert run(main())


def test_an_error_at_once_and_after_waiting():
    async def fail(future=None):
        await answer(future)
        raise KeyError("mine")

    async def main():
        with pytest.raises(KeyError):
            await within(1000, fail())
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        with pytest.raises(KeyError):
            await within(1000, fail(future))

    run(main())


def test_cancelling_reaches_what_waits():
    async def main():
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(within(1000, answer(future)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return future.cancelled()

    assert run(main())


# --- writes

class Written(list):
    write = list.append


def test_a_header_goes_out_with_the_first_of_the_body():
    class Connection:
        hold = release = change_protocol = refuse = close = None

    written = Written()
    transport = Transport(Connection(), written)
    transport.hold_next()
    transport.write(b"header")
    assert written == []
    transport.write(b" body")
    transport.write(b"more")
    assert written == [b"header body", b"more"]


# --- encoders

FRAME = bytes(3840)


def noise(samples):
    return random.Random(1).randbytes(2 * samples)


class Ogg:
    """The pages of a stream, which have to follow each other and to have the right checksums."""

    def __init__(self, data):
        self.packets, self.granules, self.flags = [], [], []
        at, rest = 0, b""
        while at < len(data):
            magic, _, flags, granule, serial, number, crc, segments = struct.unpack_from("<4sBBqIIIB", data, at)
            lacing = data[at + 27:at + 27 + segments]
            page = data[at:at + 27 + segments + sum(lacing)]
            assert magic == b"OggS" and serial == int.from_bytes(data[14:18], "little") and number == len(self.granules)
            assert crc == ogg_checksum(page[:22] + bytes(4) + page[26:])
            self.granules.append(granule)
            self.flags.append(flags)
            at, body = at + len(page), page[27 + segments:]
            for size in lacing:
                rest, body = rest + body[:size], body[size:]
                if size < 255:
                    self.packets.append(rest)
                    rest = b""
        assert rest == b""


def durations(packets):
    """Milliseconds of packets in CELT, by their first bytes (RFC 6716, 3.1)."""
    assert all(packet[0] >> 7 for packet in packets)
    frames = [1 if packet[0] & 3 == 0 else packet[1] & 63 for packet in packets]
    return [count * (2.5, 5, 10, 20)[packet[0] >> 3 & 3] for packet, count in zip(packets, frames)]


with_opus = pytest.mark.skipif(not formats.available("opus"), reason="libopus is not installed")


@with_opus
@pytest.mark.parametrize("frames", [1, 4])
def test_what_is_given_to_opus_at_once_is_one_page(frames):
    stages = encoding.Stages("opus", 24000)
    first = stages.push(FRAME)
    later = [stages.push(frames * FRAME) for _ in range(5)]
    last = stages.end()
    stages.close()
    assert first.count(b"OggS") == 3  # two headers, and sound
    assert [page.count(b"OggS") for page in later] == [1] * 5
    assert last.count(b"OggS") == 1


@with_opus
def test_opus_keeps_less_back_than_it_tells():
    stream, given = opus.Stream(24000), 0
    written = b""
    try:
        for samples in (1700, 1920, 0, 239, 1, 7680):
            written += stream.push(noise(samples))
            given += samples
            kept = given / 24000 - (Ogg(written).granules[-1] / 48000 - opus.LOOK_AHEAD)
            assert opus.LOOK_AHEAD <= kept < opus.HELD
    finally:
        stream.close()


@with_opus
@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("pieces, packets, granules", [
    ((160, 80, 400), [80, 80, 80, 80, 80, 80, 80, 80, 10], [160 * 48, 240 * 48, 640 * 48, 640 * 48 + 312]),
    ((75, 80), [40, 20, 10, 80, 20], [70 * 48, 150 * 48, 155 * 48 + 312]), ((), [10], [312]), ((5,), [20], [5 * 48 + 312]),
])
def test_pages_of_opus(pieces, packets, granules, rate):
    """Pieces and packets in ms."""
    stream = opus.Stream(rate)
    try:
        ogg = Ogg(b"".join([*(stream.push(noise(rate * piece // 1000)) for piece in pieces), stream.end()]))
    finally:
        stream.close()
    head, tags, *sound = ogg.packets
    assert head == struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, 312, rate, 0, 0)
    assert tags.startswith(b"OpusTags")
    assert durations(sound) == packets
    assert ogg.flags == [2, *[0] * (len(ogg.flags) - 2), 4]
    assert ogg.granules[:2] == [0, 0]
    assert ogg.granules[2:] == granules


@with_opus
def test_a_page_of_opus_has_no_more_than_it_can():
    stream = opus.Stream(24000)
    try:
        ogg = Ogg(stream.push(noise(1920 * 200)) + stream.end())
    finally:
        stream.close()
    assert sum(durations(ogg.packets[2:])) == 200 * 80 + 10
    assert ogg.granules[2:] == [3840 * 85, 3840 * 170, 3840 * 200, 3840 * 200 + 312]


def with_encoders(main):
    """The result of a coroutine that gets Encoders."""
    async def work():
        owner = encoders.Encoders()
        try:
            return await main(owner)
        finally:
            owner.close()

    return run(work())


def forks(owner):
    """Process ids. A process is there once it has answered."""
    template = owner._template.pid
    return [int(pid) for pid in pathlib.Path(f"/proc/{template}/task/{template}/children").read_text().split()]


def test_encoders_give_what_their_stages_give():
    """Answers of several utterances come in any order of asking, in pieces of any size."""
    sounds = [noise(1920 * frames) for frames in (1, 40, 3, 200)]

    async def main(owner):
        made = [await owner.make("flac", 24000) for _ in sounds]
        bodies = await asyncio.gather(*(encoder.encode(sound) for encoder, sound in zip(made, sounds)))
        return [body + await encoder.finish() for encoder, body in zip(made, bodies)]

    def encoded(sound):
        stages = encoding.Stages("flac", 24000)
        try:
            return stages.push(sound) + stages.end()
        finally:
            stages.close()

    assert with_encoders(main) == [encoded(sound) for sound in sounds]


def test_an_encoder_that_is_closed_in_its_first_moment():
    async def main(owner):
        encoder = await owner.make("flac", 24000)
        encoder.close()
        encoder.close()
        return await encoder.encode(FRAME), await encoder.finish()

    assert with_encoders(main) == (b"", b"")


def test_an_answer_that_nobody_waits_for():
    async def main(owner):
        first, second = [await owner.make("g711_ulaw", 8000) for _ in range(2)]
        asking = asyncio.ensure_future(first.encode(FRAME))
        await asyncio.sleep(0)
        asking.cancel()
        return len(await second.encode(10 * FRAME) + await second.finish())

    assert with_encoders(main) == 6400


def test_another_process_is_started_when_each_has_many_utterances(monkeypatch):
    monkeypatch.setattr(encoders, "encoding_processes", lambda utterances: min(3, -(-utterances // 2)))

    async def main(owner):
        made = [await owner.make("flac", 24000) for _ in range(9)]
        sound = [await encoder.encode(FRAME) + await encoder.finish() for encoder in made]
        assert sound == sound[:1] * 9
        assert len(forks(owner)) == 3
        return [encoder._process for encoder in made]

    processes = with_encoders(main)
    assert [len(set(processes[:count])) for count in (2, 4, 6, 9)] == [1, 2, 3, 3]
    assert sorted(processes.count(process) for process in set(processes)) == [3, 3, 3]


def test_a_process_that_is_lost_takes_its_utterances_alone():
    async def main(owner):
        lost = await owner.make("flac", 24000)
        await lost.encode(FRAME)
        pid, = forks(owner)
        os.kill(pid, signal.SIGSTOP)  # it cannot answer any more
        asking = asyncio.ensure_future(lost.encode(FRAME))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        for broken in (asking, lost.encode(FRAME), lost.finish()):
            with pytest.raises(ApiError) as refused:
                await broken
            assert (refused.value.status, refused.value.code) == (500, "encoder_failed")
        lost.close()
        other = await owner.make("flac", 24000)
        assert other._process is not lost._process
        return await other.encode(FRAME) + await other.finish()

    assert with_encoders(main).startswith(b"fLaC")


def test_an_encoder_that_cannot_be_made_tells_so():
    async def main(owner):
        process = (await owner.make("flac", 24000))._process
        number = process.open("no-format 24000")
        with pytest.raises(ApiError) as refused:
            await process.ask(number, encoding.PUSH, FRAME)
        process.close(number)
        return refused.value.code

    assert with_encoders(main) == "encoder_failed"


def test_no_process_can_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    async def main(owner):
        with pytest.raises(ApiError) as refused:
            await owner.make("flac", 24000)
        return refused.value.code

    assert with_encoders(main) == "encoder_failed"


def test_signals_to_all_processes_of_a_service_end_no_encoder():
    async def main(owner):
        encoder = await owner.make("flac", 24000)
        await encoder.encode(FRAME)
        for pid in (owner._template.pid, *forks(owner)):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(pid, number)
        await owner._start()  # another fork
        other = await owner.make("flac", 24000)
        assert other._process is not encoder._process
        return await encoder.finish(), await other.encode(FRAME)

    assert all(with_encoders(main))


def test_a_template_that_is_lost_is_replaced():
    async def main(owner):
        first = await owner.make("flac", 24000)
        begun = await first.encode(FRAME)
        os.kill(owner._template.pid, signal.SIGKILL)
        os.waitid(os.P_PID, owner._template.pid, os.WEXITED | os.WNOWAIT)
        await owner._start()
        second = await owner.make("flac", 24000)
        assert second._process is not first._process
        return begun + await first.finish(), await second.encode(FRAME) + await second.finish()

    first, second = with_encoders(main)
    assert first == second


def test_a_process_ends_with_the_server():
    program = """
import asyncio, os, signal
from qtts_serve import encoders

async def main():
    owner = encoders.Encoders()
    encoder = await owner.make("flac", 24000)
    await encoder.encode(bytes(3840))
    template = owner._template.pid
    with open(f"/proc/{template}/task/{template}/children") as forks:
        print(template, forks.read(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    assert ended.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid):
    """Not so if it is a zombie, which is for another process to end."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- messages

def report(name, **fields):
    result = Gst.Structure.new_empty(name)
    for field, (kind, value) in fields.items():
        result.set_value(field.replace("_", "-"), GObject.Value(kind, value))
    return Gst.Message.new_element(None, result)


def start_report(seed=2**62 + 1, first_frame_latency=2**63 + 1, running_time=3):
    return report("qtts-utterance-started", seed=(GObject.TYPE_INT64, seed),
                  first_frame_latency=(GObject.TYPE_UINT64, first_frame_latency),
                  running_time=(GObject.TYPE_UINT64, running_time))


def names_on(bus):
    names = []
    while message := bus.pop():
        names.append(message.get_structure().get_name())
    return names


def test_the_start_of_an_utterance_is_read_from_its_message():
    bus = Gst.Bus.new()
    reports = Reports(bus)
    assert reports.pop_start() is None
    bus.post(start_report())
    bus.post(report("other"))
    assert reports.pop_start() == (2**62 + 1, 2**63 + 1, 3)
    assert reports.pop_start() is None
    assert names_on(bus) == ["other"]


def test_a_start_without_its_fields_is_a_mistake():
    bus = Gst.Bus.new()
    bus.post(report("qtts-utterance-started"))
    with pytest.raises(KeyError, match="seed"):
        Reports(bus).pop_start()
    assert names_on(bus) == []


@pytest.mark.parametrize("drop, left", [(True, ["other", "qtts-text-progress"]),
                                        (False, ["qtts-text-progress", "qtts-text-progress", "other", "qtts-text-progress"])])
def test_progress_that_nobody_wants_is_dropped(drop, left):
    bus = Gst.Bus.new()
    reports = Reports(bus)
    assert not reports.pending(drop)
    for name in ("qtts-text-progress", "qtts-text-progress", "other", "qtts-text-progress"):
        bus.post(report(name))
    assert reports.pending(drop)
    assert names_on(bus) == left


def listening(bus, tells_words):
    """Stands for a Speaker, as far as its methods take messages."""
    speaker = types.SimpleNamespace(spoken=Spoken(), tells_words=tells_words, on_change=unittest.mock.Mock(), _bus=bus,
                                    _reports=Reports(bus), loaded=True)
    for name in ("_take_messages", "_take_report", "_take_start"):
        setattr(speaker, name, types.MethodType(getattr(Speaker, name), speaker))
    return speaker


def progress_report():
    number = (GObject.TYPE_UINT64, 1)
    return report("qtts-text-progress", offset_chars=number, length_chars=number, running_time=number, duration=number,
                  estimated=(GObject.TYPE_BOOLEAN, False))


@pytest.mark.parametrize("tells_words, left, words", [(False, ["qtts-text-progress"], 0), (True, [], 1)])
def test_the_first_sound_waits_for_words_that_are_wanted_alone(tells_words, left, words):
    bus = Gst.Bus.new()
    speaker = listening(bus, tells_words)
    bus.post(start_report(seed=5, running_time=1))
    bus.post(progress_report())
    Speaker._take_urgent(speaker)
    assert speaker.spoken.started and speaker.spoken.seed == 5
    speaker.on_change.assert_called_once_with()
    assert names_on(bus) == left
    assert len(speaker.spoken.words) == words


def test_equal_settings_are_one_structure_with_the_types_of_the_element():
    settings = {"seed": 1, "speaker": "clara", "real-time": False}
    made = structure("params", settings)
    assert structure("params", dict(settings)) is made
    assert made.to_string() == "params, seed=(gint64)1, speaker=(string)clara, real-time=(boolean)false;"
    assert structure("params", {**settings, "seed": 2}).get_value("seed") == 2


# --- texts whose tokens need not be counted

def test_tokens_of_a_byte():
    """A token has a byte at least, after Unicode's normalization."""
    characters = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    assert max(len(unicodedata.normalize("NFC", character).encode()) / len(character.encode())
               for character in characters) == TOKENS_OF_BYTE


@pytest.mark.parametrize("most, counted", [(3 * 7, False), (3 * 7 - 1, True)])
def test_tokens_of_short_texts_are_not_counted(most, counted):
    counts = unittest.mock.Mock(return_value=0)
    front = types.SimpleNamespace(settings=types.SimpleNamespace(max_tokens=most), tokens_at_once=counts,
                                  pool=types.SimpleNamespace(count_tokens=counts))
    front.has_few_tokens = types.MethodType(Front.has_few_tokens, front)
    Front.check_tokens(front, {"input": "über", "instructions": "ab"})
    assert counts.called is counted
