"""The difference of a quantile between two cohorts: an interval for display, and a p-value. Pure; decides no rollout.

Both come from ranks. A quantile's own error depends on the density at it, and an estimate of that collapses at gaps
between two humps, at atoms (time-outs) and at rounded values; the error of the *share* of turns beyond it does not.

- **One quantile**: the values at the ranks that the binomial distribution leaves possible (Woodruff, J. Am. Stat.
  Assoc. 47, 1952), of as many independent turns as these are worth (Korn & Graubard, Survey Methodology 24, 1998): by
  the design effect of the share beyond it (`clustering`), never below 1, and by Student's t with as many degrees of
  freedom as clusters of unequal size are worth.
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
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy

from telemetry.model.formatting import declared_percent
from telemetry.model.intervals import CONFIDENCE
from telemetry.rollout.check_sample import (
    FEWEST_CLUSTERS,
    CheckSample,
    Floats,
    TooFewError,
    are_paired,
    clustered_variance,
    degrees_of_freedom,
    expect_clusters,
    paired_variance,
    total,
)

# So many values are expected on the far side of a quantile before it has an interval.
FEWEST_BEYOND: Final = 5
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


# Candidate and control, each in the order of its values; with utterances only where both have them.
_Both = tuple[CheckSample, CheckSample]


@dataclass(frozen=True, slots=True)
class _ShareErrors:
    """Variances of the shares beyond a quantile: each cohort's own part, and what moves both by the same."""

    candidate: float
    control: float
    common: float


def quantile_difference(
    candidate: CheckSample, control: CheckSample, fraction: float, confidence: float = CONFIDENCE
) -> QuantileDifference:
    """The difference of the quantiles at `fraction`; paired if both samples name the utterances. Raises TooFewError if
    there is no interval."""
    both = _cohorts(candidate, control, math.ceil(FEWEST_BEYOND / min(fraction, 1 - fraction)))
    quantiles = [_quantile(cohort.values, fraction) for cohort in both]
    if any(math.isinf(value) for value in quantiles):
        beyond = declared_percent(1 - fraction)
        raise TooFewError(f"about {beyond} of its turns or more were not answered: there is no quantile to compare")
    lower, upper = _interval(both, (quantiles[0], quantiles[1]), fraction, (1 - confidence) / 2)
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


def _cohorts(candidate: CheckSample, control: CheckSample, fewest_turns: int) -> _Both:
    is_paired = are_paired(candidate, control)
    return _cohort(candidate, fewest_turns, is_paired), _cohort(control, fewest_turns, is_paired)


def _cohort(sample: CheckSample, fewest_turns: int, is_paired: bool) -> CheckSample:
    if sample.size < fewest_turns:
        raise TooFewError(f"needs {fewest_turns:,} turns with a value, has {sample.size:,}")
    sample = sample if is_paired else replace(sample, pairs=None)
    expect_clusters(sample, FEWEST_CLUSTERS)
    return sample.in_order()


def _quantile(ordered: Floats, fraction: float) -> float:
    """The quantile as every page shows it, interpolated; infinity at a turn that was not answered."""
    position = fraction * (ordered.size - 1)
    below = math.floor(position)
    low, high, part = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)]), position - below
    return low if part == 0 or low == high else low + (high - low) * part


def _interval(both: _Both, quantiles: tuple[float, float], fraction: float, error: float) -> tuple[float, float]:
    """The bounds, each of which fails with the probability `error`."""
    errors, t = _share_errors(both, fraction), -float(scipy.special.stdtrit(degrees_of_freedom(both), error))
    few_clusters = (float(scipy.special.ndtri(error)) / t) ** 2
    (low, high), (control_low, control_high) = (
        _between(cohort.values, value, fraction, _Ranks(fraction * (1 - fraction) / own * few_clusters, error))
        for cohort, value, own in zip(both, quantiles, (errors.candidate, errors.control), strict=True)
    )
    value = quantiles[0] - quantiles[1]
    down, up = math.hypot(low, control_high), math.hypot(high, control_low)
    if errors.common > 0:
        reach = t * math.sqrt(errors.common)
        moved = _moved_together(both, quantiles, fraction, reach)
        down, up = math.hypot(down, moved[0]), math.hypot(up, moved[1])
    return value - down, value + up


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Ranks that bound a quantile of turns worth as much as `independent` ones, each wrong with the probability
    `error`."""

    independent: float
    error: float

    def above(self, fraction: float, size: int) -> int | None:
        """The rank among `size` values, from 1; None if there are too few values above."""
        rank = 1 + float(scipy.special.bdtrik(1 - self.error, self.independent, fraction))
        return math.ceil(size * rank / self.independent - 1e-9) if rank <= self.independent else None


def _between(ordered: Floats, value: float, fraction: float, ranks: _Ranks) -> tuple[float, float]:
    """Return how far below and above a quantile the values at the ranks that bound it lie."""
    below, above = ranks.above(1 - fraction, ordered.size), ranks.above(fraction, ordered.size)
    down = math.inf if below is None else value - float(ordered[ordered.size - below])
    up = math.inf if above is None else float(ordered[above - 1]) - value
    return max(0.0, down), max(0.0, up)


def _moved_together(both: _Both, quantiles: tuple[float, float], fraction: float, reach: float) -> tuple[float, float]:
    """Return by how much the difference of the quantiles is smaller, and larger, where both cohorts' ranks are moved by
    the same, up or down."""
    value, down, up = quantiles[0] - quantiles[1], 0.0, 0.0
    for rank in (fraction - reach, fraction + reach):
        candidate, control = (float(cohort.values[_place(cohort.size, rank)]) for cohort in both)
        if math.isinf(candidate) and math.isinf(control):
            return math.inf, math.inf
        moved = candidate - control - value
        down, up = max(down, -moved), max(up, moved)
    return down, up


def _place(size: int, rank: float) -> int:
    return min(size - 1, max(0, math.ceil(rank * size - 1e-9) - 1))


def _share_errors(both: _Both, fraction: float) -> _ShareErrors:
    spread = fraction * (1 - fraction)
    scores = [_scores(cohort.values, float(cohort.values[_place(cohort.size, fraction)]), fraction) for cohort in both]
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


def _variance(scores: Floats, cohort: CheckSample, independent: float) -> float:
    """The variance of the mean of scores; `independent` is that of as many independent turns, which it never is
    below."""
    influence = (scores - scores.mean()) / scores.size
    alone = total(influence**2)
    if not alone:
        return independent
    return independent * max(1.0, clustered_variance(influence, cohort.groupings) / alone)


def _paired_variance(scores: list[Floats], both: _Both) -> float:
    """The variance of the difference of the mean scores of two cohorts that heard the same utterances."""
    candidate, control = ((score - score.mean()) / score.size for score in scores)
    variance = paired_variance((candidate, control), both)
    return max(_LEAST_DISCORDANT / (both[0].size * both[1].size), variance)


def _p_value(both: _Both, together: Floats) -> float:
    """The p-value of equal means of the scores of both cohorts, which lie between 0 and 1."""
    scores = np.split(together, [both[0].size])
    difference = float(scores[0].mean() - scores[1].mean())
    if both[0].pairs is None:
        spread = float(together.var())
        variance = sum(
            _variance(score, cohort, spread / cohort.size) for score, cohort in zip(scores, both, strict=True)
        )
    else:
        variance = _paired_variance(scores, both)
    # Shares are counts: a difference within half a turn is not counted (Yates).
    beyond_half = max(0.0, abs(difference) - sum(0.5 / cohort.size for cohort in both))
    if not beyond_half:
        return 1.0
    return 2 * float(scipy.special.stdtr(degrees_of_freedom(both), -beyond_half / math.sqrt(variance)))
