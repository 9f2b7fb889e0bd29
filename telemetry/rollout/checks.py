"""Whether a candidate is worse, within its margin, or not known yet: one result per check, and where it is. Pure."""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from telemetry.model.formatting import count
from telemetry.rollout.check_sample import CheckSample, TooFewError
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.plan import Check, RolloutPlan
from telemetry.rollout.quantile_intervals import quantile_difference
from telemetry.rollout.samples import Mask, compare
from telemetry.rollout.sequential import boundary, holm, sequential_p_value, turns_until_shown
from telemetry.rollout.shares import (
    ComparedShares,
    Threshold,
    compare_quantile,
    compare_ratios,
    compare_shares,
    compare_tail,
    lowest_quantile,
)

# worse: shown to be worse than the control, and by the margin at least as it is estimated. within: shown to stay within
# the margin. open: neither yet. unknown: nothing to compare, with the reason.
CheckStatus = Literal["worse", "within", "open", "unknown"]
# A turn in which nothing was understood has as many errors as words; of a cost no largest value is known.
_WORST: Final = {"wer": 1.0}
_EXPECTED_SPREAD: Final = 0.5
# By so many standard errors a harm is estimated beyond its margin before it is an alarm: of candidates with half of the
# margin, in cohorts of one size, chance alone puts one in eight beyond it at some look.
_HARM_ROOM: Final = 0.5


@dataclass(frozen=True, slots=True)
class BeyondShares:
    """What decides a check of a quantile: shares of turns that took longer than a threshold.

    `beyond` of the candidate's turns and `control` of the control's lie beyond the control's quantile (`threshold`, in
    the metric's unit), `beyond_margin` of the candidate's beyond it and the margin, missing values counted as its rule
    says; `allowed` may. `lower` is the lower bound of `beyond` - `control`, `upper` the upper bound of `beyond_margin`.
    """

    threshold: float
    allowed: float
    beyond: float
    control: float
    lower: float
    beyond_margin: float
    upper: float


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check at one look, over `turns` of the candidate's `eligible` ones: those that have a value.

    Figures, bounds and margin are in the check's unit, larger being worse. For shares and ratios `lower` and `upper`
    are the bounds that decide, at every look together: `lower` at the check's part of the error level, `upper` at the
    whole. A quantile is decided by `shares`; its figures are those of both cohorts, None where turns that nobody
    answered leave none, and its bounds a 95 % interval that holds for one look. `turns_needed` is how many more turns
    of the candidate a promotion is expected to take; 0 for a check that is decided, None where it cannot be said.
    """

    check: Check
    status: CheckStatus
    turns: int = 0
    eligible: int = 0
    candidate: float | None = None
    control: float | None = None
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    shares: BeyondShares | None = None
    p_value: float | None = None
    turns_needed: int | None = None
    reason: str | None = None

    @property
    def holds(self) -> bool:
        """Whether a promotion waits for it."""
        return self.status in ("open", "unknown")


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
        return _judged(plan, check, rollback_level, compare(check, candidate, control, is_paired=plan.is_paired))
    except TooFewError as error:
        return CheckResult(check, "unknown", reason=str(error))


def slice_results(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> tuple[SliceResult, ...]:
    """The primary check over each value of each dimension of the plan that both cohorts have enough turns of."""
    found: list[tuple[str, str, CheckResult]] = []
    for dimension in plan.slices:
        if dimension not in candidate.codes or dimension not in control.codes:
            continue
        codes = candidate.code(dimension), control.code(dimension)
        for code, value in enumerate(candidate.labels.get(dimension, ())):
            only: tuple[Mask, Mask] = (codes[0] == code, codes[1] == code)
            try:
                samples = compare(plan.primary, candidate, control, is_paired=plan.is_paired, only=only)
                found.append((dimension, value, _judged(plan, plan.primary, plan.error_level, samples)))
            except TooFewError:
                continue
    p_values = {f"{number}": each[2].p_value for number, each in enumerate(found)}
    rejected = holm({name: p for name, p in p_values.items() if p is not None}, plan.error_level)
    return tuple(SliceResult(*each, rejected.get(f"{number}", False)) for number, each in enumerate(found))


def _judged(
    plan: RolloutPlan, check: Check, rollback_level: float, samples: tuple[CheckSample, CheckSample]
) -> CheckResult:
    """Raises TooFewError."""
    found, turns = _compared(check, *samples), samples[0].size
    above, beyond = found.above_control, found.above_margin
    lower = above.value - boundary(rollback_level, turns) * above.standard_error
    upper = beyond.value + boundary(plan.error_level, turns) * beyond.standard_error
    is_worse = lower > 0 and found.harm >= _HARM_ROOM * beyond.standard_error
    status: CheckStatus = "within" if upper < 0 else "worse" if is_worse else "open"
    needed: int | None = 0
    if status == "open":
        needed = _forecast(found, turns, plan.error_level)
    result = CheckResult(
        check=check,
        status=status,
        turns=turns,
        eligible=turns if samples[0].eligible is None else samples[0].eligible,
        p_value=sequential_p_value(above.z, turns),
        turns_needed=needed,
        reason=_missing_reason(samples[0]) if status == "open" and upper - found.by_missing < 0 else None,
    )
    if found.threshold is None:
        return _with_figures(result, found, (lower, upper))
    return _with_quantiles(result, found, found.threshold, samples, (lower, upper))


def _missing_reason(candidate: CheckSample) -> str:
    missing = count((candidate.eligible or 0) - candidate.size, "turn has", "turns have")
    return f"{missing} no value, a larger share than of the control: counted as beyond the margin they could turn it"


def _forecast(found: ComparedShares, turns: int, error_level: float) -> int | None:
    """How many more turns a promotion is expected to take. Few turns say little of how far the candidate is from its
    margin, and most candidates are like their control: so the excess is that of such a candidate, give or take
    _EXPECTED_SPREAD of it, as far as the turns do not say otherwise (the mean of two normal distributions)."""
    above, alike = found.above_margin, found.without_difference
    spread = _EXPECTED_SPREAD * abs(alike)
    weight = spread**2 / (spread**2 + above.settled_error**2) if spread else 1.0
    expected = -(alike + weight * (above.value - alike))
    if expected <= 0 or not above.settled_error > 0:
        return None
    shown_at = turns_until_shown(expected / above.standard_error, turns, error_level, expected / above.settled_error)
    return None if shown_at is None else max(1, shown_at - turns)


def _compared(check: Check, candidate: CheckSample, control: CheckSample) -> ComparedShares:
    match check.kind:
        case "quantile":
            return compare_quantile(candidate, control, check.fraction, check.margin)
        case "tail":
            return compare_tail(candidate, control, check.margin)
        case "wer" | "cost_per_turn":
            return compare_ratios(candidate, control, check.margin, _WORST.get(check.kind))
        case _:
            return compare_shares(candidate, control, check.margin)


def _with_figures(result: CheckResult, found: ComparedShares, bounds: tuple[float, float]) -> CheckResult:
    """The ratios of both cohorts and the bounds of their difference."""
    lower, upper = bounds[0], bounds[1] + result.check.margin
    if result.check.figure_kind == "share":
        # Two shares differ by no more than the whole, whatever a few calls leave open.
        lower, upper = max(lower, -1.0), min(upper, 1.0)
    return replace(
        result,
        candidate=found.candidate,
        control=found.control,
        difference=found.candidate - found.control,
        lower=lower,
        upper=upper,
    )


def _with_quantiles(
    result: CheckResult,
    found: ComparedShares,
    threshold: Threshold,
    samples: tuple[CheckSample, CheckSample],
    bounds: tuple[float, float],
) -> CheckResult:
    """The shares that decide, and the quantiles of both cohorts as far as there are any."""
    shares = BeyondShares(
        threshold=threshold.value,
        allowed=threshold.allowed,
        beyond=found.candidate,
        control=found.control,
        lower=max(bounds[0], -1.0),
        beyond_margin=found.above_margin.value + threshold.allowed,
        upper=min(bounds[1] + threshold.allowed, 1.0),
    )
    try:
        shown = quantile_difference(*samples, result.check.fraction)
    except TooFewError:
        of_candidate = _finite(lowest_quantile(samples[0].values, result.check.fraction))
        difference = None if of_candidate is None else of_candidate - threshold.value
        return replace(result, shares=shares, candidate=of_candidate, control=threshold.value, difference=difference)
    return replace(
        result,
        shares=shares,
        candidate=shown.candidate,
        control=shown.control,
        difference=shown.value,
        lower=_finite(shown.lower),
        upper=_finite(shown.upper),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
