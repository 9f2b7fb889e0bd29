"""The candidate's figures against the control's on the scale of shares, by the two conditions of a check. Pure.

A quantile's own standard error needs its density, which is unknown in gaps, at atoms and among rounded values. How many
of the candidate's turns lie beyond a threshold is a share whatever the values are. So a check of a quantile asks, with
q the control's quantile at p and m the margin:

- **within**: is the share of the candidate's turns beyond q + m below 1 - p?
- **worse**: is its share beyond q above the control's own, and its share beyond q + m at least 1 - p?

"Beyond" is strictly beyond, so that ties do not count. Checks of ratios ask the same of the figure itself, and the tail
of the share beyond the control's p99. Every answer is an `Excess`: a difference with its standard error.

- **Variance.** Turns of one call (or user) are not independent: the variance of a share is that of independent turns
  times a design effect, the cohort's own (Kish, *Survey Sampling*, 1965), from each cluster's sum (Cochran, *Sampling
  Techniques*, 1977, ch. 6). For `within` the share's variance is the one at the margin, not that of the share that
  was seen (Farrington & Manning, Stat. Med. 9, 1990): a candidate that shows no bad turn by chance has to be excluded.
- **The threshold is an estimate**, too. The candidate's share beyond it varies with it by the ratio of both densities
  there (the delta method), by which the control's standard error is multiplied. The ratio is that of the counts of both
  cohorts in windows of one width around their thresholds, kept within DENSITY_RATIOS.
- **Missing values** count against each claim: of the candidate's those that it has more of than the control (their
  excess share) as beyond for `within` and as not beyond for `worse`, of the control's the other way around.
- **The same audio** (`pairs`): what an utterance does to both cohorts cancels. The variance is clustered by utterance
  over both cohorts at once, and by call (two ways: Cameron, Gelbach & Miller, J. Bus. Econ. Statist. 29, 2011), and is
  at least that of so many turns that differ in one direction. If the turns beyond, or those not beyond where
  most are, are of few utterances, it is the unpaired one.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.formatting import declared_percent
from telemetry.rollout.check_sample import (
    CheckSample,
    Codes,
    Floats,
    TooFewError,
    are_paired,
    clustered_variance,
    effective_clusters,
    known_clusters,
    paired_variance,
    total,
)

Bools = NDArray[np.bool_]

_TAIL: Final = 0.99
DENSITY_RATIOS: Final = (0.5, 2.0)
# So many of the control's values are expected beyond a quantile before it is a threshold.
FEWEST_BEYOND: Final = 3
# Below so many clusters of equal size, their sums say too little about the variance.
FEWEST_INDEPENDENT: Final = 6
# With few turns beyond a threshold, so many are added, and those of a call assumed to be half alike; at the margin,
# where a quick candidate has none beyond, as alike as the control's if that is less.
_ASSUMED_BEYOND: Final = 0.5
# With few of the candidate's turns around a threshold, its density is assumed to be the control's: so many are added.
_ASSUMED_AROUND: Final = 4.0


@dataclass(frozen=True, slots=True)
class Excess:
    """The candidate's excess over what it is compared with (below it, where negative), with its standard error.
    `settled_error` is without what is only assumed while few turns are beyond a threshold."""

    value: float
    standard_error: float
    settled_error: float

    @property
    def z(self) -> float:
        """The value in standard errors; 0 if nothing varies and nothing differs."""
        if self.standard_error > 0:
            return self.value / self.standard_error
        return math.copysign(math.inf, self.value) if self.value else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate minus control with its standard error, and both figures."""

    value: float
    standard_error: float
    candidate: float
    control: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """The threshold of a check of a quantile: the control's quantile in the metric's unit, and which share may lie
    beyond it by more than the margin."""

    value: float
    allowed: float


@dataclass(frozen=True, slots=True)
class ComparedShares:
    """The figures of both cohorts, larger being worse: shares beyond the threshold, or the ratios of a check of ratios.

    `above_control` has to be shown above 0 for `worse`, and `harm`, the estimate of the excess above the margin, must
    not be below 0. `above_margin` has to be shown below 0 for `within`; `without_difference` is what it would be of a
    candidate that is like the control, and `by_missing` how much of it the missing values are.
    """

    candidate: float
    control: float
    above_control: Excess
    harm: float
    above_margin: Excess
    without_difference: float
    by_missing: float = 0.0
    threshold: Threshold | None = None


@dataclass(frozen=True, slots=True)
class _Excesses:
    """The shares of values by which one cohort lacks more than the other; at most one of the two is above 0."""

    candidate: float
    control: float

    @classmethod
    def of(cls, candidate: CheckSample, control: CheckSample) -> "_Excesses":
        missing = candidate.missing_share, control.missing_share
        return cls(
            _part_of_rest(missing[0] - missing[1], missing[1]), _part_of_rest(missing[1] - missing[0], missing[0])
        )


def _part_of_rest(excess: float, common: float) -> float:
    return max(0.0, excess) / (1 - common) if common < 1 else 0.0


def compare_quantile(candidate: CheckSample, control: CheckSample, fraction: float, margin: float) -> ComparedShares:
    """The shares beyond the control's quantile at `fraction`, and beyond it by more than `margin`.

    Raises TooFewError, also if so many turns of the control were not answered that its quantile is one of them.
    """
    _expect_threshold(control, fraction)
    missing, allowed = _Excesses.of(candidate, control), round(1 - fraction, 12)
    # Counted as beyond, the values that the control lacks move its quantile up; counted as not beyond, down.
    plain, known_share = lowest_quantile(control.values, fraction), 1 - missing.control
    high = lowest_quantile(control.values, fraction / known_share)
    low = lowest_quantile(control.values, (fraction - missing.control) / known_share)
    if math.isinf(plain):
        share = declared_percent(allowed)
        raise TooFewError(f"about {share} of the control's turns or more were not answered: it has no such quantile")
    beyond, control_beyond = candidate.values > high, control.values > high
    above_control = _excess(
        (beyond, control_beyond),
        (candidate, control),
        _kept(beyond, missing.candidate) - _filled(control_beyond, missing.control),
        at=None,
        ratio=_density_ratio(candidate.values, control.values, high, high),
    )
    far = candidate.values > low + margin
    above_margin = _excess(
        (far, control.values > low),
        (candidate, control),
        _filled(far, missing.candidate) - allowed,
        at=allowed,
        ratio=_density_ratio(candidate.values, control.values, low + margin, low),
    )
    return ComparedShares(
        candidate=float((candidate.values > plain).mean()),
        control=float((control.values > plain).mean()),
        above_control=above_control,
        harm=_kept(candidate.values > high + margin, missing.candidate) - allowed,
        above_margin=above_margin,
        without_difference=float((control.values > low + margin).mean()) - allowed,
        by_missing=_filled(far, missing.candidate) - float((candidate.values > plain + margin).mean()),
        threshold=Threshold(plain, allowed),
    )


def compare_tail(candidate: CheckSample, control: CheckSample, margin: float) -> ComparedShares:
    """The shares of turns beyond the control's quantile at _TAIL; a margin is a share.

    Where so many of the control's turns were not answered that its quantile is one of them, the shares are those of the
    turns that were not. Raises TooFewError.
    """
    _expect_threshold(control, _TAIL)
    threshold = lowest_quantile(control.values, _TAIL)
    if math.isinf(threshold):
        beyond, ratio = tuple(np.isinf(sample.values) for sample in (candidate, control)), 1.0
    else:
        beyond = tuple(sample.values > threshold for sample in (candidate, control))
        ratio = _density_ratio(candidate.values, control.values, threshold, threshold)
    return _compared((beyond[0], beyond[1]), (candidate, control), margin, ratio)


def compare_shares(candidate: CheckSample, control: CheckSample, margin: float) -> ComparedShares:
    """The shares of turns whose value is 1, of values that are 0 or 1."""
    return _compared((candidate.values == 1, control.values == 1), (candidate, control), margin, 1.0)


def compare_ratios(
    candidate: CheckSample, control: CheckSample, margin: float, worst: float | None = None
) -> ComparedShares:
    """The ratios sum of values / sum of weights; a missing value counts as `worst`, or, without one, as the largest
    value of a turn that either cohort has. Raises TooFewError where nothing varies."""
    missing, ratios = _Excesses.of(candidate, control), ratio_difference(candidate, control)
    samples, difference, error = (candidate, control), ratios.value, ratios.standard_error
    largest = (
        max(float((sample.values / sample.weight_of_each).max()) for sample in samples) if worst is None else worst
    )
    worse = difference - ratios.candidate * missing.candidate - (largest - ratios.control) * missing.control
    better = difference + (largest - ratios.candidate) * missing.candidate + ratios.control * missing.control
    return ComparedShares(
        candidate=ratios.candidate,
        control=ratios.control,
        above_control=Excess(worse, error, error),
        harm=worse - margin,
        above_margin=Excess(better - margin, error, error),
        without_difference=-margin,
        by_missing=better - difference,
    )


def ratio_difference(candidate: CheckSample, control: CheckSample) -> Difference:
    """The difference of the ratios sum of values / sum of weights, linearized (the ratio estimator of survey sampling:
    Cochran, *Sampling Techniques*, 1977, ch. 6). Raises TooFewError where nothing varies."""
    samples = candidate.in_order(), control.in_order()
    figures = [float(sample.values.sum()) / sample.total_weight for sample in samples]
    influences = [
        (sample.values - figure * sample.weight_of_each) / sample.total_weight
        for sample, figure in zip(samples, figures, strict=True)
    ]
    least = [
        _variance_of(_cautious(sample.values == 1)) / sample.size if sample.is_share else 0.0 for sample in samples
    ]
    if are_paired(candidate, control):
        variance = max(paired_variance((influences[0], influences[1]), samples), sum(least))
    else:
        variance = sum(
            max(clustered_variance(influence, of.groupings), total(influence**2), at_least)
            for influence, of, at_least in zip(influences, samples, least, strict=True)
        )
    if not variance > 0:
        raise TooFewError("its values do not vary: nothing can be said of their error")
    return Difference(figures[0] - figures[1], math.sqrt(variance), *figures)


def _compared(
    beyond: tuple[Bools, Bools], samples: tuple[CheckSample, CheckSample], margin: float, ratio: float
) -> ComparedShares:
    """Two shares against each other and against a margin between them."""
    missing = _Excesses.of(*samples)
    worse = _kept(beyond[0], missing.candidate) - _filled(beyond[1], missing.control)
    better = _filled(beyond[0], missing.candidate) - _kept(beyond[1], missing.control)
    control_share = float(beyond[1].mean())
    at_margin = min(0.5, control_share + margin) if control_share < 0.5 else control_share
    return ComparedShares(
        candidate=float(beyond[0].mean()),
        control=control_share,
        above_control=_excess(beyond, samples, worse, at=None, ratio=ratio),
        harm=worse - margin,
        above_margin=_excess(beyond, samples, better - margin, at=at_margin, ratio=ratio),
        without_difference=-margin,
        by_missing=better - (float(beyond[0].mean()) - control_share),
    )


def _filled(beyond: Bools, excess: float) -> float:
    """The share with the excess of missing values counted as beyond."""
    return float(beyond.mean()) * (1 - excess) + excess


def _kept(beyond: Bools, excess: float) -> float:
    """The share with the excess of missing values counted as not beyond."""
    return float(beyond.mean()) * (1 - excess)


def _excess(
    beyond: tuple[Bools, Bools],
    samples: tuple[CheckSample, CheckSample],
    value: float,
    *,
    at: float | None,
    ratio: float,
) -> Excess:
    """A difference of shares with its standard error. The candidate's variance is that of the share `at`; without one
    the larger one of what was seen of itself and of the control."""
    candidate, control = samples
    candidate_share, control_share = float(beyond[0].mean()), _cautious(beyond[1])
    if are_paired(candidate, control) and _is_of_many_utterances(beyond, samples):
        influences = [(mask - mask.mean()) / mask.size for mask in beyond]
        variance = paired_variance((influences[0], ratio * influences[1]), samples)
        error = math.sqrt(max(variance, abs(value) / min(candidate.size, control.size)))
        return Excess(value, error, error)
    spread = max(_variance_of(candidate_share), _variance_of(control_share)) if at is None else _variance_of(at)
    control_effects = _design_effects(beyond[1], control.clusters)
    effects = (
        _design_effects(beyond[0], candidate.clusters, math.inf if at is None else control_effects[0]),
        control_effects,
    )
    alone = spread / candidate.size, ratio**2 * _variance_of(control_share) / control.size
    error, settled = (math.sqrt(alone[0] * one + alone[1] * other) for one, other in zip(*effects, strict=True))
    return Excess(value, error, settled)


def _is_of_many_utterances(beyond: tuple[Bools, Bools], samples: tuple[CheckSample, CheckSample]) -> bool:
    """Return whether the turns beyond are of enough utterances, of a cohort most of whose turns are beyond, the others:
    if one clip is most of them, its turns in both cohorts say too little about the variance by utterance."""
    rarer = [mask if mask.mean() <= 0.5 else ~mask for mask in beyond]
    pairs = [sample.pairs[mask] for sample, mask in zip(samples, rarer, strict=True) if sample.pairs is not None]
    together = np.concatenate(pairs)
    return together.size > 0 and effective_clusters(together) >= FEWEST_INDEPENDENT


def _variance_of(share: float) -> float:
    return share * (1 - share)


def _cautious(beyond: Bools) -> float:
    """The share, as if one turn more were beyond and one more were not: none among a hundred does not mean that there
    can be none (Agresti & Caffo, Am. Stat. 54, 2000)."""
    return (float(np.count_nonzero(beyond)) + 1) / (beyond.size + 2)


def _design_effects(beyond: Bools, clusters: Codes, assumed: float = math.inf) -> tuple[float, float]:
    """Return by how much clusters multiply the variance of a share of turns, 1 at least. While few turns are beyond, it
    is close to `assumed`, or to that of turns of which those of a call are half alike, if that is less; and without
    what is assumed, as far as any turn shows it."""
    size, share = beyond.size, float(beyond.mean())
    # Turns in an order of their own, so that sums by cluster do not depend on which arrived first.
    order = np.argsort(beyond, kind="stable")
    together = clustered_variance((beyond[order] - share) / size, (clusters[order],)) * size**2
    assumed, alone = min(assumed, (1 + size / effective_clusters(clusters)) / 2), size * _variance_of(share)
    effect = max(1.0, (together + _ASSUMED_BEYOND * assumed) / (alone + _ASSUMED_BEYOND))
    return effect, max(1.0, together / alone) if alone else effect


def _density_ratio(candidate: Floats, control: Floats, threshold: float, quantile: float) -> float:
    """The candidate's density at the threshold over the control's at its quantile, by counts in one window around
    each, as wide as half of the control's turns beyond the quantile reach below it."""
    if math.isinf(quantile) or math.isinf(threshold):
        return 1.0
    place = float((control <= quantile).mean())
    reach = quantile - lowest_quantile(control, place - min(place, 1 - place) / 2)
    shares = [
        float(np.count_nonzero((values >= middle - reach) & (values <= middle + reach))) / values.size
        for values, middle in ((candidate, threshold), (control, quantile))
    ]
    ratio = (shares[0] * candidate.size + _ASSUMED_AROUND) / (shares[1] * candidate.size + _ASSUMED_AROUND)
    return min(max(ratio, DENSITY_RATIOS[0]), DENSITY_RATIOS[1])


def lowest_quantile(values: Floats, fraction: float) -> float:
    """The smallest value that at least this share of the values does not exceed; infinite beyond either end."""
    if fraction > 1 or fraction < 0:
        return math.copysign(math.inf, fraction)
    # A hair less, so that rounding of the product does not ask for one value more.
    place = max(0, math.ceil(fraction * values.size * (1 - 1e-12)) - 1)
    return float(np.partition(values, place)[place])


def expect_independent(sample: CheckSample) -> None:
    """Raise TooFewError if the turns come from too few calls (users, utterances), or one of them has too many."""
    _expect_clusters(sample.clusters, sample.unit)
    if sample.pairs is not None:
        _expect_clusters(sample.pairs, "utterance")


def _expect_threshold(control: CheckSample, fraction: float) -> None:
    needed = math.ceil(FEWEST_BEYOND / min(fraction, 1 - fraction) * (1 - 1e-12))
    if control.size < needed:
        raise TooFewError(f"needs {needed:,} turns of the control with a value, has {control.size:,}")


def _expect_clusters(clusters: Codes, unit: str) -> None:
    known, independent = known_clusters(clusters), effective_clusters(clusters)
    if known < FEWEST_INDEPENDENT:
        raise TooFewError(f"needs {FEWEST_INDEPENDENT} {unit}s, has {known:,}")
    if independent < FEWEST_INDEPENDENT:
        most = declared_percent(round(float(np.bincount(clusters).max()) / clusters.size, 2))
        raise TooFewError(
            f"its turns come from too few {unit}s: one has {most} of them, and all {known:,} count as "
            f"{math.floor(independent)} of one size, needs {FEWEST_INDEPENDENT}"
        )
