"""Bounds for rare events against integrals, an exact computation of all courses, and drawn cohorts."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from telemetry.rollout.checks import check_result
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.estimates import CheckSample, ratio_difference
from telemetry.rollout.few_events import (
    EventCounts,
    design_effect,
    difference_lower_bound,
    difference_p_value,
    log_evidence,
    probability_lower_bound,
    variance_at_margin,
)
from telemetry.rollout.plan import Check
from tests.rollout_cohorts import MS, cohort_of, first_turns, plan


@pytest.mark.parametrize(
    ("successes", "failures", "probability"), [(0, 0, 0.3), (4, 0, 0.1), (7, 30, 0.2), (60, 9, 0.7)]
)
def test_the_evidence_is_the_mixture_of_all_larger_probabilities(
    successes: int, failures: int, probability: float
) -> None:
    def likelihood(of: float) -> float:
        return of**successes * (1 - of) ** failures

    mixture, _ = integrate.quad(likelihood, probability, 1, epsabs=0, limit=200)
    expected = math.log(mixture / (1 - probability) / likelihood(probability))
    assert log_evidence(successes, failures, probability) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def ever_refuted(probability: float, level: float, events: int) -> float:
    """How likely it is that any look over a course of events refutes what is true: over all courses, exactly."""
    running, refuted = {0: 1.0}, 0.0
    for seen in range(1, events + 1):
        following: dict[int, float] = {}
        for successes, chance in running.items():
            for more, part in ((1, probability), (0, 1 - probability)):
                following[successes + more] = following.get(successes + more, 0.0) + chance * part
        running = {}
        for successes, chance in following.items():
            if log_evidence(successes, seen - successes, probability) >= -math.log(level):
                refuted += chance
            else:
                running[successes] = chance
    return refuted


@pytest.mark.parametrize("probability", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("level", [0.003, 0.05])
def test_looking_after_every_event_refutes_what_is_true_in_no_more_than_the_level(
    probability: float, level: float
) -> None:
    assert 0 < ever_refuted(probability, level, 400) <= level


def test_the_lower_bound_is_where_the_evidence_reaches_the_level() -> None:
    bound = probability_lower_bound(9, 3, 0.01)
    assert 0 < bound < 0.75
    assert log_evidence(9, 3, bound) == pytest.approx(math.log(100))
    assert probability_lower_bound(0, 50, 0.01) == 0.0


def test_a_few_bad_calls_of_a_small_part_are_seen_and_none_of_a_large_part() -> None:
    few = EventCounts((4, 0), (80, 720), (80, 720))
    found = difference_lower_bound(few, 0.05 / 8)
    assert found is not None
    assert 0 < found < 4 / 80
    # Two bad calls are chance, and so are four where the control has as many callers as the candidate.
    assert difference_lower_bound(EventCounts((2, 0), (80, 720), (80, 720)), 0.05 / 8) is None
    assert difference_lower_bound(EventCounts((4, 0), (80, 80), (80, 80)), 0.05 / 8) is None
    # 1 in 10,000 by chance; the price of looking at any time is a factor of less than five.
    assert 1e-4 < difference_p_value(few) < 5e-4


def test_longer_calls_are_no_reason_to_be_worse() -> None:
    short = EventCounts((6, 20), (100, 900), (300, 2700))
    assert short.candidate_part == pytest.approx(0.1)
    long = EventCounts((6, 20), (100, 900), (900, 2700))
    assert long.candidate_part == pytest.approx(0.25)
    assert difference_p_value(long) > difference_p_value(short)


def test_the_lower_bound_of_a_difference_covers_it() -> None:
    rng = np.random.default_rng(3)
    shares, calls, level = (0.05, 0.01), (300, 1200), 0.1
    missed = seen = 0
    for _ in range(600):
        bad = tuple(int(rng.binomial(size, share)) for size, share in zip(calls, shares, strict=True))
        bound = difference_lower_bound(EventCounts((bad[0], bad[1]), calls, calls), level)
        seen += bound is not None
        missed += bound is not None and bound > shares[0] - shares[1]
    assert seen > 300
    assert missed / 600 <= level


def test_clusters_that_have_all_their_events_together_count_as_one_turn_each() -> None:
    sizes = np.full(400, 5)
    together = np.where(np.arange(400) % 10 == 0, 5, 0)
    spread = np.random.default_rng(1).binomial(5, 0.1, 400)
    assert design_effect(together, sizes) == pytest.approx(5.0, rel=0.02)
    assert design_effect(spread, sizes) == pytest.approx(1.0, abs=0.15)
    # Nothing was seen of how they come together: the worst.
    assert design_effect(np.zeros(400, dtype=np.int64), sizes) == pytest.approx(5.0)


def test_the_variance_at_the_margin_is_the_binomial_one() -> None:
    found = EventCounts((0, 0), (100, 100), (200, 200), 1.5)
    assert variance_at_margin(found, 0.05) == pytest.approx(1.5 * stats.binom(200, 0.05).var() / 200**2)


def test_shares_have_counts_of_calls_and_other_ratios_have_none() -> None:
    calls = np.repeat(np.arange(50), 2)
    bad = np.zeros(100)
    bad[[0, 1, 6]] = 1  # two in the first call
    found = ratio_difference(CheckSample(bad, calls), CheckSample(np.zeros(100), calls)).events
    assert found is not None
    assert (found.with_event, found.clusters, found.turns) == ((2, 0), (50, 50), (100, 100))
    words = CheckSample(bad, calls, np.full(100, 3.0))
    assert ratio_difference(words, words).events is None


def slow_now_and_then(name: str, turns: int, rng: np.random.Generator, share: float) -> CohortTurns:
    """Calls of two turns of about 200 ms, and a share of turns that take 2.5 s more."""
    values = 150 + 30 * rng.lognormal(0, 0.5, turns) + 2500 * (rng.random(turns) < share)
    return cohort_of(name, values, np.arange(turns) // 2)


GOOD = Check("good_turns voice_to_voice", "good_turns", 0.03, within=1500 * MS)


def ended(share: float, seed: int, most_turns: int = 400) -> tuple[str, int]:
    """How the check of good turns ends that is looked at after every ten turns of a tenth of the callers."""
    rng = np.random.default_rng(seed)
    of = plan(share=0.1, guardrails=(GOOD, Check("tail", "tail", 0.03)))
    candidate = slow_now_and_then(of.candidate, most_turns, rng, share)
    control = slow_now_and_then(of.control, 9 * most_turns, rng, 0.0)
    for turns in range(10, most_turns + 1, 10):
        parts = first_turns(candidate, turns), first_turns(control, 9 * turns)
        found = check_result(of, GOOD, of.rollback_level(GOOD), *parts)
        if found.status in ("worse", "within"):
            assert found.lower is not None
            assert found.difference is not None
            assert (found.lower > 0) == (found.status == "worse")
            assert found.lower <= found.difference
            return found.status, turns
    return "open", most_turns


def test_one_slow_turn_in_twenty_is_seen_after_a_few_dozen() -> None:
    found = [ended(0.05, seed) for seed in range(100)]
    assert sum(status == "worse" for status, _ in found) >= 95
    assert np.median([turns for _, turns in found]) <= 120


@pytest.mark.slow
def test_a_share_at_its_margin_is_not_taken_for_less_because_nothing_was_seen_yet() -> None:
    found = [ended(0.03, seed) for seed in range(200)]
    assert sum(status == "within" for status, _ in found) <= 0.05 * 200


def test_an_equal_candidate_is_within_its_margin_and_never_worse() -> None:
    assert {ended(0.0, seed, 800)[0] for seed in range(30)} == {"within"}
