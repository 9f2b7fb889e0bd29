"""Exact statistics from raw values, and the number of values that a statistic requires."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from telemetry.model.metrics import MIN_COUNT_FOR

_FEWEST_TURNS: Final = 20


def percentile(values: Iterable[float], fraction: float) -> float | None:
    """The exact quantile at `fraction` in [0, 1], linearly interpolated between the two values around it (as
    `numpy.quantile` and DuckDB's `quantile_cont`); None without values. Raises ValueError for another fraction."""
    return _sorted_percentile(sorted(values), fraction)


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
    """`p50`, `p95` or `p99` of the values, None if there are too few (20 for p95, 100 for p99).

    Raises KeyError for another name.
    """
    needed, ordered = MIN_COUNT_FOR[name], sorted(values)
    return None if len(ordered) < needed else _sorted_percentile(ordered, int(name[1:]) / 100)


def enough(percentile: str, n: int, value: float | None) -> float | None:
    """`value` of a percentile by its name, or None if it is from too few values."""
    return value if n >= MIN_COUNT_FOR[percentile] else None


def shown_quantiles(n: int, quantiles: Sequence[float] | None) -> tuple[float | None, float | None, float | None]:
    """p50, p95 and p99 of `n` values; None for each that is from too few."""
    p50, p95, p99 = quantiles if n and quantiles is not None else (None, None, None)
    return p50, enough("p95", n, p95), enough("p99", n, p99)


def minimum_for_target(target: float) -> int:
    """Return how many turns a ratio needs before it can be held against `target`: 1 / (1 - target) rounded up, so that
    one bad turn differs from the target (20 for 95 %, 100 for 99 %, 1000 for 99.9 %), and never fewer than 20.

    Raises ValueError for a target outside (0, 1).
    """
    if not 0 < target < 1:
        raise ValueError(f"a target lies between 0 and 1, not at {target}")
    return max(_FEWEST_TURNS, math.ceil(1 / (1 - Fraction(str(target)))))
