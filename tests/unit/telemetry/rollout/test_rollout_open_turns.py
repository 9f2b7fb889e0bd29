"""Turns that are open by an objective never help a claim of the gate: neither that a candidate may go on, nor that it
is worse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.rollout import sentences
from telemetry.rollout.checks import CheckResult, check_result
from telemetry.rollout.cohort_turns import CohortTurns, missed_column, open_column, packed_codes, packed_numbers
from telemetry.rollout.plan import Check
from tests.rollout_cohorts import MS, cohort_of, plan

GOOD = Check("good_turns voice_to_voice", "good_turns", 0.03, within=1200 * MS)
NAMED = Check("objective fast", "objective", 0.03, objective="fast")
PLAN = plan(guardrails=(GOOD, NAMED))


def judged_turns(name: str, good: int, bad: int, opened: int, check: Check) -> CohortTurns:
    """Turns of as many calls, so many of them good, bad and open by the objective of a check, in an even mix. An open
    one is invalid: nothing else counts it."""
    size = good + bad + opened
    kinds = np.random.default_rng(7).permutation(np.repeat([0.0, 1.0, np.nan], [good, bad, opened]))
    of = cohort_of(name, np.full(size, 500.0), np.arange(size))
    outcomes = np.where(np.isnan(kinds), 7, 0)
    objective = check.counted_by or ""
    columns = {missed_column(objective): packed_numbers(kinds), open_column(objective): packed_numbers(np.isnan(kinds))}
    return replace(of, numbers={**of.numbers, **columns}, codes={**of.codes, "outcome": packed_codes(outcomes)})


def result(candidate: tuple[int, int, int], control: tuple[int, int, int], check: Check = GOOD) -> CheckResult:
    cohorts = (judged_turns(PLAN.candidate, *candidate, check), judged_turns(PLAN.control, *control, check))
    return check_result(PLAN, check, PLAN.rollback_level(check), *cohorts)


@pytest.mark.parametrize("check", [GOOD, NAMED])
def test_a_candidate_may_not_go_on_because_its_bad_turns_are_open(check: Check) -> None:
    assert result((3_800, 200, 0), (3_800, 200, 0), check).status == "within"
    assert result((3_600, 400, 0), (3_800, 200, 0), check).status == "worse"
    # The same turns, but the further bad ones were cut, interrupted, or are of unknown length.
    hidden = result((3_600, 200, 200), (3_800, 200, 0), check)
    assert (hidden.status, hidden.turns, hidden.eligible) == ("open", 3_800, 4_000)
    assert hidden.reason is not None
    assert hidden.reason.startswith("200 turns have no value, a larger share than of the control: ")
    assert sentences.undecided(hidden).endswith(f"; {hidden.reason}")
    assert hidden.upper is not None
    assert hidden.upper > check.margin
    # Nor because the control's good turns are: 8 % against 10 % of those that are known, and perhaps 5 % of all.
    assert result((3_680, 320, 0), (3_600, 400, 0), check).status == "within"
    assert result((3_680, 320, 0), (3_600, 400, 4_000), check).status == "open"
    assert result((3_800, 200, 4), (3_800, 200, 4), check).status == "within", "few of them decide nothing"
    assert result((3_800, 200, 400), (3_800, 200, 400), check).status == "within", "nor those that both have"


@pytest.mark.parametrize("check", [GOOD, NAMED])
def test_a_candidate_is_not_worse_because_of_turns_that_may_have_been_good(check: Check) -> None:
    assert result((3_400, 600, 0), (3_800, 200, 0), check).status == "worse"
    assert result((3_400, 600, 40), (3_800, 200, 40), check).status == "worse"
    assert result((1_000, 200, 2_800), (3_800, 200, 0), check).status == "open"


@given(
    st.tuples(st.integers(300, 3_000), st.integers(1, 300)),
    st.tuples(st.integers(300, 3_000), st.integers(1, 300)),
    st.integers(0, 900),
    st.integers(0, 900),
)
def test_open_turns_never_make_a_claim_nor_turn_one_around(
    candidate: tuple[int, int], control: tuple[int, int], of_candidate: int, of_control: int
) -> None:
    without = result((*candidate, 0), (*control, 0))
    found = result((*candidate, of_candidate), (*control, of_control))
    assert found.status in (without.status, "open")
    if found.status == "within":
        # It holds by plain arithmetic with those open turns against the candidate that it has more of.
        known = sum(candidate) / (sum(candidate) + of_candidate), sum(control) / (sum(control) + of_control)
        more = max(0.0, 1 - known[0] / known[1]), max(0.0, 1 - known[1] / known[0])
        bad, bad_of_control = candidate[1] / sum(candidate), control[1] / sum(control)
        assert bad * (1 - more[0]) + more[0] - bad_of_control * (1 - more[1]) < GOOD.margin
