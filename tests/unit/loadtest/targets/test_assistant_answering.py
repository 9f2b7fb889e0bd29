"""The sources of answers: rules, cache, deadline, model endpoint; and cohorts by share."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator

import httpx
import orjson
import pytest

from loadtest.distributions import Delay, random_source
from loadtest.protocols.sentences import SentenceSplitter
from loadtest.targets.assistant.answering import Answering, rule_answer
from loadtest.targets.assistant.cache.base import MemoryCache, PromptCache, cache_key, normalize
from loadtest.targets.assistant.cache.redis_cache import RedisCache
from loadtest.targets.assistant.cohorts import CohortSplit
from loadtest.targets.assistant.llm.base import LlmFailed, Question, TextDelta
from loadtest.targets.assistant.llm.http_engine import HttpLlm, HttpLlmOptions, ThinkFilter
from loadtest.targets.assistant.llm.rules import NOT_UNDERSTOOD, RuleLlm, choose_answer, split_tokens
from loadtest.targets.assistant.record import TurnRecord
from telemetry.model import semconv
from tests.unit.loadtest.targets.virtual_clock import VirtualClock

MS = 1_000_000


def question(text: str, asked_perf_ns: int = 1_000_000_000) -> Question:
    return Question(text, asked_perf_ns, random_source(1, text))


def ask(
    clock: VirtualClock, llm: object, text: str, cache: PromptCache | None = None, deadline_ms: int = 3000
) -> tuple[list[TextDelta], TurnRecord]:
    answering = Answering(llm, cache, Delay("constant", 5 * MS), deadline_ms * MS, 500 * MS, clock)  # type: ignore[arg-type] - fakes
    record = TurnRecord(0, clock.now_ns, 0)

    async def collect() -> list[TextDelta]:
        deltas = []
        async for delta in answering.deltas(question(text, clock.now_ns), record):
            if delta.due_perf_ns is not None:
                await clock.until(delta.due_perf_ns)
            deltas.append(delta)
        return deltas

    return clock.run(collect()), record


def words(deltas: list[TextDelta]) -> str:
    return "".join(delta.text for delta in deltas if not delta.reasoning).strip()


def test_the_number_of_parallel_answers_is_limited() -> None:
    """Two slots and answers of one second: the third and fourth begin when the first two are complete."""
    llm = RuleLlm(Delay("constant", 1_000 * MS), Delay(), parallel=2)

    async def first_tokens() -> list[int]:
        due: list[int] = []
        for asked_ms in (0, 0, 100, 200, 5_000):
            deltas = [delta async for delta in llm.answer(question("Will it rain?", asked_ms * MS))]
            assert deltas[0].due_perf_ns is not None
            due.append(deltas[0].due_perf_ns // MS)
        return due

    assert asyncio.run(first_tokens()) == [1_000, 1_000, 2_000, 2_000, 6_000]


def test_the_rules_report_the_intent() -> None:
    async def intents(text: str) -> set[str | None]:
        llm = RuleLlm(Delay(), Delay())
        return {delta.intent async for delta in llm.answer(question(text))}

    assert asyncio.run(intents("Will it rain tomorrow?")) == {"weather"}
    assert asyncio.run(intents("Hm, well.")) == {None}
    record = TurnRecord(turn_index=0, started_perf_ns=0, started_unix_ns=0, intent="weather")
    assert record.metadata()[semconv.META_INTENT] == "weather"
    assert semconv.META_INTENT not in TurnRecord(turn_index=0, started_perf_ns=0, started_unix_ns=0).metadata()


def test_rules_answer_by_intent_and_are_reproducible() -> None:
    first = choose_answer(question("Will it rain tomorrow?"))
    assert first == choose_answer(question("Will it rain tomorrow?"))
    assert "umbrella" in first.lower() or "rain" in first.lower()
    assert choose_answer(question("")) == NOT_UNDERSTOOD
    assert "".join(split_tokens(first)) == first


def test_rules_stream_with_the_configured_timing() -> None:
    clock = VirtualClock()
    llm = RuleLlm(Delay("constant", 200 * MS), Delay("constant", 20 * MS))
    deltas, record = ask(clock, llm, "play some music")
    asked = 1_000_000_000
    assert [delta.due_perf_ns for delta in deltas] == [asked + (200 + 20 * n) * MS for n in range(len(deltas))]
    assert (record.route, record.fallback, record.cache_hit) == ("local", None, None)


def test_a_repeated_question_is_a_hit_and_skips_the_model() -> None:
    clock = VirtualClock()
    llm, cache = RuleLlm(Delay("constant", 200 * MS), Delay()), MemoryCache(10_000 * MS, clock.perf_ns)
    missed, first = ask(clock, llm, "Play some music!", cache)
    asked = clock.now_ns
    hit, second = ask(clock, llm, "  play SOME music", cache)
    assert words(hit) == words(missed)
    assert (first.cache_hit, first.cache_tier, first.route) == (False, "edge", "local")
    assert (second.cache_hit, second.cache_tier, second.route) == (True, "edge", "cache")
    assert {delta.due_perf_ns for delta in hit} == {asked + 5 * MS}


def test_answers_expire() -> None:
    clock = VirtualClock()
    cache = MemoryCache(100 * MS, clock.perf_ns)
    llm = RuleLlm(Delay(), Delay())
    ask(clock, llm, "play music", cache)
    clock.now_ns += 99 * MS
    assert ask(clock, llm, "play music", cache)[1].cache_hit is True
    clock.now_ns += 1 * MS
    assert ask(clock, llm, "play music", cache)[1].cache_hit is False


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
    now = [0]

    async def use() -> list[str | None]:
        cache = RedisCache(f"redis://127.0.0.1:{port}/0", 10**9, lambda: now[0])
        found = []
        for _ in range(4):
            found.append(await cache.get("key"))
            await cache.put("key", "answer")
            now[0] += 3_000_000_000
        await cache.stop()
        return found

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(use()) == [None] * 4
    assert [record.getMessage().split("(")[0] for record in caplog.records] == ["The Redis cache does not answer "]


def test_after_a_missed_deadline_a_rule_answers_at_the_deadline() -> None:
    clock = VirtualClock()
    cache = MemoryCache(10_000 * MS, clock.perf_ns)
    llm = RuleLlm(Delay("constant", 5_000 * MS), Delay())
    deltas, record = ask(clock, llm, "play music", cache, deadline_ms=800)
    assert words(deltas) == rule_answer("play music")
    assert {delta.due_perf_ns for delta in deltas} == {1_000_000_000 + 800 * MS}
    assert (record.route, record.fallback) == ("rule", "rule")
    assert record.outcome_reason == "the model missed its deadline"
    assert ask(clock, llm, "play music", cache, deadline_ms=800)[1].cache_hit is False


class Slow:
    """A model without due times."""

    model, route = "slow", "cloud"

    def __init__(self, clock: VirtualClock, *steps: tuple[int, str]) -> None:
        self.clock, self.steps = clock, steps

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        for wait_ns, text in self.steps:
            await self.clock.until(self.clock.now_ns + wait_ns)
            if text == "!":
                raise LlmFailed("the model broke")
            yield TextDelta(text, reasoning=text.startswith("("))


def test_if_a_real_model_hangs_a_rule_answers_at_the_deadline() -> None:
    clock = VirtualClock()
    deltas, record = ask(clock, Slow(clock, (9_000 * MS, "late")), "stop", deadline_ms=800)
    assert words(deltas) == rule_answer("stop")
    assert (record.route, record.fallback) == ("rule", "rule")
    assert clock.now_ns == 1_000_000_000 + 800 * MS


def test_reasoning_is_not_the_first_token() -> None:
    clock = VirtualClock()
    steps = [(500 * MS, "(hm)"), (500 * MS, "answer")]
    deltas, record = ask(clock, Slow(clock, *steps), "stop", deadline_ms=800)
    assert record.fallback == "rule"
    assert deltas[0].reasoning


def test_an_answer_that_stalls_ends_early() -> None:
    clock = VirtualClock()
    deltas, record = ask(clock, Slow(clock, (10 * MS, "Half"), (9_000 * MS, " late")), "stop")
    assert words(deltas) == "Half"
    assert record.fallback == "partial"


@pytest.mark.parametrize("steps", [[(10 * MS, "!")], []], ids=["fails", "empty"])
def test_if_a_model_fails_or_returns_nothing_a_rule_answers(steps: list[tuple[int, str]]) -> None:
    clock = VirtualClock()
    deltas, record = ask(clock, Slow(clock, *steps), "stop")
    assert words(deltas) == rule_answer("stop")
    assert record.fallback == "rule"


def test_an_empty_question_is_answered_without_a_model() -> None:
    clock = VirtualClock()
    deltas, record = ask(clock, Slow(clock, (0, "!")), "  ")
    assert words(deltas) == NOT_UNDERSTOOD
    assert (record.route, record.fallback, record.model) == ("rule", None, None)


def sse(*deltas: dict[str, str]) -> bytes:
    lines = [b"data: " + orjson.dumps({"choices": [{"delta": delta}]}) for delta in deltas]
    return b"\n\n".join([b": comment", *lines, b'data: {"choices":[]}', b"data: [DONE]", b""])


def http_pieces(answer: httpx.Response) -> tuple[list[TextDelta], list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer

    async def collect() -> list[TextDelta]:
        llm = HttpLlm(HttpLlmOptions("http://model/v1/", "m", "secret"), httpx.MockTransport(handle))
        deltas = [delta async for delta in llm.answer(question("hello"))]
        await llm.stop()
        return deltas

    return asyncio.run(collect()), seen


def test_the_request_follows_the_chat_api_and_reasoning_is_separated() -> None:
    content = sse({"role": "assistant"}, {"reasoning_content": "hm"}, {"content": "Good"}, {"content": " day."})
    deltas, seen = http_pieces(httpx.Response(200, content=content))
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
        http_pieces(answer)


@pytest.mark.parametrize("cut", range(1, 6))
def test_think_tags_are_found_however_they_are_split(cut: int) -> None:
    text, think = "<think>let me see</think>\nThe answer < 5.", ThinkFilter()
    deltas = [delta for at in range(0, len(text), cut) for delta in think.feed(text[at : at + cut])] + think.end()
    assert "".join(delta.text for delta in deltas if delta.reasoning) == "let me see"
    assert "".join(delta.text for delta in deltas if not delta.reasoning).lstrip() == "The answer < 5."


@pytest.mark.parametrize("cut", range(1, 9))
def test_sentences_are_found_however_the_text_is_split(cut: int) -> None:
    text, splitter = "The change is made. Say stop, Mr. Fox! Is it No. 5? Yes", SentenceSplitter()
    found = [sentence for at in range(0, len(text), cut) for sentence in splitter.feed(text[at : at + cut])]
    rest = splitter.end()
    assert found[0] == "The change is made."
    assert " ".join([*found, rest or ""]) == text
    assert rest == "Yes"


def test_cohorts_depend_only_on_share_salt_and_call() -> None:
    split = CohortSplit("treatment", 0.3, "control", 5)
    assigned = [split.assign(f"call-{n}").cohort for n in range(4000)]
    assert assigned == [split.assign(f"call-{n}").cohort for n in range(4000)]
    assert assigned.count("treatment") / 4000 == pytest.approx(0.3, abs=0.025)
    assert {CohortSplit("t", 0.0).assign(str(n)).cohort for n in range(50)} == {"control"}
    assert {CohortSplit("t", 1.0).assign(str(n)).cohort for n in range(50)} == {"t"}
    assert assigned != [CohortSplit("treatment", 0.3, "control", 6).assign(f"call-{n}").cohort for n in range(4000)]
