"""The assistant as a real process, and a plain caller to talk to it with."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from corpora.manifest.library import BUNDLED, open_corpus

RATE = 24_000
FRAME = 480
Event = dict[str, Any]
# Short declared delays, so that a turn takes well under a second.
QUICK = (
    "--corpus", BUNDLED, "--asr-delay", "constant:30ms", "--llm-ttft", "constant:40ms", "--llm-gap", "constant:2ms",
    "--tts-delay", "constant:20ms", "--tts-pace", "0", "--asr-partial-delay", "constant:300ms",
)  # fmt: skip


@contextmanager
def assistant(*flags: str, quick: bool = True, environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run an assistant; gives its URL. It must end cleanly on SIGTERM."""
    command = [sys.executable, "-m", "loadtest.targets.assistant", *(QUICK if quick else ()), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["ready"] is True
        yield ready["url"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def clip(utterance_id: str) -> tuple[NDArray[np.int16], str]:
    """A bundled clip at the wire's rate, and its words."""
    corpus = open_corpus(BUNDLED)
    utterance = next(u for u in corpus.utterances if u.id == utterance_id)
    samples = soxr.resample(corpus.read(utterance), utterance.sample_rate_hz, RATE)
    return (np.clip(samples, -1, 1) * 32767).astype(np.int16), utterance.text


def silence(seconds: float) -> NDArray[np.int16]:
    return np.zeros(int(seconds * RATE), np.int16)


class Caller:
    """Speaks the wire by hand: sends frames (as fast as it can unless paced), keeps every event."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[Event] = []

    async def send(self, **event: Any) -> None:
        await self.connection.send(json.dumps(event))

    async def update(self, turn_detection: Any = "default", **session: Any) -> Event:
        heard: dict[str, Any] = {"transcription": {"model": "any"}}
        if turn_detection != "default":
            heard["turn_detection"] = turn_detection
        await self.send(type="session.update", session={"type": "realtime", "audio": {"input": heard}, **session})
        return await self.until("session.updated")

    async def speak(self, *pieces: NDArray[np.int16], realtime: bool = False) -> None:
        pcm = np.concatenate(pieces)
        begun = asyncio.get_running_loop().time()
        for index, at in enumerate(range(0, len(pcm), FRAME)):
            if realtime:
                await asyncio.sleep(max(0.0, begun + index * FRAME / RATE - asyncio.get_running_loop().time()))
            audio = base64.b64encode(pcm[at : at + FRAME].tobytes()).decode()
            await self.send(type="input_audio_buffer.append", audio=audio)

    async def until(self, wanted: str | Callable[[Event], bool], seconds: float = 180) -> Event:
        """The next event of a type (or that a condition holds for). The bound only ends a hopeless wait."""
        async with asyncio.timeout(seconds):
            while True:
                event = json.loads(await self.connection.recv())
                self.events.append(event)
                if event.get("type") == wanted if isinstance(wanted, str) else wanted(event):
                    return event

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def audio(self) -> NDArray[np.int16]:
        deltas = [e["delta"] for e in self.events if e["type"] == "response.output_audio.delta"]
        return np.frombuffer(b"".join(base64.b64decode(delta) for delta in deltas), np.int16)


@asynccontextmanager
async def call(url: str, **options: Any) -> AsyncIterator[Caller]:
    async with connect(url, compression=None, **options) as connection:
        caller = Caller(connection)
        await caller.until("session.created")
        yield caller


def injected(done: Event) -> dict[str, int]:
    return json.loads(done["response"]["metadata"]["voice.injected"])
