"""Intervals that hold a true value with a stated confidence: of a ratio, also where trials come in groups, and of a
quantile."""

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import scipy  # whose parts are imported when they are first used: they take up to half a second

CONFIDENCE: Final = 0.95
# The variance between so few groups that hold the rarer outcome says little of how alike the trials of a group are.
_FEWEST_GROUPS: Final = 10

Ints = np.ndarray[Any, np.dtype[np.int64]]


def wilson_interval(good: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Wilson's score interval of the ratio good / total; None without a total.

    Raises ValueError unless 0 <= good <= total.
    """
    if not 0 <= good <= total:
        raise ValueError(f"{good} good of {total} is no ratio")
    if total == 0:
        return None
    return _score_interval(good / total, total, float(scipy.special.ndtri((1 + confidence) / 2)))


def grouped_interval(good: Ints, total: Ints, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The interval of the ratio sum(good) / sum(total) of trials that come in groups and are alike within one, such as
    the turns of calls; both of shape (groups,). None with fewer than two groups that have a trial.

    It is Wilson's interval on the effective number of trials, which is their number over the design effect, with the
    quantile of Student's t for the groups: the method that does well for few groups and ratios near 1 in A. Dean and
    M. Pagano, "Evaluating Confidence Interval Methods for Binomial Proportions in Clustered Surveys", Journal of Survey
    Statistics and Methodology 3 (2015). The design effect is the variance of the ratio by linearization (W. Cochran,
    "Sampling Techniques", 1977, chapter 6) over that of as many independent trials, and 1 at least. Where few groups
    hold the rarer outcome it is at least that of groups in which all trials are the same.
    """
    kept = total > 0
    good, total = good[kept], total[kept]
    groups, trials = len(total), int(total.sum())
    if groups < 2:
        return None
    ratio = int(good.sum()) / trials
    all_alike = float(np.square(total.astype(np.float64)).sum()) / trials
    effect = 1.0
    if 0 < ratio < 1:
        squares = float(np.square(good - ratio * total).sum()) * groups / (groups - 1)
        effect = max(effect, squares / trials / (ratio * (1 - ratio)))
    if min(np.count_nonzero(good), np.count_nonzero(good < total)) < _FEWEST_GROUPS:
        effect = max(effect, all_alike)
    return _score_interval(ratio, trials / effect, float(scipy.special.stdtrit(groups - 1, (1 + confidence) / 2)))


def _score_interval(ratio: float, trials: float, deviations: float) -> tuple[float, float]:
    scale = 2 * (trials + deviations**2)
    middle = (2 * ratio * trials + deviations**2) / scale
    half_width = deviations * math.sqrt(4 * ratio * (1 - ratio) * trials + deviations**2) / scale
    # At the ends exactly, which the roots miss by rounding.
    return middle - half_width if ratio > 0 else 0.0, middle + half_width if ratio < 1 else 1.0


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
    lower, upper = bounding_ranks(count, fraction, confidence)
    return None if lower is None or upper is None else (lower, upper)


def bounding_ranks(count: int, fraction: float, confidence: float = CONFIDENCE) -> tuple[int | None, int | None]:
    """The ranks of `interval_ranks`, each side by itself; None on a side where so few values do not bound it.

    Raises ValueError unless fraction and confidence lie within (0, 1).
    """
    if not (0 < fraction < 1 and 0 < confidence < 1):
        raise ValueError(f"fraction {fraction} and confidence {confidence} must lie between 0 and 1")
    if not count:
        return None, None
    tail = (1 - confidence) / 2
    # How many values lie below the quantile is binomial: with these two ranks, so few and so many are in each tail.
    lower = bisect_left(range(count), tail, key=lambda below: scipy.special.bdtr(below, count, fraction))
    upper = bisect_left(range(count), -tail, key=lambda below: -scipy.special.bdtrc(below, count, fraction))
    return lower - 1 if lower else None, upper if upper < count else None
