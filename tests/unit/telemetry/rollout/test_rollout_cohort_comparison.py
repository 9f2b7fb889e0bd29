"""Two cohorts side by side: figures from numpy, and no verdict on incomplete data."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from telemetry.rollout.checks import check_results
from telemetry.rollout.cohort_comparison import (
    CohortComparison,
    CohortSize,
    ComparedCohorts,
    assumed_checks,
    compare_cohorts,
    comparison_sentence,
    default_plan,
    with_shown,
)
from telemetry.rollout.cohort_turns import CACHE_HIT, CohortTurns, packed_codes, packed_numbers
from telemetry.rollout.completeness import AssignedUnits, UnitCounts
from telemetry.rollout.plan import Check, RolloutPlan
from telemetry.rollout.verdict import CheckVerdict
from tests.rollout_cohorts import MS, SAME, Regression, cohort, plan, units_of

PLAN = default_plan("stable", "streaming")


def size_of(turns: CohortTurns, **changes: Any) -> CohortSize:
    of = CohortSize(turns.cohort, turns.turns, turns.eligible_turns, 0, turns.calls)
    return replace(of, **changes)


def compared(
    regression: Regression = SAME, of: RolloutPlan = PLAN, turns: int = 4000, **changes: Any
) -> CohortComparison:
    rng = np.random.default_rng(5)
    candidate, control = cohort("streaming", turns, rng, regression), cohort("stable", turns, rng)
    sizes, units = (size_of(candidate), size_of(control)), units_of(candidate, control)
    compared_cohorts = ComparedCohorts(of, candidate, control, sizes, 0.0, units=units)
    return compare_cohorts(replace(compared_cohorts, **changes))


def test_the_sentence_is_of_the_gates_own_checks() -> None:
    comparison = compared(Regression(shift_ms=300))
    assert comparison_sentence(comparison).state == "worse"
    assert comparison_sentence(comparison).sentence.startswith(
        "streaming is worse than stable: p95 of voice to voice is worse:"
    )
    assert comparison.worse >= 2
    same = compared(of=replace(PLAN, guardrails=PLAN.guardrails[:1]), turns=20_000)
    assert comparison_sentence(same).state == "within", comparison_sentence(same)
    few = comparison_sentence(compared(turns=150))
    assert few.state == "open"
    assert few.sentence.startswith("it is not decided whether streaming is worse than stable:")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"telemetry_lost": 0.02}, "2 % of the telemetry is missing, and the plan allows none"),
        ({"invalid": 200}, "5 % of the turns of streaming are invalid, and the plan allows 1 %"),
        ({"units": UnitCounts(510, 0, AssignedUnits(10), AssignedUnits(500))}, "sample-ratio mismatch"),
        ({"turns": 0}, "no turn of streaming is among these"),
    ],
)
def test_incomplete_data_gives_no_claim_for_any_figures(changes: dict[str, Any], reason: str) -> None:
    lost = changes.pop("telemetry_lost", 0.0)
    units = {"units": changes.pop("units")} if "units" in changes else {}
    of = plan(share=0.5)
    base = compared(Regression(shift_ms=300), of=of, is_planned=True, stage=of.stages[0])
    comparison = compared(Regression(shift_ms=300), of=of, is_planned=True, stage=of.stages[0], **units)
    comparison = replace(comparison, telemetry_lost=lost, candidate=replace(base.candidate, **changes))
    sentence = comparison_sentence(comparison)
    assert sentence.state == "open"
    assert reason in sentence.sentence
    assert comparison_sentence(base).state == "worse"


def test_limits_of_no_plan_are_not_a_plans() -> None:
    base = compared(Regression(shift_ms=300))
    lost = comparison_sentence(replace(base, telemetry_lost=0.02))
    assert "2 % of the telemetry is missing, and none may be" in lost.sentence
    invalid = comparison_sentence(replace(base, candidate=replace(base.candidate, invalid=200)))
    assert "5 % of the turns of streaming are invalid, and at most 1 % may be" in invalid.sentence


def test_a_limited_generator_claims_nothing() -> None:
    sentence = comparison_sentence(compared(Regression(shift_ms=300)), "the load generator was the limit")
    assert sentence.state == "open"
    assert "the load generator was the limit" in sentence.sentence


def test_figures_outside_plan_are_marked_and_decide_nothing() -> None:
    of = plan(share=0.5)
    comparison = compared(Regression(shift_ms=300), of=of, is_planned=True, stage=of.stages[0])
    assert [figure.row.name for figure in comparison.figures if figure.decides] == [
        "p95 of voice to voice",
        "share of turns beyond the control's p99 of voice to voice",
        "share of turns with voice to voice not within 1,200 ms",
        "no reply ratio",
    ]
    assert {figure.is_assumed for figure in comparison.figures if figure.decides} == {False}
    shown = [figure for figure in comparison.figures if not figure.decides]
    assert {figure.row.name for figure in shown if not figure.is_assumed} == {"cost per turn"}, (
        "no price, and no margin"
    )
    assert not {check.name for check in assumed_checks(of)} & {check.name for check in of.checks}
    assert comparison.sample_ratio is not None
    assert comparison_sentence(comparison).basis == "by the margins of the rollout streaming"


def test_logged_checks_of_verdict_are_unchanged() -> None:
    logged = CheckVerdict(
        name="voice_to_voice p95", kind="quantile", status="within", unit="s", candidate=0.5, control=0.4,
        difference=0.1, lower=0.0, upper=0.2, margin=0.3, turns=7, turns_needed=0,
    )  # fmt: skip
    comparison = compared(
        Regression(shift_ms=300), of=plan(), is_planned=True, stage=plan().stages[0], logged=(logged,)
    )
    (row,) = [figure.row for figure in comparison.figures if figure.decides]
    assert (row.status, row.difference_value, row.turns) == ("within", 0.1, 7)
    assert comparison.results == ()


def test_percentiles_and_the_share_without_a_cache_are_numpys() -> None:
    rng = np.random.default_rng(8)
    made: list[CohortTurns] = []
    hits: list[np.ndarray[Any, Any]] = []
    for name in ("streaming", "stable"):
        turns = cohort(name, 3000, rng)
        hit = (rng.random(turns.turns) < 0.4).astype(float)
        hit[:50] = np.nan
        hits.append(hit)
        made.append(replace(turns, numbers={**turns.numbers, CACHE_HIT: packed_numbers(hit)}))
    result = compare_cohorts(ComparedCohorts(PLAN, made[0], made[1], (size_of(made[0]), size_of(made[1])), 0.0))
    misses = next(figure.row for figure in result.figures if "no cache" in figure.row.name)
    expected = float(np.nanmean(1 - hits[0]) - np.nanmean(1 - hits[1]))
    assert misses.difference_value == pytest.approx(expected, abs=1e-12)
    assert misses.lower is not None
    assert misses.upper is not None
    assert misses.lower < expected < misses.upper
    median = next(figure.row for figure in result.figures if figure.statistic == "p50")
    values = []
    for turns in made:
        column = turns.number("voice_to_voice")
        assert column is not None
        values.append(np.where(np.isnan(column), np.inf, column))
    difference_ms = (np.quantile(values[0], 0.5) - np.quantile(values[1], 0.5)) / MS
    assert median.difference_value is not None
    assert median.difference_value * 1000 == pytest.approx(float(difference_ms), abs=0.5)
    assert [figure.statistic for figure in result.figures[:3]] == ["p50", "p95", "p99"]


def test_cache_misses_can_guard_a_rollout() -> None:
    rng = np.random.default_rng(9)
    guard = Check("cache_misses", "cache_misses", 0.05)
    of = plan(guardrails=(guard,))
    made: list[CohortTurns] = []
    for name, share in (("streaming", 0.1), ("stable", 0.5)):
        turns = cohort(name, 4000, rng)
        hit = (rng.random(turns.turns) < share).astype(float)
        made.append(replace(turns, numbers={**turns.numbers, CACHE_HIT: packed_numbers(hit)}))
    assert check_results(of, made[0], made[1])[1].status == "worse"
    assert check_results(of, made[1], made[0])[1].status == "within"


def test_slices_are_named_and_those_with_too_few_turns_too() -> None:
    rng = np.random.default_rng(4)
    made: list[CohortTurns] = []
    for name in ("streaming", "stable"):
        turns = cohort(name, 3000, rng)
        codes = np.where(np.arange(turns.turns) < 20, 1, 0)
        made.append(
            replace(
                turns,
                codes={**turns.codes, "route": packed_codes(codes)},
                labels={"route": ("cloud", "rule")},
            )
        )
    of = replace(PLAN, slices=("route",))
    comparison = compare_cohorts(ComparedCohorts(of, made[0], made[1], (size_of(made[0]), size_of(made[1])), 0.0))
    assert [row.name for row in comparison.slices] == ["route = cloud"]
    assert comparison.left_out == ("route = rule",)
    assert with_shown(of).slices == ("route",)
