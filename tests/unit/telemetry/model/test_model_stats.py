"""Exact statistics and intervals against independent implementations, published tables and their own promise."""

import math
import random
import subprocess
import sys
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from telemetry.model.intervals import grouped_interval, quantile_interval, wilson_interval
from telemetry.model.stats import (
    minimum_for_target,
    percentile,
    shown_percentile,
)

VALUES = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=200)


@given(VALUES, st.floats(0, 1))
def test_percentile_is_numpys(values: list[int], fraction: float) -> None:
    value = percentile(values, fraction)
    assert value is not None
    assert math.isclose(value, float(np.quantile(values, fraction)), rel_tol=1e-9, abs_tol=1e-3)
    assert min(values) <= value <= max(values)


def test_percentile_is_duckdbs() -> None:
    values = [float(value * value % 1009) for value in range(500)]
    statement = "select quantile_cont(v, ?) from (select unnest(?) v)"
    with duckdb.connect() as connection:
        for fraction in (0.5, 0.95, 0.99):
            (expected,) = connection.execute(statement, [fraction, values]).fetchone()
            assert percentile(values, fraction) == pytest.approx(expected, rel=1e-12)


def test_percentile_at_hand() -> None:
    assert percentile([], 0.5) is None
    assert percentile([7], 0.99) == 7.0
    assert [percentile([40, 10, 20, 30], fraction) for fraction in (0, 0.5, 1)] == [10.0, 25.0, 40.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1], 95)


@pytest.mark.parametrize(("name", "needed"), [("p50", 1), ("p95", 20), ("p99", 100)])
def test_too_few_is_no_figure(name: str, needed: int) -> None:
    assert shown_percentile(range(needed - 1), name) is None
    assert shown_percentile(range(needed), name) is not None
    with pytest.raises(KeyError):
        shown_percentile([1], "p42")


@pytest.mark.parametrize(
    ("target", "needed"), [(0.5, 20), (0.9, 20), (0.95, 20), (0.96, 25), (0.99, 100), (0.995, 200), (0.999, 1000)]
)
def test_minimum_for_target(target: float, needed: int) -> None:
    assert minimum_for_target(target) == needed


@pytest.mark.parametrize("target", [0, 1, -1, 95, math.nan])
def test_a_target_is_a_ratio(target: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        minimum_for_target(target)


def test_wilson_interval_is_the_published_one() -> None:
    # Newcombe 1998, table I, method 3.
    for good, total, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]:
        interval = wilson_interval(good, total)
        assert interval is not None
        assert interval == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(20, 20)[1] == 1.0
    assert wilson_interval(0, 0) is None
    with pytest.raises(ValueError, match="no ratio"):
        wilson_interval(3, 2)


@pytest.mark.parametrize(("count", "fraction"), [(80, 0.95), (200, 0.95), (500, 0.5), (400, 0.99)])
def test_a_quantile_lies_in_its_interval_as_often_as_promised(count: int, fraction: float) -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(600):
        interval = quantile_interval([rng.random() for _ in range(count)], fraction)
        assert interval is not None
        held += interval[0] <= fraction <= interval[1]
    assert held / 600 >= 0.93


def test_too_few_values_bound_no_quantile_from_above() -> None:
    assert quantile_interval(range(71), 0.95) is None
    assert quantile_interval(range(73), 0.95) is not None
    assert quantile_interval([], 0.5) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_interval([1.0], 1.0)


def test_the_known_interval_of_a_median() -> None:
    # Tables of order statistics: for n = 20 the 6th and the 15th value enclose the median with 95.9 %.
    assert quantile_interval(range(1, 21), 0.5) == (6, 15)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_are_those_of_scipy(confidence: float) -> None:
    for total in (1, 2, 7, 20, 73, 500, 20_000):
        for good in {0, 1, total // 3, total // 2, total - 1, total}:
            known = stats.binomtest(good, total).proportion_ci(confidence, "wilson")
            assert wilson_interval(good, total, confidence) == pytest.approx((known.low, known.high), abs=1e-12)
        values = [random.Random(total).gauss(0, 1) for _ in range(total)]
        for fraction in (0.001, 0.25, 0.5, 0.9, 0.95, 0.99):
            known = stats.quantile_test(values, q=0, p=fraction).confidence_interval(confidence)
            # Either is NaN where the values do not reach so far.
            expected = None if known.low != known.low or known.high != known.high else (known.low, known.high)
            assert quantile_interval(values, fraction, confidence) == expected, (total, fraction)


@pytest.mark.slow
def test_commands_import_no_part_of_scipy_at_start() -> None:
    """They take up to a second, in the sidecar, the dashboard, the calibration endpoint and every run."""
    modules = (
        *("dashboard.__main__", "loadtest.run.job", "loadtest.targets.ground_truth.command"),
        "telemetry.sidecar.app",
    )
    script = (
        f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name[:7] in ('scipy', 'scipy.s')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "scipy\n"


def beta_binomial(dice: np.random.Generator, calls: int, most: int, ratio: float, alike: float) -> tuple[Any, Any]:
    """Turns of calls whose shares of good turns differ, so that two turns of a call correlate by `alike`."""
    total = dice.integers(1, most + 1, calls)
    if alike == 0:
        return dice.binomial(total, ratio), total
    if alike == 1:
        return total * (dice.random(calls) < ratio), total
    size = 1 / alike - 1
    return dice.binomial(total, dice.beta(ratio * size, (1 - ratio) * size, calls)), total


@pytest.mark.parametrize("calls", [10, 25, 100])
@pytest.mark.parametrize("alike", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("ratio", [0.6, 0.9, 0.95])
def test_grouped_intervals_hold_true_ratio_in_19_of_20(calls: int, alike: float, ratio: float) -> None:
    dice = np.random.default_rng(calls)
    intervals = [grouped_interval(*beta_binomial(dice, calls, 6, ratio, alike)) for _ in range(600)]
    held = sum(low <= ratio <= high for low, high in filter(None, intervals)) / len(intervals)
    # Of 600 samples, 95 % is some 0.93 at the least; the method is conservative where few calls are bad.
    assert held >= 0.925
    if alike == 1.0 and calls > 10:
        naive = [wilson_interval(int(good.sum()), int(total.sum())) for good, total in
                 (beta_binomial(dice, calls, 6, ratio, alike) for _ in range(600))]  # fmt: skip
        missed = sum(not low <= ratio <= high for low, high in filter(None, naive)) / len(naive)
        assert missed > 0.15, "that of independent trials does not hold it"


def test_interval_of_single_trials_equals_independent_interval() -> None:
    good = np.array([1] * 700 + [0] * 300)
    interval, independent = grouped_interval(good, np.ones(1_000, np.int64)), wilson_interval(700, 1_000)
    assert interval == pytest.approx(independent, abs=2e-4)


def test_groups_that_are_all_alike_count_as_one_trial_each() -> None:
    alone = np.array([1] * 70 + [0] * 30)
    interval = grouped_interval(5 * alone, np.full(100, 5))
    assert interval == pytest.approx(grouped_interval(alone, np.ones(100, np.int64)), abs=1e-3)
    # Three trials of each of 30 calls, all of them good, say no more than 30.
    sure = grouped_interval(np.full(30, 3), np.full(30, 3))
    assert sure == grouped_interval(np.ones(30, np.int64), np.ones(30, np.int64))
    assert sure is not None
    assert sure[1] == 1.0
    assert 0.85 < sure[0] < 0.9


def test_one_group_says_nothing_of_others() -> None:
    assert grouped_interval(np.array([], np.int64), np.array([], np.int64)) is None
    assert grouped_interval(np.array([9]), np.array([10])) is None
    assert grouped_interval(np.array([9, 0]), np.array([10, 0])) is None, "a group without a trial does not count"


@pytest.mark.slow
@given(st.lists(st.integers(0, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2))
def test_the_interval_of_grouped_trials_holds_their_ratio(groups: list[tuple[int, int]]) -> None:
    good, total = (np.array(column) for column in zip(*groups, strict=True))
    interval = grouped_interval(good, total)
    if interval is None:
        assert np.count_nonzero(total) < 2
        return
    low, high = interval
    assert 0.0 <= low <= good.sum() / total.sum() <= high <= 1.0
    assert interval == pytest.approx(grouped_interval(good[::-1], total[::-1]))
    mirrored = grouped_interval(total - good, total)
    assert mirrored == pytest.approx((1 - high, 1 - low))
