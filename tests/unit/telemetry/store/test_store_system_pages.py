"""The pages about caches and about the instrument, held against figures taken by hand from the same turns."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import ViewQuestion
from telemetry.store.questions.timelines import counts_over_time
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import MS, START_UNIX_NS, generator_points, mixed_turns, synthetic_run
from tests.unit.telemetry.store.opened_stores import reader_of

TIERS_IN_ORDER = ("miss", "device", "edge", "central", "prefix", "not reported")


def varied(seed: int, turns: int) -> list[Turn]:
    """Turns with models, tiers, intents and reasons of every kind."""
    dice = np.random.default_rng(seed)
    made: list[Turn] = []
    for turn in mixed_turns(seed, turns):
        changes: dict[str, object] = {"model": ("small", "large", None)[int(dice.integers(3))]}
        if turn.source == "client" and dice.random() < 0.4:
            changes |= {"expected_intent": "lamp", "intent": ("lamp", "radio")[int(dice.integers(2))]}
        if turn.outcome == "invalid":
            changes |= {"invalid_reasons": ("frame lateness", "loop lag")[: int(dice.integers(1, 3))]}
        made.append(msgspec.structs.replace(turn, **changes))
    return made


def judged(turns: list[Turn]) -> list[Turn]:
    return [t for t in turns if t.source == "client" and t.phase_kind != "ramp" and t.turn_kind != "silence"]


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    return varied(3, 900)


@pytest.fixture(scope="module")
def reader(turns: list[Turn], tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    with reader_of(tmp_path_factory.mktemp("pages"), *turns) as opened:
        yield opened


def test_cache_page_shows_who_answered_and_how_fast(reader: StoreReader, turns: list[Turn]) -> None:
    cache = reader.cache_page(ViewQuestion(Filter(run_id="run-1"))).cache
    valid = [t for t in judged(turns) if t.outcome != "invalid"]
    reported = [t for t in valid if t.cache_hit is not None]
    hits = [t for t in reported if t.cache_hit]
    assert (cache.turns, cache.reported, cache.hits) == (len(valid), len(reported), len(hits))

    def waits(which: list[Turn]) -> list[float]:
        latencies = (METRICS[HEADLINE].value(t) for t in which)
        return [float(value) for value in latencies if value is not None]

    by_what = {what: {group.name: group for group in groups} for what, groups in cache.waits.items()}
    groups = {
        ("cache", "any hit"): hits,
        ("cache", "edge"): [t for t in hits if t.cache_tier == "edge"],
        ("cache", "miss"): [t for t in reported if not t.cache_hit],
        ("model", "large"): [t for t in valid if t.model == "large"],
        ("model", "not reported"): [t for t in valid if t.model is None],
        ("fallback", "no fallback reported"): [t for t in valid if t.fallback is None],
        ("route", "cache"): [t for t in valid if t.route == "cache"],
    }
    for (what, name), which in groups.items():
        group, values = by_what[what][name], waits(which)
        assert (group.turns, group.n) == (len(which), len(values)), name
        assert group.mean_ns == pytest.approx(np.mean(values))
        assert group.p50_ns == pytest.approx(np.quantile(values, 0.5))
        if len(values) >= 20:
            assert group.p95_ns == pytest.approx(np.quantile(values, 0.95))
        assert (group.p99_ns is None) == (len(values) < 100)
    assert cache.saved is not None
    per_hit = np.mean(waits(groups["cache", "miss"])) - np.mean(waits(hits))
    assert cache.saved.per_hit_ns == pytest.approx(per_hit)
    assert cache.saved.total_ns == pytest.approx(per_hit * len(waits(hits)))
    judged_hits = [t for t in hits if t.expected_intent and t.intent]
    assert cache.false_hits.judged == len(judged_hits) > 0
    assert cache.false_hits.other_intent == sum(t.intent != t.expected_intent for t in judged_hits) > 0


def test_name_keeps_its_place_when_another_gains_frequency() -> None:
    before = counts_over_time([("edge", 0, 9), ("miss", 0, 5), ("added", 0, 1)], TIERS_IN_ORDER)
    after = counts_over_time([("edge", 0, 9), ("miss", 0, 50), ("added", 0, 99)], TIERS_IN_ORDER)
    assert list(before.counts) == list(after.counts) == ["miss", "edge", "added"]
    assert list(counts_over_time([("b", 0, 9), ("a", 0, 1)]).counts) == ["a", "b"]


@pytest.mark.slow
def test_counts_over_time_hold_every_turn_once_in_its_bucket(reader: StoreReader, turns: list[Turn]) -> None:
    cache = reader.cache_page(ViewQuestion(Filter(run_id="run-1"))).cache
    instrument = reader.instrument_page(ViewQuestion(Filter(run_id="run-1"))).instrument
    valid = [t for t in judged(turns) if t.outcome != "invalid"]
    expected = Counter(
        ((t.cache_tier or "not reported") if t.cache_hit else "miss", t.started_unix_ns // cache.tiers.width_ns)
        for t in valid
        if t.cache_hit is not None
    )
    panel = {
        (name, start // cache.tiers.width_ns): n
        for name, counts in cache.tiers.counts.items()
        for start, n in zip(cache.tiers.starts_unix_ns, counts, strict=True)
        if n
    }
    assert panel == dict(expected)
    assert list(cache.tiers.counts) == [name for name in TIERS_IN_ORDER if name in cache.tiers.counts]
    reasons = Counter(reason for t in judged(turns) if t.outcome == "invalid" for reason in t.invalid_reasons)
    assert {name: sum(counts) for name, counts in instrument.invalid.counts.items()} == dict(reasons)
    assert len(reasons) == 2


@pytest.mark.slow
def test_rare_values_are_counted_over_time_of_all_turns(turns: list[Turn], tmp_path: Path) -> None:
    asked = sorted((t for t in judged(turns) if t.run_id == "run-1"), key=lambda t: t.started_unix_ns)
    plain = {"cache_hit": None, "cache_tier": None, "fallback": None, "outcome": "ok", "invalid_reasons": ()}
    asked = [msgspec.structs.replace(turn, **plain) for turn in asked]
    rare = {"cache_hit": False, "fallback": "rule"}, {"outcome": "invalid", "invalid_reasons": ("loop lag",)}
    for place, changes in zip((len(asked) // 2, len(asked) // 3), rare, strict=True):
        asked[place] = msgspec.structs.replace(asked[place], **changes)
    with reader_of(tmp_path, *asked) as reader:
        cache = reader.cache_page(ViewQuestion(Filter(run_id="run-1"))).cache
        instrument = reader.instrument_page(ViewQuestion(Filter(run_id="run-1"))).instrument
    for counts in (cache.tiers, cache.fallbacks, instrument.invalid):
        (of_name,) = counts.counts.values()
        first, last = counts.starts_unix_ns[0], counts.starts_unix_ns[-1]
        assert sum(of_name) == 1
        assert first <= asked[0].started_unix_ns < first + counts.width_ns
        assert last <= asked[-1].started_unix_ns < last + counts.width_ns


@pytest.mark.slow
def test_unreported_values_are_absent(tmp_path: Path) -> None:
    plain = {"cache_hit": None, "cache_tier": None, "route": None, "fallback": None, "model": None, "intent": None}
    turns = [msgspec.structs.replace(turn, **plain) for turn in synthetic_run(turns=40, seed=1).turns]
    with reader_of(tmp_path, *turns) as reader:
        cache = reader.cache_page(ViewQuestion()).cache
        instrument = reader.instrument_page(ViewQuestion()).instrument
    assert cache.hit_rate is None
    assert cache.waits == {}
    assert cache.saved is None
    assert cache.false_hits.share is None
    assert instrument.series == {}


def test_worst_value_per_process_and_bucket_keeps_its_sign(tmp_path: Path) -> None:
    turns = synthetic_run(turns=30, seed=1).turns
    points = generator_points("run-1", 30)
    with reader_of(tmp_path, *turns, points=points) as reader:
        instrument = reader.instrument_page(ViewQuestion(Filter(run_id="run-1"))).instrument
    for gauge, series in instrument.series.items():
        mine = [p for p in points if p.name.endswith(gauge)]
        for process, values in series.values.items():
            for start, value in zip(series.starts_unix_ns, values, strict=True):
                inside = [
                    p.value
                    for p in mine
                    if p.attributes["process_id"] == process and start <= p.unix_ns < start + series.width_ns
                ]
                assert value == (max(inside, key=abs) if inside else None)
    assert "cpu_ratio" in instrument.series
    assert instrument.stamps == {"kernel": len([t for t in turns if t.source == "client"])}


def test_a_lost_turn_is_counted_for_its_process(tmp_path: Path) -> None:
    turns = [t for t in synthetic_run(turns=60, seed=1).turns if t.source == "client"]
    gone = sorted(turns, key=lambda t: t.sequence or 0)[10]
    with reader_of(tmp_path, *(t for t in turns if t is not gone), now_unix_ns=START_UNIX_NS + MS) as reader:
        page = reader.instrument_page(ViewQuestion(Filter(run_id="run-1")))
    lost = {process.process_id: process.missing for process in page.instrument.loss if process.missing}
    assert lost == {gone.process_id: 1}
    assert page.summary is not None
    assert page.summary.loss.missing == 1


def test_models_beyond_the_most_common_are_one_group(tmp_path: Path) -> None:
    names = [f"model-{number:02d}" for number in range(14) for _ in range(20 - number)]
    turns = [
        msgspec.structs.replace(turn, model=name)
        for turn, name in zip(synthetic_run(turns=len(names), seed=1).turns, names, strict=False)
    ]
    counts = Counter(turn.model for turn in judged(turns) if turn.outcome != "invalid")
    with reader_of(tmp_path, *turns) as reader:
        groups = reader.cache_page(ViewQuestion()).cache.waits["model"]
    common = sorted(counts, key=lambda name: (-counts[name], name or ""))
    assert [group.name for group in groups] == [*common[:12], "others"]
    assert [group.turns for group in groups[:12]] == [counts[name] for name in common[:12]]
    assert groups[-1].turns == sum(counts[name] for name in common[12:]) > 0
