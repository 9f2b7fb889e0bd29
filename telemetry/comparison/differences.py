"""The difference of one figure between two runs, with an interval that knows which turns belong together. Pure.

The variance is that of `telemetry.rollout.estimates`: clustered by call, and where both runs heard the same audio
paired by utterance, so that what an utterance does to both runs cancels. The interval is the difference plus and minus
Student's t times the standard error, at 95 % confidence, with as many degrees of freedom as the run with fewer clusters
has clusters, less one. It holds for each figure by itself, and for one look: unlike the bounds of a rollout it is not
made to be looked at again and again while turns arrive.

A turn that nobody answered is slower than any other, in both runs.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from telemetry.comparison.figures import ComparedFigure
from telemetry.model.formatting import percent
from telemetry.model.intervals import CONFIDENCE
from telemetry.model.metrics import MIN_COUNT_FOR
from telemetry.rollout.cohort_turns import AUDIO, NOT_REPORTED, CohortTurns
from telemetry.rollout.estimates import (
    FEWEST_CLUSTERS,
    CheckSample,
    Codes,
    Difference,
    TooFewError,
    quantile_difference,
    ratio_difference,
)
from telemetry.rollout.samples import heard_by_both

# Where fewer of the turns have audio that the other run heard too, the figures would be those of a part of the run.
PAIRED_SHARE_LEAST: Final = 0.8


@dataclass(frozen=True, slots=True)
class Pairing:
    """Whether turns are paired by utterance, over how many utterances and which share of the turns (of the run with the
    smaller one); `reason` is why they are not."""

    is_paired: bool
    utterances: int = 0
    share: float = 0.0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """Candidate minus baseline of one figure, in its unit. `lower` and `upper` hold the true difference with 95 %
    confidence; None with a `reason` where too little is known. `turns` are those with a value, of the baseline and of
    the candidate. Not `is_claimed` where one of the runs is such that its figures show nothing of the service."""

    figure: ComparedFigure
    baseline: float | None = None
    candidate: float | None = None
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    standard_error: float | None = None
    turns: tuple[int, int] = (0, 0)
    is_paired: bool = False
    reason: str | None = None
    is_claimed: bool = True

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out 0: the runs differ in this figure."""
        return (
            self.is_claimed and self.lower is not None and self.upper is not None and not self.lower <= 0 <= self.upper
        )

    @property
    def is_worse(self) -> bool | None:
        """Whether the candidate is shown to be worse, or better; None where neither is shown, or neither would be."""
        if not self.is_shown or self.value is None or self.figure.higher_is_better is None:
            return None
        return (self.value > 0) != self.figure.higher_is_better


def pairing(baseline: CohortTurns, candidate: CohortTurns, why_not: str | None = None) -> Pairing:
    """Whether the turns of two runs can be paired; `why_not` is known beforehand."""
    if why_not is not None:
        return Pairing(False, reason=why_not)
    heard = [_audio(turns) for turns in (baseline, candidate)]
    common = np.intersect1d(heard[0], heard[1])
    if not common.size:
        return Pairing(False, reason="no utterance was heard by both")
    share = min(float(np.isin(each, common).mean()) for each in heard)
    if common.size < FEWEST_CLUSTERS:
        return Pairing(
            False,
            int(common.size),
            share,
            f"{common.size} of at least {FEWEST_CLUSTERS} utterances were heard by both",
        )
    if share < PAIRED_SHARE_LEAST:
        return Pairing(False, int(common.size), share, f"only {percent(share)} of the turns have audio that both heard")
    return Pairing(True, int(common.size), share)


def _audio(turns: CohortTurns) -> Codes:
    if AUDIO not in turns.codes:
        return np.empty(0, dtype=np.int64)
    codes = turns.code(AUDIO)[turns.eligible]
    return codes[codes != NOT_REPORTED]


def difference(
    figure: ComparedFigure, baseline: CohortTurns, candidate: CohortTurns, paired: Pairing
) -> FigureDifference:
    """The figure in both runs, and the difference as far as it is known."""
    if paired.is_paired:
        found = _difference(figure, baseline, candidate, is_paired=True)
        if found.reason is None:
            return found
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
    known = FigureDifference(
        figure, shown[0], shown[1], turns=(samples[0].size, samples[1].size), is_paired=is_paired, reason=None
    )
    try:
        found = _estimate(figure, samples[1], samples[0])
    except TooFewError as error:
        return _without_interval(known, str(error))
    if not found.standard_error > 0:
        return _without_interval(known, "its values do not vary: nothing can be said of their error")
    reach = _student_t(_clusters(samples)) * found.standard_error
    lower, upper = found.value - reach, found.value + reach
    if figure.kind == "share" and samples[0].weights is None:
        lower, upper = max(-1.0, lower), min(1.0, upper)  # two shares differ by no more
    return FigureDifference(
        figure,
        found.control,
        found.candidate,
        found.value,
        lower,
        upper,
        found.standard_error,
        known.turns,
        is_paired,
    )


def _estimate(figure: ComparedFigure, candidate: CheckSample, baseline: CheckSample) -> Difference:
    if figure.fraction is None:
        return ratio_difference(candidate, baseline)
    return quantile_difference(candidate, baseline, figure.fraction)


def _without_interval(known: FigureDifference, reason: str) -> FigureDifference:
    value = None
    if known.baseline is not None and known.candidate is not None:
        value = known.candidate - known.baseline
    return FigureDifference(
        known.figure,
        known.baseline,
        known.candidate,
        value,
        turns=known.turns,
        is_paired=known.is_paired,
        reason=reason,
    )


def _value(figure: ComparedFigure, sample: CheckSample) -> float | None:
    """The figure of one run; None with too few values for it, and where the quantile is a turn that nobody answered."""
    if figure.fraction is None:
        weights = sample.size if sample.weights is None else float(sample.weights.sum())
        return float(sample.values.sum()) / weights if weights else None
    statistic = "p50" if figure.check is None else figure.check.statistic
    if sample.size < MIN_COUNT_FOR.get(statistic, MIN_COUNT_FOR["p95"]):
        return None
    # Between an answered turn and one that is not there is nothing to interpolate.
    value = float(np.quantile(sample.values, figure.fraction, method="higher"))
    return None if math.isinf(value) else float(np.quantile(sample.values, figure.fraction))


def _clusters(samples: list[CheckSample]) -> int:
    """How many clusters the run with fewer of them has."""
    counts = [np.unique(each.clusters).size for each in samples]
    counts += [np.unique(each.pairs).size for each in samples if each.pairs is not None]
    return int(min(counts))


def _student_t(clusters: int) -> float:
    return float(scipy.special.stdtrit(max(1, clusters - 1), (1 + CONFIDENCE) / 2))
