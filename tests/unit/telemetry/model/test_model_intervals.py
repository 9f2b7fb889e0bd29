"""Intervals against published tables, and as often right as they promise."""

import random
import subprocess
import sys

import pytest
from scipy import stats

from telemetry.model.intervals import quantile_interval, wilson_interval


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


def test_what_starts_a_process_imports_no_part_of_scipy() -> None:
    """They take up to a second, in the sidecar, the dashboard, the calibration endpoint and every run."""
    modules = (
        *("dashboard.__main__", "loadtest.run.job", "loadtest.targets.ground_truth.command"),
        *("telemetry.sidecar.app", "telemetry.sidecar.query_process"),
    )
    script = (
        f"import sys, {', '.join(modules)}; print(*(name for name in sys.modules if name[:7] in ('scipy', 'scipy.s')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "scipy\n"
