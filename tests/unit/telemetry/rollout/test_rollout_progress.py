"""Where a rollout is, from verdicts that are written by hand."""

from typing import Any

import msgspec
import pytest

from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.plan import Decision, Look
from telemetry.rollout.progress import LoggedVerdict, explanation_of, forecast, logged_row, rollout_progress
from telemetry.rollout.verdict import CheckVerdict, RolloutVerdict
from tests.rollout_cohorts import plan

HOUR = 3600 * 10**9
# As versions before shares wrote it: their logs stay readable.
OLD_CHECK: dict[str, Any] = {
    "name": "p95",
    "kind": "quantile",
    "status": "open",
    "unit": "s",
    "candidate": 0.9,
    "control": 0.88,
    "difference": 0.02,
    "lower": -0.05,
    "upper": 0.12,
    "margin": 0.1,
    "information": 0.5,
    "p_value": 0.3,
    "turns": 100,
    "turns_needed": 100,
    "reason": None,
}
SHARES = {
    "threshold": 0.88,
    "allowed": 0.05,
    "beyond": 0.052,
    "control": 0.05,
    "lower": -0.01,
    "beyond_margin": 0.029,
    "upper": 0.062,
}
CHECK: dict[str, Any] = {name: value for name, value in OLD_CHECK.items() if name != "information"} | {
    "shares": SHARES,
    "eligible": 120,
}


def look(at_h: float, turns: int, decision: Decision = "hold", **changes: Any) -> LoggedVerdict:
    cohorts = {"candidate": {"name": "streaming", "turns": turns}, "control": {"name": "stable", "turns": 3 * turns}}
    found = {
        "verdict": decision,
        "sentence": decision,
        "reasons": [decision],
        "plan": {"name": "p", "fingerprint": "f"},
        "stage": "canary",
        "turns_needed": 300,
        "cohorts": cohorts,
        "checks": [CHECK],
        "slices": [],
        "share": 0.2,
    }
    return LoggedVerdict(round(at_h * HOUR), "canary", None, msgspec.convert({**found, **changes}, RolloutVerdict))


def test_the_turns_needed_are_there_when_the_rate_brings_them() -> None:
    found = rollout_progress(plan(), [look(1, 100), look(2, 250), look(3, 400)], "canary")
    assert found is not None
    assert found.turns_per_hour == pytest.approx(150)
    assert found.ready_unix_ns == pytest.approx((3 + 300 / 150) * HOUR)


def test_a_check_of_a_quantile_shows_its_share_first_and_over_how_many_turns() -> None:
    found = rollout_progress(plan(), [look(1, 100)], "canary")
    assert found is not None
    (row,) = found.checks
    assert (row.beyond, row.margin) == ("2.9 %, at most 6.2 %", "100 ms")
    assert (row.candidate, row.difference, row.bounds) == ("900 ms", "+20.0 ms", "−50.0 to +120 ms")
    assert row.status_text == "not known yet, 100 of 120 turns"
    assert f"{explanation_of(found.checks)}".startswith("At most 5 % of the control's turns take longer than its p95: ")


def test_the_funnel_is_about_the_share_that_decides_and_leaves_out_looks_that_know_none() -> None:
    looks = [look(1, 100, checks=[OLD_CHECK]), look(2, 200, checks=[]), look(3, 300)]
    found = rollout_progress(plan(), looks, "canary")
    assert found is not None
    funnel = found.funnel
    assert (funnel.unit, funnel.limit, funnel.limit_text, funnel.unlike) == ("share", 0.05, "5 % may be", 1)
    assert [(point.estimate, point.upper) for point in funnel.points] == [(None, None), (None, None), (0.029, 0.062)]
    assert (funnel.text(0.029), funnel.bounds_text(funnel.points[-1])) == ("2.9 %", "at most 6.2 %")


def test_a_log_of_an_earlier_version_has_its_differences() -> None:
    found = rollout_progress(plan(), [look(1, 100, checks=[OLD_CHECK]), look(2, 200, checks=[])], "canary")
    assert found is not None
    funnel = found.funnel
    assert (funnel.unit, funnel.limit, funnel.limit_text, funnel.unlike) == ("s", 0.1, "margin 100 ms", 0)
    assert [(each.lower, each.estimate, each.upper) for each in funnel.points] == [(-0.05, 0.02, 0.12), (None,) * 3]
    assert (funnel.text(0.02), funnel.bounds_text(funnel.points[0])) == ("+20.0 ms", "−50.0 to +120 ms")
    row = logged_row(msgspec.convert(OLD_CHECK, CheckVerdict), "p95")
    assert (row.beyond, row.used, row.bounds, row.status_text) == ("", "", "−50.0 to +120 ms", "not known yet")
    assert explanation_of(found.checks) is None


@pytest.mark.parametrize(
    ("lower", "upper", "bounds"),
    [(-0.05, None, "at least −50.0 ms"), (None, 0.12, "at most +120 ms"), (None, None, "–")],
)
def test_a_side_that_nothing_bounds_is_not_written(lower: float | None, upper: float | None, bounds: str) -> None:
    check = msgspec.convert({**CHECK, "lower": lower, "upper": upper}, CheckVerdict)
    assert logged_row(check, "p95").bounds == bounds


@pytest.mark.parametrize("last", [look(3, 400, "promote"), look(3, 400, turns_needed=None), look(3, 250)])
def test_no_moment_is_given_where_nothing_is_waited_for_or_nothing_comes(last: LoggedVerdict) -> None:
    looks = [look(2, 250), last]
    found = rollout_progress(plan(), looks, "canary")
    assert found is not None
    assert found.ready_unix_ns is None


def test_a_roll_back_ends_the_line_and_changes_are_kept_newest_first() -> None:
    looks = [look(1, 100), look(2, 200), look(3, 300, "roll_back"), look(4, 400, "roll_back")]
    found = rollout_progress(plan(), looks, "canary")
    assert found is not None
    assert [each.state for each in found.stages] == ["rolled_back"]
    assert [each.at_unix_ns // HOUR for each in found.changes] == [3, 1]
    assert rollout_progress(plan(), [], "canary") is None


def history(*looks: tuple[int, int], stage: str = "canary") -> tuple[Look, ...]:
    return tuple(
        Look(at_unix_ns=at_s * NS_PER_S, stage=stage, candidate_turns=turns, control_turns=0, verdict="hold")
        for at_s, turns in looks
    )


def test_the_rate_is_that_of_the_looks_at_this_stage() -> None:
    found = forecast(history((100, 10), (110, 20), (140, 50)), 80)
    assert found is not None
    assert found.turns_per_s == pytest.approx(1.0)
    assert found.due_unix_ns == 220 * NS_PER_S


def test_looks_of_long_ago_and_of_other_stages_do_not_count() -> None:
    slow_then_fast = history((0, 0), (100_000, 10), (100_010, 30))
    found = forecast(slow_then_fast, 20)
    assert found is not None
    assert found.turns_per_s == pytest.approx(2.0)
    other = history((0, 0), (10, 1000), stage="before")
    here = (*other, *history((20, 5)))
    assert forecast(here, 20) is None


@pytest.mark.parametrize(
    "looks", [(), ((10, 100),), ((10, 100), (20, 100)), ((20, 100), (10, 200)), ((10, 1), (20, 5))]
)
def test_without_a_rate_there_is_no_forecast(looks: tuple[tuple[int, int], ...]) -> None:
    assert forecast(history(*looks), 100) is None


def test_what_is_not_known_is_not_forecast() -> None:
    assert forecast(history((0, 0), (10, 100)), None) is None
