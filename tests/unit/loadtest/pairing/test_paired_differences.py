"""Paired differences: against exact values, under no difference, and where nothing can be said."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from loadtest.pairing.differences import PairedValues, difference, paired, pairs_needed, standard_error

MS = 1e6


def drawn(seed: int, pairs: int, by_ms: float, utterances: int = 24) -> PairedValues:
    """Pairs of an assistant whose turns depend on the utterance, and one that is slower by so much."""
    source = np.random.default_rng(seed)
    of_utterance = source.normal(0, 60, utterances)
    spoken = np.concatenate([source.permutation(utterances) for _ in range(pairs // utterances + 1)])[:pairs]
    control, variant = (500 + of_utterance[spoken] + source.lognormal(3.5, 0.6, pairs) for _ in range(2))
    return PairedValues(control * MS, (variant + by_ms) * MS, spoken)


def fixed_sample_interval(values: PairedValues, quantile: float) -> tuple[float, float] | None:
    """The 95 % interval for one look that was planned beforehand; None where there is no standard error."""
    value, error = difference(values, quantile).value, standard_error(values, quantile)
    return None if error is None or value is None else (value - 1.96 * error, value + 1.96 * error)


def test_a_difference_is_that_of_both_quantiles_not_the_quantile_of_differences() -> None:
    # Medians 3 and 4 differ by 1, while the median of the differences is 2.
    rows = [
        (f"u{n}", (control,) * 3, (variant,) * 3)
        for n, (control, variant) in enumerate([(1, 3), (3, 2), (5, 7), (3, 4), (2, 9)])
    ]
    found = difference(paired(rows * 6), 0.5)
    assert (found.control, found.variant) == (3, 4)
    assert found.too_few == "5 of 8 utterances"
    assert np.median([b[0] - a[0] for _, a, b in rows]) == 2


def test_interval_covers_the_true_difference_and_shrinks_with_pairs() -> None:
    widths = []
    for pairs in (60, 240, 960):
        found = difference(drawn(7, pairs, 20), 0.5)
        assert found.lower is not None
        assert found.upper is not None
        assert found.lower < 20 * MS < found.upper
        widths.append(found.upper - found.lower)
    assert widths == sorted(widths, reverse=True)


def test_interval_reaches_as_far_as_both_sides_were_measured() -> None:
    """Each of the control's values may be 3 ms less, each of the variant's 2 ms more: the difference is at most 5 ms
    more and, since none may be otherwise, not less."""
    exact = drawn(7, 240, 20)
    within = np.stack([exact.control - 3 * MS, exact.control, exact.variant, exact.variant + 2 * MS])
    measured = difference(PairedValues(exact.control, exact.variant, exact.utterances, within), 0.5)
    found = difference(exact, 0.5)
    assert measured.value == found.value
    assert (found.lower, found.upper) == (measured.lower, pytest.approx((measured.upper or 0) - 5 * MS))


def test_standard_error_agrees_with_the_theory_of_the_median() -> None:
    # Of n normal values the median has the standard error sigma * sqrt(pi / 2 / n); of two independent samples, times
    # sqrt(2). Each pair has an utterance of its own here.
    source, pairs, sigma = np.random.default_rng(3), 4_000, 50.0
    values = PairedValues(source.normal(0, sigma, pairs), source.normal(0, sigma, pairs), np.arange(pairs))
    interval = fixed_sample_interval(values, 0.5)
    assert interval is not None
    expected = 2 * 1.96 * sigma * math.sqrt(math.pi / 2 / pairs) * math.sqrt(2)
    assert interval[1] - interval[0] == pytest.approx(expected, rel=0.15)


def test_looking_after_every_ten_pairs_rarely_finds_a_difference_that_is_none() -> None:
    """A path that is looked at all the time leaves its interval in at most one run of twenty; with one look's interval
    it would in far more."""
    left, left_by_one_look = 0, 0
    for seed in range(60):
        whole = drawn(seed, 240, 0)
        looks = [PairedValues(whole.control[:n], whole.variant[:n], whole.utterances[:n]) for n in range(30, 241, 15)]
        found = [difference(look, 0.5) for look in looks]
        left += any((each.lower or 0) > 0 or (each.upper or 0) < 0 for each in found)
        single = [interval for look in looks if (interval := fixed_sample_interval(look, 0.5)) is not None]
        left_by_one_look += any(low > 0 or high < 0 for low, high in single)
    assert left <= 3
    assert left_by_one_look > left


def test_interval_is_little_wider_than_that_of_one_planned_look() -> None:
    values = drawn(5, 400, 0)
    found, planned = difference(values, 0.5), fixed_sample_interval(values, 0.5)
    assert found.lower is not None
    assert found.upper is not None
    assert planned is not None
    assert 1 < (found.upper - found.lower) / (planned[1] - planned[0]) <= 1.7


@pytest.mark.parametrize(("by_ms", "decision"), [(60, "slower"), (-60, "faster"), (0, "no difference worth having")])
def test_decision_follows_from_the_interval(by_ms: float, decision: str) -> None:
    assert difference(drawn(11, 960, by_ms), 0.5).decision(25 * MS) == decision
    assert difference(drawn(11, 40, 0), 0.5).decision(1 * MS) == "undecided"


def test_too_few_pairs_have_no_interval() -> None:
    assert (pairs_needed(0.5), pairs_needed(0.95), pairs_needed(0.99)) == (20, 100, 500)
    found = difference(drawn(1, 99, 0), 0.95)
    assert (found.too_few, found.value, found.decision(1)) == ("99 of 100 pairs", None, "undecided")


def test_unanswered_turns_are_later_than_every_answer() -> None:
    values = drawn(2, 120, 0)
    variant = values.variant.copy()
    variant[:30] = np.inf
    found = difference(PairedValues(values.control, variant, values.utterances), 0.5)
    assert found.value is not None
    assert found.value > 0
    variant[:90] = np.inf
    gone = difference(PairedValues(values.control, variant, values.utterances), 0.5)
    assert gone.variant is None
    assert gone.too_few == "50 % of the turns or more were not answered"


def test_confidence_of_one_look_is_that_of_the_normal_distribution() -> None:
    assert NormalDist().inv_cdf(0.975) == pytest.approx(1.96, abs=1e-3)
