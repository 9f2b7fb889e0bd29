"""Whether a candidate is worse, within its margin, or not known yet: one result per check, and where it is. Pure."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from telemetry.model.formatting import count
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.estimates import Difference, TooFewError
from telemetry.rollout.few_events import difference_lower_bound, difference_p_value
from telemetry.rollout.plan import Check, RolloutPlan
from telemetry.rollout.samples import Mask, compare, is_open
from telemetry.rollout.sequential import boundary, holm, planned_information, sequential_p_value

# worse: shown to be worse, and not shown to stay within the margin. within: shown to stay within the margin. open:
# neither yet. unknown: nothing to compare, with the reason.
CheckStatus = Literal["worse", "within", "open", "unknown"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check at one look; figures, bounds and margin in the check's unit, larger being worse.

    `lower` holds at the check's part of the error level, `upper` at the whole; both at every look together.
    `information` is 1 when as much is known as the plan asks for. `turns_needed` is how many more turns of the
    candidate that takes; 0 for a check that is decided, None where it cannot be said.
    """

    check: Check
    status: CheckStatus
    turns: int = 0
    candidate: float | None = None
    control: float | None = None
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    information: float = 0.0
    p_value: float | None = None
    turns_needed: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The primary check over the turns of one value of a dimension. `is_worse` after Holm's correction over all slices:
    it says where a difference is, and never changes the verdict."""

    dimension: str
    value: str
    result: CheckResult
    is_worse: bool


def check_results(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> tuple[CheckResult, ...]:
    """Every check of a plan, in its order."""
    return tuple(check_result(plan, check, plan.rollback_level(check), candidate, control) for check in plan.checks)


def check_result(
    plan: RolloutPlan, check: Check, rollback_level: float, candidate: CohortTurns, control: CohortTurns
) -> CheckResult:
    """One check of a plan; `rollback_level` is its part of the error level."""
    try:
        return _compared(plan, check, rollback_level, (candidate, control))
    except TooFewError as error:
        return CheckResult(check, "unknown", reason=str(error))


def _compared(
    plan: RolloutPlan,
    check: Check,
    level: float,
    cohorts: tuple[CohortTurns, CohortTurns],
    only: tuple[Mask, Mask] | None = None,
) -> CheckResult:
    """The result of a check. What it claims without the turns that are open by its objective has to hold with them,
    too: `within` with those of the candidate counted bad and those of the control good, `worse` the other way round.
    Raises TooFewError."""

    def result(opened: tuple[float, float] | None = None) -> CheckResult:
        found, turns = compare(check, *cohorts, is_paired=plan.is_paired, only=only, opened=opened)
        return _judged(plan, check, level, found, turns)

    decided = result()
    open_turns = sum(
        int(np.count_nonzero(is_open(check, turns) & (True if mask is None else mask)))
        for turns, mask in zip(cohorts, only or (None, None), strict=True)
    )
    if not open_turns or decided.status == "unknown":
        return decided
    worst, best = result((1.0, 0.0)), result((0.0, 1.0))
    if worst.upper is None or best.lower is None or worst.status == "unknown" or best.status == "unknown":
        return CheckResult(check, "unknown", decided.turns, reason=_open_reason(open_turns))
    claims = decided.status == {"within": worst, "worse": best}.get(decided.status, decided).status
    return replace(
        decided,
        status=decided.status if claims else "open",
        lower=min(decided.lower or 0.0, best.lower),
        upper=max(decided.upper or 0.0, worst.upper),
        p_value=None if decided.p_value is None or best.p_value is None else max(decided.p_value, best.p_value),
        turns_needed=decided.turns_needed if claims else None,
        reason=decided.reason if claims else _open_reason(open_turns),
    )


def _open_reason(open_turns: int) -> str:
    return f"{count(open_turns, 'turn is', 'turns are')} open, which could turn it"


def slice_results(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> tuple[SliceResult, ...]:
    """The primary check over each value of each dimension of the plan that both cohorts have enough turns of."""
    found: list[tuple[str, str, CheckResult]] = []
    for dimension in plan.slices:
        if dimension not in candidate.codes or dimension not in control.codes:
            continue
        codes = candidate.code(dimension), control.code(dimension)
        for code, value in enumerate(candidate.labels.get(dimension, ())):
            only = (codes[0] == code, codes[1] == code)
            try:
                result = _compared(plan, plan.primary, plan.error_level, (candidate, control), only)
            except TooFewError:
                continue
            found.append((dimension, value, result))
    p_values = {f"{number}": each[2].p_value or 0.0 for number, each in enumerate(found)}
    rejected = holm(p_values, plan.error_level)
    return tuple(SliceResult(*each, rejected[f"{number}"]) for number, each in enumerate(found))


def _judged(plan: RolloutPlan, check: Check, rollback_level: float, found: Difference, turns: int) -> CheckResult:
    if not found.standard_error > 0:
        return CheckResult(check, "unknown", turns, reason="its values do not vary: nothing can be said of their error")
    planned = planned_information(check.margin, plan.error_level, plan.power)
    error_at_margin = found.standard_error_at(check.margin)
    information = 1 / error_at_margin**2 / planned
    lower, p_value = _lower(found, 1 / found.standard_error**2 / planned, rollback_level)
    upper = found.value + boundary(plan.error_level, information) * error_at_margin
    status: CheckStatus = "within" if upper < check.margin else "worse" if lower > 0 else "open"
    if check.figure_kind == "share":
        # Two shares differ by no more than the whole, whatever a few calls leave open.
        lower, upper = max(lower, -1.0), min(upper, 1.0)
    needed = math.ceil(turns * (1 / information - 1)) if information < 1 else None
    return CheckResult(
        check=check,
        status=status,
        turns=turns,
        candidate=found.candidate,
        control=found.control,
        difference=found.value,
        lower=lower,
        upper=upper,
        information=information,
        p_value=p_value,
        turns_needed=needed if status == "open" else 0,
    )


def _lower(found: Difference, information: float, level: float) -> tuple[float, float]:
    """The lower bound, and the smallest level at which it lies above zero. Of shares of turns, half of the level is for
    the bound that is exact where bad turns are few, so that both hold together."""
    z = found.value / found.standard_error
    p_value = sequential_p_value(z, information)
    if found.events is None:
        return found.value - boundary(level, information) * found.standard_error, p_value
    lower = found.value - boundary(level / 2, information) * found.standard_error
    p_value = min(1.0, 2 * p_value)
    if found.value > 0:
        few = difference_lower_bound(found.events, level / 2)
        lower = lower if few is None else max(lower, min(few, found.value))
        # A quarter of the level is that of the ratio.
        p_value = min(p_value, 4 * difference_p_value(found.events))
    return lower, p_value
