"""The difference of a quantile between two cohorts: an interval for display, and a p-value. Pure; decides no rollout.

Both come from ranks. A quantile's own error depends on the density at it, and an estimate of that collapses at gaps
between two humps, at atoms (time-outs) and at rounded values; the error of the *share* of turns beyond it does not.

- **One quantile**: the values whose ranks lie at fraction +- t x the standard error of the share (Woodruff, J. Am.
  Stat. Assoc. 47, 1952), with the design effect of the share by cluster sums, never below 1. A cluster that holds a
  large part of the turns pulls the share to its own: each counts as in the jackknife, which leaves it out (CR3: Bell &
  McCaffrey, Survey Methodology 28, 2002), and t has as many degrees of freedom as so unequal clusters are worth.
- **Two**: the distances of both quantiles from their bounds, combined like the sides of a right angle (MOVER: Zou &
  Donner, Stat. Med. 27, 2008). A bound is infinite where no value has its rank, because so few turns lie beyond the
  quantile, or where the turn at that rank was not answered.
- **Paired** by utterance: what an utterance does to both cohorts moves both quantiles to the same rank, and counts only
  as far as the difference of the quantiles is another there. The rest of the error is that of the difference of the
  shares, clustered both ways (Cameron, Gelbach & Miller, J. Bus. Econ. Statist. 29, 2011).
- **The p-value**, two-sided, is that of the shares beyond the quantile of both cohorts together, with the variance that
  both have where the shares are equal. Turns that are equal to the quantile count in part, by as much as makes the
  share of all turns 1 - fraction. Where the distributions are equal it holds for atoms and rounded values as for smooth
  ones.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from telemetry.model.formatting import declared_percent
from telemetry.model.intervals import CONFIDENCE
from telemetry.rollout.estimates import FEWEST_BEYOND, FEWEST_CLUSTERS, CheckSample, Codes, Floats, TooFewError

# So many turns are assumed to be beyond in one cohort alone where pairs of turns agree: that they do is never certain.
_LEAST_DISCORDANT: Final = 2.0


@dataclass(frozen=True, slots=True)
class QuantileDifference:
    """Candidate minus control of one quantile. `lower` and `upper` hold the true difference with the confidence that
    was asked for; one of them is infinite where nothing bounds it. `p_value` is two-sided, for one look."""

    value: float
    lower: float
    upper: float
    candidate: float
    control: float
    p_value: float


@dataclass(frozen=True, slots=True)
class _Cohort:
    """A cohort's sorted values, and who its turns belong to: clusters, and utterances where cohorts are paired."""

    values: Floats
    ordered: Floats
    clusters: Codes
    pairs: Codes | None

    @property
    def size(self) -> int:
        """How many turns have a value."""
        return int(self.values.size)

    @property
    def groupings(self) -> tuple[Codes, ...]:
        """The ways in which turns belong together: by cluster, and by utterance where cohorts are paired."""
        return (self.clusters,) if self.pairs is None else (self.clusters, self.pairs)


@dataclass(frozen=True, slots=True)
class _ShareErrors:
    """Variances of the shares beyond a quantile: each cohort's own part, and what moves both by the same."""

    candidate: float
    control: float
    common: float


def quantile_difference(
    candidate: CheckSample, control: CheckSample, fraction: float, confidence: float = CONFIDENCE
) -> QuantileDifference:
    """The difference of the quantiles at `fraction`; paired where both samples name the utterances. Raises TooFewError
    where there is no interval."""
    both = _cohorts(candidate, control, math.ceil(FEWEST_BEYOND / min(fraction, 1 - fraction)))
    quantiles = [_quantile(cohort.ordered, fraction) for cohort in both]
    if any(math.isinf(value) for value in quantiles):
        beyond = declared_percent(1 - fraction)
        raise TooFewError(f"about {beyond} of its turns or more were not answered: there is no quantile to compare")
    t = float(scipy.special.stdtrit(_freedom(both), (1 + confidence) / 2))
    lower, upper = _interval(both, (quantiles[0], quantiles[1]), fraction, t)
    if math.isinf(lower) and math.isinf(upper):
        fewest = min(cohort.size for cohort in both)
        raise TooFewError(
            f"{fewest:,} turns are too few to bound it on either side: turns of a {candidate.unit} are alike"
        )
    together = np.concatenate([cohort.values for cohort in both])
    threshold = float(np.quantile(together, fraction, method="inverted_cdf"))
    p_value = _p_value(both, _scores(together, threshold, fraction))
    return QuantileDifference(quantiles[0] - quantiles[1], lower, upper, quantiles[0], quantiles[1], p_value)


def share_p_value(candidate: CheckSample, control: CheckSample) -> float:
    """The two-sided p-value of two shares of turns, those whose value is 1 of those whose value is 0 or 1. Raises
    TooFewError."""
    both = _cohorts(candidate, control, 1)
    return _p_value(both, np.concatenate([cohort.values for cohort in both]))


def _cohorts(candidate: CheckSample, control: CheckSample, fewest_turns: int) -> tuple[_Cohort, _Cohort]:
    is_paired = candidate.pairs is not None and control.pairs is not None
    return _cohort(candidate, fewest_turns, is_paired), _cohort(control, fewest_turns, is_paired)


def _cohort(sample: CheckSample, fewest_turns: int, is_paired: bool) -> _Cohort:
    if sample.size < fewest_turns:
        raise TooFewError(f"{sample.size:,} of at least {fewest_turns:,} turns have a value")
    pairs = sample.pairs if is_paired else None
    if pairs is not None:
        _expect(_clusters(pairs), FEWEST_CLUSTERS, "utterance")
    _expect(_clusters(sample.clusters), FEWEST_CLUSTERS if pairs is None else 2, sample.unit)
    return _Cohort(sample.values, np.sort(sample.values), sample.clusters, pairs)


def _expect(known: int, fewest: int, unit: str) -> None:
    if known < fewest:
        raise TooFewError(f"its turns come from {known:,} of at least {fewest} {unit}s")


def effective_clusters(clusters: Codes) -> float:
    """How many clusters of one size tell as much as these, of which some may hold most of the turns (Kish)."""
    sizes = np.bincount(clusters).astype(np.float64)
    return float(sizes.sum()) ** 2 / float((sizes**2).sum())


def _freedom(both: tuple[_Cohort, _Cohort]) -> float:
    return max(1.0, min(effective_clusters(codes) for cohort in both for codes in cohort.groupings) - 1)


def _quantile(ordered: Floats, fraction: float) -> float:
    """The quantile as every page shows it, interpolated; infinity at a turn that was not answered."""
    position = fraction * (ordered.size - 1)
    below = math.floor(position)
    low, high, part = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)]), position - below
    return low if part == 0 or low == high else low + (high - low) * part


def _interval(
    both: tuple[_Cohort, _Cohort], quantiles: tuple[float, float], fraction: float, t: float
) -> tuple[float, float]:
    errors = _share_errors(both, fraction)
    (low, high), (control_low, control_high) = (
        _between(cohort.ordered, value, fraction, t * math.sqrt(own))
        for cohort, value, own in zip(both, quantiles, (errors.candidate, errors.control), strict=True)
    )
    value = quantiles[0] - quantiles[1]
    down, up = math.hypot(low, control_high), math.hypot(high, control_low)
    if errors.common > 0:
        reach = t * math.sqrt(errors.common)
        moved = _moved_together(both, quantiles, fraction, reach)
        down, up = math.hypot(down, moved[0]), math.hypot(up, moved[1])
    return value - down, value + up


def _between(ordered: Floats, value: float, fraction: float, reach: float) -> tuple[float, float]:
    """How far below and above a quantile the values at the ranks `fraction` -+ `reach` lie."""
    middle, side = fraction * ordered.size, reach * ordered.size
    low, high = math.floor(middle - side + 0.5), math.ceil(middle + side + 0.5)
    down = value - float(ordered[low - 1]) if low >= 1 else math.inf
    up = float(ordered[high - 1]) - value if high <= ordered.size else math.inf
    return max(0.0, down), max(0.0, up)


def _moved_together(
    both: tuple[_Cohort, _Cohort], quantiles: tuple[float, float], fraction: float, reach: float
) -> tuple[float, float]:
    """By how much the difference of the quantiles is smaller, and larger, where both cohorts' ranks are moved by the
    same, up or down."""
    value, down, up = quantiles[0] - quantiles[1], 0.0, 0.0
    for rank in (fraction - reach, fraction + reach):
        candidate, control = (float(c.ordered[_place(c.ordered, rank)]) for c in both)
        if math.isinf(candidate) and math.isinf(control):
            return math.inf, math.inf
        moved = candidate - control - value
        down, up = max(down, -moved), max(up, moved)
    return down, up


def _place(ordered: Floats, rank: float) -> int:
    return min(ordered.size - 1, max(0, math.ceil(rank * ordered.size - 1e-9) - 1))


def _share_errors(both: tuple[_Cohort, _Cohort], fraction: float) -> _ShareErrors:
    spread = fraction * (1 - fraction)
    scores = [
        _scores(cohort.values, float(cohort.ordered[_place(cohort.ordered, fraction)]), fraction) for cohort in both
    ]
    candidate, control = (
        _variance(score, cohort, spread / cohort.size) for score, cohort in zip(scores, both, strict=True)
    )
    if both[0].pairs is None:
        return _ShareErrors(candidate, control, 0.0)
    together = _paired_variance(scores, both)
    common = max(0.0, (candidate + control - together) / 2)
    part = together / (candidate + control)
    return _ShareErrors(part * candidate, part * control, common)


def _scores(values: Floats, threshold: float, fraction: float) -> Floats:
    """1 for each value beyond the threshold, 0 below it; for those that are equal what makes the mean 1 - fraction."""
    beyond, equal = values > threshold, values == threshold
    part = (values.size * (1 - fraction) - np.count_nonzero(beyond)) / max(1, np.count_nonzero(equal))
    return beyond + min(1.0, max(0.0, part)) * equal


def _variance(scores: Floats, cohort: _Cohort, independent: float) -> float:
    """Of the mean of scores; `independent` is that of as many independent turns, which it never is below."""
    influence = (scores - scores.mean()) / scores.size
    alone = float((influence**2).sum())
    if not alone:
        return independent
    ways = [_clustered(_left_out(influence, codes), codes) for codes in cohort.groupings]
    return independent * max(1.0, _both_ways(ways, alone) / alone)


def _paired_variance(scores: list[Floats], both: tuple[_Cohort, _Cohort]) -> float:
    """Of the difference of the mean scores of two cohorts that heard the same utterances."""
    candidate, control = (
        sign * (score - score.mean()) / score.size for sign, score in zip((1, -1), scores, strict=True)
    )
    offset = int(both[0].clusters.max()) + 1
    ways: list[float] = []
    for codes, control_codes, apart in zip(both[0].groupings, both[1].groupings, (offset, 0), strict=True):
        influence = np.concatenate([_left_out(candidate, codes), _left_out(control, control_codes)])
        ways.append(_clustered(influence, np.concatenate([codes, control_codes + apart])))
    alone = float((candidate**2).sum() + (control**2).sum())
    return max(_LEAST_DISCORDANT / (both[0].size * both[1].size), _both_ways(ways, alone))


def _both_ways(ways: list[float], alone: float) -> float:
    """The variance by cluster, or by cluster and utterance, of which what each turn has for itself is in both."""
    return ways[0] if len(ways) == 1 else max(ways[1], sum(ways) - alone)


def _left_out(influence: Floats, clusters: Codes) -> Floats:
    """The influence of turns on a share that was taken without their cluster."""
    return influence / (1 - np.bincount(clusters)[clusters] / clusters.size)


def _clustered(influence: Floats, clusters: Codes) -> float:
    sums, known = np.bincount(clusters, weights=influence), _clusters(clusters)
    # In an order of their own, and without numbers that no turn has, so that clusters may be numbered in any way.
    return float(np.sort(sums[sums != 0] ** 2).sum()) * (known - 1) / known


def _clusters(clusters: Codes) -> int:
    return int(np.count_nonzero(np.bincount(clusters)))


def _p_value(both: tuple[_Cohort, _Cohort], together: Floats) -> float:
    """Of equal means of the scores of both cohorts, which lie between 0 and 1."""
    scores = np.split(together, [both[0].size])
    difference = float(scores[0].mean() - scores[1].mean())
    if both[0].pairs is None:
        spread = float(together.var())
        variance = sum(
            _variance(score, cohort, spread / cohort.size) for score, cohort in zip(scores, both, strict=True)
        )
    else:
        variance = _paired_variance(scores, both)
    # Shares are counts: what lies within half a turn of no difference is none (Yates).
    beyond_half = max(0.0, abs(difference) - sum(0.5 / cohort.size for cohort in both))
    if not beyond_half:
        return 1.0
    return 2 * float(scipy.special.stdtr(_freedom(both), -beyond_half / math.sqrt(variance)))
