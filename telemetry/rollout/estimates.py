"""Differences between two cohorts, with a variance that knows which turns belong together. Pure.

Turns of one call are not independent: a slow session is slow in all of its turns. The variance of every figure is
therefore taken over clusters (calls, or users where they are known), by the sum of each cluster's influence on it. It
is never taken to be smaller than with independent turns.

- A **quantile**: the influence of a value is (p - [value <= q]) / density at q (Bahadur); summed by cluster as in Deng,
  Knoblich & Lu, *Applying the Delta Method in Metric Analytics* (KDD 2018). The density is the slope of the quantile
  function over the bandwidth of Hall & Sheather (J. R. Statist. Soc. B 50, 1988).
- A **ratio of sums** (bad turns per turn, word errors per word, cost per turn): linearized, the ratio estimator of
  survey sampling (Cochran, *Sampling Techniques*, 1977, ch. 6).

Where both cohorts heard the same audio, the clusters of both are the utterances: what an utterance does to both cohorts
then cancels (`paired`). The calls remain a second way in which turns belong together, so that the variance is clustered
both ways (Cameron, Gelbach & Miller, J. Bus. Econ. Statist. 29, 2011).
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from telemetry.model.formatting import declared_percent

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

# Below so many clusters in a cohort, their sums say too little about the variance.
FEWEST_CLUSTERS: Final = 20
# So many values are expected on the far side of a quantile before it is compared.
FEWEST_BEYOND: Final = 5


@dataclass(frozen=True, slots=True)
class CheckSample:
    """One cohort's values for one figure: a numerator and a denominator per turn, and who the turns belong to.

    A quantile reads the numerators alone; infinity is a turn that nobody answered. `clusters` and `pairs` (utterances)
    are whole numbers from 0; equal `pairs` in both cohorts are the same audio. `eligible` are the turns that could have
    a value; None: those that have one.
    """

    values: Floats
    clusters: Codes
    weights: Floats | None = None  # denominators; None: 1 for each turn
    pairs: Codes | None = None
    unit: str = "call"  # what a cluster is
    eligible: int | None = None

    @property
    def size(self) -> int:
        """How many turns have a value."""
        return int(self.values.size)

    @property
    def missing_share(self) -> float:
        """Turns without a value / turns that could have one."""
        return 0.0 if not self.eligible else 1 - self.size / self.eligible

    def in_order(self) -> "CheckSample":
        """The same turns in an order of their own, so that sums over them are the same to the last digit in whichever
        order they arrived."""
        keys = [each for each in (self.pairs, self.weights, self.values) if each is not None]
        order = np.lexsort(keys)
        weights, pairs = (None if each is None else each[order] for each in (self.weights, self.pairs))
        return replace(self, values=self.values[order], clusters=self.clusters[order], weights=weights, pairs=pairs)

    @property
    def weight_of_each(self) -> Floats:
        """The denominator of each turn."""
        return np.ones_like(self.values) if self.weights is None else self.weights

    @property
    def total_weight(self) -> float:
        """The sum of the denominators."""
        return float(self.weight_of_each.sum())


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate minus control with its standard error, and both figures beside it."""

    value: float
    standard_error: float
    candidate: float
    control: float


class TooFewError(ValueError):
    """Raised where a cohort has too few turns for a difference to have a standard error; the text says what is
    missing."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A cohort's figure and the influence of each of its turns on it. Its variance is never taken to be less than
    `least_variance`, or `least_paired` where what an utterance does to both cohorts cancels."""

    value: float
    influence: Floats
    least_variance: float
    least_paired: float = 0.0


def quantile_difference(candidate: CheckSample, control: CheckSample, fraction: float) -> Difference:
    """The difference of the quantiles at `fraction`. Raises TooFewError."""
    figures = [_quantile(sample, fraction) for sample in (candidate, control)]
    return _difference(figures, (candidate, control))


def ratio_difference(candidate: CheckSample, control: CheckSample) -> Difference:
    """The difference of the ratios sum of values / sum of weights. Raises TooFewError."""
    figures = [_ratio(sample) for sample in (candidate, control)]
    return _difference(figures, (candidate, control))


def sparsity(ordered: Floats, fraction: float) -> float:
    """The slope of the quantile function of sorted values at `fraction`: 1 / density; infinity where it reaches a turn
    that nobody answered."""
    width = min(_bandwidth(ordered.size, fraction), 0.9 * min(fraction, 1 - fraction))
    low, high = (_at(ordered, fraction + side * width) for side in (-1, 1))
    return math.inf if math.isinf(high) or math.isinf(low) else (high - low) / (2 * width)


def _at(ordered: Floats, fraction: float) -> float:
    position = fraction * (ordered.size - 1)
    below = math.floor(position)
    low, high, part = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)]), position - below
    return low if part == 0 or low == high else low + (high - low) * part


def _bandwidth(size: int, fraction: float) -> float:
    normal = float(scipy.special.ndtri(fraction))
    density = math.exp(-(normal**2) / 2) / math.sqrt(2 * math.pi)
    shape = 1.5 * density**2 / (2 * normal**2 + 1)
    return size ** (-1 / 3) * float(scipy.special.ndtri(0.975)) ** (2 / 3) * shape ** (1 / 3)


def _quantile(sample: CheckSample, fraction: float) -> _Figure:
    _expect(sample, min(fraction, 1 - fraction))
    ordered = np.sort(sample.values)
    value = _at(ordered, fraction)
    slope = sparsity(ordered, fraction)
    if math.isinf(value) or math.isinf(slope):
        beyond = declared_percent(1 - fraction)
        raise TooFewError(f"about {beyond} of its turns or more were not answered: there is no quantile to compare")
    influence = (fraction - (sample.values <= value)) * slope / sample.size
    return _Figure(value, influence - influence.mean(), fraction * (1 - fraction) * slope**2 / sample.size)


def _is_share(sample: CheckSample) -> bool:
    return sample.weights is None and bool(((sample.values == 0) | (sample.values == 1)).all())


def _ratio(sample: CheckSample) -> _Figure:
    weights = np.ones_like(sample.values) if sample.weights is None else sample.weights
    total = float(weights.sum())
    if not total > 0:
        raise TooFewError("no turn has a value")
    value = float(sample.values.sum()) / total
    least = 0.0
    if _is_share(sample):
        # Agresti & Caffo (Am. Stat. 54, 2000): no bad turn among a hundred does not mean that there can be none.
        cautious = (float(sample.values.sum()) + 1) / (sample.size + 2)
        least = cautious * (1 - cautious) / sample.size
    return _Figure(value, (sample.values - value * weights) / total, least, least)


def _difference(figures: list[_Figure], samples: tuple[CheckSample, CheckSample]) -> Difference:
    for sample in samples:
        if sample.pairs is None:
            _enough_clusters(sample.clusters, sample.unit)
        else:
            _enough_clusters(sample.pairs, "utterance")
    candidate, control = figures
    alone = [
        max(_clustered(each.influence, sample.clusters), each.least_variance)
        for each, sample in zip(figures, samples, strict=True)
    ]
    if samples[0].pairs is not None and samples[1].pairs is not None:
        variance = max(_paired_variance(figures, samples), sum(each.least_paired for each in figures))
    else:
        variance = sum(alone)
    return Difference(candidate.value - control.value, math.sqrt(variance), candidate.value, control.value)


def _clustered(influence: Floats, clusters: Codes) -> float:
    """The variance of a figure whose turns are independent between clusters."""
    sums = np.bincount(clusters, weights=influence)
    known = int(np.count_nonzero(np.bincount(clusters)))
    return float((sums**2).sum()) * known / (known - 1)


def _paired_variance(figures: list[_Figure], samples: tuple[CheckSample, CheckSample]) -> float:
    """Clustered by utterance, over both cohorts at once, and by call."""
    influence = np.concatenate([figures[0].influence, -figures[1].influence])
    empty = np.empty(0, dtype=np.int64)
    utterances = np.concatenate([empty if each.pairs is None else each.pairs for each in samples])
    offset = int(samples[0].clusters.max()) + 1
    calls = np.concatenate([samples[0].clusters, samples[1].clusters + offset])
    by_utterance = _clustered(influence, utterances)
    by_both = by_utterance + _clustered(influence, calls) - _clustered(influence, np.arange(influence.size))
    return max(by_utterance, by_both)


def _expect(sample: CheckSample, share: float) -> None:
    needed = math.ceil(FEWEST_BEYOND / share)
    if sample.size < needed:
        raise TooFewError(f"{sample.size:,} of at least {needed:,} turns have a value")


def _enough_clusters(clusters: Codes, unit: str) -> None:
    known = int(np.count_nonzero(np.bincount(clusters))) if clusters.size else 0
    if known < FEWEST_CLUSTERS:
        raise TooFewError(f"its turns come from {known:,} of at least {FEWEST_CLUSTERS} {unit}s")
