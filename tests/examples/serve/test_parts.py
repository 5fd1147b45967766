# SPDX-License-Identifier: LGPL-2.1-or-later
"""Parts of the server by themselves: waiting with a limit, workers, writes that go out together, the encoders."""
import asyncio
import threading

import pytest

from qtts_serve import encoders, pacing
from qtts_serve.connection import Transport
from qtts_serve.pacing import Pace
from qtts_serve.patience import within
from qtts_serve.speaker import Gst
from qtts_serve.workers import Workers

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
    ticks = paced(frames, held).pause(100.0 + after)
    assert ticks == 1 or after + ticks * pacing.TICK <= frames * pacing.FRAME - held - 0.02


def test_the_first_pause_is_shorter_for_what_an_encoder_keeps_back():
    assert paced(2).pause(100.0) == 6
    assert paced(2, held=0.1).pause(100.0) == 1


def test_a_listener_with_sound_in_hand_gets_it_in_few_writes():
    pace = paced(25)
    assert [pace.pause(100.0) for _ in range(4)] == [8, 8, 8, 16]


def test_a_listener_who_has_played_all_gets_sound_at_once():
    assert paced(2).pause(100.5) == 1
    assert paced(2, ahead=0).pause(100.0) == 1


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


# --- workers

def test_workers_are_bounded():
    async def main():
        workers, gate, threads = Workers(2), threading.Event(), set()

        def work(number):
            threads.add(threading.get_ident())
            gate.wait(60)
            return number

        futures = [workers.run(work, number) for number in range(20)]
        gate.set()
        assert await asyncio.gather(*futures) == list(range(20))
        return threads

    assert 1 <= len(run(main())) <= 2


def test_a_worker_goes_on_after_an_error_and_a_cancelled_future():
    async def main():
        workers = Workers(1)
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        gate = threading.Event()
        cancelled = workers.run(gate.wait, 60)
        cancelled.cancel()
        gate.set()
        return await workers.run(lambda: 5)

    assert run(main()) == 5


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


@pytest.mark.skipif(not encoders.available("opus"), reason="opusenc and oggmux are not installed")
@pytest.mark.parametrize("frames", [1, 4])
def test_what_is_given_to_opus_at_once_is_one_page(frames):
    async def main():
        encoder = encoders.make("opus", 24000)
        try:
            pages = [await encoder.encode(FRAME)]
            for _ in range(5):
                pages.append(await encoder.encode(frames * FRAME))
            return [*pages, await encoder.finish()]
        finally:
            encoder.close()

    first, *later, last = run(main())
    assert first.count(b"OggS") == 3  # two headers, and sound
    # The second page also has what the first kept back.
    assert [page.count(b"OggS") for page in later[1:]] == [1] * 4
    assert last.count(b"OggS") == 1


def test_an_encoder_that_is_closed_in_its_first_moment():
    async def main():
        encoder = encoders.make("flac", 24000)
        encoder.close()
        return await encoder.encode(FRAME), await encoder.finish()

    assert run(main()) == (b"", b"")
