"""Paired differences of a stage between two variants that heard the same utterances, and when they are decided. Pure.

- The difference of a quantile is the difference of both variants' quantiles over the same utterances, never the
  quantile of differences. A turn without an answer is later than every answer.
- Its standard error is that of resampling utterances, with all that was said of each to both variants (a paired
  cluster bootstrap: B. Efron and R. Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 8).
- Of each value is known within what it was measured; the ends of the interval are those of the quantiles of these
  bounds, moved out by what sampling adds.
- The interval holds whenever somebody looks, and so also when saying more stopped because of it: the standard error
  times the boundary of `telemetry.rollout.sequential`, on both sides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from telemetry.model.formatting import declared_percent
from telemetry.model.intervals import CONFIDENCE
from telemetry.rollout.sequential import boundary

Floats = np.ndarray[Any, np.dtype[np.float64]]
Decision = Literal["faster", "slower", "no difference worth having", "undecided"]

_RESAMPLES: Final = 400
_SEED: Final = 20_261
# Closest after about 60 pairs: most comparisons say 20 to 200.
_MIXTURE_PAIRS: Final = 8.0
# Fewer utterances say too little of how unlike they are.
FEWEST_UTTERANCES: Final = 8
# A quantile has an interval from so many values beyond it on, as in `measurement.md`.
_FEWEST_BEYOND: Final = 5
QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class PairedValues:
    """One stage of both variants: values of shape (pairs,), infinite where a turn was not answered, and the utterance
    of each pair as a number. `within` holds the bounds of measuring, of shape (4, pairs): the control's lower and upper
    ones, then the variant's; None where the values are exact."""

    control: Floats
    variant: Floats
    utterances: np.ndarray[Any, np.dtype[np.int64]]
    within: Floats | None = None

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.control)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Variant minus control at one quantile. `too_few` says what is missing where there is no interval."""

    quantile: float
    pairs: int
    control: float | None
    variant: float | None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    too_few: str | None = None

    def decision(self, smallest: float) -> Decision:
        """The decision about a difference where `smallest` is the smallest one worth having."""
        if self.lower is None or self.upper is None:
            return "undecided"
        if -smallest <= self.lower and self.upper <= smallest:
            return "no difference worth having"
        if self.upper < 0:
            return "faster"
        return "slower" if self.lower > 0 else "undecided"


def difference(values: PairedValues, quantile: float, confidence: float = CONFIDENCE) -> PairedDifference:
    """The difference at a quantile, with an interval that holds at every look."""
    pairs = values.pairs
    control, variant = _quantile(values.control, quantile), _quantile(values.variant, quantile)
    result = PairedDifference(quantile, pairs, _finite(control), _finite(variant))
    if (reason := _too_few(values, quantile)) is not None:
        return _without(result, reason)
    if not (math.isfinite(control) and math.isfinite(variant)):
        return _without(result, f"{declared_percent(1 - quantile)} of the turns or more were not answered")
    error = standard_error(values, quantile)
    if error is None:
        return _without(result, "too many turns were not answered")
    reach = error * boundary((1 - confidence) / 2, pairs, _MIXTURE_PAIRS)
    lowest, highest = _measured_within(values, quantile)
    return PairedDifference(quantile, pairs, control, variant, variant - control, lowest - reach, highest + reach)


def _measured_within(values: PairedValues, quantile: float) -> tuple[float, float]:
    """The lowest and the highest difference that the measurement bounds of both variants allow."""
    exact = (values.control, values.control, values.variant, values.variant)
    bounds = exact if values.within is None else values.within
    control_low, control_high, variant_low, variant_high = (_quantile(side, quantile) for side in bounds)
    return variant_low - control_high, variant_high - control_low


def pairs_needed(quantile: float) -> int:
    """Return the smallest number of pairs for which a quantile has an interval."""
    return max(20, math.ceil(_FEWEST_BEYOND / min(quantile, 1 - quantile) - 1e-9))


def _too_few(values: PairedValues, quantile: float) -> str | None:
    if values.pairs < pairs_needed(quantile):
        return f"{values.pairs} of {pairs_needed(quantile)} pairs"
    distinct = len(np.unique(values.utterances))
    return f"{distinct} of {FEWEST_UTTERANCES} utterances" if distinct < FEWEST_UTTERANCES else None


def _without(result: PairedDifference, reason: str) -> PairedDifference:
    return PairedDifference(result.quantile, result.pairs, result.control, result.variant, too_few=reason)


def standard_error(values: PairedValues, quantile: float) -> float | None:
    """The standard error of the difference at a quantile, by resampling utterances; None where resamples have none."""
    _, place = np.unique(values.utterances, return_inverse=True)
    clusters = int(place.max()) + 1
    order = np.argsort(place, kind="stable")
    control, variant = values.control[order], values.variant[order]
    sizes = np.bincount(place, minlength=clusters)
    source = np.random.default_rng(_SEED)
    drawn = np.stack(
        [np.bincount(row, minlength=clusters) for row in source.integers(clusters, size=(_RESAMPLES, clusters))]
    )
    weights = np.repeat(drawn, sizes, axis=1)
    differences = _weighted_quantiles(variant, weights, quantile) - _weighted_quantiles(control, weights, quantile)
    if not np.all(np.isfinite(differences)):
        return None
    return float(differences.std(ddof=1)) * math.sqrt(clusters / max(1, clusters - 1))


def _weighted_quantiles(values: Floats, weights: Any, quantile: float) -> Floats:
    """The quantile of each resample, given as how often each value was drawn: of shape (resamples,)."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[:, order], axis=1)
    wanted = quantile * reached[:, -1]
    first = (reached < wanted[:, None] - 1e-9).sum(axis=1)
    return values[order][np.minimum(first, len(values) - 1)]


def _quantile(values: Floats, quantile: float) -> float:
    """The quantile as pages show it, interpolated; infinity at a turn that was not answered."""
    if not len(values):
        return math.nan
    ordered = np.sort(values)
    position = quantile * (len(ordered) - 1)
    below = math.floor(position)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low if position == below or low == high else low + (high - low) * (position - below)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


Measured = tuple[float, float, float]  # a value, and the lowest and the highest one that it may be


def paired(rows: Sequence[tuple[str, Measured, Measured]]) -> PairedValues:
    """Values from (utterance, control, variant) of each pair."""
    names = {name: number for number, name in enumerate(dict.fromkeys(row[0] for row in rows))}
    return PairedValues(
        np.array([row[1][0] for row in rows], np.float64),
        np.array([row[2][0] for row in rows], np.float64),
        np.array([names[row[0]] for row in rows], np.int64),
        np.array([(*row[1][1:], *row[2][1:]) for row in rows], np.float64).reshape(-1, 4).T,
    )
