"""When the assistant detects speech and asks for transcripts, and which of them Whisper's worker really makes."""

import asyncio
import importlib
import random
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from loadtest.targets.assistant.config import build_config
from loadtest.targets.assistant.endpointing import WINDOW_MS, Endpointer, ProbabilityVad, SpeechStarted, SpeechStopped
from loadtest.targets.assistant.interfaces import AsrEngine, AsrStream, Llm, Pcm, TtsEngine
from loadtest.targets.assistant.session import UtteranceRecognition
from loadtest.targets.assistant.turn import ServedVariant
from loadtest.targets.assistant.workers import EngineWorker, WorkerVads
from tests.unit.loadtest.targets.virtual_clock import VirtualClock

MS = 1_000_000
RATE = 16_000
FRAME = np.zeros(RATE // 50, np.int16)  # 20 ms


class CountingModel:
    """A model whose transcript says how many samples it heard."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def transcribe(self, pcm: Any, **_options: object) -> tuple[list[Any], None]:
        self.heard.append(len(pcm))
        return [SimpleNamespace(text=f"{len(pcm)} samples")], None


@pytest.fixture
def whisper(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The worker's module, whose package is installed in the models' environment alone."""
    package = ModuleType("faster_whisper")
    package.WhisperModel = CountingModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    name = "loadtest.targets.assistant.real.whisper_worker"
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


def utterance(whisper: Any, *, is_early: bool, is_busy: bool = False) -> tuple[CountingModel, Any]:
    model = CountingModel()
    return model, whisper._WholeUtterance(model, lambda: is_busy, is_early, RATE)


def test_final_transcript_is_the_early_one_of_the_same_samples(whisper: Any) -> None:
    model, heard = utterance(whisper, is_early=True)
    heard.feed(np.zeros(RATE, np.int16))
    heard.feed(np.zeros(RATE // 5, np.int16))
    early = heard.partial(RATE // 5)
    heard.feed(np.zeros(RATE // 2, np.int16))
    assert heard.partial(RATE // 5 + RATE // 2) == early
    assert heard.finish(RATE // 5 + RATE // 2) == early
    assert model.heard == [RATE + RATE // 10]  # the speech and its tail, once


def test_speech_after_a_pause_makes_another_final_transcript(whisper: Any) -> None:
    model, heard = utterance(whisper, is_early=True)
    heard.feed(np.zeros(RATE + RATE // 5, np.int16))
    early = heard.partial(RATE // 5)
    heard.feed(np.zeros(RATE, np.int16))
    assert heard.finish(RATE // 2) != early
    assert model.heard == [RATE + RATE // 10, 2 * RATE + RATE // 5 - RATE // 2 + RATE // 10]


def test_no_partial_transcript_begins_in_silence(whisper: Any) -> None:
    model, heard = utterance(whisper, is_early=False)
    heard.feed(np.zeros(RATE, np.int16))
    first = heard.partial(0)
    heard.feed(np.zeros(RATE, np.int16))
    assert heard.partial(RATE // 5) == first
    assert model.heard == [RATE]
    assert heard.partial(RATE // 20) != first  # within the tail the caller may go on
    assert heard.finish(RATE // 5) == f"{2 * RATE - RATE // 5 + RATE // 10} samples"


def test_no_partial_transcript_begins_while_a_final_one_waits(whisper: Any) -> None:
    model, heard = utterance(whisper, is_early=True, is_busy=True)
    heard.feed(np.zeros(2 * RATE, np.int16))
    assert (heard.partial(0), heard.partial(RATE // 5), model.heard) == ("", "", [])


class AskedStream(AsrStream):
    """A stream that keeps when it was asked, and after how much silence."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.asked_ms: list[tuple[int, int]] = []

    def feed(self, pcm: Pcm) -> None:
        pass

    async def partial(self, silent_samples: int) -> str:
        self.asked_ms.append((self.clock.now_ns // MS, silent_samples * 1000 // RATE))
        return ""


class OneStream(AsrEngine):
    def __init__(self, stream: AskedStream) -> None:
        self.stream = stream

    def open(self, rate_hz: int) -> AsrStream:
        del rate_hz
        return self.stream


def asked_ms(*, early: bool) -> list[tuple[int, int]]:
    """When transcripts are asked for: 600 ms of speech, 300 of silence, 400 of speech, 400 of silence."""
    clock = VirtualClock(0)
    stream = AskedStream(clock)
    settings = {
        "asr": "whisper",
        "asr_early": early,
        "asr_partial_delay": "constant:300ms",
        "asr_partial_every": "constant:1s",
    }
    variant = ServedVariant(build_config(settings), clock, OneStream(stream), Llm(), TtsEngine())

    async def work() -> None:
        recognition = UtteranceRecognition(variant, RATE, lambda _: asyncio.sleep(0), "item")
        recognition.watch(0, random.Random(1))
        silent = 0
        for frame in range(1, 86):
            await clock.until(frame * 20 * MS)
            is_speech = frame <= 30 or 45 < frame <= 65
            silent = 0 if is_speech else silent + len(FRAME)
            recognition.feed(FRAME, silent)
        recognition.abandon()

    clock.run(work())
    return stream.asked_ms


def test_early_transcript_is_asked_for_once_in_each_pause() -> None:
    asked = asked_ms(early=True)
    in_pauses = [moment for moment, silent in asked if silent]
    assert [moment // 100 for moment in in_pauses] == [7, 14]
    assert all(120 <= silent <= 160 for _, silent in asked if silent)


def test_transcripts_come_at_their_intervals_without_it() -> None:
    assert [moment for moment, _ in asked_ms(early=False)] == [300, 1300]


WINDOW = WINDOW_MS * RATE // 1000


def detected(probabilities: list[float]) -> tuple[bool, int | None, int | None]:
    """The detection after these windows, its ends in windows."""
    vad = ProbabilityVad(RATE)
    vad.add(probabilities)
    state = vad.state()
    first, last = state.speech_start_sample, state.last_speech_sample
    return state.speaking, None if first is None else first // WINDOW, None if last is None else last // WINDOW


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ([0.1, 0.9, 0.1, 0.1], (False, None, None)),  # one window is no speech
        ([0.1, 0.4, 0.4, 0.4], (False, None, None)),  # nor is what would only go on
        ([0.1, 0.6, 0.4, 0.36, 0.3, 0.1], (True, 1, 3)),
        ([0.9, 0.9, 0.1, 0.1, 0.4, 0.1], (True, 0, 4)),
    ],
)
def test_two_thresholds_begin_and_end_speech(
    probabilities: list[float], expected: tuple[bool, int | None, int | None]
) -> None:
    assert detected(probabilities) == expected


def test_closed_utterance_is_forgotten_but_not_its_place() -> None:
    vad = ProbabilityVad(RATE)
    vad.add([0.9, 0.9, 0.1])
    vad.close()
    assert not vad.state().speaking
    vad.add([0.9, 0.9])
    assert vad.state().speech_start_sample == 3 * WINDOW


# A network for tests: a window is speech if its first sample is not 0.
LOUDNESS = """
from loadtest.targets.assistant.real.worker import serve_activity, start
def opened(rate_hz):
    rest = []
    def feed(pcm):
        rest.extend(pcm.tolist())
        found = []
        while len(rest) >= 512:
            found.append(float(rest[0] != 0))
            del rest[:512]
        if 666 in rest:
            raise SystemExit(1)
        return found
    return feed
serve_activity(start(lambda: 0)[0], opened)
"""


def test_turn_ends_by_network_in_process_and_stream_ends_with_it() -> None:
    frame = RATE // 50

    async def work() -> tuple[list[Any], bool]:
        worker = EngineWorker("Loudness", [sys.executable, "-c", LOUDNESS], "")
        vads = WorkerVads(worker)
        await vads.start()
        endpointer = Endpointer(vads.open(RATE), RATE)
        events: list[Any] = []
        for at in range(100):
            level = 9 if 20 <= at < 50 else 0
            pcm = np.full(frame, level, np.int16)
            events += await endpointer.feed(pcm, at * 20 * MS, prefix_padding_ms=0, silence_duration_ms=300)
        deadly = vads.open(RATE)
        await deadly.feed(np.full(frame, 666, np.int16))
        after = await deadly.feed(np.full(8 * frame, 9, np.int16))
        await worker.ready()
        again = vads.open(RATE)
        heard = await again.feed(np.full(8 * frame, 9, np.int16))
        for stream in (deadly, again):
            stream.end()
        endpointer.end()
        assert worker.requests == 0
        await vads.stop()
        return events, not after.speaking and heard.speaking

    (started, stopped), is_mended = asyncio.run(work())
    assert isinstance(started, SpeechStarted)
    assert isinstance(stopped, SpeechStopped)
    assert abs(started.audio_start_ns - 400 * MS) <= WINDOW_MS * MS
    assert abs(stopped.speech_end_audio_ns - 1_000 * MS) <= WINDOW_MS * MS
    assert is_mended
