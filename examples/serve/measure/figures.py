# SPDX-License-Identifier: LGPL-2.1-or-later
"""The measurements. Each is bounded in count and time, and returns its figures."""
import asyncio
import os
import random
import time

from . import client, local, report

TEXT = "Please leave your message after the tone, and we will call you back tomorrow."
# Some 25 s of speech.
STORY = " ".join(["The river was wide and slow, and the boats went down it one after the other."] * 5)
ENGINE = "qtts_engine_first_frame_seconds_sum"  # of /metrics
# As long as requests may be: minutes of speech, also of the benchmark's engine, which makes a frame of each character.
LONG = " ".join(["The river was wide and slow, and the boats went down it one after the other."] * 52)


async def first_sound(server, model="", count=100, alone=True):
    """Request to first sound, less the same in this process; the ways take turns. `alone`: the server is one process, with no
    other clients; then there is also the part of each that its engine took, by its own clock."""
    inside = local.InProcess(model)
    loop = asyncio.get_running_loop()
    http = await server.connect()
    session = await server.session()
    took = {}
    engine = (await server.gauges())[ENGINE] if alone else 0.0  # seconds of the engine in all
    for number in range(count + 3):
        one = {"in-process": await loop.run_in_executor(None, inside.first_sound, TEXT, "auto"),
               "HTTP": await _first_http(server, http)}
        await _idle(server)  # the end of the request would slow down the next measurement
        if alone:
            before, engine = engine, (await server.gauges())[ENGINE]
            one["HTTP, engine"] = engine - before
        http = await server.connect()
        one["in-process, streaming"] = await loop.run_in_executor(None, inside.first_sound, TEXT, "streaming")
        utterance = await session.begin(TEXT)
        await utterance.until(lambda u: u.pieces)
        one["WebSocket"] = utterance.pieces[0][0] - utterance.sent
        await session.send("input.cancel")
        await utterance.until(lambda u: u.done)
        await _idle(server)
        if alone:
            before, engine = engine, (await server.gauges())[ENGINE]
            one["WebSocket, engine"] = engine - before
        if number >= 3:  # those before warm caches up
            for way, seconds in one.items():
                took.setdefault(way, []).append(seconds)
    await session.close()
    inside.close()
    return {way: report.summary(seconds) for way, seconds in took.items()}


async def _first_http(server, answer):
    server.speak(answer, TEXT)
    await answer.until(lambda a: a.pieces)
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}")
    answer.transport.abort()
    return answer.pieces[0][0] - answer.sent


async def _idle(server, limit=10.0):
    """Waits until no slot is busy; seconds until then."""
    begin = time.perf_counter()
    answer = await server.connect()
    try:
        while True:
            server.ask(answer, "GET", "/metrics", keep=True)
            await answer.until(lambda a: a.whole)
            now = time.perf_counter()
            if client.parse_metrics(answer.body)["qtts_slots_busy"] == 0:
                return now - begin
            if now - begin > limit:
                raise RuntimeError(f"slots are busy {limit:g} s after the last request")
    finally:
        answer.transport.abort()


async def stopping(server, count=100):
    """Disconnect, or input.cancel, to the engine stopped, at random frames. HTTP: until the gauge of busy slots is 0,
    which includes asking for it."""
    chance = random.Random(1)
    disconnected, cancelled, after = [], [], 0
    session = await server.session()
    for _ in range(count):
        answer = await server.connect()
        server.speak(answer, STORY, pace=2.0)
        frames = chance.randrange(1, 20)
        await answer.until(lambda a, frames=frames: a.size >= frames * client.FRAME_BYTES)
        answer.transport.abort()
        disconnected.append(await _idle(server))

        utterance = await session.begin(STORY)
        await utterance.until(lambda u, frames=frames: u.size >= frames * client.FRAME_BYTES)
        asked = time.perf_counter()
        await session.send("input.cancel")
        await utterance.until(lambda u: u.cancelled)
        cancelled.append(time.perf_counter() - asked)
        await utterance.until(lambda u: u.done)
        after += utterance.after_cancel
    await session.close()
    return {"disconnect": report.summary(disconnected), "input.cancel": report.summary(cancelled),
            "bytes after audio.cancelled": after}


async def storm(server, count=300):
    """`count` requests at once; half are closed before they are answered, half after their first sound."""
    answers = [await server.connect() for _ in range(count)]
    for answer in answers:
        server.speak(answer, STORY, pace=2.0)

    async def first(answer):
        try:
            await answer.until(lambda a: a.pieces, 15)
        except (client.Broken, TimeoutError):
            return False
        return answer.status == 200

    heard = sum(await asyncio.gather(*map(first, answers[1::2])))
    for answer in answers:
        answer.transport.abort()
    seconds = await _idle(server, 30)
    gauges = await server.gauges()
    return {"requests": count, "heard before the end": heard, "all slots free after, ms": 1000 * seconds,
            "busy slots left": gauges["qtts_slots_busy"], "waiting left": gauges["qtts_waiting_utterances"]}


async def streams(server, process, count, pace, seconds, websocket):
    """`count` live streams for some seconds: how late frames come for listeners who begin with the first. `process`: the
    server's, or None where it is elsewhere."""
    begin = asyncio.Event()
    heard, firsts, broken = [], [], 0

    async def listen(number):
        nonlocal broken
        await asyncio.sleep(4.0 * number / count)
        if websocket:
            session = await server.session(pace=pace)
            source = await session.begin(LONG)
            reading = asyncio.create_task(source.until(lambda u: u.done, 600))
        else:
            session = await server.connect()
            source = session
            # With all of so long a text in the prompt, what was measured would be the prompt.
            server.speak(session, LONG, pace=pace, non_streaming_mode=False)
        await begin.wait()
        if websocket:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await session.close()
        else:
            broken += source.closed is not None
            session.transport.abort()
        if source.pieces:
            firsts.append(source.pieces[0][0] - source.sent)
            heard.append(source.pieces)
        else:
            broken += 1

    listeners = [asyncio.create_task(listen(number)) for number in range(count)]
    await asyncio.sleep(6.0)
    used, now = process.seconds() if process else 0, time.perf_counter()
    with report.Load() as load:
        await asyncio.sleep(seconds)
    end = time.perf_counter()
    used = process.seconds() - used if process else 0
    begin.set()
    await asyncio.gather(*listeners)
    # Frames of the measured time only. A frame that has not come is late too: count it as if it came at the end.
    late = []
    for pieces in heard:
        first = pieces[0][0]
        delays = client.lateness(pieces)
        due = [(first + number * client.FRAME, delay) for number, delay in enumerate(delays)]
        due += [(when, end - when) for number in range(len(delays), int((end - first) / client.FRAME))
                for when in (first + number * client.FRAME,)]
        late += [delay for when, delay in due if now <= when < end]
    await _idle(server, 60)
    return {"streams": count, "pace": pace, "broken": broken, "late": report.summary(late), "first": report.summary(firsts),
            "server_cores": used / (end - now), "client_cores": load.own * len(os.sched_getaffinity(0)), "load": load.text}


async def idle_sessions(server, process, count=500, seconds=60.0):
    """Memory and processor time of WebSockets that say nothing, for longer than the time between two pings."""
    opened = [await server.session() for _ in range(20)]  # memory of the first ones serves the others
    before, threads = process.resident(), process.threads()
    opened += [await server.session() for _ in range(count)]
    await asyncio.sleep(1)
    memory, used = process.resident() - before, process.seconds()
    await asyncio.sleep(seconds)
    used = process.seconds() - used
    new_threads = process.threads() - threads
    # Those that have spoken are idle again.
    for session in opened[:100]:
        utterance = await session.begin("Yes.")
        await utterance.until(lambda u: u.done)
    await asyncio.sleep(1)
    spoken, again = process.resident() - before, process.seconds()
    await asyncio.sleep(seconds)
    again = process.seconds() - again
    await asyncio.gather(*(session.close() for session in opened))
    return {"sessions": count, "KiB each": memory / count / 1024, "threads": new_threads,
            "processor, %": 100 * used / seconds, "KiB each, after 100 have spoken": spoken / count / 1024,
            "processor then, %": 100 * again / seconds}


async def poisson(server, rate, seconds):
    """Requests that arrive at random, `rate` a second: first sound over HTTP, and what was refused."""
    chance = random.Random(rate)
    tasks, refused, broken = [], 0, 0

    async def one():
        nonlocal refused, broken
        answer = await server.connect()
        server.speak(answer, TEXT, pace=0)
        try:
            await answer.until(lambda a: a.whole, 120)
        except (client.Broken, TimeoutError):
            broken += 1
            return None
        finally:
            answer.transport.abort()
        if answer.status != 200:
            refused += 1
            return None
        return answer.pieces[0][0] - answer.sent

    end = time.perf_counter() + seconds
    with report.Load() as load:
        while time.perf_counter() < end:
            tasks.append(asyncio.create_task(one()))
            await asyncio.sleep(chance.expovariate(rate))
        took = [seconds for seconds in await asyncio.gather(*tasks) if seconds is not None]
    return {"rate": rate, "requests": len(tasks), "refused": refused, "broken": broken, "first": report.summary(took),
            "load": load.text}
