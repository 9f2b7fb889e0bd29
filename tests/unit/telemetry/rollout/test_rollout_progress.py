"""Where a rollout is, from verdicts that are written by hand."""

from typing import Any

import pytest

from telemetry.rollout.history import Decision
from telemetry.rollout.progress import LoggedVerdict, rollout_progress
from tests.rollout_cohorts import plan

HOUR = 3600 * 10**9
CHECK: dict[str, Any] = {
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


def look(at_h: float, turns: int, decision: Decision = "hold", **changes: Any) -> LoggedVerdict:
    cohorts = {"candidate": {"name": "streaming", "turns": turns}, "control": {"name": "stable", "turns": 3 * turns}}
    found = {
        "verdict": decision,
        "turns_needed": 300,
        "cohorts": cohorts,
        "checks": [CHECK],
        "slices": [],
        "share": 0.2,
    }
    return LoggedVerdict(round(at_h * HOUR), "canary", None, {**found, **changes})


def test_the_turns_needed_are_there_when_the_rate_brings_them() -> None:
    found = rollout_progress(plan(), [look(1, 100), look(2, 250), look(3, 400)], "canary")
    assert found is not None
    assert found.turns_per_hour == pytest.approx(150)
    assert found.ready_unix_ns == pytest.approx((3 + 300 / 150) * HOUR)
    assert [point.upper for point in found.funnel] == [0.12] * 3
    (row,) = found.checks
    assert (row.candidate, row.difference, row.bounds) == ("900 ms", "+20.0 ms", "−50.0 ms to +120 ms")


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
