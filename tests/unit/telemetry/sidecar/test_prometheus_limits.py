"""Hostile input to /metrics: endless names, implausible numbers, and scrapes at the wrong time."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.model import semconv
from telemetry.model.turns import Turn
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.families import FAMILIES, UNMAPPED
from telemetry.sidecar.counts.label_values import (
    COHORTS_MAX,
    COMBINATIONS_MAX,
    IDLE_S,
    LABELS,
    MODELS_MAX,
    OTHER,
    PLACES,
)
from telemetry.sidecar.counts.sequence_numbers import GAP_MAX, PROCESSES_MAX
from telemetry.sidecar.counts.state import IngestState
from tests.exposed import exposed
from tests.fixtures_turns import client_turn


class _Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def _cohorts(exposition: Exposition) -> set[str]:
    return exposed(exposition).values("cohort")


def _missing(exposition: Exposition) -> float:
    return exposed(exposition).total("voice_telemetry_missing_turns")


def _observe(exposition: Exposition, *turns: Turn) -> None:
    exposition.observe(turns)


def test_no_legitimate_combination_is_other() -> None:
    exposition = Exposition()
    asked = list(itertools.product(("control", "canary", "next"), semconv.ROUTES, semconv.CACHE_TIERS[:3], ("a", "b")))
    assert len(asked) == 72
    for cohort, route, tier, model in asked:
        _observe(exposition, client_turn(cohort=cohort, route=route, cache_tier=tier, model=model))
    series = exposed(exposition).of("voice_turns_total", outcome="ok")
    shown = {tuple(dict(labels)[name] for name in LABELS) for labels in series}
    assert shown == set(asked)
    assert set(series.values()) == {1}


def test_a_full_label_leaves_the_others_alone() -> None:
    exposition = Exposition()
    for index in range(COHORTS_MAX + 5):
        _observe(exposition, client_turn(cohort=f"cohort-{index}", route="cloud", model="one"))
    metrics = exposed(exposition)
    assert metrics.of("voice_turns_total", cohort=OTHER) == {
        frozenset({("cohort", OTHER), ("route", "cloud"), ("tier", ""), ("model", "one"), ("outcome", "ok")}): 5
    }
    assert len(metrics.of("voice_turns_total")) == COHORTS_MAX + 1


def test_a_late_cohort_takes_the_place_of_one_that_fell_silent() -> None:
    clock = _Clock()
    exposition = Exposition(clock_s=clock)
    for index in range(COHORTS_MAX):
        _observe(exposition, client_turn(cohort=f"old-{index}"))
    clock.now_s += IDLE_S - 1
    _observe(exposition, client_turn(cohort="old-0"), client_turn(cohort="late"))
    assert _cohorts(exposition) == {f"old-{index}" for index in range(COHORTS_MAX)} | {OTHER}
    clock.now_s += 1
    _observe(exposition, client_turn(cohort="late"), client_turn(cohort="late"))
    shown = _cohorts(exposition)
    assert "late" in shown
    assert "old-0" in shown, "one that is in use stays"
    assert "old-1" not in shown, "the one silent for longest gives way"
    assert exposed(exposition).total("voice_turns_total", cohort="late") == 2


def test_a_cohort_that_comes_back_begins_at_zero() -> None:
    clock = _Clock()
    exposition = Exposition(clock_s=clock)
    _observe(exposition, *(client_turn(index, cohort="back") for index in range(5)))
    for index in range(COHORTS_MAX - 1):
        _observe(exposition, client_turn(cohort=f"old-{index}"))
    clock.now_s += IDLE_S
    _observe(exposition, client_turn(cohort="late"))
    assert "back" not in _cohorts(exposition)
    _observe(exposition, client_turn(cohort="back"))
    metrics = exposed(exposition)
    assert metrics.total("voice_turns_total", cohort="back") == 1
    assert metrics.total("voice_turn_voice_to_voice_seconds_count", cohort="back") == 1


@pytest.mark.slow
def test_too_many_combinations_keep_cohort_and_route() -> None:
    exposition = Exposition()
    # A model with the name of the rest, and a tier of a newer version, do not get series of their own.
    rest = client_turn(cohort="c31", route="cloud", model=OTHER)
    _observe(exposition, rest, msgspec.structs.replace(rest, cache_tier="a tier of a newer version"))
    cohorts, models = [f"c{i}" for i in range(COHORTS_MAX)], [f"m{i}" for i in range(MODELS_MAX)]
    turns = [
        client_turn(index, cohort=cohort, model=model, route="cloud")
        for index, (cohort, model) in enumerate(itertools.product(cohorts, models))
    ]
    assert len(turns) > COMBINATIONS_MAX
    for _ in range(2):
        _observe(exposition, *turns)
    metrics = exposed(exposition)
    for cohort in cohorts:
        expected = 2 * len(models) + (2 if cohort == "c31" else 0)
        assert metrics.total("voice_turns_total", cohort=cohort, route="cloud") == expected
    whole = [labels for labels in metrics.of("voice_turns_total") if ("model", OTHER) not in labels]
    assert len(whole) == COMBINATIONS_MAX - 2


HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.integers(0, 10_000).map("name-{}".format),
    st.just("x" * 100_000),
    st.sampled_from(['"', "\\", "\n", '",le="0.8"} 1\n', OTHER, "", "\u202e", "# EOF"]),
)


@st.composite
def hostile_batches(draw: Callable[..., object]) -> list[tuple[float, list[Turn]]]:
    batches: list[tuple[float, list[Turn]]] = []
    number = itertools.count()
    for _ in range(draw(st.integers(1, 4))):
        turns = [
            client_turn(
                next(number),
                cohort=draw(HOSTILE),
                model=draw(HOSTILE),
                route=draw(st.sampled_from((None, *semconv.ROUTES))),
                cache_tier=draw(st.sampled_from((None, *semconv.CACHE_TIERS))),
                process_id=draw(HOSTILE),
                sequence=draw(st.integers(-(2**62) + 1, 2**62 - 1)),
                outcome=draw(st.sampled_from(("ok", "invalid"))),
                invalid_reasons=tuple(draw(st.lists(HOSTILE, max_size=3))),
                withheld_metrics=tuple(draw(st.lists(HOSTILE, max_size=2))),
            )
            for _ in range(draw(st.integers(0, 12)))
        ]
        # The same with other names, many times over: labels fill up.
        more = [
            msgspec.structs.replace(turn, cohort=f"{turn.cohort}{i}", model=f"{turn.model}{i * 7}")
            for turn in turns
            for i in range(draw(st.sampled_from((0, 0, 60))))
        ]
        batches.append((draw(st.sampled_from((0.0, 1.0, IDLE_S, 3 * IDLE_S))), turns + more))
    return batches


@pytest.mark.slow
@given(hostile_batches())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_series_are_bounded_for_any_names_and_never_decrease(batches: list[tuple[float, list[Turn]]]) -> None:
    clock = _Clock()
    exposition = Exposition(clock_s=clock)
    before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for wait_s, turns in batches:
        clock.now_s += wait_s
        _observe(exposition, *turns)
        metrics = exposed(exposition)
        combinations = {
            tuple(sorted(pair for pair in labels if pair[0] in LABELS))
            for name, labels in metrics.series
            if name == "voice_turns_total"
        }
        assert len(combinations) <= PLACES
        assert len(metrics.values("cohort")) <= COHORTS_MAX + 2
        assert len(metrics.values("model")) <= MODELS_MAX + 2
        assert len(metrics.values("reason")) <= 32 + 2
        assert all(len(value) <= 64 for _, labels in metrics.series for _, value in labels)
        fallen = [
            key
            for key, value in metrics.series.items()
            if key[0] != "voice_telemetry_missing_turns" and value < before.get(key, 0.0)
        ]
        assert fallen == []
        before = metrics.series


def test_a_wild_number_is_not_believed() -> None:
    exposition = Exposition()
    _observe(exposition, client_turn(1, sequence=10), client_turn(2, sequence=12), client_turn(3, sequence=2**62 - 1))
    _observe(exposition, client_turn(4, sequence=14), client_turn(5, sequence=-5))
    metrics = exposed(exposition)
    assert metrics.total("voice_telemetry_missing_turns") == 2
    assert metrics.total("voice_telemetry_implausible_sequence_numbers_total") == 2


def test_huge_first_sequence_number_does_not_hide_process() -> None:
    exposition = Exposition()
    _observe(exposition, client_turn(1, sequence=2**62 - 1))
    _observe(exposition, client_turn(2, sequence=0))
    assert _missing(exposition) == 0
    _observe(exposition, client_turn(3, sequence=1), client_turn(4, sequence=3))
    assert _missing(exposition) == 1


@pytest.mark.parametrize(("gap", "missing"), [(GAP_MAX, GAP_MAX - 1), (GAP_MAX + 1, 0)])
def test_a_hole_is_believed_up_to_a_limit(gap: int, missing: int) -> None:
    exposition = Exposition()
    _observe(exposition, client_turn(0, sequence=0))
    _observe(exposition, client_turn(1, sequence=gap))
    assert _missing(exposition) == missing


def test_a_forgotten_process_leaves_its_missing_turns() -> None:
    exposition = Exposition()
    _observe(exposition, client_turn(0, process_id="first"), client_turn(9, process_id="first"))
    for start in range(0, PROCESSES_MAX + 100, 5_050):
        _observe(exposition, *(client_turn(0, process_id=f"p{start + i}") for i in range(5_050)))
    assert _missing(exposition) == 8
    assert len(exposition._numbers._ranges) == PROCESSES_MAX


@pytest.mark.slow
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60, unique=True), st.integers(1, 10))
@settings(deadline=None)
def test_missing_turns_do_not_depend_on_the_order(numbers: list[int], size: int) -> None:
    exposition = Exposition()
    for start in range(0, len(numbers), size):
        _observe(exposition, *(client_turn(number) for number in numbers[start : start + size]))
    assert _missing(exposition) == len(set(range(min(numbers), max(numbers) + 1)) - set(numbers))


def test_the_receivers_counts_are_shown() -> None:
    exposition = Exposition(state=IngestState(received=3, unmapped_spans=Counter({"a": 2})))
    metrics = exposed(exposition)
    assert metrics.total("voice_telemetry_received_items_total") == 3
    assert metrics.total("voice_telemetry_unmapped_spans_total") == 2
    typed = {line.split(" ")[2] for line in exposition.render("")[0].decode().splitlines() if line.startswith("# TYPE")}
    assert typed == {family.shown_name for family in (*FAMILIES, UNMAPPED)}


@pytest.mark.slow
def test_scrapes_and_turns_from_many_threads_lose_nothing() -> None:
    exposition = Exposition()
    batches = [[client_turn(worker * 1_000 + i, cohort=f"c{i % 40}") for i in range(200)] for worker in range(4)]
    failures: list[BaseException] = []

    def work(batch: list[Turn]) -> None:
        try:
            for _ in range(5):
                exposition.observe(batch)
                exposition.render("application/openmetrics-text")
        except BaseException as error:  # noqa: BLE001 - of another thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert exposed(exposition).total("voice_turns_total") == 4 * 200 * 5
