"""Statistics of samples: percentiles with intervals, what n cannot carry, batch means, saturation. Pure.

An interval of a percentile is between two of the values, by the ranks that the binomial distribution leaves possible
(95 %, whatever the distribution). Where so few values do not bound it on one side, that side is None.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import scipy

from telemetry.model import metrics
from telemetry.model.formatting import declared_percent
from telemetry.model.intervals import CONFIDENCE, bounding_ranks
from telemetry.model.stats import percentile

# A percentile needs so many values before it is a figure: those of a turn's metrics, and a p90.
MIN_COUNT_FOR: Final[Mapping[str, int]] = dict(sorted({**metrics.MIN_COUNT_FOR, "p90": 10}.items()))
_FRACTIONS: Final = {name: int(name[1:]) / 100 for name in MIN_COUNT_FOR}
BATCHES: Final = 10
_FEWEST_BATCHES: Final = 5
SATURATED: Final = 0.9
_RESAMPLES: Final = 500


def needed_for_bounds(fraction: float) -> int:
    """Return how many samples bound a percentile above by this rule: 36 for p90, 72 for p95, 368 for p99."""
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(fraction))


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile and its 95 % interval; a side is None where the values do not bound it."""

    value: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class Figure:
    """The percentiles of so many values; those that n cannot carry are not among them."""

    n: int = 0
    percentiles: Mapping[str, Percentile] = field(default_factory=dict[str, Percentile])

    def at(self, name: str) -> Percentile | None:
        """One of them; None: too few."""
        return self.percentiles.get(name)

    def value(self, name: str) -> float | None:
        """The value of one of them; None: too few."""
        estimate = self.percentiles.get(name)
        return None if estimate is None else estimate.value

    def as_object(self) -> dict[str, Any]:
        """Return it as JSON: null where n is too few."""
        fields: dict[str, Any] = {"n": self.n}
        for name in MIN_COUNT_FOR:
            estimate = self.percentiles.get(name)
            fields[name] = None if estimate is None else estimate.value
            fields[f"{name}_interval"] = None if estimate is None else [estimate.lower, estimate.upper]
        return fields


def figure(values: Iterable[float | None]) -> Figure:
    """The figure of the values that are known."""
    ordered = sorted(value for value in values if value is not None)
    estimates: dict[str, Percentile] = {}
    for name, fraction in _FRACTIONS.items():
        value = percentile(ordered, fraction)
        if value is not None and len(ordered) >= MIN_COUNT_FOR[name]:
            estimates[name] = Percentile(value, *_bounds(ordered, fraction))
    return Figure(len(ordered), estimates)


def _bounds(ordered: Sequence[float], fraction: float) -> tuple[float | None, float | None]:
    """The values between which the true percentile lies, each side wrong with half of what the confidence leaves."""
    lower, upper = bounding_ranks(len(ordered), fraction)
    return None if lower is None else ordered[lower], None if upper is None else ordered[upper]


@dataclass(frozen=True, slots=True)
class Rate:
    """Events a second over a steady state: the mean of `batches`, its 95 % interval by Student's t, and how much of the
    time before it was left out. `is_steady` is False where the batches still have a trend at the 5 % level."""

    value: float
    lower: float
    upper: float
    left_out_s: float
    is_steady: bool
    batches: tuple[float, ...]


def steady_rate(moments: Sequence[float], length_s: float) -> Rate | None:
    """The rate of events over a time of constant load, cut into batches of equal length.

    Batches are left out from the beginning, at most half of them, so that the standard error of the others' mean is
    smallest (MSER: White, Simulation 69, 1997). None with less than one event a batch on average.
    """
    if len(moments) < BATCHES:
        return None
    counts = _batch_rates(moments, length_s)
    most = BATCHES - _FEWEST_BATCHES
    skipped = min(range(most + 1), key=lambda skip: float(np.var(counts[skip:])) / (BATCHES - skip))
    return _rate_of(counts, skipped, length_s)


def rate_in_steady_state(steady: Rate, moments: Sequence[float], length_s: float) -> Rate:
    """The rate of some of the events, such as the good ones, over the same steady state."""
    return _rate_of(_batch_rates(moments, length_s), BATCHES - len(steady.batches), length_s)


def _batch_rates(moments: Sequence[float], length_s: float) -> Any:
    return np.histogram(np.asarray(moments), bins=BATCHES, range=(0, length_s))[0] / (length_s / BATCHES)


def _rate_of(counts: Any, skipped: int, length_s: float) -> Rate:
    kept = counts[skipped:]
    half = float(scipy.special.stdtrit(kept.size - 1, (1 + CONFIDENCE) / 2)) * float(kept.std(ddof=1))
    half /= math.sqrt(kept.size)
    value, left_out_s = float(kept.mean()), skipped * length_s / BATCHES
    return Rate(value, max(0.0, value - half), value + half, left_out_s, not _has_trend(kept), tuple(map(float, kept)))


def _has_trend(values: Any) -> bool:
    """Return whether a straight line through the batches is not level, at the 5 % level."""
    if not float(np.ptp(values)):
        return False
    places = np.arange(values.size) - (values.size - 1) / 2
    slope = float(places @ values) / float(places @ places)
    rest = values - values.mean() - slope * places
    error = math.sqrt(float(rest @ rest) / (values.size - 2) / float(places @ places))
    critical = float(scipy.special.stdtrit(values.size - 2, (1 + CONFIDENCE) / 2))
    return abs(slope) > critical * error


@dataclass(frozen=True, slots=True)
class Saturation:
    """The least concurrency whose rate is at least 90 % of the highest one, and between which levels it lies with 95 %
    confidence (the rule repeated on resampled batches). `is_reached` is False where that is the highest level that was
    tried: the rate still grew."""

    level: int
    lower: int
    upper: int
    is_reached: bool


RULE: Final = f"the least concurrency with at least {declared_percent(SATURATED)} of the highest rate"


def saturation(rates: Mapping[int, Rate], seed: int) -> Saturation | None:
    """Return the concurrency at which the rate stops growing; None with fewer than three levels."""
    levels = sorted(rates)
    if len(levels) < 3:
        return None
    rng = np.random.default_rng(seed)
    drawn: list[int] = []
    for _ in range(_RESAMPLES):
        means = [float(rng.choice(rates[level].batches, len(rates[level].batches)).mean()) for level in levels]
        drawn.append(levels[_saturated_at(means)])
    lower, upper = (int(np.quantile(drawn, at, method="inverted_cdf")) for at in (0.025, 0.975))
    level = levels[_saturated_at([rates[level].value for level in levels])]
    return Saturation(level, min(lower, level), max(upper, level), level < levels[-1])


def _saturated_at(means: Sequence[float]) -> int:
    return next(place for place, mean in enumerate(means) if mean >= SATURATED * max(means))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; None without one."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
