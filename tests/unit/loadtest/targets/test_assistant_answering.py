"""The assistant's answers: the closed-set recognizer, the conversation history, and the sources of replies."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from corpora.manifest.library import BUNDLED, open_corpus
from corpora.rendering.render import Profile, render
from loadtest.distributions import Delay, random_source
from loadtest.errors import UsageError
from loadtest.protocols.openai_realtime.service import ServiceSession
from loadtest.targets.assistant.answering import Answering, rule_answer
from loadtest.targets.assistant.cache import MemoryCache, RedisCache, cache_key
from loadtest.targets.assistant.config import CohortSplit
from loadtest.targets.assistant.faults import FaultySender
from loadtest.targets.assistant.http_llm import HttpLlm
from loadtest.targets.assistant.interfaces import LlmFailed, Question, TextDelta
from loadtest.targets.assistant.llm import NOT_UNDERSTOOD, RuleLlm, split_tokens
from loadtest.targets.assistant.questions import normalize
from loadtest.targets.assistant.scripted import (
    ClipIndex,
    KnownClip,
    ScriptedAsr,
    known_clips,
    recognize,
    recognize_prefix,
)
from loadtest.targets.assistant.session import HISTORY_TURNS, CallParts, Session, make_id
from loadtest.targets.assistant.turn import TurnRecord
from telemetry.model import semconv
from tests.unit.loadtest.targets.virtual_clock import VirtualClock, served

MS = 1_000_000
START = 1_000_000_000
TIMED = {"llm_ttft": "constant:200ms", "llm_gap": "constant:20ms"}


def question(text: str, asked_perf_ns: int = START) -> Question:
    return Question(text, asked_perf_ns, random_source(1, text))


def ask(
    clock: VirtualClock, text: str, llm: object = None, *, cache: object = None, **settings: str
) -> tuple[list[TextDelta], TurnRecord]:
    answering = Answering(served(clock, llm, cache=cache, llm_stall="500ms", **settings))
    record = TurnRecord(0, clock.now_ns, 0)

    async def collect() -> list[TextDelta]:
        deltas = []
        async for delta in answering.deltas(question(text, clock.now_ns), record):
            await clock.until(delta.due_perf_ns or 0)
            deltas.append(delta)
        return deltas

    return clock.run(collect()), record


def words(deltas: list[TextDelta]) -> str:
    return "".join(delta.text for delta in deltas if not delta.reasoning).strip()


async def written(llm: Any, asked: str | Question, asked_perf_ns: int = START) -> list[TextDelta]:
    asked = question(asked, asked_perf_ns) if isinstance(asked, str) else asked
    return [delta async for delta in llm.answer(asked)]


def test_the_number_of_parallel_answers_is_limited() -> None:
    """Two slots and answers of one second: the third and fourth begin when the first two are complete."""
    llm = RuleLlm(Delay("constant", 1_000 * MS), Delay(), parallel=2)
    asked_ms = (0, 0, 100, 200, 5_000)
    due_ns = [asyncio.run(written(llm, "Will it rain?", asked * MS))[0].due_perf_ns or 0 for asked in asked_ms]
    assert [due // MS for due in due_ns] == [1_000, 1_000, 2_000, 2_000, 6_000]


def test_rules_answer_by_intent_are_reproducible_and_report_it() -> None:
    llm = RuleLlm(Delay(), Delay())
    rain = asyncio.run(written(llm, "Will it rain tomorrow?"))
    assert rain == asyncio.run(written(llm, "Will it rain tomorrow?"))
    assert "umbrella" in words(rain).lower() or "rain" in words(rain).lower()
    assert split_tokens(words(rain)) == [delta.text for delta in rain]
    assert {delta.intent for delta in rain} == {"weather"}
    assert {delta.intent for delta in asyncio.run(written(llm, "Hm, well."))} == {None}
    assert words(asyncio.run(written(llm, ""))) == NOT_UNDERSTOOD
    assert TurnRecord(0, 0, 0, intent="weather").metadata()[semconv.META_INTENT] == "weather"
    assert semconv.META_INTENT not in TurnRecord(0, 0, 0).metadata()


def test_rules_stream_with_the_configured_timing() -> None:
    deltas, record = ask(VirtualClock(), "play some music", **TIMED)
    assert [delta.due_perf_ns for delta in deltas] == [START + (200 + 20 * n) * MS for n in range(len(deltas))]
    assert (record.route, record.fallback, record.cache_hit) == ("local", None, None)


def test_a_repeated_question_is_a_hit_and_skips_the_model() -> None:
    clock = VirtualClock()
    cache = MemoryCache(10_000 * MS, clock.perf_ns)
    missed, first = ask(clock, "Play some music!", cache=cache, **TIMED)
    asked = clock.now_ns
    hit, second = ask(clock, "  play SOME music", cache=cache, cache_delay="constant:5ms", **TIMED)
    assert words(hit) == words(missed)
    assert (first.cache_hit, first.cache_tier, first.route) == (False, "edge", "local")
    assert (second.cache_hit, second.cache_tier, second.route) == (True, "edge", "cache")
    assert {delta.due_perf_ns for delta in hit} == {asked + 5 * MS}


def test_answers_expire() -> None:
    clock = VirtualClock()
    cache = MemoryCache(100 * MS, clock.perf_ns)
    hits = []
    for wait_ms in (0, 99, 1):
        clock.now_ns += wait_ms * MS
        hits.append(ask(clock, "play music", cache=cache)[1].cache_hit)
    assert hits == [False, True, False]


def test_the_memory_cache_drops_the_least_recently_used_answer() -> None:
    async def use() -> list[str | None]:
        cache = MemoryCache(1000, lambda: 0, capacity=2)
        await cache.put("a", "1")
        await cache.put("b", "2")
        await cache.get("a")
        await cache.put("c", "3")
        return [await cache.get(key) for key in "abc"]

    assert asyncio.run(use()) == ["1", None, "3"]


def test_normalization_keeps_every_word() -> None:
    assert normalize("  Turn ON the light, please! ") == "turn on the light please"
    assert normalize("weather today") != normalize("weather tomorrow")
    assert cache_key("m", "Stop.") == cache_key("m", "stop")
    assert cache_key("m", "stop") != cache_key("n", "stop")


def test_a_redis_that_is_down_is_a_miss_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    async def use() -> list[str | None]:
        seconds = count(0, 3 * 10**9)
        cache = RedisCache(f"redis://127.0.0.1:{port}/0", 10**9, lambda: next(seconds))
        answers = []
        for _ in range(4):
            answers.append(await cache.get("key"))
            await cache.put("key", "answer")
        await cache.stop()
        return answers

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(use()) == [None] * 4
    assert [record.getMessage().split("(")[0] for record in caplog.records] == ["The Redis cache does not answer "]


def test_after_a_missed_deadline_a_rule_answers_at_the_deadline() -> None:
    clock = VirtualClock()
    cache = MemoryCache(10_000 * MS, clock.perf_ns)
    late = {"llm_ttft": "constant:5s", "llm_deadline": "800ms"}
    deltas, record = ask(clock, "play music", cache=cache, **late)
    assert words(deltas) == rule_answer("play music")
    assert {delta.due_perf_ns for delta in deltas} == {START + 800 * MS}
    assert (record.route, record.fallback) == ("rule", "rule")
    assert record.outcome_reason == "the model missed its deadline"
    assert ask(clock, "play music", cache=cache, **late)[1].cache_hit is False


class Slow:
    """A model without due times: "!" is a failure, text in brackets is reasoning."""

    model, route = "slow", "cloud"

    def __init__(self, clock: VirtualClock, *steps: tuple[int, str]) -> None:
        self.clock, self.steps = clock, steps

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        for wait_ms, text in self.steps:
            await self.clock.until(self.clock.now_ns + wait_ms * MS)
            if text == "!":
                raise LlmFailed("the model broke")
            yield TextDelta(text, reasoning=text.startswith("("))


@pytest.mark.parametrize(
    ("steps", "answer", "fallback", "ends_ms"),
    [
        pytest.param([(9_000, "late")], rule_answer("stop"), "rule", 800, id="hangs"),
        pytest.param([(500, "(hm)"), (500, "answer")], rule_answer("stop"), "rule", 800, id="only reasons"),
        pytest.param([(10, "Half"), (9_000, " late")], "Half", "partial", 510, id="stalls"),
        pytest.param([(10, "!")], rule_answer("stop"), "rule", 10, id="fails"),
        pytest.param([], rule_answer("stop"), "rule", 0, id="is empty"),
        pytest.param([(500, "In time.")], "In time.", None, 500, id="answers"),
    ],
)
def test_a_model_that_does_not_answer_in_time_is_replaced(
    steps: list[tuple[int, str]], answer: str, fallback: str | None, ends_ms: int
) -> None:
    clock = VirtualClock()
    deltas, record = ask(clock, "stop", Slow(clock, *steps), llm_deadline="800ms")
    assert words(deltas) == answer
    assert record.fallback == fallback
    assert (record.route == "rule") is (fallback == "rule")
    assert clock.now_ns == START + ends_ms * MS


def test_an_empty_question_is_answered_without_a_model() -> None:
    clock = VirtualClock()
    deltas, record = ask(clock, "  ", Slow(clock, (0, "!")))
    assert words(deltas) == NOT_UNDERSTOOD
    assert (record.route, record.fallback, record.model) == ("rule", None, None)


def http_deltas(answer: httpx.Response) -> tuple[list[TextDelta], list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer

    llm = HttpLlm("http://model/v1/", "m", token="secret", transport=httpx.MockTransport(handle))
    return asyncio.run(written(llm, "hello")), seen


def test_request_follows_chat_api_and_reasoning_is_separated() -> None:
    sent = ({"role": "assistant"}, {"reasoning_content": "hm"}, {"content": "Good"}, {"content": " day."})
    lines = [b"data: " + orjson.dumps({"choices": [{"delta": delta}]}) for delta in sent]
    content = b"\n\n".join([b": comment", *lines, b'data: {"choices":[]}', b"data: [DONE]", b""])
    deltas, seen = http_deltas(httpx.Response(200, content=content))
    assert deltas == [TextDelta("hm", reasoning=True), TextDelta("Good"), TextDelta(" day.")]
    assert str(seen[0].url) == "http://model/v1/chat/completions"
    assert seen[0].headers["authorization"] == "Bearer secret"
    body = orjson.loads(seen[0].content)
    assert body["stream"] is True
    assert body["messages"][-1] == {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(200, content=b"data: {oops\n\n"),
        httpx.Response(200, content=b"data: [1]\n\n"),
        httpx.Response(200, content=b'data: {"error":{"message":"no"}}\n\n'),
    ],
)
def test_an_endpoint_that_misbehaves_is_a_failure(answer: httpx.Response) -> None:
    with pytest.raises(LlmFailed):
        http_deltas(answer)


@pytest.mark.parametrize("cut", [1, 3, 100])
def test_reasoning_in_tags_is_separated_and_tokens_are_counted(cut: int) -> None:
    text = "<think>let me see</think>\nThe answer < 5."
    sent = [{"choices": [{"delta": {"content": text[at : at + cut]}}]} for at in range(0, len(text), cut)]
    counted = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    lines = [b"data: " + orjson.dumps(chunk) for chunk in (*sent, {"choices": [], "usage": counted})]
    content = b"\n\n".join([*lines, b"data: [DONE]", b""])
    asked = question("hello")
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content))
    deltas = asyncio.run(written(HttpLlm("http://model/v1/", "m", transport=transport), asked))
    assert "".join(delta.text for delta in deltas if delta.reasoning) == "let me see"
    assert "".join(delta.text for delta in deltas if not delta.reasoning).lstrip() == "The answer < 5."
    assert asked.work == {"input_tokens": 9, "cached_tokens": 2, "output_tokens": 4}


def test_answer_ends_at_its_mark_though_the_body_stays_open() -> None:
    class OpenBody(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes]:
            yield b'data: {"choices":[{"delta":{"content":"Good day."}}]}\n\ndata: [DONE]\n\n'
            raise AssertionError("what follows the end of the answer was read")

    deltas, _ = http_deltas(httpx.Response(200, stream=OpenBody()))
    assert deltas == [TextDelta("Good day.")]


def test_cohorts_depend_only_on_share_salt_and_call() -> None:
    def assigned(split: CohortSplit, calls: int = 4000) -> list[str | None]:
        return [split.assign(f"call-{number}").cohort for number in range(calls)]

    some = assigned(CohortSplit("treatment", 0.3, "control", 5))
    assert some == assigned(CohortSplit("treatment", 0.3, "control", 5))
    assert some != assigned(CohortSplit("treatment", 0.3, "control", 6))
    assert some.count("treatment") / 4000 == pytest.approx(0.3, abs=0.025)
    assert set(assigned(CohortSplit("t", 0.0), 50)) == {"control"}
    assert set(assigned(CohortSplit("t", 1.0), 50)) == {"t"}


@pytest.fixture(scope="module")
def clips() -> list[KnownClip]:
    return known_clips(BUNDLED)


def line(clip: KnownClip, snr_db: float | None, seed: int) -> np.ndarray:
    padded = np.concatenate((np.zeros(4800), clip.pcm, np.zeros(4800)))
    if snr_db is not None:
        level = np.sqrt(np.mean(clip.speech.astype(np.float64) ** 2)) * 10 ** (-snr_db / 20)
        padded = padded + np.random.default_rng(seed).standard_normal(len(padded)) * level
    return np.clip(padded, -32768, 32767).astype(np.int16)


@pytest.mark.parametrize("snr_db", [None, 10.0])
def test_known_clips_are_recognized(clips: list[KnownClip], snr_db: float | None) -> None:
    index = ClipIndex(clips)
    for seed, clip in enumerate(clips[::6]):
        recognized = recognize(index, line(clip, snr_db, seed), clip.rate_hz)
        assert recognized == clip.text


def test_unknown_speech_is_not_recognized(clips: list[KnownClip]) -> None:
    index = ClipIndex(clips[::2])
    known = {clip.text for clip in clips[::2]}
    strangers = [clip for clip in clips[1::2] if clip.text not in known][:12]
    recognized = [recognize(index, line(clip, None, 0), clip.rate_hz) for clip in strangers]
    assert recognized == [""] * len(strangers)


def test_partials_are_the_beginning_of_the_text(clips: list[KnownClip]) -> None:
    index = ClipIndex(clips)
    clip = max(clips, key=lambda clip: len(clip.speech))
    audio = np.concatenate((np.zeros(3200, np.int16), clip.speech[: len(clip.speech) // 2]))
    half = recognize_prefix(index, audio, clip.rate_hz)
    assert half
    assert clip.text.startswith(half)
    assert len(half) < len(clip.text)


@pytest.mark.parametrize("samples", [0, 100, 4000])
def test_very_short_audio_is_not_recognized(clips: list[KnownClip], samples: int) -> None:
    index = ClipIndex(clips)
    assert recognize(index, np.zeros(samples, np.int16), 16_000) == ""
    assert recognize_prefix(index, np.zeros(samples, np.int16), 16_000) == ""


def test_a_stream_ignores_trailing_silence(clips: list[KnownClip]) -> None:
    clip = min(clips, key=lambda clip: len(clip.speech))

    async def transcribe() -> str:
        engine = ScriptedAsr(clips)
        stream = engine.open(clip.rate_hz)
        stream.feed(clip.speech)
        stream.feed(np.zeros(clip.rate_hz * 2, np.int16))
        text = await stream.finish(clip.rate_hz * 2)
        await engine.stop()
        return text

    assert asyncio.run(transcribe()) == clip.text


def test_no_corpus_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="corpus"):
        known_clips("there-is-no-such-corpus")


@pytest.mark.slow
def test_bundled_corpus_is_known_by_default(clips: list[KnownClip]) -> None:
    assert {clip.text for clip in clips} <= {clip.text for clip in known_clips(None)}
    assert len(known_clips(f"{BUNDLED}, {BUNDLED}")) == 2 * len(clips)


def test_a_known_clip_ends_where_callers_end_it(clips: list[KnownClip]) -> None:
    corpus = open_corpus(BUNDLED, check_clips=False)
    for clip, utterance in list(zip(clips, corpus.utterances, strict=True))[::11]:
        sent = render(corpus, utterance, Profile(), utterance.sample_rate_hz)
        assert (clip.speech_start_sample, clip.speech_end_sample) == (sent.speech_start_sample, sent.speech_end_sample)
        assert clip.speech_end_sample != utterance.speech_end_sample


class Counter:
    """A model that answers with the number of the question, and a caller's connection that keeps what it receives."""

    model, route = "counter", "local"

    def __init__(self) -> None:
        self.histories: list[tuple[tuple[str, str], ...]] = []
        self.events: list[dict[str, Any]] = []

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        self.histories.append(question.history)
        yield TextDelta(str(len(self.histories)))

    async def send(self, message: str, *, text: bool) -> None:
        self.events.append(json.loads(message))


def test_the_model_gets_the_last_turns_without_deleted_items() -> None:
    clock, fake = VirtualClock(), Counter()
    faults: list[BaseException] = []
    call = CallParts("call", ServiceSession(make_id), FaultySender(fake, None), None, faults.append)  # type: ignore[arg-type] - fake
    session = Session(served(clock, fake), call)

    async def receive(**event: Any) -> None:
        await session.receive(json.dumps(event), clock.now_ns)

    async def ask(number: int) -> None:
        content = [{"type": "input_text", "text": f"question {number}"}]
        item = {"id": f"q{number}", "type": "message", "role": "user", "content": content}
        await receive(type="conversation.item.create", item=item)
        await receive(type="response.create", response={"output_modalities": ["text"]})
        while sum(event["type"] == "response.done" for event in fake.events) < number:
            await clock.until(clock.now_ns + 1)

    async def work() -> None:
        await session.begin()
        await ask(1)
        await receive(type="conversation.item.delete", item_id="q1")
        for number in range(2, 2 * HISTORY_TURNS):
            await ask(number)
        await session.close()

    clock.run(work())
    assert faults == []
    assert fake.histories[:3] == [
        (),
        (("assistant", "1"),),
        (("assistant", "1"), ("user", "question 2"), ("assistant", "2")),
    ]
    assert len(fake.histories[-1]) == 2 * HISTORY_TURNS
    assert fake.histories[-1][-1] == ("assistant", str(2 * HISTORY_TURNS - 2))
