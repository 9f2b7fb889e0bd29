"""The assistant as a real process or on a thread of the test, and a plain caller to talk to it with."""

import asyncio
import base64
import functools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import soxr
from numpy.typing import NDArray
from websockets.asyncio.client import ClientConnection, connect

from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.targets.assistant import engines
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.command import main
from loadtest.targets.assistant.config import Assignment, AssistantConfig, build_config
from loadtest.targets.assistant.server import AssistantServer
from tests.integration.commands import carried_out

RATE = 24_000
FRAME = 480
Event = dict[str, Any]
# Short declared delays, so that a turn takes well under a second.
QUICK = {
    "corpus": BUNDLED,
    "asr_delay": "constant:30ms",
    "llm_ttft": "constant:40ms",
    "llm_gap": "constant:2ms",
    "tts_delay": "constant:20ms",
    "tts_pace": "0",
    "asr_partial_delay": "constant:300ms",
}


@contextmanager
def assistant(*flags: str, quick: bool = True) -> Generator[str]:
    """Run an assistant; gives its URL. It must end cleanly on SIGTERM."""
    usual = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()] if quick else []
    command = [sys.executable, "-m", "loadtest.targets.assistant", *usual, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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


# Its clips take half a second to read, and no engine changes what it gets.
_known_clips = functools.cache(engines.known_clips)


def engines_of(config: AssistantConfig, clock: Clock) -> engines.Engines:
    """Build engines; the clips of a recognizer by script are read once in a process."""
    with mock.patch.object(engines, "known_clips", _known_clips):
        return engines.build_engines(config, clock)


def refused(*flags: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run an assistant that cannot start, in this process; what it printed."""
    # A process that serves keeps the short interval for the rest of its life; this one has other tests to run.
    with mock.patch.object(sys, "setswitchinterval"), mock.patch.object(engines, "known_clips", _known_clips):
        return carried_out(*flags, cwd=cwd, program=main, name="voiceprobe assistant")


@contextmanager
def hosted(**settings: object) -> Generator[str]:
    """Run an assistant on a thread of the test, which costs no process; gives its URL."""
    config, clock = build_config({**QUICK, **settings}), Clock()
    parts = engines_of(config, clock)

    def assign(call_id: str) -> Assignment:
        return config.split.assign(call_id) if config.split else Assignment()

    server = AssistantServer(config, parts, clock, None, assign)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait_for(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(180)

    try:
        wait_for(parts.start())
        wait_for(server.start())
        yield server.url
    finally:
        wait_for(server.stop())
        wait_for(parts.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@functools.cache
def clip(utterance_id: str) -> tuple[NDArray[np.int16], str]:
    """A bundled clip at the wire's rate, and its words."""
    corpus = open_corpus(BUNDLED, check_clips=False)
    utterance = next(u for u in corpus.utterances if u.id == utterance_id)
    samples = soxr.resample(corpus.read(utterance), utterance.sample_rate_hz, RATE)
    return (np.clip(samples, -1, 1) * 32767).astype(np.int16), utterance.text or ""


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
async def call(url: str, **options: Any) -> AsyncGenerator[Caller]:
    async with connect(url, compression=None, **options) as connection:
        caller = Caller(connection)
        await caller.until("session.created")
        yield caller


def injected(done: Event) -> dict[str, int]:
    return json.loads(done["response"]["metadata"]["voice.injected"])
