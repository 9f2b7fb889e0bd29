"""Percentiles of very many turns are estimates with intervals that hold the exact ones; few turns and counts stay
exact."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest

from telemetry.model.turns import Turn
from telemetry.store.answers import Filter, MetricStats, Summary
from telemetry.store.questions import percentiles
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.questions.percentiles import FEWEST_SAMPLED, ONE_IN, TURN, estimate, is_sampled, quantile
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import MS, Run, client_turn, fill_store

DRAWS = 500
FRACTIONS = (0.5, 0.95, 0.99)


def exact(values: Sequence[float], fraction: float) -> float:
    """Compute a quantile by definition, in whole numbers of places: between the two values around it."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * fraction
    low = math.floor(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def latencies(kind: str, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Values of 12,000 calls of 1 to 9 turns, which are alike within a call, and the call of each."""
    calls = 12_000
    turns = generator.integers(1, 10, calls)
    if kind == "one long call":  # a fiftieth of the turns, all slow
        turns[0] = 1_200
    of_call = np.repeat(np.arange(calls), turns)
    alike = np.repeat(generator.normal(0, 0.5, calls), turns)
    values = 500 * np.exp(alike + generator.normal(0, 0.4, of_call.size))
    if kind == "rounded":
        values = np.round(values / 250) * 250
    if kind == "slow calls":  # one in twenty calls is slow as a whole
        values = values + np.repeat(generator.random(calls) < 0.05, turns) * 3_000
    if kind == "one long call":
        values[: turns[0]] += 3_000
    return values, of_call


def drawn(values: np.ndarray, of_call: np.ndarray, draws: int) -> Iterator[np.ndarray]:
    """Yield the values that a store samples, each time with other ids of the same turns."""
    database = duckdb.connect()
    turns = {
        "call": of_call,
        "turn_index": np.arange(of_call.size) - np.searchsorted(of_call, of_call),
        "value": values,
    }
    database.register("numbered", pa.table(turns))
    database.execute("CREATE TABLE turns AS SELECT *, '' AS trace_id, '' AS span_id FROM numbered")
    sampled = is_sampled([name.replace("call_id", "? || call") for name in TURN])
    for draw in range(draws):
        columns = database.execute(f"SELECT value FROM turns WHERE {sampled}", [f"draw {draw} "]).fetchnumpy()
        yield np.asarray(columns["value"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["smooth", "rounded", "slow calls", "one long call"])
def test_interval_holds_exact_percentile_in_93_of_100_draws(kind: str) -> None:
    values, of_call = latencies(kind, np.random.default_rng(36))
    expected = [exact(values.tolist(), fraction) for fraction in FRACTIONS]
    held = dict.fromkeys(FRACTIONS, 0)
    for sampled in drawn(values, of_call, DRAWS):
        answer = estimate(sampled, FRACTIONS)
        assert answer is not None
        for fraction, truth, (low, high) in zip(FRACTIONS, expected, answer.within, strict=True):
            held[fraction] += low <= truth <= high
    assert {fraction: count / DRAWS for fraction, count in held.items() if count < 0.93 * DRAWS} == {}


def test_interval_of_turns_sampled_by_call_is_too_narrow() -> None:
    """The draws of the previous test show why turns are sampled one by one."""
    generator = np.random.default_rng(36)
    for kind, fraction in (("slow calls", 0.95), ("one long call", 0.99)):
        values, of_call = latencies(kind, generator)
        truth, held = exact(values.tolist(), fraction), 0
        for _ in range(DRAWS):
            is_drawn = (generator.random(of_call.max() + 1) < 1 / ONE_IN)[of_call]
            answer = estimate(values[is_drawn], (fraction,))
            assert answer is not None
            held += answer.within[0][0] <= truth <= answer.within[0][1]
        assert held < 0.9 * DRAWS


def test_too_few_sampled_values_have_no_estimate() -> None:
    values = np.arange(FEWEST_SAMPLED, dtype=np.float64)
    assert estimate(values, FRACTIONS) is not None
    assert estimate(values[1:], FRACTIONS) is None
    assert estimate(values[:0], FRACTIONS) is None


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.95, 1.0])
def test_quantile_interpolates_between_neighbors_and_keeps_inf(fraction: float) -> None:
    chosen = random.Random(4)
    values = [chosen.uniform(0, 10) for _ in range(41)]
    percents = statistics.quantiles(values, n=100, method="inclusive")
    truth = {0.0: min(values), 1.0: max(values)}.get(fraction) or percents[round(fraction * 100) - 1]
    assert quantile(np.sort(np.array(values)), fraction) == pytest.approx(truth)
    assert quantile(np.full(4, np.inf), fraction) == math.inf


CALLS, TURNS = 6_000, 3
# What the bounds of a turn's latencies are made of.
MEASURED: dict[str, Any] = dict.fromkeys(
    ("speech_start_later_ns", "speech_end_later_ns", "stamp_error_ns", "held_up_ns", "held_up_speaking_ns"), 2 * MS
) | dict.fromkeys(
    (*(name for name in Turn.__struct_fields__ if name.endswith("_earlier_ns")), "speech_end_uncertainty_ns"), 3 * MS
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a large cohort and a small one, whose turns are alike within a call."""
    chosen, run = random.Random(8), Run()
    for call in range(CALLS):
        alike = chosen.lognormvariate(6.2, 0.4)
        for index in range(TURNS):
            heard = client_turn(
                call * TURNS + index,
                voice_to_voice_ms=alike * chosen.lognormvariate(0, 0.2),
                call_id=f"call-{call}",
                trace_id=f"{call + 1:032x}",
                turn_index=index,
                cohort="b" if call % 30 == 0 else "a",
                **MEASURED,
                llm_chunk_gaps_ns=tuple(chosen.randrange(10 * MS, 90 * MS) for _ in range(2)),
            )
            run.turns.append(heard)
    return fill_store(tmp_path_factory.mktemp("many"), run)


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates of 3,000 values and more, by at least 100 of them."""
    monkeypatch.setattr(percentiles, "EXACT_VALUES", 3_000)
    monkeypatch.setattr(percentiles, "FEWEST_SAMPLED", 100)


def page_summary(store: Path, exact_turns: int) -> Summary:
    summary = StoreReader(store, exact_turns=exact_turns).page(PageQuestion()).summary
    assert summary is not None
    return summary


def holds(estimated: MetricStats, exact: MetricStats) -> bool:
    """Whether every interval of an estimate holds the exact percentile, and differs from it nowhere else."""
    within = estimated.estimated_within
    assert list(within) == ["p50", "p95", "p99"]
    for name, (low, high) in within.items():
        assert low <= getattr(estimated, name) <= high
        assert low < high
    counts = ("n", "max", "eligible", "unanswered", "withheld")
    assert [getattr(estimated, name) for name in counts] == [getattr(exact, name) for name in counts]
    return all(low <= getattr(exact, name) <= high for name, (low, high) in within.items())


@pytest.mark.slow
@pytest.mark.usefixtures("few_are_many")
def test_page_of_many_turns_estimates_large_group_percentiles(store: Path) -> None:
    exactly, estimated = page_summary(store, CALLS * TURNS), page_summary(store, CALLS * TURNS - 1)
    assert estimated.turns == exactly.turns
    for name in ("voice_to_voice", "itl"):
        assert estimated.metrics[name].approximate
        assert not exactly.metrics[name].approximate
        assert holds(estimated.metrics[name], exactly.metrics[name])
    assert (estimated.metrics["voice_to_voice"].stated_estimates or "").startswith("estimated from one value in 16; ")
    assert exactly.metrics["voice_to_voice"].stated_estimates is None
    bounds, true = (summary.metrics["voice_to_voice"].measured_within for summary in (estimated, exactly))
    assert bounds is not None
    assert true is not None
    assert bounds.p95 is not None
    assert true.p95 is not None
    assert bounds.p95[0] <= true.p95[0] <= true.p95[1] <= bounds.p95[1]
    assert bounds.max == true.max
    large, small = estimated.cohorts
    assert holds(large.metrics["voice_to_voice"], exactly.cohorts[0].metrics["voice_to_voice"])
    assert small == exactly.cohorts[1]  # of 600 turns


@pytest.mark.slow
@pytest.mark.usefixtures("few_are_many")
def test_summary_alone_stays_exact_for_any_number_of_turns(store: Path) -> None:
    reader = StoreReader(store, exact_turns=0)
    exactly = page_summary(store, CALLS * TURNS)
    assert reader.summary(exactly.filter).metrics == exactly.metrics
    values = reader.metric_values(Filter(), "voice_to_voice")
    p95 = reader.summary(Filter()).metrics["voice_to_voice"].p95
    assert p95 == pytest.approx(exact(values, 0.95))


@pytest.mark.slow
def test_page_of_many_turns_in_small_groups_stays_exact(store: Path) -> None:
    assert page_summary(store, 0) == page_summary(store, CALLS * TURNS)


@pytest.mark.parametrize("has_ids", [True, False], ids=["with span ids", "without span ids"])
def test_turns_of_a_call_are_sampled_one_by_one(tmp_path: Path, has_ids: bool) -> None:
    run = Run()
    for index in range(1_600):
        heard = client_turn(index, call_id="the only call", turn_index=index)
        run.turns.append(heard if has_ids else msgspec.structs.replace(heard, trace_id="", span_id=""))
    fill_store(tmp_path, run)
    with duckdb.connect(tmp_path / "store.duckdb", read_only=True) as database:
        sampled = database.execute(f"SELECT turn_index FROM turns WHERE {is_sampled(TURN)}").fetchall()
    assert 60 <= len(sampled) <= 140


@pytest.mark.slow
@pytest.mark.usefixtures("few_are_many")
def test_the_stages_of_very_many_turns_are_estimated_and_counted(store: Path) -> None:
    exactly, estimated = (
        StoreReader(store, exact_turns=turns).page(PageQuestion()).budget for turns in (CALLS * TURNS, 0)
    )
    assert estimated.keys() == exactly.keys()
    for name, stage in estimated.items():
        assert stage.approximate
        assert stage.n == exactly[name].n
        low, high = stage.estimated_within["p95"]
        assert low <= (exactly[name].p95_ns or math.nan) <= high
