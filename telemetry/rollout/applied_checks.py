"""Which checks of a plan take part in a comparison: all that its file states, and of its optional ones those that can
be compared. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

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
    nothing, or less than half as often as the other, with a note where that one reports it; and cache misses where no
    cache answers the control, which cannot become more."""
    cohorts = (candidate, control)
    silent: dict[Check, dict[str, float]] = {}
    for check in (each for each in plan.checks if each.is_optional):
        shares = [_reporting_share(each, check) for each in cohorts]
        silent[check] = {
            each.cohort: share
            for each, share in zip(cohorts, shares, strict=True)
            if not share or share < max(shares) / 2
        }
    notes = [
        _note(check, f"{'few turns' if share else 'no turn'} of {name} {'report' if share else 'reports'} it")
        for check, found in silent.items()
        for name, share in found.items()
        if len(found) == 1
    ]
    left_out = [check for check, found in silent.items() if found or not _can_become_more(check, control)]
    return _without(plan, left_out), notes


def _can_become_more(check: Check, control: CohortTurns) -> bool:
    """Whether a candidate can be worse: a service without a cache may say of every turn that none answered it."""
    hits = control.number(CACHE_HIT) if check.kind == "cache_misses" else None
    return hits is None or bool((hits[control.eligible] == 1).any())


def _without(plan: RolloutPlan, checks: Collection[Check]) -> RolloutPlan:
    return replace(plan, guardrails=tuple(check for check in plan.guardrails if check not in checks))


def _reporting_share(turns: CohortTurns, check: Check) -> float:
    """Of the turns that count, those that have all that the check reads."""
    known = eligible = turns.eligible if turns.turns else np.zeros(0, np.bool_)
    for name in columns_of(check):
        values = turns.number(name)
        known = known & (False if values is None else ~np.isnan(values))
    return np.count_nonzero(known) / max(1, np.count_nonzero(eligible))


def _note(check: Check, reason: str) -> str:
    return f"{check.sentence} is not compared: {reason}; it is a default, and holds nothing up"
