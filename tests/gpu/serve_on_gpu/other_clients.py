# SPDX-License-Identifier: LGPL-2.1-or-later
"""The part `clients`: the messages of vLLM-Omni's client, and programs of others as far as they are packed."""
import asyncio
import os
import subprocess
import sys

from measure import client

from .fronts import fronts
from .run import CLIENTS

GREETING = "Good morning."
STORY = " ".join(["The river was wide and slow, and the boats went down it one after the other."] * 3)
WRITTEN, SAID = "It is $21.50, 5 km.", "It is twenty-one dollars and fifty cents, five kilometers."
FIELDS = {"max_new_tokens": 20}


async def clients(run):
    print("-- clients", flush=True)
    async with fronts(run, {"name": f"{run.size}.clients"}) as (front,):
        await messages(run, front.server)
        await numbers(run, front.server)
        spoken = {name: await speaks(run, front.server, name, program) for name, program in PROGRAMS.items()}
    run.record("clients", spoken)


async def messages(run, server):
    """vLLM-Omni's: an utterance equal to that over HTTP, and a cancelled one."""
    whole = await server.speech(GREETING, seed=7, pace=0, non_streaming_mode=False, **FIELDS)
    session = await server.session(seed=7, **FIELDS)
    utterance = await session.begin(GREETING)
    await utterance.until(lambda u: u.done)
    run.check(bytes(utterance.body) == bytes(whole.body) and len(whole.body) > client.FRAME_BYTES,
              f"vLLM-Omni's messages over a WebSocket: the samples of HTTP, {len(whole.body) // 2}")
    again = await session.begin(STORY)
    await again.until(lambda u: u.pieces)
    await session.send("input.cancel")
    await again.until(lambda u: u.done)
    run.check(again.cancelled is not None and again.after_cancel == 0, "input.cancel: no sound after audio.cancelled")
    await session.close()


async def numbers(run, server):
    """Numbers become words with ICU, whose data are packed in part only."""
    fields = {"seed": 7, "pace": 0, "language": "english", **FIELDS}
    written, said = [bytes((await server.speech(text, normalize=how, **fields)).body)
                     for text, how in ((WRITTEN, "spoken"), (SAID, "none"))]
    run.check(written == said, f"numbers are spoken as words: the samples of {SAID!r}, {len(said) // 2}")


async def speaks(run, server, name, program):
    """Whether a client got sound; None: it is not packed."""
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none", "PYTHONPATH": str(CLIENTS)}
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True,
                                   timeout=run.options.limit, env={**os.environ, **environment}, check=False)
    if "ModuleNotFoundError" in done.stderr:
        print(f"  left out: {name}: not packed ({done.stderr.strip().splitlines()[-1]})")
        return None
    run.check(done.returncode == 0, f"{name}: {(done.stdout or done.stderr).strip()[-200:]}")
    return done.returncode == 0


PROGRAMS = {
    "OpenAI's client": """
import openai
with openai.OpenAI().audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input="Good morning.", response_format="pcm",
        extra_body={"max_new_tokens": 20}) as answer:
    size = sum(map(len, answer.iter_bytes()))
assert size > 3840, size
print(size // 2, "samples")
""",
    "Pipecat's": """
import asyncio, os
from pipecat.frames.frames import EndFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner
class Listener(FrameProcessor):
    size = 0
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.size += len(frame.audio)
        await self.push_frame(frame, direction)
async def main():
    service = OpenAITTSService(base_url=os.environ["OPENAI_BASE_URL"], api_key="none",
                               settings=OpenAITTSService.Settings(model="tts-1", voice="alloy"))
    listener = Listener()
    worker = PipelineWorker(Pipeline([service, listener]))
    await worker.queue_frames([TTSSpeakFrame("Good morning."), EndFrame()])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    assert listener.size > 3840, listener.size
    print(listener.size // 2, "samples")
asyncio.run(main())
""",
    "LiveKit's": """
import asyncio, os
from livekit.plugins import openai
async def main():
    service = openai.TTS(base_url=os.environ["OPENAI_BASE_URL"], api_key="none", model="tts-1", voice="alloy",
                         response_format="pcm")
    size = 0
    async with service.synthesize("Good morning.") as stream:
        async for event in stream:
            size += len(bytes(event.frame.data))
    assert size > 3840, size
    print(size // 2, "samples")
asyncio.run(main())
""",
}
