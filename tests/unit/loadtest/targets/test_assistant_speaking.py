"""Sending speech: deadlines, chunks, pace, when a listener hears it, and the metadata about it."""

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import orjson
import pytest

from loadtest.audio.onset import AudibleSpan
from loadtest.distributions import Delay, random_source
from loadtest.targets.assistant.answering import Answering
from loadtest.targets.assistant.llm.rules import RuleLlm
from loadtest.targets.assistant.record import TurnRecord, merge_metadata
from loadtest.targets.assistant.tts.scripted import ScriptedTts, hum, sentence_ns
from loadtest.targets.assistant.tts.speaking import SpeechOutput, SpeechSink, VoiceSettings
from loadtest.targets.assistant.turn import ReplyRequest, ReplySink, ServedTurn, TurnParts, reply
from tests.unit.loadtest.targets.virtual_clock import VirtualClock

MS = 1_000_000
RATE = 24_000
START = 1_000_000_000


def speak(pace: float, silence_ms: int = 40, sentences: int = 1) -> tuple[list[tuple[int, int]], TurnRecord]:
    clock, record, sent = VirtualClock(START), TurnRecord(0, START, START), []
    settings = VoiceSettings(
        ScriptedTts(), 100, pace, Delay("constant", 70 * MS), Delay("constant", silence_ms * MS), clock
    )

    async def send(messages: list[bytes]) -> None:
        sent.append((clock.now_ns, len(messages[0])))

    async def work() -> None:
        output = SpeechOutput(settings, record, random_source(1), SpeechSink(RATE, lambda pcm: [pcm.tobytes()], send))
        for _ in range(sentences):
            await output.say("The change is made.", START + 10 * MS)

    clock.run(work())
    return sent, record


def test_the_first_chunk_is_sent_at_its_deadline_and_the_rest_at_the_pace() -> None:
    sent, record = speak(pace=2.0)
    assert sent[0] == (START + 80 * MS, 4800)
    assert [at - sent[0][0] for at, _ in sent[:4]] == [0, 50 * MS, 100 * MS, 150 * MS]
    assert record.tts_first_chunk_perf_ns == record.first_chunk_due_perf_ns == START + 80 * MS
    assert record.injected_tts_ns == 70 * MS
    assert record.injected_leading_silence_ns == record.leading_silence_ns == 40 * MS
    assert record.first_audio_perf_ns == START + 120 * MS
    assert record.reply_audio_ns == 40 * MS + sentence_ns("The change is made.")


def test_pace_zero_sends_everything_at_once() -> None:
    sent, _ = speak(pace=0)
    assert len(sent) > 5
    assert {at for at, _ in sent} == {START + 80 * MS}


def test_silence_longer_than_a_chunk_is_played_before_speech() -> None:
    _, record = speak(pace=0, silence_ms=250)
    assert record.first_audio_perf_ns == START + 80 * MS + 250 * MS


def test_the_pace_continues_across_sentences() -> None:
    sent, record = speak(pace=1.0, sentences=2)
    assert sent[-1][0] - sent[0][0] < (record.reply_audio_ns or 0)
    assert sent[-1][0] - sent[0][0] > sentence_ns("The change is made.")


def test_scripted_speech_is_audible_from_its_first_sample() -> None:
    span = AudibleSpan("rms-10ms", RATE)
    span.feed(np.concatenate((np.zeros(1000, np.int16), hum(9000, RATE))))
    assert span.first_sample == 1000


def turn_parts(clock: VirtualClock, tts: object = None) -> TurnParts:
    answering = Answering(
        RuleLlm(Delay("constant", 200 * MS), Delay("constant", 20 * MS)), None, Delay(), 3000 * MS, 5000 * MS, clock
    )
    voice = VoiceSettings(
        tts or ScriptedTts(),
        100,
        1.5,
        Delay("constant", 70 * MS),
        Delay("constant", 20 * MS),
        clock,  # type: ignore[arg-type] - fakes
    )
    return TurnParts(answering, voice, Delay("constant", 60 * MS), clock, 1)


def run_reply(*, stream: bool, rate_hz: int | None = RATE) -> tuple[TurnRecord, list[str], int, str]:
    clock = VirtualClock(START)
    record = TurnRecord(0, START, START, speech_end_perf_ns=START - 290 * MS)
    record.injected_endpointing_ns, record.injected_asr_ns = 230 * MS, 60 * MS
    texts: list[str] = []
    audio = [0]

    async def show(text: str) -> None:
        texts.append(text)

    async def play(messages: list[bytes]) -> None:
        audio[0] += len(messages[0]) // 2

    sink = ReplySink(show, None if rate_hz is None else SpeechSink(rate_hz, lambda pcm: [pcm.tobytes()], play))
    request = ReplyRequest("turn on the light", START, None, (), stream)
    answer = clock.run(reply(ServedTurn(turn_parts(clock), "call", record), request, sink))
    return record, texts, audio[0], answer


@pytest.mark.parametrize("stream", [True, False])
def test_injected_delays_add_up_to_the_actual_delay(stream: bool) -> None:
    record, texts, samples, answer = run_reply(stream=stream)
    assert "".join(texts) == answer
    assert record.planned_voice_to_voice_ns == record.voice_to_voice_ns
    assert record.reply_audio_ns == samples * 10**9 // RATE
    injected = orjson.loads(record.injected_json())
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
    assert record.first_audio_perf_ns is record.injected_tts_ns is record.planned_voice_to_voice_ns is None


def test_engines_without_configured_delays_report_none() -> None:
    class Real:
        name = "real"

        async def speak(self, sentence: str, rate_hz: int) -> AsyncGenerator[np.ndarray]:
            await clock.until(clock.now_ns + 30 * MS)
            yield hum(4800, rate_hz)

    clock, record = VirtualClock(START), TurnRecord(0, START, START)

    async def send(messages: list[bytes]) -> None:
        del messages

    async def work() -> None:
        settings = VoiceSettings(Real(), 100, 0, None, None, clock)  # type: ignore[arg-type] - fake
        output = SpeechOutput(settings, record, random_source(1), SpeechSink(RATE, lambda pcm: [pcm.tobytes()], send))
        await output.say("Hello there.", START)

    clock.run(work())
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


def test_exact_waiting_on_the_real_clock_never_returns_early() -> None:
    from loadtest.targets.assistant.clock import SystemClock

    async def wait() -> int:
        clock = SystemClock()
        due = clock.perf_ns() + 5 * MS
        await clock.until_exactly(due)
        return clock.perf_ns() - due

    assert asyncio.run(wait()) >= 0
