"""From a cohort's turns to the values that a check compares. Pure."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
from telemetry.rollout.plan import Check
from telemetry.rollout.shares import expect_independent

Mask = NDArray[np.bool_]
_NS_PER_MINUTE: Final = 60e9
# The outcomes that each ratio of outcomes counts.
_OUTCOMES: Final = {"no_reply": ("no_reply", "timeout"), "errors": ("error",), "abandonment": ("abandoned",)}


def columns_of(check: Check) -> tuple[str, ...]:
    """The columns beside metrics and outcomes that a check reads."""
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
    """The values of both cohorts that a check compares; `only` narrows both to some of their turns.

    Raises TooFewError, which names the cohort, also where nothing was measured.
    """
    both = candidate, control
    masks = only or (np.ones(candidate.turns, np.bool_), np.ones(control.turns, np.bool_))
    samples: list[CheckSample] = []
    for turns, mask in zip(both, masks, strict=True):
        with _named(turns):
            samples.append(sample_of(check, turns, is_paired, mask))
    if is_paired:
        heard = _eligible_with_common_audio(candidate, control)
        counts = [int(np.count_nonzero(mask & each)) for mask, each in zip(masks, heard, strict=True)]
        samples = [
            replace(each.in_order(), eligible=max(each.size, counted))
            for each, counted in zip(heard_by_both(samples[0], samples[1]), counts, strict=True)
        ]
    for turns, sample in zip(both, samples, strict=True):
        with _named(turns):
            expect_independent(sample)
    return samples[0], samples[1]


@contextmanager
def _named(turns: CohortTurns) -> Generator[None]:
    """Names the cohort that has too few turns."""
    try:
        yield
    except TooFewError as error:
        raise TooFewError(f"{turns.cohort}: {error}") from None


def sample_of(check: Check, turns: CohortTurns, is_paired: bool, only: Mask | None = None) -> CheckSample:
    """The values of a check over the turns that have one. Raises TooFewError where none has."""
    if check.counted_by is None:
        return kept_values(turns, _values(check, turns), is_paired, only)
    # The objective's rule says which turns count, of whatever outcome; an open one lacks its value.
    values = _column(turns, missed_column(check.counted_by))
    counted = ~np.isnan(values) | (_column(turns, open_column(check.counted_by)) == 1)
    return kept_values(turns, (values, None), is_paired, only, counted)


def kept_values(
    turns: CohortTurns,
    found: tuple[Floats, Floats | None],
    is_paired: bool,
    only: Mask | None = None,
    counted: Mask | None = None,
) -> CheckSample:
    """The values, NaN where a turn has none, of the turns that count (`counted`: which those are, if not the eligible
    ones), with their denominators where those are not 1. Raises TooFewError where there is none."""
    values, weights = found
    eligible = (turns.eligible if counted is None else counted) & (True if only is None else only)
    if is_paired:
        eligible &= turns.code(AUDIO) != NOT_REPORTED
    known = eligible & ~np.isnan(values)
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
            return turns.has_outcome(*_OUTCOMES[check.kind]).astype(np.float64), None


def _latencies(metric: str, turns: CohortTurns) -> Floats:
    """The values of a metric; a turn that nobody answered took for ever."""
    values = _column(turns, metric)
    if metric in NOT_OF_AN_ANSWER:
        return values
    return np.where(np.isnan(values) & turns.has_outcome(*UNANSWERED), np.inf, values)


def _cost(check: Check, turns: CohortTurns) -> Floats:
    cost = np.zeros(turns.turns)
    if check.price_per_token:
        cost = cost + check.price_per_token * _column(turns, TOKENS)
    if check.price_per_audio_minute:
        cost = cost + check.price_per_audio_minute * _column(turns, REPLY_AUDIO) / _NS_PER_MINUTE
    return cost


def _column(turns: CohortTurns, name: str) -> Floats:
    found = turns.number(name)
    return np.full(turns.turns, np.nan) if found is None else found


def _eligible_with_common_audio(candidate: CohortTurns, control: CohortTurns) -> list[Mask]:
    """Which turns of each cohort have audio that a turn of the other has, too, whether or not they have a value."""
    heard = [turns.code(AUDIO) for turns in (candidate, control)]
    common = np.intersect1d(heard[0][candidate.eligible], heard[1][control.eligible])
    common = common[common != NOT_REPORTED]
    return [np.isin(each, common) & of.eligible for each, of in zip(heard, (candidate, control), strict=True)]


def heard_by_both(candidate: CheckSample, control: CheckSample) -> tuple[CheckSample, CheckSample]:
    """The turns with audio that both cohorts heard. Raises TooFewError where there is none."""
    if candidate.pairs is None or control.pairs is None:
        raise ValueError("samples without utterances cannot be paired")
    common = np.intersect1d(candidate.pairs, control.pairs)
    if not common.size:
        raise TooFewError("no utterance was heard by both cohorts; send both the same clips, or set paired = false")
    return _of_pairs(candidate, candidate.pairs, common), _of_pairs(control, control.pairs, common)


def _of_pairs(sample: CheckSample, pairs: NDArray[np.int64], common: NDArray[np.int64]) -> CheckSample:
    kept = np.isin(pairs, common)
    weights = None if sample.weights is None else sample.weights[kept]
    pairs = np.searchsorted(common, pairs[kept])
    return CheckSample(sample.values[kept], sample.clusters[kept], weights, pairs, sample.unit, sample.eligible)
