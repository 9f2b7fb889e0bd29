"""The comparison of two runs, and its verdict: whether a run is worse than a baseline by more than a margin. Pure.

- **worse**: the whole interval of the difference lies above the margin. So too where the candidate left so many turns
  without an answer that its percentile is one of them, and the baseline did not: no margin is as long as that.
- **within**: the whole interval lies below the margin.
- **undecided**: the interval holds the margin, too little is known, or a run is one that nothing can be claimed of.
  So too where turns without a value could turn the claim (invalid, lost, cut or of calls that never began, too): those
  that one run has more of than the other, counted as longer than any wait, as `missing` counts them.

A claim that does not hold has a chance of 2.5 % at most, for each pair of runs. The verdict is about one figure that is
named beforehand: it is judged alone, by its own interval, and not corrected for the other figures. Which of all figures
differ is another question, which `differences.marked` answers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from telemetry.comparison.differences import FigureDifference, Pairing, difference, marked, pairing
from telemetry.comparison.figures import ComparedFigure, figures_for, quantile_figure
from telemetry.comparison.missing import could_turn, more_missing, owes_value, with_unmeasured
from telemetry.comparison.runs import AskedDifference, ComparedRun, asked_differences, why_no_pairs
from telemetry.model.formatting import declared_figure, percent
from telemetry.model.intervals import wilson_interval
from telemetry.model.metrics import HEADLINE
from telemetry.model.semconv import OUTCOMES, UNANSWERED
from telemetry.objectives.objective import Objective
from telemetry.rollout.cohort_turns import CALL, OUTCOME, CohortTurns, packed_codes, packed_numbers

ComparisonState = Literal["worse", "within", "undecided"]
DEFAULT_MARGIN_NS: Final = 100_000_000
# The order of what is worth most to know.
_SEVERITY: Final[tuple[ComparisonState, ...]] = ("worse", "undecided", "within")


@dataclass(frozen=True, slots=True)
class RegressionMargin:
    """The most by which a percentile of a metric may be larger than the baseline's, in the metric's unit."""

    value: float = DEFAULT_MARGIN_NS
    metric: str = HEADLINE
    statistic: str = "p95"

    @property
    def figure(self) -> ComparedFigure:
        """The figure that the margin is about."""
        return quantile_figure(self.metric, self.statistic)

    @property
    def text(self) -> str:
        """Format the margin as `100 ms`."""
        return declared_figure(self.value, self.figure.kind)

    @property
    def sentence(self) -> str:
        """Format the claim as `Voice to voice p95 at most 100 ms above the baseline`."""
        return f"{self.figure.label} at most {self.text} above the baseline"


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run compared with a baseline. `decisive` is the difference that the margin is about. `is_judged_otherwise` says
    that the run was judged by other objectives than those of the baseline, by which good turns are counted."""

    baseline: ComparedRun
    candidate: ComparedRun
    margin: RegressionMargin
    state: ComparisonState
    statement: str  # why, without the verdict itself
    decisive: FigureDifference
    differences: tuple[FigureDifference, ...]
    asked: tuple[AskedDifference, ...]
    paired: Pairing
    is_judged_otherwise: bool = False

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, which begins with it."""
        verdict = {"worse": "regression", "within": f"within the margin of {self.margin.text}"}
        return f"{verdict.get(self.state, self.state)}: {self.statement}"

    @property
    def marked_over(self) -> int:
        """Number of figures over which the marks of differences are corrected."""
        return sum(compared.is_claimed and compared.p_value is not None for compared in self.differences)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what weakens the figures."""
        notes = (*self.baseline.notes, *self.candidate.notes)
        if not self.is_judged_otherwise:
            return notes
        by = f"good turns are counted by the objectives of {self.baseline.label}, the baseline"
        return (*notes, f"{by}: {self.candidate.label} was judged by others")


def compare_runs(
    baseline: ComparedRun,
    candidate: ComparedRun,
    margin: RegressionMargin,
    objectives: Sequence[Objective],
    *,
    is_judged_otherwise: bool = False,
) -> RunComparison:
    """Every figure of a run compared with the baseline's, and the verdict. Good turns are counted by the
    `objectives`."""
    asked = asked_differences(baseline.asked, candidate.asked)
    paired = pairing(baseline.turns, candidate.turns, why_no_pairs(asked))
    figures = figures_for(objectives)
    if margin.figure.name not in [figure.name for figure in figures]:
        figures = (margin.figure, *figures)
    unsound = _unsound(baseline, candidate)
    differences = marked(
        [
            replace(difference(figure, baseline.turns, candidate.turns, paired), is_claimed=unsound is None)
            for figure in figures
        ]
    )
    differences = tuple(_unless_missing(compared, baseline, candidate, paired) for compared in differences)
    decisive = next(compared for compared in differences if compared.figure.name == margin.figure.name)
    state, statement = ("undecided", unsound) if unsound else _verdict(baseline, candidate, margin, decisive)
    if unsound is None and (missing := _turned_by_missing(state, baseline, candidate, margin, paired)) is not None:
        state, statement = "undecided", f"{statement}: {missing}"
    return RunComparison(
        baseline,
        candidate,
        margin,
        state,
        statement,
        decisive,
        tuple(compared for compared in differences if compared.turns != (0, 0) or compared is decisive),
        asked,
        paired,
        is_judged_otherwise,
    )


def worst(states: Sequence[ComparisonState]) -> ComparisonState:
    """Combine several comparisons: worse if any is, within if all are."""
    worst_first: list[ComparisonState] = [state for state in _SEVERITY if state in states]
    return worst_first[0] if worst_first else "undecided"


def _unsound(baseline: ComparedRun, candidate: ComparedRun) -> str | None:
    """Return why one of the runs supports no claim, and so neither does their difference."""
    return next((why for why in (baseline.unsound, candidate.unsound) if why is not None), None)


def _verdict(
    baseline: ComparedRun, candidate: ComparedRun, margin: RegressionMargin, decisive: FigureDifference
) -> tuple[ComparisonState, str]:
    figure, run = margin.figure, candidate.label
    if decisive.lower is None or decisive.upper is None:
        if (silent := _unanswered(baseline, candidate, figure)) is not None:
            return "worse", silent
        return "undecided", f"{figure.label} cannot be compared: {decisive.reason}"
    shown = (
        f"{figure.label} of {run} is {figure.format(decisive.candidate)} against {figure.format(decisive.baseline)}, "
        f"{figure.format_difference(decisive.value)} ({decisive.bounds})"
    )
    if decisive.lower > margin.value:
        return "worse", f"{shown}: more than the margin of {margin.text}"
    if decisive.upper < margin.value:
        return "within", shown
    return "undecided", f"{shown}: the interval holds the margin of {margin.text}; more turns would narrow it"


def _turned_by_missing(
    state: ComparisonState, baseline: ComparedRun, candidate: ComparedRun, margin: RegressionMargin, paired: Pairing
) -> str | None:
    """Explain in half a sentence that turns without a value could change a claim; None if they could not."""
    if state == "undecided":
        return None
    of, other = (candidate, baseline) if state == "within" else (baseline, candidate)
    lacking, missing = _with_missing(of, other, margin.figure)
    if not missing:
        return None
    filled = replace(of, turns=lacking)
    runs = (baseline, filled) if state == "within" else (filled, candidate)
    turned = difference(margin.figure, runs[0].turns, runs[1].turns, paired)
    if _verdict(*runs, margin, turned)[0] == state:
        return None
    return could_turn(missing, of.label, other.label)


def _unless_missing(
    compared: FigureDifference, baseline: ComparedRun, candidate: ComparedRun, paired: Pairing
) -> FigureDifference:
    """The difference; not shown where the run with the shorter time has turns without a value that could turn it."""
    if not compared.is_shown or compared.figure.fraction is None or compared.value is None:
        return compared
    is_shorter = compared.value < 0
    of, other = (candidate, baseline) if is_shorter else (baseline, candidate)
    filled, missing = _with_missing(of, other, compared.figure)
    if not missing:
        return compared
    runs = (baseline.turns, filled) if is_shorter else (filled, candidate.turns)
    turned = difference(compared.figure, *runs, paired)
    if turned.leaves_out_zero and turned.value is not None and (turned.value < 0) == is_shorter:
        return compared
    return replace(compared, is_shown=False, hinges_on_missing=True)


def _with_missing(of: ComparedRun, other: ComparedRun, figure: ComparedFigure) -> tuple[CohortTurns, int]:
    """The turns with the excess of those without a value counted as longer than any wait, and the number of that
    excess."""
    metric = HEADLINE if figure.check is None else figure.check.metric
    turns, of_other = with_unmeasured(of.turns, of.unmeasured), with_unmeasured(other.turns, other.unmeasured)
    values, other_values = turns.number(metric), of_other.number(metric)
    if values is None or other_values is None:
        return turns, 0
    counted = [_counted(run, metric, run_turns) for run, run_turns in ((of, turns), (other, of_other))]
    lacking, lacking_of_other = (
        counts & (np.isnan(known) | ~run_turns.valid) & ~are_unanswered(run_turns)
        for counts, known, run_turns in zip(counted, (values, other_values), (turns, of_other), strict=True)
    )
    chosen = more_missing(lacking, lacking_of_other, (int(counted[0].sum()), int(counted[1].sum())), turns.code(CALL))
    outcomes, values = turns.code(OUTCOME), values.copy()
    outcomes[chosen], values[chosen] = OUTCOMES.index("no_reply"), math.inf
    numbers, codes = {metric: packed_numbers(values)}, {OUTCOME: packed_codes(outcomes)}
    return replace(turns, numbers={**turns.numbers, **numbers}, codes={**turns.codes, **codes}), chosen.size


def _counted(run: ComparedRun, metric: str, turns: CohortTurns) -> NDArray[np.bool_]:
    """A mask of the turns that owe a value of a metric: all; or, of one that not every turn owes, those that have one
    and those that were not measured at all, which stand last."""
    values = turns.number(metric)
    if values is None or owes_value(metric):
        return np.ones(turns.turns, np.bool_)
    return (np.arange(turns.turns) >= run.turns.turns) | (turns.valid & ~np.isnan(values))


def _unanswered(baseline: ComparedRun, candidate: ComparedRun, figure: ComparedFigure) -> str | None:
    """Describe that the candidate's percentile is an unanswered turn, and that it is shown to answer fewer turns than
    the baseline; None if not, and of a figure that the baseline does not show or that is not of an answer."""
    metric = HEADLINE if figure.check is None else figure.check.metric
    values = baseline.turns.number(metric)
    if values is None or np.isnan(values).all() or not owes_value(metric):
        return None
    beyond = 1 - (figure.fraction or 0.0)
    before, after = _unanswered_share(baseline.turns), _unanswered_share(candidate.turns)
    if before is None or after is None or not (after[0] > beyond > before[2] and after[0] > before[1]):
        return None
    missing = int(are_unanswered(candidate.turns).sum())
    return (
        f"{percent(after[2])} of the turns of {candidate.label} ({missing:,} of "
        f"{candidate.turns.eligible_turns:,}) were not answered, {percent(before[2])} of {baseline.label}: its "
        f"{figure.label} is longer than any wait that was measured"
    )


def are_unanswered(of: CohortTurns) -> NDArray[np.bool_]:
    """A mask of the turns that count as longer than any wait, shape (turns,)."""
    return of.has_outcome(*UNANSWERED) & of.eligible


def _unanswered_share(of: CohortTurns) -> tuple[float, float, float] | None:
    """The bounds of the share of unanswered turns, and the share. The effective number of turns is the number of calls:
    as if the turns of a call all ended alike, which is the most cautious assumption."""
    eligible = of.eligible
    total = int(eligible.sum())
    if not total:
        return None
    calls = int(np.unique(of.code(CALL)[eligible]).size)
    share = float(are_unanswered(of).sum()) / total
    interval = wilson_interval(round(share * calls), calls)
    return None if interval is None else (*interval, share)
