"""The options of the assistant that techniques switch: what each does to time, to work and to what is said."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import orjson
import pytest

from loadtest.distributions import Delay, random_source
from loadtest.targets.assistant import questions as analysis
from loadtest.targets.assistant.answering import Answering
from loadtest.targets.assistant.cache import MemoryCache, TieredCache, cache_key
from loadtest.targets.assistant.interfaces import Embedder, Question, TextDelta
from loadtest.targets.assistant.llm import RoutedLlm, RuleLlm, SpeculativeStart
from loadtest.targets.assistant.questions import (
    ExampleRouter,
    SimilarQuestions,
    marked_items,
    normalize_times,
    slots,
)
from loadtest.targets.assistant.reply import ReplySink, reply
from loadtest.targets.assistant.turn import META_WORK, ServedTurn, TurnRecord
from loadtest.techniques.labels import labeled_lists, privacy, routing, similarity
from tests.unit.loadtest.targets.virtual_clock import VirtualClock, served

MS = 1_000_000
START = 1_000_000_000


class SlowLlm:
    """A model that takes real time by the clock: the first token after `first_ms`, another every `gap_ms`."""

    model, route = "slow", "local"

    def __init__(self, clock: VirtualClock, answer: str, first_ms: int = 300, gap_ms: int = 50) -> None:
        self.clock, self.tokens, self.first_ms, self.gap_ms = clock, answer.split(" "), first_ms, gap_ms
        self.asked: list[str] = []
        self.written = 0

    async def answer(self, question: Question) -> AsyncGenerator[TextDelta]:
        self.asked.append(question.text)
        await self.clock.until(self.clock.now_ns + self.first_ms * MS)
        for place, token in enumerate(self.tokens):
            if place:
                await self.clock.until(self.clock.now_ns + self.gap_ms * MS)
            self.written += 1
            yield TextDelta(token if place == 0 else f" {token}")


class Meanings(Embedder):
    """A model of embeddings that has a vector for each text."""

    def __init__(self, **vectors: tuple[float, float]) -> None:
        self.vectors = vectors

    async def embed(self, text: str) -> Any:
        vector = np.array(self.vectors[text.split(maxsplit=1)[0].lower()], np.float32)
        return vector / np.linalg.norm(vector)


def question(text: str) -> Question:
    return Question(text, START, random_source(1, text))


def answered(
    clock: VirtualClock, llm: Any, asked: str = "Will it rain?", **settings: str
) -> tuple[str, float, TurnRecord]:
    """The answer, when its first token came, in ms, and the record."""
    answering = Answering(served(clock, llm, **settings))
    record = TurnRecord(0, START, START)

    async def work() -> tuple[str, float]:
        texts: list[str] = []
        first_ns = 0
        async for delta in answering.deltas(question(asked), record):
            await clock.until(delta.due_perf_ns or 0)
            first_ns = first_ns or clock.now_ns
            texts.append(delta.text)
        return "".join(texts), (first_ns - START) / MS

    return (*clock.run(work()), record)


@pytest.mark.parametrize(
    ("late", "answer_ms", "spoken_text", "first_ms"),
    [
        ("append", 900, "One moment, please. Is there anything else that I can do for you? It stays dry.", 400),
        ("replace", 900, "One moment, please. It stays dry.", 400),  # the question is 1,500 ms after the word
        ("replace", 2_500, "One moment, please. Is there anything else that I can do for you? It stays dry.", 400),
        ("append", 300, "It stays dry.", 300),
    ],
)
def test_a_late_answer_is_appended_or_replaces_the_rest(
    late: str, answer_ms: int, spoken_text: str, first_ms: int
) -> None:
    clock = VirtualClock(START)
    llm = SlowLlm(clock, "It stays dry.", answer_ms)
    text, heard_ms, record = answered(clock, llm, llm_late=late, llm_deadline="400ms")
    assert (text, heard_ms) == (spoken_text, first_ms)
    assert (record.fallback, record.route) == ("partial" if answer_ms > 400 else None, "local")


def test_cache_hit_states_age_and_unreadable_entry_is_miss() -> None:
    clock = VirtualClock(START)
    cache = MemoryCache(10_000 * MS, clock.perf_ns, tier="device")
    answering = Answering(served(clock, SlowLlm(clock, "It stays dry."), cache=cache))

    async def asked() -> TurnRecord:
        record = TurnRecord(0, START, START)
        asked = Question("Will it rain?", clock.now_ns, random_source(1))
        assert "".join([delta.text async for delta in answering.deltas(asked, record)]) == "It stays dry."
        return record

    async def work() -> tuple[TurnRecord, TurnRecord, TurnRecord]:
        first = await asked()
        clock.now_ns += 4_000 * MS
        second = await asked()
        await cache.put(cache_key("slow", "Will it rain?"), "It stays wet.")
        return first, second, await asked()

    missed, hit, unreadable = clock.run(work())
    assert (missed.cache_hit, "cache_age_s" in missed.work) == (False, False)
    assert (hit.cache_hit, hit.cache_tier, hit.route) == (True, "device", "cache")
    assert hit.work["cache_age_s"] == pytest.approx(4, abs=0.001)
    assert (unreadable.cache_hit, unreadable.route) == (False, "local")


def test_last_answer_is_repeated_at_deadline_if_there_is_one() -> None:
    clock = VirtualClock(START)
    answering = Answering(served(clock, SlowLlm(clock, "Late."), llm_deadline="100ms", llm_late="last"))

    async def words(history: tuple[tuple[str, str], ...]) -> tuple[str, str | None]:
        record = TurnRecord(0, START, START)
        asked = Question("And now?", clock.now_ns, random_source(1), history=history)
        return "".join([delta.text async for delta in answering.deltas(asked, record)]), record.fallback

    assert clock.run(words((("user", "Rain?"), ("assistant", "It stays dry.")))) == ("It stays dry.", "cached")
    assert clock.run(words(()))[1] == "rule"


@pytest.mark.parametrize(("guard", "first_ms"), [("off", 300), ("beside", 300), ("before", 600)])
def test_guard_before_answer_takes_time_and_parallel_one_none(guard: str, first_ms: float) -> None:
    clock = VirtualClock(START)
    llm = SlowLlm(clock, "It stays dry.")
    assert answered(clock, llm, llm_guard=guard)[1] == first_ms
    assert len(llm.asked) == (1 if guard == "off" else 2)


def test_model_is_stopped_after_requested_number_of_sentences() -> None:
    clock = VirtualClock(START)
    llm = SlowLlm(clock, "It stays dry. Take no umbrella with you. Bye.")
    assert answered(clock, llm, llm_sentences="1")[0] == "It stays dry."
    assert llm.written == 4  # the first word of the next sentence shows that the first one has ended


def test_speculative_answer_is_ready_if_words_match_else_wasted() -> None:
    clock = VirtualClock(START)
    llm = SlowLlm(clock, "It stays dry.")

    async def work(*partials: str) -> tuple[list[str], float, dict[str, float]]:
        start = SpeculativeStart(llm, question)
        for words in partials:
            await start.partial(words)
            await clock.until(clock.now_ns + 340 * MS)
        began, asked = clock.now_ns, question("Will it rain?")
        stream = await start.take(asked)
        deltas = [delta.text async for delta in stream] if stream else []
        return deltas, (clock.now_ns - began) / MS, asked.work

    deltas, took_ms, done = clock.run(work("will it", "Will it rain"))
    assert "".join(deltas) == "It stays dry."
    assert took_ms == 60  # of the 400 that the whole answer takes
    assert done == {"speculative_starts": 2, "wrong_starts": 1, "wasted_tokens": 1}
    assert clock.run(work("Will it snow")) == (
        [],
        0,
        {"speculative_starts": 1, "wrong_starts": 1, "wasted_tokens": 1},
    )


def test_route_decides_model_and_parallel_start_is_discarded() -> None:
    for in_parallel in (False, True):
        clock = VirtualClock(START)

        async def stays(text: str, clock: VirtualClock = clock) -> bool:
            await clock.until(clock.now_ns + 360 * MS)
            return "light" in text

        local = SlowLlm(clock, "Done.")
        cloud = RuleLlm(Delay("constant", 700 * MS), Delay(), always="A long story.", model="far", route="cloud")
        llm = RoutedLlm(local, cloud, stays, clock.perf_ns, in_parallel=in_parallel)
        text, first_ms, record = answered(clock, llm, "Turn on the light.")
        assert (text, first_ms, record.route) == ("Done.", 360 if in_parallel else 660, "local")
        clock.now_ns = START
        text, first_ms, record = answered(clock, llm, "Tell me a story.")
        assert (text, first_ms, record.route, record.model) == ("A long story.", 1_060, "cloud", "far")
        assert record.work == {"cloud_questions": 1, **({"wasted_tokens": 1} if in_parallel else {})}
        assert len(local.asked) == 1 + in_parallel


def test_a_tiered_cache_says_which_tier_had_the_answer() -> None:
    near, far = MemoryCache(10_000 * MS, lambda: 0), MemoryCache(10_000 * MS, lambda: 0, tier="central")
    both = TieredCache(near, far)

    async def work() -> list[tuple[str | None, str]]:
        reads = [(await both.get("k"), both.tier)]
        await far.put("k", "answer")
        return [*reads, *[(await both.get("k"), both.tier) for _ in range(2)]]

    assert asyncio.run(work()) == [(None, "central"), ("answer", "central"), ("answer", "edge")]


@pytest.mark.parametrize(
    ("texts", "normal"),
    [
        (("Wake me at half past six.", "wake me at 6:30", "Wake me at six thirty!"), "wake me at 6 30"),
        (("At quarter to one", "at 12:45"), "at 12 45"),
        (("quarter past ten", "10:15"), "10 15"),
        (("Six o'clock", "6:00", "six"), "6"),
        (("twenty five to 9 p.m.", "Twenty-five to nine pm"), "25 to 9 pm"),
        (("two hundred", "2 hundred"), "2 hundred"),
    ],
)
def test_times_and_numbers_are_the_same_however_they_are_spoken(texts: tuple[str, ...], normal: str) -> None:
    assert {normalize_times(text) for text in texts} == {normal}


def test_slots_are_what_changes_an_answer() -> None:
    assert slots("Turn on the kitchen lights at six.") == {"on", "kitchen", "6"}
    assert slots("Switch the light ON, in the kitchen, at 6:00") == {"on", "kitchen", "6"}
    assert slots("What a day") == frozenset()


def test_similar_questions_share_answer_unless_slots_differ() -> None:
    meanings = Meanings(lights=(1, 0), lamp=(1, 0.1), story=(0, 1))

    async def matching_key(text: str, *, compare_slots: bool) -> str | None:
        questions = SimilarQuestions(meanings, 0.9, compare_slots=compare_slots)
        assert await questions.find(text) is None
        await questions.add("lights off", "key")
        return await questions.find(text)

    assert asyncio.run(matching_key("lamp off", compare_slots=True)) == "key"
    assert asyncio.run(matching_key("lamp on", compare_slots=False)) == "key"
    assert asyncio.run(matching_key("lamp on", compare_slots=True)) is None
    assert asyncio.run(matching_key("story off", compare_slots=False)) is None


def test_missed_question_is_embedded_once_and_oldest_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meanings = Meanings(lights=(1, 0), story=(0, 1), poem=(0.6, 0.8))
    embedded: list[str] = []
    monkeypatch.setattr(analysis, "_MOST_QUESTIONS", 2)

    class Counting(Meanings):
        async def embed(self, text: str) -> Any:
            embedded.append(text)
            return await meanings.embed(text)

    async def asked() -> list[str | None]:
        questions = SimilarQuestions(Counting(), 0.9, compare_slots=False)
        answers: list[str | None] = []
        for text in ("lights", "story", "poem", "lights", "poem"):
            vector = await questions.vector(text)
            answers.append(await questions.find(text, vector))
            await questions.add(text, text, vector)
        return answers

    # The lights make room for the poem, and the poem is then still there.
    assert asyncio.run(asked()) == [None, None, None, None, "poem"]
    assert embedded == ["lights", "story", "poem", "lights", "poem"]


def test_question_stays_local_if_like_example_or_surely_of_kind() -> None:
    meanings = Meanings(lights=(1, 0), lamp=(1, 0.6), story=(0, 1), poem=(0.1, 1))

    def stays(by: str, threshold: float, text: str) -> bool:
        return asyncio.run(ExampleRouter(meanings, by, threshold, ["lights"], ["story"]).stays(text))

    # The cosine of lamp with lights is 0.857, with story 0.514: the classifier is sure by 0.999.
    assert stays("similarity", 0.85, "lamp")
    assert not stays("similarity", 0.9, "lamp")
    assert stays("confidence", 0.99, "lamp")
    assert not stays("confidence", 0.5, "poem")


def test_marked_items_are_detected_and_plain_sentences_are_not() -> None:
    for entry in labeled_lists()["private"]:
        items = " ".join(marked_items(entry["text"]))
        assert bool(items) == bool(entry["marked"]), entry["text"]
        assert all(item in items for item in entry["marked"]), (items, entry["marked"])


def test_labeled_lists_are_judged_by_what_they_say() -> None:
    async def all_of_them(text: str) -> bool:
        return True

    async def none(text: str) -> bool:
        return False

    lists = labeled_lists()
    assert min(len(lists[name]) for name in ("same", "different")) >= 30
    assert asyncio.run(routing(all_of_them))["accuracy"] == 0.5
    assert asyncio.run(privacy(all_of_them))["received_by_cloud"] == 0
    leaky = asyncio.run(privacy(none))
    assert leaky["received_by_cloud"] == leaky["marked_items"] > 10

    class Alike(Meanings):
        async def embed(self, text: str) -> Any:
            return np.array([1, 0], np.float32)

    judged = asyncio.run(similarity(Alike(), 0.9, compare_slots=False))
    assert (judged["false_hit_rate"], judged["true_hits"]) == (1, judged["paraphrases"])
    # Slots tell some of the near misses apart, and two paraphrases say one number in two ways.
    strict = asyncio.run(similarity(Alike(), 0.9, compare_slots=True))
    assert strict["false_hits"] < judged["false_hits"]


def spoken(**settings: str) -> tuple[float, TurnRecord]:
    """When the first audio of a reply is sent, in ms after the question; tokens come at 300, 350, 400 … ms."""
    clock, record = VirtualClock(START), TurnRecord(0, START, START)
    sent: list[int] = []

    async def play(messages: list[bytes]) -> None:
        sent.append(clock.now_ns)

    async def show(text: str) -> None: ...

    llm = SlowLlm(clock, "Yes it does. Take a coat with you today.")
    turn = ServedTurn(served(clock, llm, tts_delay="constant:70ms", tts_pace="0", **settings), "call", record)
    sink = ReplySink(show, lambda pcm: [pcm.tobytes()], play, 24_000)
    clock.run(reply(turn, question("Does it rain?"), sink))
    return (sent[0] - START) / MS, record


def test_the_voice_waits_for_as_many_tokens_as_it_looks_ahead() -> None:
    # The fourth token, at 450 ms, shows that the sentence has ended; speaking takes 70 ms.
    assert spoken()[0] == 520
    assert spoken(tts_lookahead="3")[0] == 670


def test_filler_at_deadline_is_spoken_before_model_answers() -> None:
    assert spoken(llm_deadline="200ms", llm_late="append")[0] == 270


def test_the_declared_cost_of_hops_is_waited_for_and_reported() -> None:
    first_ms, record = spoken(hop="constant:40ms")
    assert first_ms == 600
    assert record.hop_ns == 80 * MS
    assert orjson.loads(record.metadata()[META_WORK]) == {"hop_ms": 80}
    turn = record.as_turn(run_id="r", call_id="c", outcome="ok")
    assert (turn.service_reported, turn.service_reported_ns) == (("hop",), (80 * MS,))
