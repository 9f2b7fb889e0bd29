"""The counts of /metrics against the same counts by DuckDB and by a loop over the turns."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

import duckdb
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import METRICS, is_withheld
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.families import series_name
from telemetry.sidecar.counts.label_values import LABELS
from telemetry.store.schema import ArrowTable, turns_table
from tests.exposed import Exposed, Labels, exposed
from tests.fixtures_turns import client_turn, synthetic_run
from tests.strategies_turns import turns as any_turns

NS_PER_S = 1e9
DIVISORS = {"ns": NS_PER_S, "ratio": 1.0, "count": 1.0, "per_s": 1.0}


def labels_of(*values: str | None) -> Labels:
    return frozenset(zip(LABELS, (value or "" for value in values), strict=True))


def observed(*batches: Sequence[Turn]) -> Exposed:
    exposition = Exposition(load_objectives(None))
    for batch in batches:
        exposition.observe(batch)
    return exposed(exposition)


@cache
def synthetic() -> tuple[Exposed, ArrowTable]:
    """Return the exposition of two runs, counted one after the other, and the table of their turns."""
    batches = [synthetic_run("run-1", 240).turns, synthetic_run("run-2", 60, seed=7).turns]
    return observed(*batches), turns_table([turn for batch in batches for turn in batch])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(METRICS))
def test_counts_are_those_of_a_query_over_the_same_turns(name: str) -> None:
    metrics, table = synthetic()
    metric, series = METRICS[name], series_name(METRICS[name])
    divisor = DIVISORS[metric.unit]
    bounds = {value for name, shown in metrics.series if name == f"{series}_bucket" for n, value in shown if n == "le"}
    where = (
        "source = 'client' AND turn_kind IS DISTINCT FROM 'silence' AND outcome <> 'invalid' "
        f"AND {metric.column} IS NOT NULL AND NOT coalesce(list_contains(withheld_metrics, '{name}'), false)"
    )
    column, edges = metric.column, sorted(bounds - {"+Inf"})
    within_each = "".join(f", count(*) FILTER ({column} / {divisor} <= {edge})" for edge in edges)
    with duckdb.connect() as connection:
        connection.register("turns", table)
        rows = connection.execute(
            f"SELECT cohort, route, cache_tier, model, count(*), sum(greatest({column}, 0)) / {divisor}{within_each} "  # noqa: S608 - names of ours
            f"FROM turns WHERE {where} GROUP BY ALL"
        ).fetchall()
    assert len(metrics.of(f"{series}_count")) == len(rows)
    for cohort, route, tier, model, count, total, *within in rows:
        labels = labels_of(cohort, route, tier, model)
        assert metrics.series[f"{series}_count", labels] == count
        assert metrics.series[f"{series}_sum", labels] == pytest.approx(total)
        assert metrics.series[f"{series}_bucket", labels | {("le", "+Inf")}] == count
        for bound, expected in zip(edges, within, strict=True):
            assert metrics.series[f"{series}_bucket", labels | {("le", bound)}] == expected, bound


@pytest.mark.slow
def test_every_metric_of_the_run_is_compared() -> None:
    metrics, _ = synthetic()
    empty = [name for name, metric in METRICS.items() if not metrics.of(f"{series_name(metric)}_count")]
    assert empty == ["barge_in_stop"], "the synthetic run has a value of every other metric"


# Turns of any kind. Few texts, so that turns share their labels.
FEW = st.sampled_from(["", "a", "b", 'quote " and \\', "line\nbreak", "a" * 70])


@pytest.mark.slow
@given(st.lists(any_turns(), max_size=8), st.lists(FEW, min_size=20, max_size=20), st.integers(0, 8))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_counts_are_those_of_a_loop_over_any_turns(turns: list[Turn], cohorts: list[str], cut: int) -> None:
    turns = [
        msgspec.structs.replace(turn, cohort=cohort, source="client", model=None)
        for turn, cohort in zip(turns, cohorts, strict=False)
    ]
    metrics = observed(turns[:cut], turns[cut:])
    outcomes: Counter[tuple[Labels, str]] = Counter()
    values: defaultdict[tuple[str, Labels], list[float]] = defaultdict(list)
    for turn in turns:
        if turn.turn_kind == "silence":
            continue
        labels = labels_of(one_line(turn.cohort or "", 64), turn.route, turn.cache_tier, turn.model)
        outcomes[labels, turn.outcome] += 1
        for metric in METRICS.values() if turn.outcome != "invalid" else ():
            value = None if is_withheld(turn, metric.name) else metric.value(turn)
            if value is not None:
                values[metric.name, labels].append(value / DIVISORS[metric.unit])
    assert metrics.total("voice_turns_total") == outcomes.total()
    for (labels, outcome), count in outcomes.items():
        assert metrics.series["voice_turns_total", labels | {("outcome", outcome)}] == count
    assert {key for key in metrics.series if key[0].endswith("_sum")} == {
        (f"{series_name(METRICS[name])}_sum", labels) for name, labels in values
    }
    for (name, labels), measured in values.items():
        series = series_name(METRICS[name])
        assert metrics.series[f"{series}_sum", labels] == pytest.approx(sum(max(0.0, value) for value in measured))
        assert metrics.series[f"{series}_count", labels] == len(measured)
        for shown, count in metrics.of(f"{series}_bucket", **dict(labels)).items():
            assert count == sum(value <= float(dict(shown)["le"]) for value in measured)
        if METRICS[name].unit == "ns":
            below = metrics.series.get(("voice_turn_below_zero_seconds_total", labels | {("metric", name)}), 0.0)
            assert below == pytest.approx(sum(max(0.0, -value) for value in measured))


def test_turns_not_as_recorded_are_counted_once_with_reasons() -> None:
    reasons = (("frame lateness", "drift"), ("clock step", "drift"), ("clock step",), ())
    turns = [client_turn(n, outcome="invalid", invalid_reasons=why) for n, why in enumerate(reasons)]
    # Of a valid turn nothing counts, whatever it names; a service's turn is no turn of ours.
    turns += [client_turn(9, invalid_reasons=("drift",))]
    turns += [msgspec.structs.replace(turns[0], source="service", turn_index=10)]
    exposition = Exposition()
    exposition.observe(turns[:2])
    exposition.observe(turns[2:])
    metrics = exposed(exposition)
    assert metrics.total("voice_turns_not_as_recorded_total") == 2
    assert metrics.total("voice_turns_total", outcome="invalid") == 4
    assert metrics.total("voice_turns_invalid_total", reason="drift") == 2
    assert metrics.total("voice_turns_invalid_total", reason="clock step") == 2


def test_a_negative_latency_does_not_make_a_sum_fall() -> None:
    exposition = Exposition()
    sums: list[float] = []
    for index, latency_ms in enumerate((500.0, -300.0, 200.0)):
        exposition.observe([client_turn(index, voice_to_voice_ms=latency_ms)])
        sums.append(exposed(exposition).total("voice_turn_voice_to_voice_seconds_sum"))
    assert sums == pytest.approx([0.5, 0.5, 0.7])
    metrics = exposed(exposition)
    assert metrics.total("voice_turn_below_zero_seconds_total", metric="voice_to_voice") == pytest.approx(0.3)
    assert metrics.total("voice_turn_voice_to_voice_seconds_bucket", le="0.0") == 1
    assert metrics.total("voice_turn_voice_to_voice_seconds_count") == 3


@pytest.mark.parametrize(
    ("metric", "threshold", "bound", "field"),
    [
        ("voice_to_voice", 777 * 10**6, "0.777", "first_audio_perf_ns"),
        ("leading_silence", 1_400, "1.4e-06", "leading_silence_ns"),
        ("underrun_count", 3, "3.0", "underrun_count"),
    ],
)
def test_threshold_of_objective_is_boundary_of_its_buckets(metric: str, threshold: int, bound: str, field: str) -> None:
    series = f"{series_name(METRICS[metric])}_bucket"
    assert not exposed(_with_values(None, metric, threshold, field)).of(series, le=bound), "not one by itself"
    objective = Objective("own", "metric", 0.9, metric, threshold)
    metrics = exposed(_with_values(objective, metric, threshold, field))
    assert metrics.total(series, le=bound) == 2, "of three: below it and at it"


def _with_values(objective: Objective | None, metric: str, threshold: int, field: str) -> Exposition:
    """Three turns whose metric is below, at and above a threshold."""
    exposition = Exposition([] if objective is None else [objective])
    base = client_turn(0).speech_end_perf_ns or 0
    origin = base if metric == "voice_to_voice" else 0
    turns = [client_turn(index, **{field: origin + threshold + index - 1}) for index in range(3)]
    exposition.observe(turns)
    return exposition


@pytest.mark.slow
def test_an_exemplar_is_a_turn_of_its_bucket() -> None:
    run = synthetic_run(turns=240).turns
    metrics = observed(run[:100], run[100:])
    series = "voice_turn_voice_to_voice_seconds_bucket"
    heard = {
        (turn.trace_id, round(value / NS_PER_S, 6)): value / NS_PER_S
        for turn in run
        if turn.source == "client" and (value := METRICS["voice_to_voice"].value(turn)) is not None
    }
    with_exemplar = {
        labels: shown_exemplar for (name, labels), shown_exemplar in metrics.exemplars.items() if name == series
    }
    assert len(with_exemplar) >= 10
    for labels, exemplar in with_exemplar.items():
        bound = float(dict(labels)["le"])
        lower = [
            float(dict(other)["le"])
            for other in metrics.of(series, **{name: value for name, value in labels if name != "le"})
            if float(dict(other)["le"]) < bound
        ]
        assert max(lower, default=0.0) < exemplar.value <= bound
        assert exemplar.value == pytest.approx(heard[exemplar.labels["trace_id"], round(exemplar.value, 6)])
    counts = metrics.of(series)
    hit = {
        labels
        for labels, count in counts.items()
        if count > max((least for other, least in counts.items() if _is_before(other, labels)), default=0.0)
    }
    assert set(with_exemplar) == hit, "each bucket that counted a turn has one"


def _is_before(other: Labels, labels: Labels) -> bool:
    one, two = dict(other), dict(labels)
    return {**one, "le": ""} == {**two, "le": ""} and float(one["le"]) < float(two["le"])


def test_reasons_cache_and_fallbacks_are_counted() -> None:
    invalid = {"outcome": "invalid", "cache_hit": True, "fallback": "rule"}
    metrics = observed(
        [
            client_turn(0, cache_hit=True, cache_tier="edge", route="cache"),
            client_turn(1, cache_hit=False),
            client_turn(2, fallback="rule", route="rule"),
            client_turn(3, invalid_reasons=("drift", "loop_lag"), **invalid),
            client_turn(4, invalid_reasons=("drift",), **invalid),
            client_turn(5, **invalid),
            client_turn(6, turn_kind="silence"),
            client_turn(7, source="service"),
        ]
    )
    assert metrics.of("voice_turns_invalid_total") == {
        frozenset({("reason", "drift")}): 2,
        frozenset({("reason", "loop_lag")}): 1,
        frozenset({("reason", "unknown")}): 1,
    }
    assert metrics.total("voice_cache_lookups_total", hit="true", tier="edge", route="cache") == 1
    assert metrics.total("voice_cache_lookups_total") == 2
    assert metrics.of("voice_fallbacks_total") == {labels_of("", "rule", "", "") | {("kind", "rule")}: 1}
    assert metrics.total("voice_turns_total") == 6
    assert metrics.total("voice_turns_total", outcome="invalid") == 3
    assert metrics.total("voice_turn_voice_to_voice_seconds_count") == 3


def test_withheld_metric_is_not_counted() -> None:
    turn = client_turn(0, asr_final_perf_ns=3_100_000_000, llm_first_token_perf_ns=3_200_000_000)
    withheld = msgspec.structs.replace(turn, withheld_metrics=("llm_ttft",), withheld_reasons=("why",))
    assert observed([turn, withheld]).total("voice_turn_llm_ttft_seconds_count") == 1
