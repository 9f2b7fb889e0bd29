"""A comparison of two cohorts: differences with their bounds against margins, sizes, completeness, slices and curves,
and one sentence. Pure.

The bounds are those of the gate, by its own functions: a page and `rollout check` agree over the same turns. A figure
that a plan does not check is shown with a margin of our own, which is marked as assumed and decides nothing; without a
plan all margins are assumed, and the result is a comparison, never a verdict: where a rollout's plan covers the
cohorts, its log holds the one that counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from telemetry.model.durations import Duration
from telemetry.model.formatting import DASH, count
from telemetry.model.metrics import HEADLINE
from telemetry.rollout import sentences
from telemetry.rollout.checks import CheckResult, applied_checks, check_result, slice_results
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.completeness import (
    SampleRatio,
    UnitCounts,
    mismatch,
    sample_ratio,
    too_many_contaminated,
    too_many_invalid,
    too_much_lost,
)
from telemetry.rollout.plan import (
    DEFAULT_CACHE_MISSES,
    AssignmentUnit,
    Check,
    Completeness,
    RolloutPlan,
    Stage,
    slice_name,
)
from telemetry.rollout.progress import CheckRow, check_row, logged_row, slice_row
from telemetry.rollout.verdict import CheckVerdict

FigureGroup = Literal["latency", "ratio"]
CURVE_POINTS: Final = 200
_MS: Final = 1_000_000
DEFAULT_MARGIN_NS: Final = 100 * _MS
DEFAULT_SLICES: Final = ("noise_profile", "length_class", "route")
_STATISTICS: Final = ("p50", "p95", "p99")
# The order of ratios; the tail, being a share, is the first of them.
_RATIOS: Final = (
    *("tail", "good_turns", "objective", "no_reply", "errors", "fallback", "abandonment", "wer"),
    *("cache_misses", "cost_per_turn"),
)
_NO_PRICE: Final = "no plan states a price"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a cohort's cumulative curve: this share of its turns took at most this time; that of an unanswered
    turn is infinite."""

    cohort: str
    value_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class CohortSize:
    """The size of a cohort: every turn, those that count, those that are invalid, and its calls (or users)."""

    cohort: str
    turns: int = 0
    eligible: int = 0
    invalid: int = 0
    callers: int = 0

    @property
    def invalid_share(self) -> float:
        """Invalid turns / all turns; 0 without turns."""
        return self.invalid / self.turns if self.turns else 0.0


@dataclass(frozen=True, slots=True)
class CohortFigure:
    """A figure of both cohorts. `is_assumed`: its margin is not one of the plan; `decides`: it is one of the checks
    behind the comparison's sentence."""

    row: CheckRow
    group: FigureGroup
    statistic: str | None  # of a quantile of the headline
    is_assumed: bool
    decides: bool


@dataclass(frozen=True, slots=True)
class ComparedCohorts:
    """The turns to compare: those of both cohorts by a plan's margins, or by those of `default_plan`.

    `sizes` are exact, of the candidate and of the control, and so are `units`; the turns may be those of one in
    `one_in` calls. `stage` is the one at which all turns were heard, None where they may be of several. `logged` are
    the checks of a verdict over the same turns, which are then not estimated again.
    """

    plan: RolloutPlan
    candidate: CohortTurns
    control: CohortTurns
    sizes: tuple[CohortSize, CohortSize]
    telemetry_lost: float | None
    is_planned: bool = False
    stage: Stage | None = None
    units: UnitCounts = UnitCounts()  # noqa: RUF009 - immutable
    logged: Sequence[CheckVerdict] = ()
    one_in: int = 1
    good_within_ns: float | None = None  # of the headline, by the objective in force; None without one


@dataclass(frozen=True, slots=True)
class CohortComparison:
    """Candidate against control. `results` are the checks that the sentence is made of, empty where a verdict holds
    them. Of the slices, `left_out` have too few turns in one of the cohorts. `unit` and `margin` are those of the
    primary check, as the slices' rows have them."""

    candidate: CohortSize
    control: CohortSize
    plan: str | None
    stage: str | None
    figures: tuple[CohortFigure, ...]
    results: tuple[CheckResult, ...]
    slices: tuple[CheckRow, ...]
    left_out: tuple[str, ...]
    primary: str
    unit: str
    margin: float
    margin_text: str
    curves: tuple[CurvePoint, ...]
    sample_ratio: SampleRatio | None
    limits: Completeness
    telemetry_lost: float | None
    one_in: int
    unit_name: AssignmentUnit = "call"
    units: UnitCounts = UnitCounts()  # noqa: RUF009 - immutable

    @property
    def worse(self) -> int:
        """The number of deciding checks that are shown to be worse."""
        return sum(figure.row.status == "worse" for figure in self.figures if figure.decides)

    @property
    def within(self) -> int:
        """The number of deciding checks that are shown to be within their margin."""
        return sum(figure.row.status == "within" for figure in self.figures if figure.decides)

    @property
    def deciding(self) -> int:
        """The number of checks that decide."""
        return sum(figure.decides for figure in self.figures)


def without_claims(comparison: CohortComparison) -> CohortComparison:
    """The same figures without claims: shown, and neither worse nor within a margin."""
    return replace(
        comparison,
        figures=tuple(replace(figure, decides=False) for figure in comparison.figures),
        slices=tuple(row if row.status == "unknown" else replace(row, status="shown") for row in comparison.slices),
    )


def default_plan(control: str, candidate: str, good_within_ns: float | None = None) -> RolloutPlan:
    """The plan of a comparison without a plan; it has good turns only where an objective defines them."""
    good = () if good_within_ns is None else (Check("good_turns", "good_turns", 0.02, within=good_within_ns),)
    return RolloutPlan(
        name="comparison",
        control=control,
        candidate=candidate,
        unit="call",
        stages=(Stage("comparison", 0.5, 0.5, Duration(), 0),),
        primary=_headline("p95", DEFAULT_MARGIN_NS),
        guardrails=(
            *(_headline(name, DEFAULT_MARGIN_NS) for name in ("p50", "p99")),
            *good,
            *(Check(kind, kind, 0.01) for kind in ("no_reply", "errors", "abandonment")),
            Check("fallback", "fallback", 0.02),
            DEFAULT_CACHE_MISSES,
        ),
        slices=DEFAULT_SLICES,
    )


def assumed_checks(plan: RolloutPlan, good_within_ns: float | None = None) -> tuple[Check, ...]:
    """The figures that are shown in addition to a plan's checks, each with an assumed margin; the plan checks none."""
    margin = plan.primary.margin if plan.primary.metric == HEADLINE else DEFAULT_MARGIN_NS
    default = default_plan(plan.control, plan.candidate, good_within_ns)
    wanted = (
        *(_headline(name, margin) for name in _STATISTICS),
        *(check for check in default.guardrails if check.kind != "quantile"),
    )
    return tuple(check for check in wanted if not any(_is_like(check, known) for known in plan.checks))


def with_shown(plan: RolloutPlan, good_within_ns: float | None = None) -> RolloutPlan:
    """A plan that reads the columns of all figures that are shown; not for decisions."""
    checks = (*plan.guardrails, *assumed_checks(plan, good_within_ns))
    return replace(plan, guardrails=checks, slices=plan.slices or DEFAULT_SLICES)


def compare_cohorts(compared: ComparedCohorts) -> CohortComparison:
    """The comparison; figures in their order: p50, p95 and p99 of the headline, other latencies, ratios."""
    both = compared.candidate.turns > 0 and compared.control.turns > 0
    plan, results = _applied(compared) if both else (compared.plan, ())
    compared = replace(compared, plan=plan)
    slices = replace(plan, slices=plan.slices or DEFAULT_SLICES)
    in_slices = slice_results(slices, compared.candidate, compared.control) if both else ()
    known = {(result.dimension, result.value) for result in in_slices}
    return CohortComparison(
        candidate=compared.sizes[0],
        control=compared.sizes[1],
        plan=plan.name if compared.is_planned else None,
        stage=None if compared.stage is None else compared.stage.name,
        figures=_figures(compared, results) if both else (),
        results=results,
        slices=tuple(slice_row(result) for result in in_slices),
        left_out=tuple(
            slice_name(name, value)
            for name in slices.slices
            for value in (compared.candidate.labels.get(name, ()) if both else ())
            if (name, value) not in known
        ),
        primary=plan.primary.sentence,
        unit="s",
        margin=plan.primary.margin / 1e9,
        margin_text=plan.primary.format_margin(),
        curves=tuple(point for turns in (compared.control, compared.candidate) for point in _curve(turns)),
        sample_ratio=_sample_ratio(compared),
        limits=plan.completeness,
        telemetry_lost=compared.telemetry_lost,
        one_in=compared.one_in,
        unit_name=plan.unit,
        units=compared.units,
    )


def _applied(compared: ComparedCohorts) -> tuple[RolloutPlan, tuple[CheckResult, ...]]:
    """The plan with the checks that take part, and their results; if a verdict is logged, the checks that it names."""
    if not compared.logged:
        applied = applied_checks(compared.plan, compared.candidate, compared.control)
        return applied.plan, applied.results
    names = {row.name for row in compared.logged}
    guardrails = tuple(
        guardrail for guardrail in compared.plan.guardrails if not guardrail.is_optional or guardrail.name in names
    )
    return replace(compared.plan, guardrails=guardrails), ()


def _figures(compared: ComparedCohorts, results: Sequence[CheckResult]) -> tuple[CohortFigure, ...]:
    plan, assumed = compared.plan, assumed_checks(compared.plan, compared.good_within_ns)
    by_name = {check.name: check for check in plan.checks}
    made = [
        (check, _figure(check, logged_row(row, check.sentence), compared))
        for row in compared.logged
        if (check := by_name.get(row.name)) is not None
    ]
    made += [(result.check, _figure(result.check, check_row(result), compared)) for result in results]
    level = plan.error_level / 2 / max(1, len(assumed))
    for check in assumed:
        row = check_row(check_result(plan, check, level, compared.candidate, compared.control))
        made.append((check, replace(_figure(check, row, compared), is_assumed=True, decides=False)))
    if not any(check.kind == "cost_per_turn" for check, _ in made):
        unpriced = Check("cost_per_turn", "cost_per_turn", 0.0)
        row = replace(check_row(CheckResult(unpriced, "unknown", reason=_NO_PRICE)), margin=DASH)
        made.append((unpriced, replace(_figure(unpriced, row, compared), is_assumed=False, decides=False)))
    return tuple(figure for _, figure in sorted(made, key=lambda entry: _place(entry[0])))


def _figure(check: Check, row: CheckRow, compared: ComparedCohorts) -> CohortFigure:
    is_quantile = check.kind == "quantile"
    return CohortFigure(
        row=row,
        group="latency" if is_quantile else "ratio",
        statistic=check.statistic if is_quantile and check.metric == HEADLINE else None,
        is_assumed=not compared.is_planned,
        decides=True,
    )


def _place(check: Check) -> tuple[int, str, str, int]:
    if check.kind == "quantile":
        return (0, "" if check.metric == HEADLINE else check.metric, check.statistic, 0)
    return (1, "", "", _RATIOS.index(check.kind))


def _headline(statistic: str, margin: float) -> Check:
    return Check(f"{HEADLINE} {statistic}", "quantile", margin, statistic=statistic)


def _is_like(one: Check, other: Check) -> bool:
    if one.kind != other.kind:
        return False
    return one.kind != "quantile" or (one.metric, one.statistic) == (other.metric, other.statistic)


def _sample_ratio(compared: ComparedCohorts) -> SampleRatio | None:
    """The units against the stage's shares; None if no plan states them, or they changed in between."""
    if compared.stage is None or not compared.stage.has_control:
        return None
    return sample_ratio(compared.stage, compared.units, compared.plan.unit, compared.plan.completeness.sample_ratio_p)


def _curve(turns: CohortTurns) -> Sequence[CurvePoint]:
    """Exact points of the cumulative curve at evenly spaced shares."""
    known, every = turns.distribution(HEADLINE)
    if not known.size:
        return ()
    places = np.unique(np.linspace(0, known.size - 1, min(CURVE_POINTS, known.size)).astype(int))
    return [CurvePoint(turns.cohort, float(known[at]), float((at + 1) / every)) for at in places]


ComparisonState = Literal["worse", "within", "open"]
_WORDS: Final[dict[ComparisonState, str]] = {
    "worse": "{candidate} is worse than {control}",
    "within": "{candidate} is within every margin that could be compared with {control}",
    "open": "it is not decided whether {candidate} is worse than {control}",
}


@dataclass(frozen=True, slots=True)
class ComparisonSentence:
    """`sentence` holds the first reason, `reasons` the others; `basis` says by which margins. Where something that has
    to be complete is not (`is_incomplete`), there is no verdict, whatever the figures."""

    state: ComparisonState
    sentence: str
    reasons: tuple[str, ...]
    basis: str
    is_incomplete: bool = False


def comparison_sentence(comparison: CohortComparison, limited: str | None = None) -> ComparisonSentence:
    """The comparison in a sentence; `limited` is the reason if no claim about the service is possible.

    As in a rollout, incompleteness comes before any figure: there is no verdict then.
    """
    incomplete = [*([] if limited is None else [limited]), *_incomplete(comparison)]
    state, reasons = ("open", incomplete) if incomplete else _state(comparison)
    first, *others = reasons
    words = _WORDS[state].format(candidate=comparison.candidate.cohort, control=comparison.control.cohort)
    return ComparisonSentence(state, f"{words}: {first}", tuple(others), _basis(comparison), bool(incomplete))


def _state(comparison: CohortComparison) -> tuple[ComparisonState, Sequence[str]]:
    if worse := [sentences.worse(result) for result in comparison.results if result.status == "worse"]:
        return "worse", worse
    by_status = {
        status: [sentences.undecided(result) for result in comparison.results if result.status == status]
        for status in ("open", "unknown")
    }
    primary = comparison.results[0].status if comparison.results else "unknown"
    if by_status["open"] or primary == "unknown":
        return "open", [*by_status["open"], *by_status["unknown"]] or ["no figure could be compared"]
    # What cannot be compared is said, and holds nothing up: this is not a gate.
    within = [sentences.within(result) for result in comparison.results if result.status == "within"]
    return "within", [*within[:1], *by_status["unknown"]]


def _incomplete(comparison: CohortComparison) -> list[str]:
    limits, is_planned = comparison.limits, comparison.plan is not None
    both = (comparison.candidate, comparison.control)
    return [
        *(f"no turn of {cohort.cohort} is among these" for cohort in both if not cohort.turns),
        *too_much_lost(comparison.telemetry_lost, limits, is_planned=is_planned),
        *too_many_invalid(both, limits, is_planned=is_planned),
        *too_many_contaminated(comparison.units, limits, comparison.unit_name, is_planned=is_planned),
        *mismatch(comparison.sample_ratio, comparison.candidate.cohort),
    ]


def _basis(comparison: CohortComparison) -> str:
    if comparison.plan is not None:
        return f"by the margins of the rollout {comparison.plan}"
    shown = "; ".join(f"{figure.row.name} {figure.row.margin}" for figure in comparison.figures if figure.decides)
    counted = count(comparison.deciding, "figure")
    return (
        f"no rollout's plan covers these cohorts: the margins of the {counted} are assumed ({shown}), so this is a "
        "comparison of these turns, not a verdict to act on"
        if shown
        else "no rollout's plan covers these cohorts: this is not a verdict to act on"
    )
