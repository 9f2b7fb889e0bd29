"""Exact statistics from raw values, and how many values a statistic needs before it is a figure."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from telemetry.model.metrics import MIN_COUNT_FOR

_TENTHS_OF_PERCENT: Final = 1000
_FEWEST_TURNS: Final = 20


def percentile(values: Iterable[float], fraction: float) -> float | None:
    """The exact quantile at `fraction` in [0, 1], linearly interpolated between the two values around it (as
    `numpy.quantile` and DuckDB's `quantile_cont`); None without values. Raises ValueError for another fraction."""
    return _sorted_percentile(sorted(values), fraction)


def percentiles(values: Iterable[float], fractions: Sequence[float]) -> tuple[float | None, ...]:
    """As `percentile`, for several fractions of the same values."""
    ordered = sorted(values)
    return tuple(_sorted_percentile(ordered, fraction) for fraction in fractions)


def _sorted_percentile(ordered: Sequence[float], fraction: float) -> float | None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {fraction}")
    if not ordered:
        return None
    position = (len(ordered) - 1) * fraction
    below = math.floor(position)
    low, weight = ordered[below], position - below
    if weight == 0:
        return float(low)
    high = ordered[below + 1]
    # From the nearer end: the result then never falls outside the two, whatever the rounding.
    return low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)


def shown_percentile(values: Iterable[float], name: str) -> float | None:
    """`p50`, `p95` or `p99` of the values, None when they are too few for it (20 for p95, 100 for p99).

    Raises KeyError for another name.
    """
    needed, ordered = MIN_COUNT_FOR[name], sorted(values)
    return None if len(ordered) < needed else _sorted_percentile(ordered, int(name[1:]) / 100)


def minimum_for_target(target: float) -> int:
    """How many turns a ratio needs before it can be held against `target`: 1 / (1 - target) rounded up, so that one bad
    turn can be told from the target (20 for 95 %, 100 for 99 %, 1000 for 99.9 %), and never fewer than 20.

    Raises ValueError for a target outside (0, 1).
    """
    if not 0 < target < 1:
        raise ValueError(f"a target lies between 0 and 1, not at {target}")
    return max(_FEWEST_TURNS, math.ceil(1 / (1 - Fraction(str(target)))))


def wilson_interval(good: int, total: int, z: float = 1.959963984540054) -> tuple[float, float] | None:
    """Wilson's score interval of the ratio good / total, at 95 % by default; None without a total.

    Raises ValueError unless 0 <= good <= total.
    """
    if not 0 <= good <= total:
        raise ValueError(f"{good} good of {total} is no ratio")
    if total == 0:
        return None
    ratio, z2 = good / total, z * z
    center = (ratio + z2 / (2 * total)) / (1 + z2 / total)
    half = z / (1 + z2 / total) * math.sqrt(ratio * (1 - ratio) / total + z2 / (4 * total * total))
    # At the ends the bound is exact in theory and off by a rounding error in floating point.
    return (0.0 if good == 0 else max(0.0, center - half), 1.0 if good == total else min(1.0, center + half))


def quantile_interval(values: Iterable[float], fraction: float, confidence: float = 0.95) -> tuple[float, float] | None:
    """Two of the values between which the true quantile lies with at least this confidence, whatever the distribution;
    None where so few values cannot say it (a p95 needs some 72 of them for 95 %).

    By order statistics: the number of values below the true quantile is binomial, so that the k-th and the m-th of n
    values enclose it with P(k <= B < m), B ~ Binomial(n, fraction), and each tail is left at most half of the rest.
    Raises ValueError unless fraction and confidence lie within (0, 1).
    """
    if not (0 < fraction < 1 and 0 < confidence < 1):
        raise ValueError(f"fraction {fraction} and confidence {confidence} must lie between 0 and 1")
    ordered, tail = sorted(values), (1 - confidence) / 2
    count, cumulated = len(ordered), 0.0
    lower = upper = 0
    for below in range(count):
        cumulated += _binomial(below, count, fraction)
        if cumulated <= tail:
            lower = below + 1
        if cumulated >= 1 - tail:
            upper = below + 1
            break
    return (ordered[lower - 1], ordered[upper - 1]) if 1 <= lower < upper <= count else None


def _binomial(successes: int, trials: int, chance: float) -> float:
    logarithm = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    return math.exp(logarithm + successes * math.log(chance) + (trials - successes) * math.log1p(-chance))


def percent(ratio: float) -> str:
    """A ratio for people: `97.2 %`. Rounded towards failure, so that 94.96 % never reads as a 95 % that was met."""
    tenths = math.floor(Fraction(str(ratio)) * _TENTHS_OF_PERCENT)
    return f"{tenths // 10} %" if tenths % 10 == 0 else f"{tenths / 10:.1f} %"
