"""Good and eligible turns in /metrics, against the store's count and a loop of the rule over the turns."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.model.metrics import METRICS
from telemetry.model.services import service_day
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns, Judgment, judge_turn, resolve
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.counts.label_values import COHORTS_MAX, IDLE_S, OTHER
from telemetry.sidecar.counts.objectives import RUNS_MAX, SERVICES_MAX
from telemetry.store.answers import Filter
from tests.exposed import Exposed, exposed
from tests.fixtures_turns import MS, Run, client_turn, synthetic_run
from tests.nightly import examples
from tests.strategies_turns import turns as any_turns
from tests.unit.telemetry.store.opened_stores import reader_of_runs

ELIGIBLE = "voice_objective_eligible_turns_total"
GOOD = "voice_objective_good_turns_total"
BAD = "voice_objective_bad_turns_total"
OPEN = "voice_objective_open_turns_total"
OBJECTIVES = [
    *default_objectives(),
    Objective("short", "metric", 0.9, "voice_to_voice", 500 * MS, length_class="short"),
    Objective("noisy", "metric", 0.9, "voice_to_voice", 1500 * MS, noise_profile="babble"),
    Objective("streaming", "metric", 0.9, "asr_final_latency", 250 * MS, cohort="streaming"),
    Objective("fast-tokens", "metric", 0.9, "tokens_per_s", 30.0),
    Objective("no-fallback", "fallback", 0.9),
    Objective("cached", "cache", 0.3, length_class="long"),
    Objective("answered", "outcome", 0.9, outcomes=("ok",)),
]


def _observed(turns: list[Turn], objectives: list[Objective], cut: int = 0) -> Exposed:
    exposition = Exposition(objectives)
    exposition.observe(turns[:cut])
    exposition.observe(turns[cut:])
    return exposed(exposition)


@dataclass(frozen=True, eq=False)
class _Shown:
    """The series of an objective in /metrics; equal to turns of which as many are good, bad and open."""

    good: float
    bad: float
    open: float
    eligible: float

    __hash__ = None  # type: ignore[assignment] - compared, never kept

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, EligibleTurns)
        counted = (other.good, other.bad, other.open_turns, other.eligible)
        return (self.good, self.bad, self.open, self.eligible) == counted


def _shown(metrics: Exposed, **labels: str) -> _Shown:
    return _Shown(*(metrics.total(name, **labels) for name in (GOOD, BAD, OPEN, ELIGIBLE)))


@pytest.mark.slow
def test_counts_are_those_of_the_store(tmp_path: Path) -> None:
    turns = synthetic_run(turns=240).turns
    metrics = _observed(turns, OBJECTIVES, cut=100)
    with reader_of_runs(tmp_path, Run(turns=turns)) as reader:
        counts = reader.objective_counts(Filter(run_id="run-1"), OBJECTIVES)
    decided: dict[str, bool] = {}
    for objective in OBJECTIVES:
        turns_of = counts.count(objective)
        assert turns_of.eligible > 20, objective.name
        decided[objective.name] = 0 < turns_of.good < turns_of.eligible
        labels = {"objective": objective.name, "source": "client"}
        assert _shown(metrics, **labels) == turns_of, objective.name
        for cohort in ("control", "streaming"):
            labels["cohort"] = cohort
            assert _shown(metrics, **labels) == counts.of_cohort(cohort).count(objective), objective.name
    assert sum(decided.values()) >= len(OBJECTIVES) - 2, "good and bad turns of nearly every objective"


@pytest.mark.slow
@given(
    st.lists(any_turns(), max_size=8),
    st.lists(st.sampled_from(["", "a", "b"]), min_size=8, max_size=8),
    st.lists(st.sampled_from(["run-1", "service:a:2026-01-01", "service:b:2026-01-01"]), min_size=8, max_size=8),
    st.lists(st.sampled_from(["ok", "cut", "error", "interrupted", "no_reply"]), min_size=8, max_size=8),
    st.integers(0, 8),
)
@settings(
    max_examples=examples(25, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_counts_are_those_of_a_loop_over_any_turns(
    turns: list[Turn], cohorts: list[str], runs: list[str], outcomes: list[str], cut: int
) -> None:
    # Each turn twice, with a metric moved across its threshold, and to it.
    turns = [
        changed
        for turn, cohort, run_id, outcome in zip(turns, cohorts, runs, outcomes, strict=False)
        for end in (None, 799 * MS, 800 * MS, 801 * MS)
        for changed in [
            msgspec.structs.replace(
                turn,
                cohort=cohort,
                run_id=run_id,
                outcome=outcome,
                speech_end_perf_ns=0,
                first_audio_perf_ns=end,
                phase_kind=turn.phase_kind if end != 800 * MS else None,
            )
        ]
    ]
    _check(turns, cut)


def test_turns_that_differ_in_one_thing_alone_are_distinguished() -> None:
    late = {"outcome": "cut", "first_audio_perf_ns": None, "speech_end_perf_ns": 0}
    withheld = {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("why",)}
    changes: list[dict[str, Any]] = [
        *({**late, "hangup_perf_ns": after * MS} for after in (700, 900, 1_600)),
        *({"outcome": "error", "turn_index": index} for index in (0, 1)),
        *({"first_audio_perf_ns": None, "outcome": "ok"}, {"turn_kind": "silence"}, withheld),
        {"voice_to_voice_ms": 300.0},
        *({"cache_hit": hit} for hit in (True, False)),
        *({"fallback": fallback, "route": "rule"} for fallback in ("rule", None)),
        *({"length_class": length} for length in ("short", "long")),
        *({"phase_kind": kind} for kind in ("ramp", "hold")),
    ]
    _check([client_turn(index, **change) for index, change in enumerate(changes)], 0)


def _check(turns: list[Turn], cut: int) -> None:
    metrics = _observed(turns, OBJECTIVES, cut)
    places: dict[tuple[str, ...], list[tuple[Objective, Turn]]] = {}
    for turn in turns:
        for objective in OBJECTIVES if turn.phase_kind != "ramp" else ():
            service = "" if (day := service_day(turn.run_id)) is None else day.service
            places.setdefault((objective.name, turn.source, service, turn.run_id), []).append((objective, turn))
    good: Counter[tuple[str, ...]] = Counter()
    eligible: Counter[tuple[str, ...]] = Counter()
    for (*place, _), some in places.items():
        # A stage that no turn of a run has is not shown: its absence does not count.
        has_value = any(
            objective.metric is not None and METRICS[objective.metric].value(turn) is not None
            for objective, turn in some
        )
        for objective, turn in some:
            judgment = resolve(judge_turn(objective, turn, turn.source), objective, has_value=has_value)
            eligible[(*place, turn.cohort or "")] += judgment is not None
            good[(*place, turn.cohort or "")] += judgment is Judgment.GOOD
    for name, expected in ((GOOD, good), (ELIGIBLE, eligible)):
        shown = {
            (labels["objective"], labels["source"], labels["service_name"], labels["cohort"]): value
            for labels, value in ((dict(key), value) for key, value in metrics.of(name).items())
        }
        assert {place: value for place, value in shown.items() if value} == {
            place: value for place, value in expected.items() if value
        }


def test_run_without_transcripts_is_not_judged_by_one_with_them() -> None:
    """The turns of a stage wait for the first one of their run that has a value, whenever it comes."""
    silent = [client_turn(index, run_id="a", asr_final_perf_ns=None) for index in range(5)]
    heard = [client_turn(index, run_id="b", asr_final_perf_ns=3_100 * MS) for index in range(5, 8)]
    transcribed = Objective("asr", "metric", 0.95, "asr_final_latency", 10_000 * MS)
    exposition = Exposition([transcribed])
    exposition.observe([*silent, *heard])
    counted = _shown(exposed(exposition), objective="asr")
    assert (counted.good, counted.bad, counted.eligible) == (3, 0, 3)
    exposition.observe([client_turn(8, run_id="a", asr_final_perf_ns=3_100 * MS)])
    counted = _shown(exposed(exposition), objective="asr")
    assert (counted.good, counted.bad, counted.eligible) == (4, 5, 9), "the run has one: the five lack theirs"


def test_turns_waiting_for_a_value_are_bounded() -> None:
    exposition = Exposition([Objective("asr", "metric", 0.95, "asr_final_latency", 10_000 * MS)])
    for index in range(RUNS_MAX + 5):
        exposition.observe([client_turn(index, run_id=f"r{index}", asr_final_perf_ns=None)])
    exposition.observe([client_turn(9_000, run_id="r0", asr_final_perf_ns=3_100 * MS)])
    counted = _shown(exposed(exposition), objective="asr")
    assert (counted.good, counted.bad) == (1, 0), "what waited of the oldest run is not counted"


def test_series_begin_at_0_and_say_what_is_promised() -> None:
    metrics = exposed(Exposition(default_objectives()))
    names = {objective.name for objective in default_objectives()}
    for source in ("client", "service"):
        assert {dict(labels)["objective"] for labels in metrics.of(ELIGIBLE, source=source)} == names
    assert set(metrics.of(ELIGIBLE).values()) == set(metrics.of(GOOD).values()) == {0}
    ((labels, target),) = metrics.of("voice_objective_target_ratio", objective="llm-first-token").items()
    assert target == 0.95
    assert dict(labels) == {
        "objective": "llm-first-token",
        "stage": "llm",
        "promise": "95 % of turns: llm_first_token_latency at most 600 ms",
    }


def test_service_reports_are_counted_separately() -> None:
    turns = [
        client_turn(0, voice_to_voice_ms=500.0),
        client_turn(1, voice_to_voice_ms=900.0, source="service"),
        client_turn(2, voice_to_voice_ms=None, source="service"),
        client_turn(3, voice_to_voice_ms=None, source="service", outcome="ok"),  # it does not say
    ]
    metrics = _observed(turns, default_objectives())
    asked = {"objective": "voice-to-voice"}
    assert metrics.total(ELIGIBLE, source="client", **asked) == metrics.total(GOOD, source="client", **asked) == 1
    by_service = _shown(metrics, source="service", **asked)
    assert (by_service.good, by_service.bad, by_service.open, by_service.eligible) == (0, 2, 1, 3)
    assert metrics.total(ELIGIBLE, source="service", objective="connect") == 0


def test_services_are_counted_separately_across_days_and_bounded() -> None:
    runs = ["service:a:2026-01-01", "service:a:2026-01-02", "service:b:c:2026-01-01", "run-1"]
    runs += [f"service:s{number}:2026-01-01" for number in range(SERVICES_MAX)]
    turns = [client_turn(index, run_id=run_id, source="service") for index, run_id in enumerate(runs)]
    metrics = _observed(turns, default_objectives(), cut=4)
    asked = {"objective": "voice-to-voice", "source": "service"}
    shown = {service: metrics.total(ELIGIBLE, service_name=service, **asked) for service in ("a", "b:c", "", OTHER)}
    assert shown == {"a": 2, "b:c": 1, "": 1, OTHER: 2}
    assert len({dict(labels)["service_name"] for labels in metrics.of(ELIGIBLE)}) == SERVICES_MAX + 2


def test_turns_of_a_ramp_do_not_count() -> None:
    turns = [client_turn(0, phase_kind="ramp"), client_turn(1, phase_kind="hold"), client_turn(2)]
    assert _observed(turns, default_objectives()).total(ELIGIBLE, objective="voice-to-voice") == 2


def test_a_stage_that_a_ramp_shows_is_missing_after_it() -> None:
    transcribed = Objective("asr", "metric", 0.95, "asr_final_latency", 10_000 * MS)
    turns = [client_turn(0, phase_kind="ramp", asr_final_perf_ns=3_100 * MS), client_turn(1), client_turn(2)]
    counted = _shown(_observed(turns, [transcribed]), objective="asr")
    assert (counted.good, counted.bad, counted.eligible) == (0, 2, 2)


@pytest.mark.slow
def test_cohorts_are_limited_and_give_way() -> None:
    now_s = [0.0]
    exposition = Exposition(default_objectives(), clock_s=lambda: now_s[0])
    for index in range(COHORTS_MAX + 5):
        exposition.observe([client_turn(index, cohort=f"c{index}")])
    metrics = exposed(exposition)
    asked = {"objective": "voice-to-voice"}
    assert len({dict(labels)["cohort"] for labels in metrics.of(ELIGIBLE, **asked)}) == COHORTS_MAX + 2
    assert metrics.total(ELIGIBLE, cohort=OTHER, **asked) == 5
    now_s[0] = IDLE_S
    exposition.observe([client_turn(99, cohort="late")])
    metrics = exposed(exposition)
    assert metrics.total(ELIGIBLE, cohort="late", **asked) == 1
    assert not metrics.of(ELIGIBLE, cohort="c0", **asked)
    assert metrics.total(ELIGIBLE, cohort=OTHER, **asked) == 5


def test_without_objectives_nothing_is_counted() -> None:
    assert not _observed([client_turn(0)], []).of(ELIGIBLE)


@pytest.mark.slow
def test_turns_whose_values_contradict_them_are_open_here_too(tmp_path: Path) -> None:
    turns = [
        turn
        if number % 4
        else msgspec.structs.replace(turn, first_audio_perf_ns=None, contradicted_metrics=("voice_to_voice",))
        for number, turn in enumerate(synthetic_run(turns=120).turns)
    ]
    metrics = _observed(turns, OBJECTIVES, cut=50)
    with reader_of_runs(tmp_path, Run(turns=turns)) as reader:
        counts = reader.objective_counts(Filter(run_id="run-1"), OBJECTIVES)
    assert any("contradicts its own evidence" in counts.count(objective).open for objective in OBJECTIVES)
    for objective in OBJECTIVES:
        labels = {"objective": objective.name, "source": "client"}
        assert _shown(metrics, **labels) == counts.count(objective), objective.name
