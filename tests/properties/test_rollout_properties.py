"""A hold does not become a promotion by itself: not by the order of the turns, nor by looking more often."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from tests.rollout_cohorts import Regression, cohort, first_turns, plan

NOW = 1_790_000_000_000_000_000
TURNS = 2000


@cache
def both(seed: int, shift_ms: int) -> tuple[CohortTurns, CohortTurns]:
    rng = np.random.default_rng(seed)
    return cohort("streaming", TURNS, rng, Regression(shift_ms=shift_ms)), cohort("stable", 3 * TURNS, rng)


def shuffled(of: CohortTurns, seed: int) -> CohortTurns:
    order = np.random.default_rng(seed).permutation(of.turns)
    return replace(
        of,
        numbers={name: np.frombuffer(each, "<f8")[order].tobytes() for name, each in of.numbers.items()},
        codes={name: np.frombuffer(each, "<i4")[order].tobytes() for name, each in of.codes.items()},
    )


def bounds(verdict: GateVerdict) -> list[float]:
    return [round(value, 6) for result in verdict.checks for value in (result.lower or 0.0, result.upper or 0.0)]


SEEDS = st.integers(0, 40)
SHIFTS = st.sampled_from([-50, 0, 30, 60, 100, 200])


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHIFTS, st.integers(0, 1000))
def test_the_order_of_the_same_turns_changes_nothing(seed: int, shift_ms: int, order: int) -> None:
    of, (candidate, control) = plan(), both(seed, shift_ms)
    one = decide(of, RolloutEvidence(candidate, control, 0.0), first_history(of), NOW)
    seen = RolloutEvidence(shuffled(candidate, order), shuffled(control, order + 1), 0.0)
    other = decide(of, seen, first_history(of), NOW)
    assert other.verdict == one.verdict
    np.testing.assert_allclose(bounds(other), bounds(one), rtol=1e-9, atol=1e-3)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(SEEDS, SHIFTS, st.lists(st.integers(1, TURNS), max_size=12))
def test_no_number_of_looks_in_between_promotes(seed: int, shift_ms: int, looks: list[int]) -> None:
    of, (candidate, control) = plan(), both(seed, shift_ms)
    seen = RolloutEvidence(candidate, control, 0.0)
    alone = decide(of, seen, first_history(of), NOW)
    history = first_history(of)
    for position, turns in enumerate(sorted(looks)):
        part = RolloutEvidence(first_turns(candidate, turns), first_turns(control, 3 * turns), 0.0)
        history = decide(of, part, history, NOW - 100 + position).history
    after = decide(of, seen, history, NOW)
    assert len(after.history.looks) == len(looks) + 1
    # A look in between can roll back. Nothing else of it remains: the bounds are those of the turns that are there.
    assert after.verdict == ("roll_back" if history.is_rolled_back else alone.verdict)
    assert bounds(after) == bounds(alone)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 50))
def test_looking_again_at_the_same_turns_gives_the_same_verdict(seed: int, times: int) -> None:
    of, (candidate, control) = plan(), both(seed, 40)
    few = RolloutEvidence(first_turns(candidate, 600), first_turns(control, 1800), 0.0)
    history, verdicts = first_history(of), set[str]()
    for position in range(times):
        found = decide(of, few, history, NOW + position)
        history = found.history
        verdicts.add(found.verdict)
    assert len(verdicts) == 1
