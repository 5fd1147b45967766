# SPDX-License-Identifier: LGPL-2.1-or-later
"""The test of clients; serve-clients sets it up. Each must get the element's samples for this seed."""
import asyncio
import io
import os
import subprocess
import sys
import tempfile
import traceback
import urllib.parse
import wave

from measure import local

TEXT = "Good morning, how are you?"
SEED = 7
LIMIT = 120


async def livekit(url):
    from livekit.plugins import openai

    service = openai.TTS(base_url=f"{url}/v1", api_key="none", model="qttssrc", voice="alloy", response_format="pcm")
    sound = bytearray()
    async with service.synthesize(TEXT) as stream:
        async for event in stream:
            assert event.frame.sample_rate == 24000 and event.frame.num_channels == 1
            sound += bytes(event.frame.data)
    await service.aclose()
    return sound


async def pipecat(url):
    from pipecat.frames.frames import EndFrame, TTSAudioRawFrame, TTSSpeakFrame
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineWorker
    from pipecat.processors.frame_processor import FrameProcessor
    from pipecat.services.openai.tts import OpenAITTSService
    from pipecat.workers.runner import WorkerRunner

    class Listener(FrameProcessor):
        """Collects the sound."""

        def __init__(self):
            super().__init__()
            self.sound = bytearray()

        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            if isinstance(frame, TTSAudioRawFrame):
                assert frame.sample_rate == 24000 and frame.num_channels == 1
                self.sound += frame.audio
            await self.push_frame(frame, direction)

    service = OpenAITTSService(base_url=f"{url}/v1", api_key="none", settings=OpenAITTSService.Settings(model="qttssrc", voice="alloy"))
    listener = Listener()
    worker = PipelineWorker(Pipeline([service, listener]))
    await worker.queue_frames([TTSSpeakFrame(TEXT), EndFrame()])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    return listener.sound


async def command(*arguments):
    process = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, said = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{arguments[0]}: status {process.returncode}: {said.decode()[-500:]}")
    return out


async def curl(url):
    sound = await command("curl", "-sf", f"{url}/v1/audio/speech", "-d", f'{{"input": "{TEXT}", "response_format": "wav"}}')
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24000, 1, 2)
    return sound[44:]


async def gstreamer(url):
    """As FLAC, which is lossless."""
    address = f"{url}/v1/audio/speech?{urllib.parse.urlencode({'input': TEXT, 'response_format': 'flac'})}"
    with tempfile.NamedTemporaryFile(suffix=".pcm") as file:
        await command("gst-launch-1.0", "-q", "souphttpsrc", f"location={address}", "!", "decodebin", "!", "audioconvert", "!",
                      "audio/x-raw,format=S16LE,rate=24000,channels=1", "!", "filesink", f"location={file.name}")
        return file.read()


async def main():
    inside = local.InProcess()
    expected = inside.speak(TEXT, SEED)
    inside.close()
    failed = 0
    async with local.started("--element", f"seed={SEED}") as (server, _):
        for client in (curl, gstreamer, livekit, pipecat):
            try:
                sound = bytes(await asyncio.wait_for(client(server.url), LIMIT))
                # LiveKit appends 10 ms of silence.
                same = sound[:len(expected)] == expected and not any(sound[len(expected):])
                problem = "" if same else f"{len(sound) // 2} samples that are not the element's {len(expected) // 2}"
            except Exception as error:  # a client may raise any type
                traceback.print_exc()
                problem = repr(error)
            print(f"{client.__name__}: {problem or 'ok'}", flush=True)
            failed += bool(problem)
    return 1 if failed else 0


os.environ["LOGURU_LEVEL"] = "WARNING"  # Pipecat's
sys.exit(asyncio.run(main()))
