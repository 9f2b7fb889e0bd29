"""Which checks of a plan take part in a comparison: all that its file states, and of its optional ones those that can
be compared. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from telemetry.rollout.checks import CheckResult, check_results
from telemetry.rollout.cohort_turns import CACHE_HIT, CohortTurns
from telemetry.rollout.plan import Check, RolloutPlan
from telemetry.rollout.samples import columns_of


@dataclass(frozen=True, slots=True)
class AppliedChecks:
    """The results of the checks that take part, in the plan's order; `plan` has no others. `notes` say why an optional
    one does not."""

    plan: RolloutPlan
    results: tuple[CheckResult, ...]
    notes: tuple[str, ...] = ()


def applied_checks(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> AppliedChecks:
    """The plan's checks over the turns of both cohorts. An optional one that cannot be compared is left out, where one
    of the plan's own is unknown: nobody asked for it, so it holds nothing up."""
    plan, notes = _reported(plan, candidate, control)
    results = check_results(plan, candidate, control)
    unknown = {result.check: result for result in results if result.check.is_optional and result.status == "unknown"}
    return AppliedChecks(
        _without(plan, unknown),
        tuple(result for result in results if result.check not in unknown),
        (*notes, *(_note(check, f"{result.reason}") for check, result in unknown.items())),
    )


def _reported(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> tuple[RolloutPlan, list[str]]:
    """The plan without the optional checks that have no part of its error level: those of which a cohort reports
    nothing, with a note where the other does; and cache misses where no cache answers the control, which cannot become
    more."""
    left_out: list[Check] = []
    notes: list[str] = []
    for check in plan.checks:
        if not check.is_optional:
            continue
        silent = [each.cohort for each in (candidate, control) if not _reporting(each, check).any()]
        if len(silent) == 1:
            notes.append(_note(check, f"no turn of {silent[0]} reports it"))
        if silent or (check.kind == "cache_misses" and not _has_hits(control, check)):
            left_out.append(check)
    return _without(plan, left_out), notes


def _without(plan: RolloutPlan, checks: Collection[Check]) -> RolloutPlan:
    return replace(plan, guardrails=tuple(check for check in plan.guardrails if check not in checks))


def _reporting(turns: CohortTurns, check: Check) -> NDArray[np.bool_]:
    """Which turns count and have all that the check reads."""
    reporting = turns.eligible if turns.turns else np.zeros(0, np.bool_)
    for name in columns_of(check):
        values = turns.number(name)
        reporting = reporting & (False if values is None else ~np.isnan(values))
    return reporting


def _has_hits(turns: CohortTurns, check: Check) -> bool:
    answered = turns.number(CACHE_HIT)
    return answered is not None and bool((answered[_reporting(turns, check)] == 1).any())


def _note(check: Check, reason: str) -> str:
    return f"{check.sentence} is not compared: {reason}; it is a default, and holds nothing up"
