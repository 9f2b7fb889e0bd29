"""Intervals against published tables, and as often right as they promise."""

import random

import pytest

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
