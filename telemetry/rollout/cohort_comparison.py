"""Two cohorts beside each other: differences with their bounds against a plan's margins, and curves. Pure.

The bounds are those of the gate (`checks.check_results`), by its own functions: a page and `rollout check` agree over
the same turns. Without a plan the margins are `default_plan`'s, and what comes out is a comparison, never a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from telemetry.model.durations import Duration
from telemetry.model.metrics import HEADLINE
from telemetry.rollout.checks import CheckResult, SliceResult, check_results, slice_results
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.plan import Check, RolloutPlan, SliceDimension, Stage

CURVE_POINTS: Final = 200
_MS: Final = 1_000_000
DEFAULT_MARGIN_NS: Final = 100 * _MS
_GOOD_WITHIN_NS: Final = 800 * _MS
_SLICES: Final[tuple[SliceDimension, ...]] = ("noise_profile", "length_class", "route")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """At most this share of a cohort's turns took at most so long; a turn that nobody answered took for ever."""

    cohort: str
    value_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class CohortComparison:
    """Candidate against control. `worse` and `within` are how many checks are shown to be so."""

    control: str
    candidate: str
    turns: tuple[int, int]  # of the control and of the candidate, those that count
    checks: tuple[CheckResult, ...]
    slices: tuple[SliceResult, ...]
    curves: tuple[CurvePoint, ...]

    @property
    def worse(self) -> int:
        """How many checks are shown to be worse."""
        return sum(each.status == "worse" for each in self.checks)

    @property
    def within(self) -> int:
        """How many checks are shown to be within their margin."""
        return sum(each.status == "within" for each in self.checks)


def default_plan(control: str, candidate: str) -> RolloutPlan:
    """What two cohorts are compared by where no plan says it."""
    primary = Check(f"{HEADLINE} p95", "quantile", DEFAULT_MARGIN_NS)
    return RolloutPlan(
        name="comparison",
        control=control,
        candidate=candidate,
        unit="call",
        stages=(Stage("comparison", 0.5, 0.5, Duration(), 0),),
        primary=primary,
        guardrails=(
            *(replace(primary, name=f"{HEADLINE} {name}", statistic=name) for name in ("p50", "p99")),
            Check("good_turns", "good_turns", 0.02, within=_GOOD_WITHIN_NS),
            *(Check(kind, kind, 0.01) for kind in ("no_reply", "errors", "abandonment")),
            Check("fallback", "fallback", 0.02),
        ),
        slices=_SLICES,
    )


def compare_cohorts(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> CohortComparison:
    """The comparison by a plan's checks, in their order."""
    return CohortComparison(
        control=plan.control,
        candidate=plan.candidate,
        turns=(control.eligible_turns, candidate.eligible_turns),
        checks=check_results(plan, candidate, control) if candidate.turns and control.turns else (),
        slices=slice_results(plan, candidate, control) if candidate.turns and control.turns else (),
        curves=tuple(point for turns in (control, candidate) for point in _curve(turns)),
    )


def _curve(turns: CohortTurns) -> Sequence[CurvePoint]:
    """Exact points of the cumulative curve at evenly spaced shares, over every turn that counts."""
    values = turns.number(HEADLINE)
    if values is None or not turns.turns:
        return ()
    eligible = turns.eligible
    known = np.sort(values[eligible & ~np.isnan(values)])
    every = int(np.count_nonzero(eligible))
    if not known.size:
        return ()
    places = np.unique(np.linspace(0, known.size - 1, min(CURVE_POINTS, known.size)).astype(int))
    return [CurvePoint(turns.cohort, float(known[at]), float((at + 1) / every)) for at in places]
