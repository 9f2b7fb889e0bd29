"""Sentences on a check: its figures are written by hand, and each sentence says no more than they do."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from telemetry.rollout.checks import BeyondShares, CheckResult
from telemetry.rollout.plan import Check
from telemetry.rollout.sentences import explanation, undecided, within, worse
from telemetry.rollout.verdict import check_verdict

MS = 1_000_000
P95 = Check("voice_to_voice p95", "quantile", 100 * MS)
SHARES = BeyondShares(
    threshold=902 * MS, allowed=0.05, beyond=0.051, control=0.05, lower=-0.012, beyond_margin=0.029, upper=0.046
)
PASSED = CheckResult(
    check=P95,
    status="within",
    turns=1813,
    eligible=1813,
    candidate=905 * MS,
    control=902 * MS,
    difference=3 * MS,
    lower=-20 * MS,
    upper=31 * MS,
    shares=SHARES,
    turns_needed=0,
)
ERRORS = Check("errors", "errors", 0.01)


def with_shares(result: CheckResult, **changes: Any) -> CheckResult:
    assert result.shares is not None
    return replace(result, shares=replace(result.shares, **changes))


def test_promotion_states_share_bound_allowance_and_quantiles() -> None:
    assert within(PASSED) == (
        "p95 of voice to voice is within 100 ms: 2.9 % of the candidate's turns (at most 4.6 %) took longer than the "
        "control's p95 by more than 100 ms, where 5 % may; p95 905 ms against 902 ms, +3.0 ms (−20.0 to +31.0 ms)"
    )


def test_a_roll_back_says_both_of_its_conditions() -> None:
    slower = with_shares(
        replace(PASSED, status="worse"), beyond=0.12, control=0.05, lower=0.031, beyond_margin=0.073, upper=0.09
    )
    assert worse(slower) == (
        "p95 of voice to voice is worse: 12 % of the candidate's turns took longer than the control's p95, where 5 % "
        "of the control's did (+3.10 points at least), and 7.3 % took longer by more than 100 ms; "
        "p95 905 ms against 902 ms, +3.0 ms (−20.0 to +31.0 ms)"
    )


def test_a_hold_says_what_is_needed() -> None:
    waits = with_shares(replace(PASSED, status="open", turns_needed=300), upper=0.061)
    assert undecided(waits).startswith("p95 of voice to voice is not shown to be within 100 ms yet: 2.9 % of the ")
    assert undecided(waits).endswith("+31.0 ms); about 300 more turns of the candidate")
    assert undecided(replace(waits, turns_needed=1)).endswith("; about 1 more turn of the candidate")
    assert undecided(replace(waits, turns_needed=None)).endswith("; more turns alone are unlikely to show it")


def test_missing_values_are_counted_and_named() -> None:
    reason = "294 turns have no value"
    sentence = undecided(replace(PASSED, status="open", turns=1519, reason=reason))
    assert "(at most 4.6 %), values counted that it lacks more of than the control, took longer than" in sentence
    assert sentence.endswith(f"; taken over 1,519 of 1,813 turns of the candidate; {reason}")
    for words in (within, worse):
        assert "1,519 of 1,813 turns of the candidate" in words(replace(PASSED, turns=1519))
        assert " of 1,813 turns" not in words(PASSED)


@pytest.mark.parametrize(
    ("lower", "upper", "interval"),
    [(-20 * MS, None, " (at least −20.0 ms)"), (None, 31 * MS, " (at most +31.0 ms)"), (None, None, "")],
)
def test_an_interval_with_an_open_side_says_so(lower: float | None, upper: float | None, interval: str) -> None:
    assert within(replace(PASSED, lower=lower, upper=upper)).endswith(f"p95 905 ms against 902 ms, +3.0 ms{interval}")


def test_quantile_of_unanswered_turns_is_no_figure() -> None:
    silent = replace(PASSED, status="worse", candidate=None, difference=None, lower=None, upper=None)
    assert worse(silent).endswith(
        "; the candidate has no p95, because 5 % of its turns or more were not answered (the control's is 902 ms)"
    )


def test_a_margin_in_a_gap_is_named() -> None:
    waits = replace(PASSED, status="open", turns_needed=None)
    words = "hardly any of its turns lie between the control's p95 and 100 ms beyond it"
    assert words in undecided(with_shares(waits, beyond=0.05, beyond_margin=0.049))
    assert words not in undecided(with_shares(waits, beyond=0.05, beyond_margin=0.04)), "some lie between"
    assert words not in undecided(with_shares(waits, beyond=0.2, beyond_margin=0.2, lower=0.1)), "it is slower"
    few = replace(with_shares(waits, beyond=0.05, beyond_margin=0.05), turns=60, eligible=60)
    assert words not in undecided(few), "three turns say nothing of a gap"


def test_a_share_that_is_shown_stays_on_its_side_of_what_may() -> None:
    assert "(at most 4.99 %)" in within(with_shares(PASSED, upper=0.0499))
    assert "(at most 4.9996 %)" in within(with_shares(PASSED, upper=0.049996))


def test_a_ratio_has_its_difference_bounds_and_margin() -> None:
    check_result = CheckResult(ERRORS, "worse", 100, 100, 0.09, 0.01, 0.08, 0.02, 0.14)
    assert worse(check_result) == (
        "errors ratio is worse: 9 % against 1 %, a difference of +8.00 points (+2.00 to +14.00 points), margin 1 point"
    )


@pytest.mark.parametrize(("statistic", "may"), [("50", 0.5), ("90", 0.1), ("95", 0.05), ("99", 0.01)])
def test_the_explanation_is_of_the_quantile(statistic: str, may: float) -> None:
    answer = explanation(may)
    assert answer.startswith(f"At most {100 * may:g} % of the control's turns take longer than its p{statistic}: ")
    assert f"fewer than {100 * may:g} % of its turns" in answer
    assert "holds for one look and decides nothing" in answer


def test_check_object_has_seconds_shares_and_eligible_turns() -> None:
    value = msgspec.to_builtins(check_verdict(replace(PASSED, turns=1519)))
    assert value["shares"] == {
        "threshold": 0.902,
        "allowed": 0.05,
        "beyond": 0.051,
        "control": 0.05,
        "lower": -0.012,
        "beyond_margin": 0.029,
        "upper": 0.046,
    }
    assert (value["turns"], value["eligible"]) == (1519, 1813)
    assert check_verdict(CheckResult(ERRORS, "unknown", reason="none")).shares is None
