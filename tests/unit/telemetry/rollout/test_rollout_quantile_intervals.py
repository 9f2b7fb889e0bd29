"""Intervals of differences of quantiles by simulation, and the sequential boundary by the published formula."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from telemetry.rollout.check_sample import CheckSample, Codes, Floats, TooFewError
from telemetry.rollout.quantile_intervals import QuantileDifference, quantile_difference, share_p_value
from telemetry.rollout.sequential import (
    LARGEST_LEVEL,
    MIXTURE_TURNS,
    boundary,
    holm,
    sequential_p_value,
    turns_until_shown,
)

RHO = 0.25
SLOWER = 1.2


def calls_of(rng: np.random.Generator, turns: int) -> Codes:
    """Calls of 2 to 20 turns."""
    return np.repeat(np.arange(turns), rng.integers(2, 21, turns))[:turns]


def ranks(rng: np.random.Generator, calls: Codes, rho: float = RHO) -> Floats:
    """Uniform, and alike within a call."""
    of_call = rng.normal(size=int(calls.max()) + 1)[calls]
    return stats.norm.cdf(math.sqrt(rho) * of_call + math.sqrt(1 - rho) * rng.normal(size=calls.size))


def latencies(shape: str, at: Floats, scale: float = 1.0) -> Floats:
    """Milliseconds at these ranks of a distribution; each is a quantile function, so that the truth is known."""
    smooth = 600 * np.exp(0.35 * stats.norm.ppf(at))
    match shape:
        case "smooth":
            return scale * smooth
        case "bimodal":  # a cache answers 40 %, a model the others; nothing lies between 330 and 550 ms
            hit = 220 * np.exp(0.12 * stats.norm.ppf(np.clip(at / 0.4, 1e-3, 1 - 1e-3)))
            model = 1000 * np.exp(0.2 * stats.norm.ppf(np.clip((at - 0.4) / 0.6, 1e-3, 1 - 1e-3)))
            return scale * np.where(at < 0.4, hit, model)
        case "atom":  # 3.6 % run into a time-out
            return np.where(at > 0.964, 1800.0, scale * smooth)
        case _:  # an exporter that rounds
            return np.ceil(scale * smooth / 250) * 250


def true_difference(shape: str, fraction: float, scale: float) -> float:
    at = np.array([fraction])
    return float(latencies(shape, at, scale)[0] - latencies(shape, at)[0])


def cohort(rng: np.random.Generator, shape: str, turns: int, scale: float = 1.0) -> CheckSample:
    calls = calls_of(rng, turns)
    return CheckSample(latencies(shape, ranks(rng, calls), scale), calls)


def simulated(shape: str, fraction: float, turns: int, scale: float, times: int = 300) -> list[QuantileDifference]:
    differences: list[QuantileDifference] = []
    for seed in range(times):
        rng = np.random.default_rng(seed)
        differences.append(quantile_difference(cohort(rng, shape, turns, scale), cohort(rng, shape, turns), fraction))
    return differences


# Of 300 simulations 95 % is 0.925 to 0.975 in two standard errors; more than that is the safe side.
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, SLOWER])
@pytest.mark.parametrize(
    ("shape", "fraction"),
    [("smooth", 0.5), ("smooth", 0.95), ("bimodal", 0.4), ("bimodal", 0.5), ("bimodal", 0.95), ("atom", 0.5),
     ("atom", 0.95), ("rounded", 0.5), ("rounded", 0.95)],
)  # fmt: skip
def test_interval_holds_true_difference_of_rough_latencies(shape: str, fraction: float, scale: float) -> None:
    differences = simulated(shape, fraction, 500, scale)
    truth = true_difference(shape, fraction, scale)
    assert np.mean([difference.lower <= truth <= difference.upper for difference in differences]) >= 0.925
    if scale == 1.0:  # equal cohorts
        p_values = np.array([difference.p_value for difference in differences])
        assert np.mean(p_values < 0.05) <= 0.075
        assert np.mean(p_values < 0.002) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("fraction", "turns"), [(0.5, 500), (0.95, 1000), (0.99, 3000)])
def test_interval_on_smooth_latencies_is_no_wider_than_needed(fraction: float, turns: int) -> None:
    differences = simulated("smooth", fraction, turns, SLOWER)
    truth = true_difference("smooth", fraction, SLOWER)
    assert 0.925 <= np.mean([difference.lower <= truth <= difference.upper for difference in differences]) <= 0.985
    # Drawn repeatedly, the differences spread as much as the intervals say.
    spread = 2 * stats.norm.ppf(0.975) * np.std([difference.value for difference in differences])
    assert np.median([difference.upper - difference.lower for difference in differences]) == pytest.approx(
        spread, rel=0.25
    )


@pytest.mark.slow
def test_unequal_cohorts_without_clusters_differ_too_often() -> None:
    def false_positives(*, knows_calls: bool) -> float:
        values: list[float] = []
        for seed in range(300):
            rng = np.random.default_rng(seed)
            both = [cohort(rng, "smooth", turns) for turns in (300, 3000)]
            if not knows_calls:
                both = [replace(sample, clusters=np.arange(sample.size)) for sample in both]
            values.append(quantile_difference(both[0], both[1], 0.5).p_value)
        return float(np.mean(np.array(values) < 0.05))

    assert false_positives(knows_calls=True) <= 0.075
    assert false_positives(knows_calls=False) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.5, 0.95])
def test_unequal_calls_count_less_and_one_giant_shows_nothing(fraction: float) -> None:
    """The longest of 60 calls has a fifth of all turns, as users by Zipf's law; and one call has nearly all."""

    def drawn(seed: int, lengths: list[int]) -> QuantileDifference | None:
        rng = np.random.default_rng(seed)
        calls = np.repeat(np.arange(len(lengths)), lengths)
        both = [CheckSample(latencies("smooth", ranks(rng, calls, 0.6)), calls) for _ in range(2)]
        try:
            return quantile_difference(both[0], both[1], fraction)
        except TooFewError:
            return None

    zipf = [max(1, 300 // place) for place in range(1, 61)]
    differences = [difference for seed in range(300) if (difference := drawn(seed, zipf)) is not None]
    assert len(differences) > 200
    assert np.mean([difference.lower <= 0 <= difference.upper for difference in differences]) >= 0.92
    assert np.mean([difference.p_value < 0.05 for difference in differences]) <= 0.08
    giant = [difference for seed in range(200) if (difference := drawn(seed, [400] + [4] * 25)) is not None]
    assert sum(not difference.lower <= 0 <= difference.upper for difference in giant) <= 10


def bootstrapped(of: CheckSample, fraction: float, rng: np.random.Generator, times: int = 1000) -> Floats:
    """The quantile where whole calls are drawn with replacement."""
    by_call = [of.values[of.clusters == call] for call in np.unique(of.clusters)]
    draws = rng.integers(0, len(by_call), (times, len(by_call)))
    return np.array([np.quantile(np.concatenate([by_call[i] for i in drawn]), fraction) for drawn in draws])


@pytest.mark.parametrize("fraction", [0.5, 0.95])
@pytest.mark.parametrize("shape", ["smooth", "bimodal"])
def test_the_interval_is_that_of_a_bootstrap_by_call(shape: str, fraction: float) -> None:
    rng = np.random.default_rng(7)
    candidate, control = cohort(rng, shape, 4000, SLOWER), cohort(rng, shape, 2000)
    difference = quantile_difference(candidate, control, fraction)
    drawn = bootstrapped(candidate, fraction, rng) - bootstrapped(control, fraction, rng)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert difference.upper - difference.lower == pytest.approx(high - low, rel=0.25)
    assert difference.lower == pytest.approx(low, abs=0.2 * (high - low))
    assert difference.value == np.quantile(candidate.values, fraction) - np.quantile(control.values, fraction)


def test_bounds_without_clusters_are_binomial_ranks() -> None:
    values = np.arange(1000.0)  # of which each value is its own rank
    apart = np.arange(1000)
    difference = quantile_difference(CheckSample(values, apart), CheckSample(0 * values, apart), 0.95)
    low, high = stats.binom.ppf([0.025, 0.975], 1000, 0.95)
    assert difference.lower == pytest.approx(low - 1, abs=1.5)  # the value of rank 1 is 0
    assert difference.upper == pytest.approx(high, abs=1.5)


def test_slowest_of_500_turns_bounds_p99_only_if_independent() -> None:
    """All of 500 turns lie below their p99 with a probability of 0.7 %, of 125 calls that are slow as a whole 28 %."""
    values = np.random.default_rng(1).permutation(500).astype(float)
    never = CheckSample(np.zeros(500), np.arange(500))
    assert quantile_difference(CheckSample(values, np.arange(500)), never, 0.99).upper == 499
    alike = CheckSample(np.floor(values / 4), (values // 4).astype(np.int64))
    assert quantile_difference(alike, never, 0.99).upper == math.inf


def heard(seed: int, *, is_paired: bool, turns: int = 3000, scale: float = 1.0) -> CheckSample:
    """Utterances of which each is slow or fast in every cohort, in calls that are, too."""
    clips = 300
    rng = np.random.default_rng(seed)
    of_clip = np.random.default_rng(seed // 1000).normal(0, 150, clips)
    clip, calls = rng.permutation(np.arange(turns) % clips), calls_of(rng, turns)
    values = 800 + of_clip[clip] + 40 * stats.norm.ppf(ranks(rng, calls))
    return CheckSample(scale * values, calls, None, clip if is_paired else None)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.5, 0.95])
def test_same_audio_in_both_cohorts_narrows_interval_that_holds(fraction: float) -> None:
    held: list[bool] = []
    widths: dict[bool, list[float]] = {True: [], False: []}
    truth = 0.1 * stats.norm.ppf(fraction, 800, math.hypot(150, 40))
    for draw in range(150):
        for is_paired in (True, False):
            candidate = heard(1000 * draw + 1, is_paired=is_paired, scale=1.1)
            difference = quantile_difference(candidate, heard(1000 * draw + 2, is_paired=is_paired), fraction)
            widths[is_paired].append(difference.upper - difference.lower)
            if is_paired:
                held.append(bool(difference.lower <= truth <= difference.upper))
    assert np.median(widths[True]) < 0.7 * np.median(widths[False])
    assert np.mean(held) >= 0.915


@pytest.mark.slow
def test_equal_paired_cohorts_have_p_below_5_percent_in_5_of_100() -> None:
    p_values = [
        quantile_difference(
            heard(1000 * draw + 1, is_paired=True, turns=600), heard(1000 * draw + 2, is_paired=True, turns=600), 0.5
        ).p_value
        for draw in range(300)
    ]
    assert np.mean(np.array(p_values) < 0.05) <= 0.075


def test_calls_still_belong_together_where_utterances_are_paired() -> None:
    rng = np.random.default_rng(3)
    both = [replace(cohort(rng, "smooth", 2000), pairs=rng.integers(0, 400, 2000)) for _ in range(2)]
    as_turns = [replace(sample, clusters=np.arange(2000)) for sample in both]
    of_calls, of_turns = (quantile_difference(two[0], two[1], 0.5) for two in (both, as_turns))
    assert of_calls.upper - of_calls.lower > 1.2 * (of_turns.upper - of_turns.lower)


def test_values_without_spread_are_equal_and_known_exactly() -> None:
    always = CheckSample(np.full(200, 250.0), np.arange(200) // 4)
    for pairs in (None, np.arange(200) % 40):
        of = replace(always, pairs=pairs)
        assert quantile_difference(of, of, 0.95) == QuantileDifference(0.0, 0.0, 0.0, 250.0, 250.0, 1.0)
    slower = quantile_difference(replace(always, values=always.values + 50), always, 0.95)
    assert (slower.value, slower.lower, slower.upper) == (50.0, 50.0, 50.0)
    assert slower.p_value < 0.002


def test_one_cohort_without_spread_has_the_interval_of_the_other() -> None:
    rng = np.random.default_rng(5)
    always, varied = CheckSample(np.full(2000, 600.0), np.arange(2000) // 4), cohort(rng, "smooth", 2000)
    difference = quantile_difference(varied, always, 0.5)
    low, high = np.quantile(bootstrapped(varied, 0.5, rng), [0.025, 0.975])
    assert (difference.lower, difference.upper) == pytest.approx((low - 600, high - 600), abs=0.25 * (high - low))


def test_p_value_counts_turns_equal_to_quantile_for_no_cohort() -> None:
    apart = np.arange(1000)
    tenth, fifth = (np.where(apart % 10 < beyond, 500.0, 250.0) for beyond in (1, 2))
    same = quantile_difference(CheckSample(tenth, apart), CheckSample(tenth[::-1].copy(), apart), 0.95)
    assert (same.value, same.p_value) == (0.0, 1.0)
    difference = quantile_difference(CheckSample(fifth, apart), CheckSample(tenth, apart), 0.5)
    # Twice as many turns lie beyond, and the median of both is the same: the interval says so.
    assert (difference.value, difference.lower, difference.upper) == (0.0, 0.0, 0.0)


def test_bound_is_infinite_if_turn_at_its_rank_was_unanswered() -> None:
    rng = np.random.default_rng(1)
    answered = cohort(rng, "smooth", 1000)
    silent = replace(answered, values=np.where(np.arange(1000) % 25 == 0, np.inf, answered.values))
    difference = quantile_difference(silent, answered, 0.95)
    assert math.isfinite(difference.value)
    assert math.isfinite(difference.lower)
    assert difference.upper == math.inf
    assert quantile_difference(answered, silent, 0.95).lower == -math.inf


def test_bound_is_missing_if_too_few_turns_exceed_quantile() -> None:
    rng = np.random.default_rng(2)
    calls = np.arange(120) // 5  # of which each is slow or fast as a whole
    few = CheckSample(latencies("smooth", ranks(rng, calls, 0.99)), calls)
    assert quantile_difference(few, cohort(rng, "smooth", 4000), 0.95).upper == math.inf
    with pytest.raises(TooFewError, match="120 turns are too few to bound it on either side"):
        quantile_difference(few, few, 0.95)


@pytest.mark.parametrize(
    ("values", "clusters", "pairs", "why"),
    [
        (np.arange(99.0), np.arange(99), None, "needs 100 turns with a value, has 99"),
        (np.arange(500.0), np.arange(500) // 50, None, "needs 20 calls, has 10"),
        (np.arange(500.0), np.arange(500), np.arange(500) % 19, "needs 20 utterances, has 19"),
        (np.arange(500.0), np.zeros(500, dtype=np.int64), np.arange(500) % 50, "needs 2 calls, has 1"),
        (np.where(np.arange(500) % 10 == 0, np.inf, np.arange(500.0)), np.arange(500), None, "were not answered"),
        (np.zeros(0), np.zeros(0, dtype=np.int64), None, "needs 100 turns with a value, has 0"),
    ],
)
def test_too_little_is_refused_with_what_is_missing(
    values: Floats, clusters: Codes, pairs: Codes | None, why: str
) -> None:
    few, many = CheckSample(values, clusters, None, pairs), cohort(np.random.default_rng(1), "smooth", 1000)
    if pairs is not None:
        many = replace(many, pairs=np.arange(1000) % 50)
    for one, other in ((few, many), (many, few)):
        with pytest.raises(TooFewError, match=why):
            quantile_difference(one, other, 0.95)


def test_a_higher_confidence_asks_for_a_wider_interval() -> None:
    rng = np.random.default_rng(9)
    both = cohort(rng, "smooth", 2000), cohort(rng, "smooth", 2000)
    narrow, wide = (quantile_difference(*both, 0.5, confidence) for confidence in (0.8, 0.99))
    assert wide.lower < narrow.lower < narrow.value < narrow.upper < wide.upper
    assert wide.p_value == narrow.p_value


@pytest.mark.parametrize(("bad", "control_bad"), [(12, 30), (0, 9), (6, 40), (40, 80)])
def test_p_value_of_independent_shares_is_corrected_chi_square(bad: int, control_bad: int) -> None:
    turns, control_turns = 500, 1000
    both = [
        CheckSample(np.repeat([1.0, 0.0], [many, of - many]), np.arange(of))
        for many, of in ((bad, turns), (control_bad, control_turns))
    ]
    good, control_good = turns - bad, control_turns - control_bad
    apart = max(0.0, abs(bad * control_good - control_bad * good) - (turns + control_turns) / 2)  # Yates
    margins = turns * control_turns * (bad + control_bad) * (good + control_good)
    expected = stats.chi2.sf((turns + control_turns) * apart**2 / margins, 1)
    assert share_p_value(both[0], both[1]) == pytest.approx(expected, rel=0.06)


@pytest.mark.slow
def test_rare_events_in_unequal_runs_are_seldom_called_more() -> None:
    """2 % of the turns, of 500 and of 5,000: the normal interval of the difference is wrong three times as often."""
    p_values: list[float] = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        both = [cohort(rng, "smooth", turns) for turns in (500, 5000)]
        limit = latencies("smooth", np.array([0.98]))[0]
        p_values.append(share_p_value(*(replace(sample, values=1.0 * (sample.values > limit)) for sample in both)))
    assert np.mean(np.array(p_values) < 0.05) <= 0.07
    assert np.mean(np.array(p_values) < 0.005) <= 0.012


def test_shares_without_bad_turn_are_equal_and_few_calls_refused() -> None:
    good = CheckSample(np.zeros(100), np.arange(100))
    assert share_p_value(good, good) == 1
    with pytest.raises(TooFewError, match="needs 20 calls, has 10"):
        share_p_value(good, replace(good, clusters=np.arange(100) // 10))


@pytest.mark.parametrize("fraction", [0.5, 0.95])
@pytest.mark.parametrize("is_paired", [False, True])
def test_figures_are_identical_in_any_order_and_numbering(fraction: float, is_paired: bool) -> None:
    rng = np.random.default_rng(12)
    both = [heard(seed, is_paired=is_paired, turns=900) for seed in (1, 2)]
    shuffled: list[CheckSample] = []
    for sample in both:
        order, numbers = rng.permutation(sample.size), rng.permutation(3000)
        pairs = None if sample.pairs is None else sample.pairs[order]
        shuffled.append(CheckSample(sample.values[order], numbers[sample.clusters[order]], None, pairs))
    assert quantile_difference(shuffled[0], shuffled[1], fraction) == quantile_difference(both[0], both[1], fraction)


def drawn_crossings(error_level: float, turns: int, paths: int, seed: int) -> float:
    """Count the sums of independent steps, checked after each of so many turns, that ever cross the boundary."""
    rng = np.random.default_rng(seed)
    limits = np.array([boundary(error_level, n) * math.sqrt(n) for n in range(1, turns + 1)])
    crossed = 0
    for _ in range(paths // 500):
        sums = np.cumsum(rng.normal(size=(500, turns)), axis=1)
        crossed += int((sums >= limits).any(axis=1).sum())
    return crossed / paths


@pytest.mark.parametrize("error_level", [LARGEST_LEVEL, 0.05])
def test_chance_to_ever_cross_is_below_level_at_every_turn(error_level: float) -> None:
    crossed = drawn_crossings(error_level, 3000, 4000, 7)
    assert crossed <= error_level
    assert crossed > 0.4 * error_level, "a boundary that is never crossed shows nothing either"


@pytest.mark.parametrize("error_level", [0.05, 0.0125])
def test_mixture_of_drifts_on_boundary_is_as_likely_as_level(error_level: float) -> None:
    # Robbins: the likelihood of a motion under normally distributed positive drifts, over that without drift, is
    # integrated here; on the boundary it is at least 1 / level, whose chance is the level at most (Ville).
    for turns in (30, 200, 4000):
        at = boundary(error_level, turns) * math.sqrt(turns)
        drifts = np.linspace(0, 12 / math.sqrt(MIXTURE_TURNS), 200_001)
        prior = 2 * stats.norm.pdf(drifts, scale=1 / math.sqrt(MIXTURE_TURNS))
        ratio = float(np.trapezoid(prior * np.exp(drifts * at - drifts**2 * turns / 2), drifts))
        assert 1 / error_level <= ratio < 1.4 / error_level


def test_the_boundary_is_lowest_at_about_four_hundred_turns() -> None:
    bounds = {turns: boundary(0.025, turns) for turns in (10, 50, 100, 200, 400, 1000, 5000)}
    assert min(bounds, key=lambda turns: bounds[turns]) == 400
    assert bounds[5000] < 1.1 * bounds[200] < 1.1 * 1.03 * bounds[400]
    assert bounds[10] > 1.3 * bounds[200]
    assert boundary(0.05, 0) == math.inf


@pytest.mark.parametrize("turns", [20, 200, 5000])
@pytest.mark.parametrize("level", [0.15, 0.05, 0.001, 1e-12])
def test_p_value_is_level_of_the_boundary_reached(turns: int, level: float) -> None:
    assert sequential_p_value(boundary(level, turns), turns) == pytest.approx(level, rel=1e-9)


def test_nothing_is_shown_by_no_difference_nor_by_no_turn() -> None:
    assert sequential_p_value(0.0, 500) == sequential_p_value(-3.0, 500) == sequential_p_value(5.0, 0) == 1.0
    assert sequential_p_value(math.inf, 500) == 0.0
    assert sequential_p_value(30.0, 500) > 0.0


def test_forecast_is_where_same_difference_meets_boundary() -> None:
    shown_at = turns_until_shown(1.5, 400, 0.05)
    assert shown_at is not None
    assert 400 < shown_at < 2000
    assert turns_until_shown(10.0, 400, 0.05) == 400
    assert turns_until_shown(0.0, 400, 0.05) is None
    assert turns_until_shown(-1.0, 400, 0.05) is None
    assert turns_until_shown(1e-9, 400, 0.05) is None, "more turns than anybody has"


def test_half_of_drawn_motions_are_there_by_the_forecast() -> None:
    # A motion whose drift is 2 standard errors at 400 turns.
    rng, drift = np.random.default_rng(3), 2.0 / math.sqrt(400)
    turns = np.arange(1, 6001)
    limits = np.array([boundary(0.05, n) * math.sqrt(n) for n in turns])
    motions = np.cumsum(rng.normal(drift, 1.0, size=(400, 6000)), axis=1)
    median = float(np.median(np.argmax(motions >= limits, axis=1))) + 1
    forecast = turns_until_shown(2.0, 400, 0.05)
    assert forecast is not None
    assert median / 1.3 < forecast < median * 1.3


@pytest.mark.parametrize("level", [0.0, -0.1, 0.16, math.nan])
def test_a_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="an error level lies above 0"):
        boundary(level, 100)


def test_holm_rejects_in_order_until_one_does_not() -> None:
    rejected = holm({"a": 0.001, "b": 0.02, "c": 0.04, "d": 0.5}, 0.05)
    assert rejected == {"a": True, "b": False, "c": False, "d": False}
    assert holm({"a": 0.01, "b": 0.02}, 0.05) == {"a": True, "b": True}
    assert holm({}, 0.05) == {}
