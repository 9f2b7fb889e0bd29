"""The sources of answers: rules, cache, deadline, model endpoint; and cohorts by share."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import httpx
import orjson
import pytest

from loadtest.distributions import Delay, random_source
from loadtest.protocols.sentences import SentenceSplitter
from loadtest.targets.assistant.answering import Answering, rule_answer
from loadtest.targets.assistant.cache import MemoryCache, RedisCache, cache_key
from loadtest.targets.assistant.config import CohortSplit
from loadtest.targets.assistant.http_llm import HttpLlm, ThinkFilter
from loadtest.targets.assistant.interfaces import LlmFailed, Question, TextDelta
from loadtest.targets.assistant.llm import NOT_UNDERSTOOD, RuleLlm, split_tokens
from loadtest.targets.assistant.questions import normalize
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


async def written(llm: Any, text: str, asked_perf_ns: int = START) -> list[TextDelta]:
    return [delta async for delta in llm.answer(question(text, asked_perf_ns))]


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
        found = []
        for _ in range(4):
            found.append(await cache.get("key"))
            await cache.put("key", "answer")
        await cache.stop()
        return found

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


def test_the_request_follows_the_chat_api_and_reasoning_is_separated() -> None:
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
    def assigned(split: CohortSplit, calls: int = 4000) -> list[str | None]:
        return [split.assign(f"call-{number}").cohort for number in range(calls)]

    some = assigned(CohortSplit("treatment", 0.3, "control", 5))
    assert some == assigned(CohortSplit("treatment", 0.3, "control", 5))
    assert some != assigned(CohortSplit("treatment", 0.3, "control", 6))
    assert some.count("treatment") / 4000 == pytest.approx(0.3, abs=0.025)
    assert set(assigned(CohortSplit("t", 0.0), 50)) == {"control"}
    assert set(assigned(CohortSplit("t", 1.0), 50)) == {"t"}
