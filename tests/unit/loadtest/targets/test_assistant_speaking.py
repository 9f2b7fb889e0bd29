"""Sending speech: deadlines, chunks, pace, when a listener hears it, and the metadata about it."""

from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import orjson
import pytest

from loadtest.audio.onset import AudibleSpan
from loadtest.distributions import random_source
from loadtest.targets.assistant.interfaces import Question
from loadtest.targets.assistant.reply import ReplySink, SpeechOutput, reply
from loadtest.targets.assistant.scripted import hum, sentence_ns
from loadtest.targets.assistant.turn import ServedTurn, TurnRecord, merge_metadata
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


def test_the_first_chunk_is_sent_at_its_deadline_and_the_rest_at_the_pace() -> None:
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
