"""Intervals that hold a true value with a stated confidence: of a ratio, and of a quantile."""

import math
from collections.abc import Iterable
from typing import Final

from scipy import stats

CONFIDENCE: Final = 0.95


def wilson_interval(good: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Wilson's score interval of the ratio good / total; None without a total.

    Raises ValueError unless 0 <= good <= total.
    """
    if not 0 <= good <= total:
        raise ValueError(f"{good} good of {total} is no ratio")
    if total == 0:
        return None
    found = stats.binomtest(good, total).proportion_ci(confidence, "wilson")
    return float(found.low), float(found.high)


def quantile_interval(
    values: Iterable[float], fraction: float, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Two of the values between which the true quantile lies with at least this confidence, whatever the distribution;
    None where so few values cannot say it (a p95 needs some 72 of them for 95 %).

    Raises ValueError unless fraction and confidence lie within (0, 1).
    """
    if not (0 < fraction < 1 and 0 < confidence < 1):
        raise ValueError(f"fraction {fraction} and confidence {confidence} must lie between 0 and 1")
    ordered = sorted(values)
    if not ordered:
        return None
    found = stats.quantile_test(ordered, q=0, p=fraction).confidence_interval(confidence)
    return None if math.isnan(found.low) or math.isnan(found.high) else (float(found.low), float(found.high))
