"""Standard errors beside a bootstrap by call and beside scipy; what has too few turns is refused."""

import numpy as np
import pytest
from scipy import stats

from telemetry.rollout.estimates import (
    CheckSample,
    Floats,
    TooFewError,
    quantile_difference,
    ratio_difference,
    sparsity,
)
from tests.rollout_cohorts import latencies_ms


def sample(turns: int, seed: int) -> CheckSample:
    return CheckSample(*latencies_ms(np.random.default_rng(seed), turns))


def by_call(of: CheckSample) -> list[Floats]:
    ends = np.cumsum(np.bincount(of.clusters))[:-1]
    return np.split(of.values, ends)


def bootstrapped_error(of: CheckSample, fraction: float, seed: int) -> float:
    """The standard error of a quantile when whole calls are drawn with replacement."""
    rng, calls = np.random.default_rng(seed), by_call(of)
    drawn = [
        np.quantile(np.concatenate([calls[i] for i in rng.integers(0, len(calls), len(calls))]), fraction)
        for _ in range(400)
    ]
    return float(np.std(drawn))


@pytest.mark.parametrize("fraction", [0.5, 0.95])
def test_the_error_of_a_quantile_difference_is_that_of_a_bootstrap_by_call(fraction: float) -> None:
    candidate, control = sample(3000, 1), sample(6000, 2)
    found = quantile_difference(candidate, control, fraction)
    expected = np.hypot(bootstrapped_error(candidate, fraction, 3), bootstrapped_error(control, fraction, 4))
    assert found.standard_error == pytest.approx(expected, rel=0.15)
    assert found.candidate == pytest.approx(np.quantile(candidate.values, fraction))
    assert found.value == pytest.approx(np.quantile(candidate.values, fraction) - np.quantile(control.values, fraction))


def test_turns_of_one_call_count_for_less_than_turns_of_many() -> None:
    together, control = sample(3000, 1), sample(6000, 2)
    apart = CheckSample(together.values, np.arange(3000))
    clustered = quantile_difference(together, control, 0.5).standard_error
    assert clustered > 1.2 * quantile_difference(apart, control, 0.5).standard_error


def test_a_ratio_of_independent_turns_has_the_binomial_error() -> None:
    bad = np.repeat([1.0, 0.0], [60, 940])
    found = ratio_difference(CheckSample(bad, np.arange(1000)), CheckSample(bad[::-1].copy(), np.arange(1000)))
    assert found.value == 0
    # Never below it, and next to it where turns are independent.
    binomial = np.sqrt(2 * stats.binom.var(1000, 0.06)) / 1000
    assert binomial <= found.standard_error < 1.02 * binomial


def test_no_bad_turn_among_a_hundred_is_no_certainty() -> None:
    none = CheckSample(np.zeros(100), np.arange(100))
    assert ratio_difference(none, none).standard_error > 0.01
    paired = CheckSample(np.zeros(100), np.arange(100), None, np.arange(100) % 25)
    assert ratio_difference(paired, paired).standard_error > 0.01


def test_words_are_weighed_by_their_number_and_clustered() -> None:
    rng = np.random.default_rng(5)
    words = rng.integers(3, 15, 2000).astype(float)
    rate = np.repeat(rng.uniform(0, 0.3, 400), 5)
    errors = rng.binomial(words.astype(int), rate).astype(float)
    of = CheckSample(errors, np.repeat(np.arange(400), 5), words)
    found = ratio_difference(of, of)
    draws = rng.integers(0, 400, (2000, 400))
    by_call_errors, by_call_words = errors.reshape(400, 5).sum(1), words.reshape(400, 5).sum(1)
    drawn = by_call_errors[draws].sum(1) / by_call_words[draws].sum(1)
    assert found.candidate == pytest.approx(errors.sum() / words.sum())
    assert found.standard_error == pytest.approx(np.sqrt(2) * drawn.std(), rel=0.1)


@pytest.mark.parametrize("fraction", [0.5, 0.95])
def test_the_sparsity_is_one_over_the_density(fraction: float) -> None:
    ordered = stats.lognorm.ppf((np.arange(200_000) + 0.5) / 200_000, 0.5)
    assert sparsity(ordered, fraction) == pytest.approx(
        1 / stats.lognorm.pdf(stats.lognorm.ppf(fraction, 0.5), 0.5), rel=0.02
    )


def test_the_same_audio_in_both_cohorts_needs_fewer_turns() -> None:
    rng = np.random.default_rng(11)
    utterances = np.arange(3000) % 300
    slow = rng.normal(0, 150, 300)

    def heard(seed: int, paired: bool) -> CheckSample:
        noise = np.random.default_rng(seed).normal(0, 20, 3000)
        return CheckSample(800 + slow[utterances] + noise, np.arange(3000), None, utterances if paired else None)

    paired = quantile_difference(heard(1, True), heard(2, True), 0.95)
    unpaired = quantile_difference(heard(1, False), heard(2, False), 0.95)
    assert paired.value == unpaired.value
    assert paired.standard_error < unpaired.standard_error / 2
    drawn = [quantile_difference(heard(s, True), heard(s + 500, True), 0.95).value for s in range(200)]
    # Never narrower than the truth: the density at the quantile is what it is estimated from.
    assert np.std(drawn) < 1.3 * paired.standard_error


def test_calls_still_belong_together_when_utterances_are_paired() -> None:
    values, calls = latencies_ms(np.random.default_rng(3), 4000)
    pairs = np.random.default_rng(4).integers(0, 400, 4000)
    as_calls = CheckSample(values, calls, None, pairs)
    as_turns = CheckSample(values, np.arange(4000), None, pairs)
    other = CheckSample(values[::-1].copy(), np.arange(4000), None, pairs[::-1].copy())
    both_ways = quantile_difference(as_calls, other, 0.5).standard_error
    assert both_ways > quantile_difference(as_turns, other, 0.5).standard_error


@pytest.mark.parametrize(
    ("values", "clusters", "why"),
    [
        (np.arange(99.0), np.arange(99), "99 of at least 100 turns"),
        (np.arange(500.0), np.arange(500) // 50, "from 10 of at least 20 calls"),
        (np.where(np.arange(500) % 10 == 0, np.inf, 1.0 * np.arange(500)), np.arange(500), "not answered"),
    ],
)
def test_too_little_is_refused_with_what_is_missing(values: Floats, clusters: np.ndarray, why: str) -> None:
    few, many = CheckSample(values, clusters), sample(1000, 1)
    for one, other in ((few, many), (many, few)):
        with pytest.raises(TooFewError, match=why):
            quantile_difference(one, other, 0.95)


def test_a_ratio_of_nothing_is_refused() -> None:
    nothing = CheckSample(np.zeros(0), np.zeros(0, dtype=np.int64))
    with pytest.raises(TooFewError, match="no turn has a value"):
        ratio_difference(nothing, nothing)
