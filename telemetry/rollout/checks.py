"""Checks of a rollout: which take part, the values that each compares, and whether the candidate is worse, within its
margin, or not known yet. Pure.

A check takes part if its plan's file states it; an optional one only where both cohorts report what it compares.
"""

import math
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from telemetry.model.formatting import count
from telemetry.model.metrics import NOT_OF_AN_ANSWER
from telemetry.model.semconv import UNANSWERED
from telemetry.rollout.check_sample import CheckSample, Floats, TooFewError
from telemetry.rollout.cohort_turns import (
    AUDIO,
    CACHE_HIT,
    CALL,
    FALLBACK,
    NOT_REPORTED,
    REPLY_AUDIO,
    TOKENS,
    WER_ERRORS,
    WER_WORDS,
    CohortTurns,
    missed_column,
    open_column,
)
from telemetry.rollout.plan import Check, RolloutPlan
from telemetry.rollout.quantile_intervals import quantile_difference
from telemetry.rollout.sequential import boundary, holm, sequential_p_value, turns_until_shown
from telemetry.rollout.shares import (
    ComparedShares,
    Threshold,
    compare_quantile,
    compare_ratios,
    compare_shares,
    compare_tail,
    expect_independent,
    lowest_quantile,
)

Mask = NDArray[np.bool_]
_NS_PER_MINUTE: Final = 60e9
# The outcomes that each ratio of outcomes counts.
_OUTCOMES: Final = {"no_reply": ("no_reply", "timeout"), "errors": ("error",), "abandonment": ("abandoned",)}


def columns_of(check: Check) -> tuple[str, ...]:
    """Return the columns that a check reads in addition to metrics and outcomes."""
    match check.kind:
        case "fallback":
            return (FALLBACK,)
        case "cache_misses":
            return (CACHE_HIT,)
        case "wer":
            return WER_ERRORS, WER_WORDS
        case "cost_per_turn":
            priced = ((check.price_per_token, TOKENS), (check.price_per_audio_minute, REPLY_AUDIO))
            return tuple(column for price, column in priced if price)
        case _:
            return ()


def compare(
    check: Check,
    candidate: CohortTurns,
    control: CohortTurns,
    *,
    is_paired: bool = False,
    only: tuple[Mask, Mask] | None = None,
) -> tuple[CheckSample, CheckSample]:
    """The values of both cohorts that a check compares; `only` restricts both to some of their turns. A call that never
    began lacks its value, and is among no such part.

    Raises TooFewError, which names the cohort, also if nothing was measured.
    """
    both = candidate, control
    masks = only or (np.ones(candidate.turns, np.bool_), np.ones(control.turns, np.bool_))
    samples: list[CheckSample] = []
    for turns, mask in zip(both, masks, strict=True):
        with _named(turns):
            samples.append(sample_of(check, turns, is_paired, mask))
    if is_paired:
        heard = _with_common_audio(candidate, control)
        counts = [int(np.count_nonzero(mask & heard_mask)) for mask, heard_mask in zip(masks, heard, strict=True)]
        samples = [
            replace(sample.in_order(), eligible=max(sample.size, counted))
            for sample, counted in zip(heard_by_both(samples[0], samples[1]), counts, strict=True)
        ]
    if only is None:
        samples = [
            replace(sample, eligible=(sample.eligible or 0) + turns.unbegun_turns)
            for turns, sample in zip(both, samples, strict=True)
        ]
    for turns, sample in zip(both, samples, strict=True):
        with _named(turns):
            expect_independent(sample)
    return samples[0], samples[1]


@contextmanager
def _named(turns: CohortTurns) -> Generator[None]:
    """Add the name of the cohort with too few turns to the error."""
    try:
        yield
    except TooFewError as error:
        raise TooFewError(f"{turns.cohort}: {error}") from None


def sample_of(check: Check, turns: CohortTurns, is_paired: bool, only: Mask | None = None) -> CheckSample:
    """The values of a check over the turns that have one. Raises TooFewError if none has."""
    if check.counted_by is None:
        return kept_values(turns, _values(check, turns), is_paired, only)
    # The objective's rule says which turns count, of whatever outcome; an open one lacks its value.
    values = _column(turns, missed_column(check.counted_by))
    counted = ~np.isnan(values) | (_column(turns, open_column(check.counted_by)) == 1)
    return kept_values(turns, (values, None), is_paired, only, counted)


def kept_values(
    turns: CohortTurns,
    columns: tuple[Floats, Floats | None],
    is_paired: bool,
    only: Mask | None = None,
    counted: Mask | None = None,
) -> CheckSample:
    """The values, NaN where a turn has none, of the turns that count (`counted`: which those are, if not all), with
    their denominators where those are not 1. Unless an objective's rule says otherwise (`counted`), an invalid turn
    lacks its value. Raises TooFewError where there is none."""
    values, weights = columns
    eligible = (np.ones(turns.turns, np.bool_) if counted is None else counted) & (True if only is None else only)
    if is_paired:
        eligible &= turns.code(AUDIO) != NOT_REPORTED
    known = eligible & ~np.isnan(values) & (turns.valid if counted is None else True)
    if weights is not None:
        known &= ~np.isnan(weights)
    if not known.any():
        if is_paired and not (turns.code(AUDIO) != NOT_REPORTED).any():
            raise TooFewError("no turn names the clip that was heard; set paired = false")
        raise TooFewError("no turn reports it; a value that was not measured can never pass a check")
    return CheckSample(
        values[known],
        turns.code(CALL)[known],
        None if weights is None else weights[known],
        turns.code(AUDIO)[known] if is_paired else None,
        "call" if turns.unnamed_turns is None else "user",
        int(np.count_nonzero(eligible)),
    )


def _values(check: Check, turns: CohortTurns) -> tuple[Floats, Floats | None]:
    """The value of every turn, NaN where it has none or does not count, and its denominator where that is not 1."""
    match check.kind:
        case "quantile" | "tail":
            return _latencies(check.metric, turns), None
        case "fallback":
            return _column(turns, FALLBACK), None
        case "cache_misses":
            return 1 - _column(turns, CACHE_HIT), None
        case "wer":
            words = _column(turns, WER_WORDS)
            return _column(turns, WER_ERRORS), np.where(words > 0, words, np.nan)
        case "cost_per_turn":
            return _cost(check, turns), None
        case _:
            # How a turn that was cut, or is pending, would have ended is not known.
            return np.where(turns.unfinished, np.nan, turns.has_outcome(*_OUTCOMES[check.kind])), None


def _latencies(metric: str, turns: CohortTurns) -> Floats:
    """The values of a metric; that of an unanswered turn is infinite."""
    values = _column(turns, metric)
    if metric in NOT_OF_AN_ANSWER:
        return values
    return np.where(np.isnan(values) & turns.has_outcome(*UNANSWERED), np.inf, values)


def _cost(check: Check, turns: CohortTurns) -> Floats:
    cost = np.where(turns.unfinished, np.nan, 0.0)
    if check.price_per_token:
        cost = cost + check.price_per_token * _column(turns, TOKENS)
    if check.price_per_audio_minute:
        cost = cost + check.price_per_audio_minute * _column(turns, REPLY_AUDIO) / _NS_PER_MINUTE
    return cost


def _column(turns: CohortTurns, name: str) -> Floats:
    column = turns.number(name)
    return np.full(turns.turns, np.nan) if column is None else column


def _with_common_audio(candidate: CohortTurns, control: CohortTurns) -> list[Mask]:
    """Masks of the turns whose audio a valid turn of the other cohort has, too, with or without a value."""
    heard = [turns.code(AUDIO) for turns in (candidate, control)]
    common = np.intersect1d(heard[0][candidate.valid], heard[1][control.valid])
    common = common[common != NOT_REPORTED]
    return [np.isin(codes, common) for codes in heard]


def heard_by_both(candidate: CheckSample, control: CheckSample) -> tuple[CheckSample, CheckSample]:
    """The turns with audio that both cohorts heard. Raises TooFewError if there are none."""
    if candidate.pairs is None or control.pairs is None:
        raise ValueError("samples without utterances cannot be paired")
    common = np.intersect1d(candidate.pairs, control.pairs)
    if not common.size:
        raise TooFewError("no utterance was heard by both cohorts; send both the same clips, or set paired = false")
    return _with_pairs(candidate, candidate.pairs, common), _with_pairs(control, control.pairs, common)


def _with_pairs(sample: CheckSample, pairs: NDArray[np.int64], common: NDArray[np.int64]) -> CheckSample:
    kept = np.isin(pairs, common)
    weights = None if sample.weights is None else sample.weights[kept]
    pairs = np.searchsorted(common, pairs[kept])
    return CheckSample(sample.values[kept], sample.clusters[kept], weights, pairs, sample.unit, sample.eligible)


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
    """The deciding shares of a check of a quantile: those of turns that took longer than a threshold.

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
    results: list[tuple[str, str, CheckResult]] = []
    for dimension in plan.slices:
        if dimension not in candidate.codes or dimension not in control.codes:
            continue
        codes = candidate.code(dimension), control.code(dimension)
        for code, value in enumerate(candidate.labels.get(dimension, ())):
            only: tuple[Mask, Mask] = (codes[0] == code, codes[1] == code)
            try:
                samples = compare(plan.primary, candidate, control, is_paired=plan.is_paired, only=only)
                results.append((dimension, value, _judged(plan, plan.primary, plan.error_level, samples)))
            except TooFewError:
                continue
    p_values = {f"{number}": result[2].p_value for number, result in enumerate(results)}
    rejected = holm({name: p for name, p in p_values.items() if p is not None}, plan.error_level)
    return tuple(SliceResult(*result, rejected.get(f"{number}", False)) for number, result in enumerate(results))


def _judged(
    plan: RolloutPlan, check: Check, rollback_level: float, samples: tuple[CheckSample, CheckSample]
) -> CheckResult:
    """Judge a check by its samples. Raises TooFewError."""
    compared, turns = _compared(check, *samples), samples[0].size
    above, beyond = compared.above_control, compared.above_margin
    lower = above.value - boundary(rollback_level, turns) * above.standard_error
    upper = beyond.value + boundary(plan.error_level, turns) * beyond.standard_error
    is_worse = lower > 0 and compared.harm >= _HARM_ROOM * beyond.standard_error
    status: CheckStatus = "within" if upper < 0 else "worse" if is_worse else "open"
    needed: int | None = 0
    if status == "open":
        needed = _forecast(compared, turns, plan.error_level)
    result = CheckResult(
        check=check,
        status=status,
        turns=turns,
        eligible=turns if samples[0].eligible is None else samples[0].eligible,
        p_value=sequential_p_value(above.z, turns),
        turns_needed=needed,
        reason=_missing_reason(samples[0]) if status == "open" and upper - compared.by_missing < 0 else None,
    )
    if compared.threshold is None:
        return _with_figures(result, compared, (lower, upper))
    return _with_quantiles(result, compared, compared.threshold, samples, (lower, upper))


def _missing_reason(candidate: CheckSample) -> str:
    missing = count((candidate.eligible or 0) - candidate.size, "turn has", "turns have")
    return f"{missing} no value, a larger share than of the control: counted as beyond the margin they could turn it"


def _forecast(compared: ComparedShares, turns: int, error_level: float) -> int | None:
    """Return how many more turns a promotion is expected to take. Few turns say little of how far the candidate is from
    its margin, and most candidates are like their control: so the excess is that of such a candidate, give or take
    _EXPECTED_SPREAD of it, as far as the turns do not say otherwise (the mean of two normal distributions)."""
    above, alike = compared.above_margin, compared.without_difference
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


def _with_figures(result: CheckResult, compared: ComparedShares, bounds: tuple[float, float]) -> CheckResult:
    """The ratios of both cohorts and the bounds of their difference."""
    lower, upper = bounds[0], bounds[1] + result.check.margin
    if result.check.figure_kind == "share":
        # Two shares differ by no more than the whole, whatever a few calls leave open.
        lower, upper = max(lower, -1.0), min(upper, 1.0)
    return replace(
        result,
        candidate=compared.candidate,
        control=compared.control,
        difference=compared.candidate - compared.control,
        lower=lower,
        upper=upper,
    )


def _with_quantiles(
    result: CheckResult,
    compared: ComparedShares,
    threshold: Threshold,
    samples: tuple[CheckSample, CheckSample],
    bounds: tuple[float, float],
) -> CheckResult:
    """The shares that decide, and the quantiles of both cohorts as far as there are any."""
    shares = BeyondShares(
        threshold=threshold.value,
        allowed=threshold.allowed,
        beyond=compared.candidate,
        control=compared.control,
        lower=max(bounds[0], -1.0),
        beyond_margin=compared.above_margin.value + threshold.allowed,
        upper=min(bounds[1] + threshold.allowed, 1.0),
    )
    try:
        shown = quantile_difference(*samples, result.check.fraction)
    except TooFewError:
        candidate_quantile = _finite(lowest_quantile(samples[0].values, result.check.fraction))
        difference = None if candidate_quantile is None else candidate_quantile - threshold.value
        return replace(
            result, shares=shares, candidate=candidate_quantile, control=threshold.value, difference=difference
        )
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
    for check in (check for check in plan.checks if check.is_optional):
        shares = [_reporting_share(cohort, check) for cohort in cohorts]
        silent[check] = {
            cohort.cohort: share
            for cohort, share in zip(cohorts, shares, strict=True)
            if not share or share < max(shares) / 2
        }
    notes = [
        _note(check, f"{'few turns' if share else 'no turn'} of {name} {'report' if share else 'reports'} it")
        for check, silent_shares in silent.items()
        for name, share in silent_shares.items()
        if len(silent_shares) == 1
    ]
    left_out = [
        check for check, silent_shares in silent.items() if silent_shares or not _can_become_more(check, control)
    ]
    return _without(plan, left_out), notes


def _can_become_more(check: Check, control: CohortTurns) -> bool:
    """Return whether a candidate can be worse: a service without a cache may report for every turn that no cache
    answered it."""
    hits = control.number(CACHE_HIT) if check.kind == "cache_misses" else None
    return hits is None or bool((hits[control.eligible] == 1).any())


def _without(plan: RolloutPlan, checks: Collection[Check]) -> RolloutPlan:
    return replace(plan, guardrails=tuple(check for check in plan.guardrails if check not in checks))


def _reporting_share(turns: CohortTurns, check: Check) -> float:
    """The share of counted turns that have everything the check reads."""
    known = eligible = turns.eligible if turns.turns else np.zeros(0, np.bool_)
    for name in columns_of(check):
        values = turns.number(name)
        known = known & (False if values is None else ~np.isnan(values))
    return np.count_nonzero(known) / max(1, np.count_nonzero(eligible))


def _note(check: Check, reason: str) -> str:
    return f"{check.sentence} is not compared: {reason}; it is a default, and holds nothing up"
