"""Intervals that hold a true value with a stated confidence: of a ratio, and of a quantile."""

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import scipy  # whose parts are imported when they are first used: they take up to half a second

CONFIDENCE: Final = 0.95


def wilson_interval(good: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Wilson's score interval of the ratio good / total; None without a total.

    Raises ValueError unless 0 <= good <= total.
    """
    if not 0 <= good <= total:
        raise ValueError(f"{good} good of {total} is no ratio")
    if total == 0:
        return None
    deviations = float(scipy.special.ndtri((1 + confidence) / 2))
    scale = 2 * (total + deviations**2)
    middle = (2 * good + deviations**2) / scale
    half_width = deviations * math.sqrt(4 * good * (total - good) / total + deviations**2) / scale
    # At the ends exactly, which the roots miss by rounding.
    return middle - half_width if good else 0.0, middle + half_width if good < total else 1.0


def quantile_interval(
    values: Iterable[float], fraction: float, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Two of the values between which the true quantile lies with at least this confidence, whatever the distribution;
    None where so few values cannot say it (a p95 needs some 72 of them for 95 %).

    Raises ValueError unless fraction and confidence lie within (0, 1).
    """
    ordered = sorted(values)
    ranks = interval_ranks(len(ordered), fraction, confidence)
    return None if ranks is None else (float(ordered[ranks[0]]), float(ordered[ranks[1]]))


def interval_ranks(count: int, fraction: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """The places, from 0 for the least of so many values, of the two that `quantile_interval` gives.

    Raises ValueError unless fraction and confidence lie within (0, 1).
    """
    if not (0 < fraction < 1 and 0 < confidence < 1):
        raise ValueError(f"fraction {fraction} and confidence {confidence} must lie between 0 and 1")
    if not count:
        return None
    tail = (1 - confidence) / 2
    # How many values lie below the quantile is binomial: with these two ranks, so few and so many are in each tail.
    lower = bisect_left(range(count), tail, key=lambda below: scipy.special.bdtr(below, count, fraction))
    upper = bisect_left(range(count), -tail, key=lambda below: -scipy.special.bdtrc(below, count, fraction))
    return None if not lower or upper == count else (lower - 1, upper)
