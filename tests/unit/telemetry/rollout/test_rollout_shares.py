"""Shares beyond the control's quantile, compared with counting by hand and newly drawn cohorts; gaps, atoms, ties,
missing values, and turns that nobody answered."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.rollout.check_sample import CheckSample, Floats, TooFewError
from telemetry.rollout.shares import (
    ComparedShares,
    compare_quantile,
    compare_ratios,
    compare_shares,
    compare_tail,
    expect_independent,
    ratio_difference,
)
from tests.rollout_cohorts import latencies_ms


def sample(turns: int, seed: int, shift_ms: float = 0.0, eligible: int | None = None) -> CheckSample:
    values, calls = latencies_ms(np.random.default_rng(seed), turns)
    return CheckSample(values + shift_ms, calls, eligible=eligible)


def apart(values: Floats, eligible: int | None = None) -> CheckSample:
    return CheckSample(values, np.arange(values.size), eligible=eligible)


def by_counting(candidate: Floats, control: Floats, fraction: float, margin: float) -> tuple[float, float, float]:
    """The shares beyond the control's quantile, of both, and the candidate's beyond it and the margin."""
    ordered = sorted(control)
    quantile = next(v for v in ordered if sum(value <= v for value in ordered) >= fraction * len(ordered) - 1e-9)
    return (
        sum(value > quantile for value in candidate) / len(candidate),
        sum(value > quantile for value in control) / len(control),
        sum(value > quantile + margin for value in candidate) / len(candidate),
    )


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 9), min_size=30, max_size=80),
    st.lists(st.integers(0, 9), min_size=60, max_size=90),
    st.sampled_from([0.5, 0.9, 0.95]),
    st.integers(1, 4),
)
def test_the_shares_are_those_that_are_counted_by_hand(
    candidate: list[int], control: list[int], fraction: float, margin: int
) -> None:
    both = [np.array(values, dtype=np.float64) for values in (candidate, control)]
    comparison = compare_quantile(apart(both[0]), apart(both[1]), fraction, margin)
    beyond, of_control, far = by_counting(both[0], both[1], fraction, margin)
    assert (comparison.candidate, comparison.control) == (pytest.approx(beyond), pytest.approx(of_control))
    assert comparison.above_control.value == pytest.approx(beyond - of_control)
    assert comparison.harm == comparison.above_margin.value == pytest.approx(far - (1 - fraction))


def spread(comparisons: list[ComparedShares], name: str) -> tuple[float, float]:
    """Return the spread of a figure over newly drawn cohorts, and the stated standard error."""
    values = [getattr(comparison, name) for comparison in comparisons]
    return float(np.std([share.value for share in values])), float(
        np.median([share.standard_error for share in values])
    )


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(600, 6000), (1500, 1500)])
def test_error_equals_spread_of_redrawn_cohorts(sizes: tuple[int, int]) -> None:
    cohorts = [(sample(sizes[0], seed), sample(sizes[1], seed + 1000)) for seed in range(300)]
    for fraction in (0.5, 0.95):
        comparisons = [compare_quantile(candidate, control, fraction, 0.0) for candidate, control in cohorts]
        for name in ("above_control", "above_margin"):
            drawn, stated = spread(comparisons, name)
            assert 0.9 * drawn < stated < 1.35 * drawn, (fraction, name)


@pytest.mark.slow
def test_tail_error_equals_spread_of_redrawn_cohorts() -> None:
    comparisons = [compare_tail(sample(2000, seed), sample(4000, seed + 1000), 0.01) for seed in range(300)]
    drawn, stated = spread(comparisons, "above_control")
    assert 0.9 * drawn < stated < 1.35 * drawn
    # The one for a promotion is that of a candidate at its margin, whose tail is twice as heavy.
    at_margin = comparisons[0].above_margin.standard_error
    assert 1.1 * stated < at_margin < 2 * stated


def test_turns_of_one_call_count_for_less_than_turns_of_many() -> None:
    together, control = sample(3000, 1), sample(6000, 2)
    alone = CheckSample(together.values, np.arange(3000))
    errors = [
        compare_quantile(grouping, control, 0.5, 0.0).above_control.standard_error for grouping in (together, alone)
    ]
    assert errors[0] > 1.2 * errors[1]


@pytest.mark.parametrize("rounded_to_ms", [1, 250, 10_000])
def test_rounding_moves_no_candidate_that_is_alike(rounded_to_ms: int) -> None:
    def rounded(of: CheckSample) -> CheckSample:
        return CheckSample(np.round(of.values / rounded_to_ms) * rounded_to_ms, of.clusters)

    zs = [
        compare_quantile(rounded(sample(800, seed)), rounded(sample(2400, seed + 500)), 0.95, 200).above_control.z
        for seed in range(60)
    ]
    assert max(zs) < 3.3
    assert abs(float(np.mean(zs))) < 0.6


def test_values_that_do_not_vary_are_no_difference() -> None:
    constant = apart(np.full(400, 250.0))
    comparison = compare_quantile(constant, constant, 0.95, 100)
    assert (comparison.candidate, comparison.control, comparison.above_control.z) == (0.0, 0.0, 0.0)
    assert comparison.above_margin.z < -3
    slower = compare_quantile(apart(np.full(400, 500.0)), constant, 0.95, 100)
    assert slower.above_control.z > 10
    assert slower.harm == pytest.approx(0.95)


def test_an_atom_at_the_quantile_counts_as_not_beyond() -> None:
    control = apart(np.r_[np.arange(900.0), np.full(100, 1800.0)])
    comparison = compare_quantile(control, control, 0.95, 100)
    assert comparison.threshold is not None
    assert comparison.threshold.value == 1800.0
    assert (comparison.candidate, comparison.control) == (0.0, 0.0)


def test_no_turn_past_threshold_among_hundred_is_no_certainty() -> None:
    fast, control = apart(np.full(100, 1.0)), sample(2000, 1)
    comparison = compare_quantile(fast, control, 0.95, 100)
    assert comparison.above_margin.value == pytest.approx(-0.05)
    # That of a candidate at its margin: 5 % of 100 turns.
    assert comparison.above_margin.standard_error >= math.sqrt(0.05 * 0.95 / 100)
    none = apart(np.zeros(100))
    assert compare_shares(none, none, 0.01).above_margin.standard_error >= math.sqrt(0.01 * 0.99 / 100)
    assert compare_shares(none, none, 0.01).above_control.standard_error > 0


def test_unanswered_turns_exceed_every_threshold() -> None:
    silent = apart(np.where(np.arange(400) % 2 == 0, np.inf, 500.0))
    comparison = compare_quantile(silent, sample(2000, 1), 0.95, 200)
    assert comparison.harm == pytest.approx(0.45)
    assert comparison.above_control.z > 5
    with pytest.raises(TooFewError, match="the control's turns or more were not answered: it has no such quantile"):
        compare_quantile(sample(2000, 1), silent, 0.95, 200)


def test_tail_of_mostly_unanswered_control_is_those_turns() -> None:
    control = apart(np.where(np.arange(1000) % 50 == 0, np.inf, 500.0 + np.arange(1000) % 7))
    candidate = apart(np.where(np.arange(1000) % 10 == 0, np.inf, 500.0))
    comparison = compare_tail(candidate, control, 0.01)
    assert (comparison.candidate, comparison.control) == (pytest.approx(0.1), pytest.approx(0.02))


class TestMissing:
    """Missing values among 1,000 turns of each cohort; the present values do not differ."""

    values = np.arange(1000.0)

    def compare_with_missing(self, candidate: int, control: int) -> ComparedShares:
        """A cohort lacks so many of its values, the slowest ones."""
        kept = [apart(self.values[: 1000 - missing], 1000) for missing in (candidate, control)]
        return compare_quantile(kept[0], kept[1], 0.95, 10)

    def test_excess_missing_of_candidate_counts_only_for_promotion(self) -> None:
        compared = self.compare_with_missing(100, 0)
        # By hand: the quantile is 949, no value is beyond it, and a tenth of all turns may be.
        assert compared.above_margin.value == pytest.approx(0.1 - 0.05)
        assert compared.above_control.value == pytest.approx(0.0 - 0.05)
        assert compared.harm < 0

    def test_values_that_both_lack_count_for_neither(self) -> None:
        compared = self.compare_with_missing(100, 100)
        # Of the 900 that are there, 45 are beyond 854 and 35 beyond 864.
        assert compared.above_control.value == 0
        assert compared.above_margin.value == pytest.approx(35 / 900 - 0.05)

    def test_control_without_slow_values_makes_no_candidate_worse(self) -> None:
        compared = self.compare_with_missing(0, 100)
        # Counted as beyond, they leave the control no p95 among its values: nothing is beyond it.
        assert compared.above_control.value <= 0
        assert compared.harm < 0
        # As many in both that are not the slowest: 50 of 1,000 are beyond 949 and 4 % of them by more than 10.
        fast_missing = apart(self.values[100:], 1000)
        assert compare_quantile(apart(self.values, 1000), fast_missing, 0.95, 10).above_margin.value == pytest.approx(
            40 / 1000 - 0.05
        )

    def test_candidate_without_fast_values_is_not_worse_for_that(self) -> None:
        comparison = compare_quantile(apart(self.values[400:], 1000), apart(self.values, 1000), 0.95, 10)
        assert comparison.candidate == pytest.approx(50 / 600)
        assert comparison.above_control.value == pytest.approx(0.0)

    def test_missing_values_count_as_worst_for_ratios(self) -> None:
        half = np.r_[np.ones(100), np.zeros(400)]
        compared = compare_shares(apart(half, 1000), apart(np.r_[half, half], 1000), 0.02)
        assert compared.above_margin.value == pytest.approx((0.2 / 2 + 0.5) - 0.2 - 0.02)
        assert compared.harm == pytest.approx(0.2 / 2 - 0.2 - 0.02)
        words = CheckSample(half, np.arange(500), np.full(500, 4.0), eligible=1000)
        known = CheckSample(half, np.arange(500), np.full(500, 4.0), eligible=500)
        comparison = compare_ratios(words, known, 0.01, 1.0)
        assert comparison.above_margin.value == pytest.approx((0.05 / 2 + 0.5) - 0.05 - 0.01)
        assert compare_ratios(words, known, 0.01).above_margin.value == pytest.approx((0.05 / 2 + 0.125) - 0.05 - 0.01)


def test_words_are_weighed_by_their_number_and_clustered() -> None:
    rng = np.random.default_rng(5)
    words = rng.integers(3, 15, 2000).astype(float)
    errors = rng.binomial(words.astype(int), np.repeat(rng.uniform(0, 0.3, 400), 5)).astype(float)
    of = CheckSample(errors, np.repeat(np.arange(400), 5), words)
    comparison = compare_ratios(of, of, 0.01, 1.0)
    draws = rng.integers(0, 400, (2000, 400))
    by_call_errors, by_call_words = errors.reshape(400, 5).sum(1), words.reshape(400, 5).sum(1)
    drawn = by_call_errors[draws].sum(1) / by_call_words[draws].sum(1)
    difference = ratio_difference(of, of)
    assert comparison.candidate == difference.candidate == pytest.approx(errors.sum() / words.sum())
    for standard_error in (comparison.above_control.standard_error, difference.standard_error):
        assert standard_error == pytest.approx(np.sqrt(2) * drawn.std(), rel=0.1)


def test_the_same_audio_in_both_cohorts_needs_fewer_turns() -> None:
    utterances = np.arange(3000) % 300
    slow = np.random.default_rng(11).normal(0, 150, 300)

    def heard(seed: int, paired: bool) -> CheckSample:
        noise = np.random.default_rng(seed).normal(0, 20, 3000)
        return CheckSample(800 + slow[utterances] + noise, np.arange(3000), None, utterances if paired else None)

    paired = [compare_quantile(heard(s, True), heard(s + 500, True), 0.95, 0.0).above_control for s in range(200)]
    unpaired = compare_quantile(heard(1, False), heard(501, False), 0.95, 0.0).above_control
    stated = float(np.median([share.standard_error for share in paired]))
    assert stated < unpaired.standard_error / 1.5
    assert float(np.std([share.value for share in paired])) < 1.2 * stated


def test_calls_still_belong_together_when_utterances_are_paired() -> None:
    values, calls = latencies_ms(np.random.default_rng(3), 4000)
    pairs = np.random.default_rng(4).integers(0, 400, 4000)
    other = CheckSample(values[::-1].copy(), np.arange(4000), None, pairs[::-1].copy())
    errors = [
        compare_quantile(CheckSample(values, by, None, pairs), other, 0.5, 0.0).above_control.standard_error
        for by in (calls, np.arange(4000))
    ]
    assert errors[0] > errors[1]


@pytest.mark.parametrize(
    ("clusters", "why"),
    [
        (np.arange(500) // 100, "needs 6 calls, has 5"),
        (np.r_[np.zeros(250), np.arange(1, 251)].astype(np.int64), "from too few calls: one has 50 % of them"),
    ],
)
def test_too_few_calls_say_nothing_of_the_variance(clusters: np.ndarray, why: str) -> None:
    with pytest.raises(TooFewError, match=why):
        expect_independent(CheckSample(np.arange(500.0), clusters))
    expect_independent(CheckSample(np.arange(500.0), np.arange(500) // 70))


def test_a_quantile_of_too_few_turns_is_no_threshold() -> None:
    with pytest.raises(TooFewError, match="needs 60 turns of the control with a value, has 59"):
        compare_quantile(sample(500, 1), sample(59, 2), 0.95, 100)
    assert compare_quantile(sample(40, 1), sample(60, 2), 0.95, 100).threshold is not None
    with pytest.raises(TooFewError, match="needs 300 turns of the control with a value, has 299"):
        compare_tail(sample(500, 1), sample(299, 2), 0.01)


@pytest.mark.parametrize("fraction", [0.95, 0.05])
@pytest.mark.parametrize(("clips", "is_narrower"), [(20, False), (200, True)])
def test_one_clip_at_the_end_narrows_no_bounds(clips: int, is_narrower: bool, fraction: float) -> None:
    """A candidate at the margin was promoted in 11 % of 150 rollouts over 20 clips, as its slowest clip decides. If
    all other clips are beyond, the quickest one does."""
    rng = np.random.default_rng(3)

    def heard() -> CheckSample:
        pairs = np.tile(np.arange(clips), 2000 // clips)
        return CheckSample(pairs / clips + rng.normal(0, 0.1 / clips, 2000), np.arange(2000) // 5, None, pairs)

    paired = heard(), heard()
    candidate, control = (CheckSample(one.values, one.clusters) for one in paired)
    together, apart_from = compare_quantile(*paired, fraction, 0.0), compare_quantile(candidate, control, fraction, 0.0)
    narrowed = together.above_margin.standard_error < apart_from.above_margin.standard_error
    assert narrowed == is_narrower
    assert is_narrower or together.above_margin == apart_from.above_margin


def test_each_cohorts_rarer_turns_have_to_be_of_many_clips() -> None:
    """One clip of 20 is the control's only bad one and the candidate's only good one."""
    pairs = np.tile(np.arange(20), 100)
    bad = pairs == 19

    def of(is_paired: bool) -> tuple[CheckSample, CheckSample]:
        candidate, control = (
            CheckSample(values.astype(float), np.arange(2000) // 5, None, pairs if is_paired else None)
            for values in (~bad, bad)
        )
        return candidate, control

    together, apart_from = compare_shares(*of(True), 0.01), compare_shares(*of(False), 0.01)
    assert (together.candidate, together.control) == (0.95, 0.05)
    assert together.above_control == apart_from.above_control
    assert together.above_margin == apart_from.above_margin
