"""Variances of turns that belong together, beside drawing whole calls anew and beside scipy."""

import numpy as np
import pytest
from scipy import stats

from telemetry.rollout.check_sample import (
    CheckSample,
    TooFewError,
    clustered_variance,
    effective_clusters,
    expect_clusters,
)
from telemetry.rollout.shares import ratio_difference


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


def test_a_call_that_holds_a_large_part_of_the_turns_is_not_taken_for_all() -> None:
    # One call of 250 turns beside 50 of 5; calls are slow or not as a whole.
    sizes = np.r_[250, np.full(50, 5)]
    clusters, rng = np.repeat(np.arange(51), sizes), np.random.default_rng(3)
    drawn = [np.repeat(rng.random(51) < 0.3, sizes).astype(float) for _ in range(400)]
    stated = [clustered_variance((each - each.mean()) / each.size, (clusters,)) for each in drawn]
    assert float(np.mean(stated)) >= 0.9 * float(np.var([each.mean() for each in drawn]))
    assert effective_clusters(clusters) == pytest.approx(500**2 / (250**2 + 50 * 25))


def test_the_variance_does_not_depend_on_how_calls_are_numbered() -> None:
    rng = np.random.default_rng(4)
    values, clusters = rng.lognormal(size=997), rng.integers(0, 90, 997)
    renumbered, order = rng.permutation(90)[clusters], rng.permutation(997)
    one = CheckSample(values, clusters, np.full(997, 3.7))
    other = CheckSample(values[order], renumbered[order], np.full(997, 3.7))
    assert ratio_difference(one, one) == ratio_difference(other, other)


def test_values_that_do_not_vary_say_nothing_of_their_error() -> None:
    same = CheckSample(np.full(100, 2.0), np.arange(100), np.full(100, 4.0))
    with pytest.raises(TooFewError, match="its values do not vary"):
        ratio_difference(same, same)


def test_too_few_clusters_are_refused_with_what_is_missing() -> None:
    with pytest.raises(TooFewError, match="from 10 of at least 20 calls"):
        expect_clusters(CheckSample(np.arange(500.0), np.arange(500) // 50), 20)
    with pytest.raises(TooFewError, match="from 5 of at least 20 utterances"):
        expect_clusters(CheckSample(np.arange(500.0), np.arange(500), None, np.arange(500) % 5), 20)
    expect_clusters(CheckSample(np.arange(500.0), np.arange(500) % 2, None, np.arange(500) % 20), 20)
