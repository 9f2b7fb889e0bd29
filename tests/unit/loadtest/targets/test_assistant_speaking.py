"""The assistant's clock, its voice activity detection, and its speech: deadlines, chunks, pace and metadata."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
import soxr
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.audio.onset import AudibleSpan
from loadtest.distributions import random_source
from loadtest.targets.assistant import clock as clock_module
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.endpointing import Endpointer, EnergyVad, SpeechStarted, SpeechStopped, percentiles
from loadtest.targets.assistant.interfaces import Question
from loadtest.targets.assistant.reply import ReplySink, SpeechOutput, reply
from loadtest.targets.assistant.scripted import hum, sentence_ns
from loadtest.targets.assistant.turn import ServedTurn, TurnRecord, merge_metadata
from loadtest.timerfd import TimerFd
from tests.unit.loadtest.targets.virtual_clock import VirtualClock, served

MS = 1_000_000
RATE = 24_000
START = 1_000_000_000


def speak(
    silence: str = "constant:40ms", sentences: int = 1, tts: Any = None, **settings: str
) -> tuple[list[tuple[int, int]], TurnRecord]:
    """When each chunk of speech was sent and how many bytes it had, and the record."""
    clock, record, sent = VirtualClock(START), TurnRecord(0, START, START), []
    timing = {} if tts else {"tts_delay": "constant:70ms", "tts_leading_silence": silence}
    turn = ServedTurn(served(clock, tts=tts and tts(clock), **timing, **settings), "call", record)

    async def play(messages: list[bytes]) -> None:
        sent.append((clock.now_ns, len(messages[0])))

    async def show(text: str) -> None: ...

    async def work() -> None:
        output = SpeechOutput(turn, ReplySink(show, lambda pcm: [pcm.tobytes()], play, RATE), RATE)
        for _ in range(sentences):
            await output.say("The change is made.", START + 10 * MS)

    clock.run(work())
    return sent, record


def test_first_chunk_is_sent_at_deadline_and_rest_at_pace() -> None:
    sent, record = speak(tts_pace="2")
    assert sent[0] == (START + 80 * MS, 4800)
    assert [at - sent[0][0] for at, _ in sent[:4]] == [0, 50 * MS, 100 * MS, 150 * MS]
    assert record.tts_first_chunk_perf_ns == record.first_chunk_due_perf_ns == START + 80 * MS
    assert record.injected_tts_ns == 70 * MS
    assert record.injected_leading_silence_ns == record.leading_silence_ns == 40 * MS
    assert record.first_audio_perf_ns == START + 120 * MS
    assert record.reply_audio_ns == 40 * MS + sentence_ns("The change is made.")


def test_pace_zero_sends_everything_at_once() -> None:
    sent, _ = speak(tts_pace="0")
    assert len(sent) > 5
    assert {at for at, _ in sent} == {START + 80 * MS}


def test_silence_longer_than_a_chunk_is_played_before_speech() -> None:
    _, record = speak("constant:250ms", tts_pace="0")
    assert record.first_audio_perf_ns == START + 80 * MS + 250 * MS


def test_the_pace_continues_across_sentences() -> None:
    sent, record = speak(sentences=2, tts_pace="1")
    assert sent[-1][0] - sent[0][0] < (record.reply_audio_ns or 0)
    assert sent[-1][0] - sent[0][0] > sentence_ns("The change is made.")


def test_scripted_speech_is_audible_from_its_first_sample() -> None:
    span = AudibleSpan("rms-10ms", RATE)
    span.feed(np.concatenate((np.zeros(1000, np.int16), hum(9000, RATE))))
    assert span.first_sample == 1000


def run_reply(*, stream: bool, rate_hz: int | None = RATE) -> tuple[TurnRecord, list[str], int, str]:
    clock = VirtualClock(START)
    record = TurnRecord(0, START, START, speech_end_perf_ns=START - 290 * MS)
    record.injected_endpointing_ns, record.injected_asr_ns = 230 * MS, 60 * MS
    texts: list[str] = []
    samples: list[int] = []

    async def show(text: str) -> None:
        texts.append(text)

    async def play(messages: list[bytes]) -> None:
        samples.append(len(messages[0]) // 2)

    timing = {"llm_ttft": "constant:200ms", "llm_gap": "constant:20ms", "tts_delay": "constant:70ms"}
    variant = served(clock, tts_leading_silence="constant:20ms", llm_stream=str(stream).lower(), **timing)
    question = Question("turn on the light", START, random_source(1))
    sink = ReplySink(show, lambda pcm: [pcm.tobytes()], play, rate_hz)
    answer = clock.run(reply(ServedTurn(variant, "call", record), question, sink))
    return record, texts, sum(samples), answer


@pytest.mark.parametrize("stream", [True, False])
def test_injected_delays_add_up_to_the_actual_delay(stream: bool) -> None:
    record, texts, samples, answer = run_reply(stream=stream)
    assert "".join(texts) == answer
    assert record.reply_audio_ns == samples * 10**9 // RATE
    injected = record.injected()
    assert injected["planned_v2v_ns"] == injected["actual_v2v_ns"]
    assert injected["first_chunk_late_ns"] == 0
    assert len(record.token_gaps_ns) == record.tokens - 1 == len(texts) - 1


def test_without_streaming_speech_waits_for_the_whole_answer() -> None:
    streamed, held = run_reply(stream=True)[0], run_reply(stream=False)[0]
    assert streamed.llm_first_token_perf_ns == START + 200 * MS
    assert held.llm_first_token_perf_ns == START + 200 * MS + 20 * MS * (held.tokens - 1)
    assert (held.first_audio_perf_ns or 0) > (streamed.first_audio_perf_ns or 0)
    assert set(held.token_gaps_ns) == {0}


def test_text_replies_have_no_audio() -> None:
    record, _, samples, _ = run_reply(stream=True, rate_hz=None)
    assert samples == 0
    assert record.first_audio_perf_ns is record.injected_tts_ns is None
    assert "planned_v2v_ns" not in record.injected()


class RealVoice:
    """A voice that takes 30 ms by the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock

    async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[np.ndarray]:
        await self.clock.until(self.clock.now_ns + 30 * MS)
        yield hum(4800, rate_hz)


def test_engines_without_configured_delays_report_none() -> None:
    _, record = speak(tts=RealVoice, tts_pace="0")
    assert record.tts_first_chunk_perf_ns == START + 30 * MS
    assert record.injected_tts_ns is record.injected_leading_silence_ns is None


def test_metadata_stays_within_the_protocols_limits() -> None:
    record = TurnRecord(0, 2**62, 2**62, cohort="x" * 600, cache_hit=False, cache_tier="edge", route="local", model="m")
    for name in ("endpointing", "asr", "llm", "llm_ttft", "tts", "leading_silence"):
        setattr(record, f"injected_{name}_ns", 2**61)
    record.speech_end_perf_ns = record.speech_end_audio_ns = 0
    record.first_audio_perf_ns = record.tts_first_chunk_perf_ns = record.reply_audio_ns = 2**62
    record.first_chunk_due_perf_ns = 0
    requested = {f"key{n}": "v" for n in range(20)} | {"k" * 65: "v", "big": "v" * 513, "voice.route": "mine"}
    merged = merge_metadata(requested, record.metadata())
    assert len(merged) == 16
    assert max(map(len, merged)) <= 64
    assert max(map(len, merged.values())) <= 512
    assert orjson.loads(merged["voice.injected"])["planned_v2v_ns"] == 5 * 2**61
    assert merged["voice.route"] == "local"
    assert "key0" in merged


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collect the requested length of each sleep of the clock."""
    asked: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        asked.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(clock_module.asyncio, "sleep", counted)
    return asked


async def _late_ns(clock: Clock, after_ns: int) -> int:
    due_ns = clock.perf_ns() + after_ns
    await clock.until_exactly(due_ns)
    return clock.perf_ns() - due_ns


@LOOPS
def test_many_exact_waits_at_once_are_never_early_nor_yield(new_loop: NewLoop, yields: list[float]) -> None:
    if (timer := TimerFd.open()) is None:
        pytest.skip("this system has no timers as file descriptors")
    timer.close()
    clock = Clock()

    async def wait() -> list[int]:
        return await asyncio.gather(*(_late_ns(clock, number * MS // 4) for number in range(-2, 60)))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        result = runner.run(wait())
    assert min(result) >= 0
    assert yields.count(0) == 0
    assert len(yields) > 25  # most are more than two milliseconds away


@LOOPS
def test_without_such_a_timer_it_yields_until_the_time_has_come(
    new_loop: NewLoop, yields: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module.TimerFd, "open", classmethod(lambda cls: None))
    asked = count(0, MS)  # every look at the clock is a millisecond later than the one before
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter_ns=lambda: next(asked)))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(Clock().until_exactly(10 * MS))
    assert next(asked) == 11 * MS
    assert yields[0] == 0.008
    assert set(yields[1:]) == {0}


@LOOPS
def test_a_timer_that_cannot_be_set_changes_nothing(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module.TimerFd, "arm", lambda timer, first_perf_ns: False)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(_late_ns(Clock(), 5 * MS)) >= 0


@LOOPS
def test_waits_close_their_timers_even_when_canceled(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "_LEAD_NS", 3600 * 1000 * MS)  # so that the wait begins with the timer
    open_files = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")
    clock = Clock()

    async def wait() -> tuple[int, int, int]:
        await _late_ns(clock, MS)
        before = len(list(open_files.iterdir()))
        waits = [asyncio.create_task(clock.until_exactly(clock.perf_ns() + 600_000 * MS)) for _ in range(20)]
        await asyncio.sleep(0)
        during = len(list(open_files.iterdir()))
        for wait in waits:
            wait.cancel()
        for wait in waits:
            with contextlib.suppress(asyncio.CancelledError):
                await wait
        await _late_ns(clock, MS)
        return before, during, len(list(open_files.iterdir()))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        before, during, after = runner.run(wait())
    assert after == before
    assert during in (before, before + 20)  # none where the system has no such timers


Pcm = NDArray[np.int16]


def speech(seconds: float, level: float = 0.2) -> Pcm:
    at = np.arange(int(seconds * RATE)) / RATE
    voice = np.asarray(sum(np.sin(2 * np.pi * 150 * k * at) / k for k in range(1, 8)))
    rhythm = 0.5 - 0.45 * np.cos(2 * np.pi * 4 * at + np.pi)
    return (level * rhythm * voice / np.abs(voice).max() * 32767).astype(np.int16)


def silence(seconds: float) -> Pcm:
    return np.zeros(int(seconds * RATE), np.int16)


def utterances(pcm: Pcm, silence_ms: int = 300, frame: int = 480) -> list[tuple[int, int]]:
    async def work() -> list[tuple[int, int]]:
        vad, detected = EnergyVad(RATE), []
        for at in range(0, len(pcm), frame):
            state = await vad.feed(pcm[at : at + frame])
            last = state.last_speech_sample
            if state.speaking and last is not None and at + frame - last >= silence_ms * RATE // 1000:
                assert state.speech_start_sample is not None
                detected.append((state.speech_start_sample, last))
                vad.close()
        return detected

    return asyncio.run(work())


def test_bounds_in_digital_silence_are_exact_to_milliseconds() -> None:
    detected = utterances(np.concatenate((silence(0.5), speech(1.0), silence(1.0), speech(0.6), silence(1.0))))
    assert len(detected) == 2
    for (start, end), (true_start, true_end) in zip(detected, [(0.5, 1.5), (2.5, 3.1)], strict=True):
        assert abs(start / RATE - true_start) <= 0.012
        assert abs(end / RATE - true_end) <= 0.012


def test_framing_does_not_matter() -> None:
    pcm = np.concatenate((silence(0.5), speech(1.0), silence(1.0)))
    assert utterances(pcm, frame=480)[0] == utterances(pcm, frame=160)[0] == utterances(pcm, frame=333)[0]


@pytest.mark.parametrize("pcm", [silence(3), np.full(3 * RATE, 1200, np.int16)], ids=["silence", "constant"])
def test_no_speech_is_detected_without_speech(pcm: Pcm) -> None:
    assert utterances(pcm) == []


def test_a_click_is_not_speech() -> None:
    pcm = silence(3)
    pcm[RATE : RATE + 200] = 20_000
    assert utterances(pcm) == []


def test_steady_noise_is_not_speech_and_does_not_mask_it() -> None:
    rng = np.random.default_rng(1)
    utterance = speech(1.2)
    clean = np.concatenate((silence(1.5), utterance, silence(1.5))).astype(np.float64)
    noise = rng.standard_normal(len(clean)) * np.sqrt(np.mean(utterance.astype(np.float64) ** 2)) * 10 ** (-10 / 20)
    detected = utterances(np.clip(clean + noise, -32768, 32767).astype(np.int16))
    assert len(detected) == 1
    assert abs(detected[0][0] / RATE - 1.5) < 0.15
    assert abs(detected[0][1] / RATE - 2.7) < 0.15


def test_ends_agree_with_the_annotations_of_the_corpus() -> None:
    corpus = open_corpus(BUNDLED)
    errors_ms = []
    for utterance in corpus.utterances[::8]:
        samples = soxr.resample(corpus.read(utterance), utterance.sample_rate_hz, RATE)
        pcm = np.concatenate((silence(0.5), (np.clip(samples, -1, 1) * 32767).astype(np.int16), silence(1.0)))
        _, end = utterances(pcm, silence_ms=600)[-1]
        true_end = 0.5 + utterance.speech_end_sample / utterance.sample_rate_hz
        errors_ms.append((end / RATE - true_end) * 1000)
    assert abs(np.median(errors_ms)) <= 10
    assert np.max(np.abs(errors_ms)) <= 100


def test_sample_times_follow_the_microphone_convention() -> None:
    endpointer, events = Endpointer(EnergyVad(RATE), RATE), []
    pcm = np.concatenate((silence(0.5), speech(1.0), silence(0.6)))
    for index, at in enumerate(range(0, len(pcm), 480)):
        # The frame with samples at .. at+479 arrives when the last of them was spoken.
        arrival = 5_000_000_000 + (index + 1) * 20_000_000
        fed = endpointer.feed(pcm[at : at + 480], arrival, prefix_padding_ms=300, silence_duration_ms=500)
        events += asyncio.run(fed)
    started, stopped = events
    assert isinstance(started, SpeechStarted)
    assert isinstance(stopped, SpeechStopped)
    spoken_from_ns = started.speech_start_perf_ns - 5_000_000_000
    assert spoken_from_ns - started.audio_start_ns == pytest.approx(300_000_000, abs=50_000)
    assert stopped.speech_end_perf_ns - 5_000_000_000 == pytest.approx(stopped.speech_end_audio_ns, abs=50_000)
    assert abs(stopped.speech_end_audio_ns - 1_500_000_000) < 12_000_000
    waited_ns = stopped.audio_end_ns - stopped.speech_end_audio_ns
    assert 500_000_000 <= waited_ns <= 521_000_000


def test_a_late_frame_makes_its_samples_late() -> None:
    endpointer = Endpointer(EnergyVad(RATE), RATE)
    pcm = np.concatenate((silence(0.5), speech(1.0)))
    arrival = 0
    for at in range(0, len(pcm), 480):
        arrival = (at // 480 + 1) * 20_000_000 + (40_000_000 if at >= len(pcm) - 480 else 0)
        asyncio.run(endpointer.feed(pcm[at : at + 480], arrival, prefix_padding_ms=300, silence_duration_ms=None))
    assert endpointer.moment_of(len(pcm) - 1) == pytest.approx(arrival, abs=50_000)


def test_a_manual_turn_without_speech_counts_as_a_whole() -> None:
    endpointer = Endpointer(EnergyVad(RATE), RATE)
    asyncio.run(endpointer.feed(silence(1.0), 1_000_000_000, prefix_padding_ms=300, silence_duration_ms=None))
    assert len(endpointer.turn_audio()) == RATE
    assert endpointer.close().speech_end_audio_ns == pytest.approx(1_000_000_000, abs=50_000)
    assert len(endpointer.turn_audio()) == 0


@given(
    arrays(np.float64, st.integers(1, 300), elements=st.floats(-120, 0)),
    st.lists(st.integers(0, 100), min_size=1, max_size=3),
)
def test_percentiles_are_those_of_numpy(values: NDArray[np.float64], percents: list[int]) -> None:
    assert percentiles(values, tuple(percents)) == tuple(np.percentile(values, percents))
