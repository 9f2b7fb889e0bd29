"""The difference of one figure between two runs, with an interval that knows which turns belong together. Pure.

Intervals are clustered by call, and where both runs heard the same audio paired by utterance, so that what an utterance
does to both runs cancels. Of a percentile they come from the ranks of its values (`rollout.quantile_intervals`), of a
ratio they are the difference plus and minus Student's t times its standard error (`rollout.shares`), with as many
degrees of freedom as the run with fewer clusters is worth, less one. An interval holds the difference with 95 %
confidence, each figure by itself and for one look: unlike the bounds of a rollout it is not made to be looked at again
and again while turns arrive.

Of two dozen intervals of equal runs one or two leave out 0. Which figures differ is therefore said of all figures
together (`marked`): by Holm's procedure over their p-values, so that any figure of equal runs is marked in at most 5 %
of comparisons.

A turn that nobody answered is slower than any other, in both runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import scipy

from telemetry.comparison.figures import ComparedFigure
from telemetry.model.formatting import DASH, percent
from telemetry.model.intervals import CONFIDENCE
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.rollout.check_sample import (
    FEWEST_CLUSTERS,
    CheckSample,
    Codes,
    TooFewError,
    degrees_of_freedom,
    expect_clusters,
)
from telemetry.rollout.checks import heard_by_both
from telemetry.rollout.cohort_turns import AUDIO, NOT_REPORTED, CohortTurns
from telemetry.rollout.quantile_intervals import quantile_difference, share_p_value
from telemetry.rollout.sequential import holm
from telemetry.rollout.shares import ratio_difference

# Where fewer of the turns have audio that the other run heard too, the figures would be those of a part of the run.
PAIRED_SHARE_LEAST: Final = 0.8
# The chance that any figure of two equal runs is marked.
MARK_LEVEL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Pairing:
    """The pairing of turns by utterance: the number of utterances, and the share of the turns (of the run with the
    smaller one); `reason` says why turns are not paired."""

    is_paired: bool
    utterances: int = 0
    share: float = 0.0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """Candidate minus baseline of one figure, in its unit.

    `lower` and `upper` hold the true difference with 95 % confidence, infinite where nothing bounds it; None with a
    `reason` where too little is known. `turns` are those with a value, of the baseline and of the candidate. `p_value`
    is two-sided, of this figure by itself; `is_shown` says that the runs differ in it, of all figures together. Not
    `is_claimed` where one of the runs is such that its figures show nothing of the service. `hinges_on_missing`: what
    would be shown could be otherwise by the turns without a value of which one run has more.
    """

    figure: ComparedFigure
    baseline: float | None = None
    candidate: float | None = None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None  # of a ratio
    p_value: float | None = None
    turns: tuple[int, int] = (0, 0)
    is_paired: bool = False
    reason: str | None = None
    is_claimed: bool = True
    is_shown: bool = False
    hinges_on_missing: bool = False

    @property
    def leaves_out_zero(self) -> bool:
        """Whether the interval excludes 0."""
        return self.lower is not None and self.upper is not None and not self.lower <= 0 <= self.upper

    @property
    def is_worse(self) -> bool | None:
        """Whether the candidate is shown to be worse, or better; None if neither is shown, or the figure has no better
        side."""
        if not self.is_shown or self.value is None or self.figure.higher_is_better is None:
            return None
        return (self.value > 0) != self.figure.higher_is_better

    @property
    def unbounded(self) -> Literal["above", "below"] | None:
        """The side on which the interval has no bound."""
        if self.upper is not None and math.isinf(self.upper):
            return "above"
        return "below" if self.lower is not None and math.isinf(self.lower) else None

    @property
    def bounds(self) -> str:
        """Format the interval as `+20 ms to +180 ms`, or `+20 ms or more`; a dash if there is none."""
        if self.lower is None or self.upper is None:
            return DASH
        low, high = (self.figure.format_difference(bound) for bound in (self.lower, self.upper))
        return {"above": f"{low} or more", "below": f"{high} or less", None: f"{low} to {high}"}[self.unbounded]


def marked(differences: Sequence[FigureDifference]) -> tuple[FigureDifference, ...]:
    """Mark the figures in which the runs are shown to differ: of figures whose interval excludes 0, those that Holm's
    procedure over all figures rejects."""
    p_values = {
        compared.figure.name: compared.p_value
        for compared in differences
        if compared.is_claimed and compared.p_value is not None
    }
    rejected = holm(p_values, MARK_LEVEL)
    return tuple(
        replace(compared, is_shown=compared.leaves_out_zero and rejected.get(compared.figure.name, False))
        for compared in differences
    )


def pairing(baseline: CohortTurns, candidate: CohortTurns, why_not: str | None = None) -> Pairing:
    """Return whether the turns of two runs can be paired; `why_not` is known beforehand."""
    if why_not is not None:
        return Pairing(False, reason=why_not)
    heard = [_audio(turns) for turns in (baseline, candidate)]
    common = np.intersect1d(heard[0], heard[1])
    if not common.size:
        return Pairing(False, reason="no utterance was heard by both")
    share = min(float(np.isin(codes, common).mean()) for codes in heard)
    if common.size < FEWEST_CLUSTERS:
        return Pairing(
            False,
            int(common.size),
            share,
            f"needs {FEWEST_CLUSTERS} utterances heard by both, has {common.size}",
        )
    if share < PAIRED_SHARE_LEAST:
        return Pairing(False, int(common.size), share, f"only {percent(share)} of the turns have audio that both heard")
    return Pairing(True, int(common.size), share)


def _audio(turns: CohortTurns) -> Codes:
    if AUDIO not in turns.codes:
        return np.empty(0, dtype=np.int64)
    codes = turns.code(AUDIO)[turns.valid]
    return codes[codes != NOT_REPORTED]


def difference(
    figure: ComparedFigure, baseline: CohortTurns, candidate: CohortTurns, paired: Pairing
) -> FigureDifference:
    """The figure in both runs, and the difference as far as it is known."""
    if paired.is_paired:
        by_pairs = _difference(figure, baseline, candidate, is_paired=True)
        if by_pairs.reason is None:
            return by_pairs
    return _difference(figure, baseline, candidate, is_paired=False)


def _difference(
    figure: ComparedFigure, baseline: CohortTurns, candidate: CohortTurns, *, is_paired: bool
) -> FigureDifference:
    samples: list[CheckSample] = []
    for name, turns in (("baseline", baseline), ("candidate", candidate)):
        try:
            samples.append(figure.sample(turns, is_paired=is_paired))
        except TooFewError:
            return FigureDifference(figure, reason=f"no turn of the {name} has a value")
    if is_paired:
        try:
            samples = list(heard_by_both(samples[0], samples[1]))
        except TooFewError as error:
            return FigureDifference(figure, reason=str(error))
    shown = [_value(figure, sample) for sample in samples]
    value = None if shown[0] is None or shown[1] is None else shown[1] - shown[0]
    known = FigureDifference(
        figure, shown[0], shown[1], value, turns=(samples[0].size, samples[1].size), is_paired=is_paired
    )
    try:
        if figure.fraction is not None:
            return _quantile_difference(known, samples, figure.fraction)
        return _ratio_difference(known, samples)
    except TooFewError as error:
        return replace(known, reason=str(error))


def _quantile_difference(known: FigureDifference, samples: Sequence[CheckSample], fraction: float) -> FigureDifference:
    baseline, candidate = samples
    quantiles = quantile_difference(candidate, baseline, fraction, CONFIDENCE)
    return replace(
        known,
        baseline=quantiles.control,
        candidate=quantiles.candidate,
        value=quantiles.value,
        lower=quantiles.lower,
        upper=quantiles.upper,
        p_value=quantiles.p_value,
    )


def _ratio_difference(known: FigureDifference, samples: Sequence[CheckSample]) -> FigureDifference:
    baseline, candidate = samples
    for sample in samples:
        expect_clusters(sample, FEWEST_CLUSTERS)
    ratios = ratio_difference(candidate, baseline)
    freedom = degrees_of_freedom(samples)
    reach = float(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * ratios.standard_error
    lower, upper = ratios.value - reach, ratios.value + reach
    p_value = 2 * float(scipy.special.stdtr(freedom, -abs(ratios.value) / ratios.standard_error))
    if known.figure.kind == "share" and baseline.weights is None:
        lower, upper = max(-1.0, lower), min(1.0, upper)  # two shares differ by no more
        p_value = share_p_value(candidate, baseline)
    return replace(
        known,
        baseline=ratios.control,
        candidate=ratios.candidate,
        value=ratios.value,
        lower=lower,
        upper=upper,
        standard_error=ratios.standard_error,
        p_value=p_value,
    )


def _value(figure: ComparedFigure, sample: CheckSample) -> float | None:
    """The figure of one run; None with too few values for it, and where the quantile is a turn that nobody answered."""
    if figure.fraction is None:
        return float(sample.values.sum()) / sample.total_weight if sample.total_weight else None
    statistic = "p50" if figure.check is None else figure.check.statistic
    if sample.size < MIN_COUNT_FOR.get(statistic, MIN_COUNT_FOR["p95"]):
        return None
    # Between an answered turn and one that is not there is nothing to interpolate.
    value = float(np.quantile(sample.values, figure.fraction, method="higher"))
    return None if math.isinf(value) else float(np.quantile(sample.values, figure.fraction))
