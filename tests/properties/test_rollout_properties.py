"""A look at one set of turns gives one verdict to the last digit, and a hold is no promotion in whatever order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.durations import Duration
from telemetry.model.semconv import OUTCOMES, UNANSWERED
from telemetry.rollout.checks import check_result
from telemetry.rollout.cohort_turns import (
    AUDIO,
    CACHE_HIT,
    CALL,
    FALLBACK,
    OUTCOME,
    REPLY_AUDIO,
    TOKENS,
    WER_ERRORS,
    WER_WORDS,
    CohortTurns,
    missed_column,
    open_column,
    packed_codes,
    packed_numbers,
)
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.plan import Check, RolloutHistory, RolloutPlan, Stage
from tests.fixtures_rollouts import as_object

NOW = 1_790_000_000_000_000_000
TURNS = 500


MS = 1_000_000
WITHIN = 700.0 * MS
ENDS = ("ok", "no_reply", "error", "abandoned", "interrupted", "invalid", "cut")
GOOD_TURNS = Check("good turns", "good_turns", 0.05, within=WITHIN)
CHECKS = (
    Check("p95", "quantile", 120.0 * MS),
    Check("p50", "quantile", 60.0 * MS, statistic="p50"),
    Check("tail", "tail", 0.02),
    GOOD_TURNS,
    Check("no reply", "no_reply", 0.02),
    Check("errors", "errors", 0.02),
    Check("abandonment", "abandonment", 0.02),
    Check("fallback", "fallback", 0.05),
    Check("misses", "cache_misses", 0.05),
    Check("words", "wer", 0.05),
    Check("cost", "cost_per_turn", 0.2, price_per_token=0.0031, price_per_audio_minute=0.17),
)


@dataclass(frozen=True)
class Shape:
    """The distribution of turns: rounded to `rounded_ms` (0: not), `missing` of the values not reported, calls of up to
    `longest` turns, `unanswered` turns without an end that is good."""

    rounded_ms: int
    missing: float
    longest: int
    unanswered: float
    slower_ms: float


SHAPES = st.builds(
    Shape,
    rounded_ms=st.sampled_from([0, 1, 50, 250]),
    missing=st.sampled_from([0.0, 0.02, 0.3]),
    longest=st.sampled_from([1, 8, 40]),
    unanswered=st.sampled_from([0.0, 0.02, 0.2]),
    slower_ms=st.sampled_from([-50.0, 0.0, 60.0, 120.0, 600.0]),
)
COHORT_SEEDS = st.integers(0, 1_000)


def a_plan(unit: str = "call", *, paired: bool = False) -> RolloutPlan:
    return RolloutPlan(
        name="exact",
        control="stable",
        candidate="canary",
        unit="user" if unit == "user" else "call",
        stages=(Stage("canary", 0.25, 0.75, Duration(), 50),),
        primary=CHECKS[0],
        guardrails=CHECKS[1:],
        slices=("route",),
        is_paired=paired,
    )


def a_cohort(name: str, turns: int, shape: Shape, rng: np.random.Generator, unit: str = "call") -> CohortTurns:
    """Turns of a cohort in calls, and where `unit` is a user, in users who call often or not."""
    lengths = rng.integers(1, shape.longest + 1, turns)
    calls = np.repeat(np.arange(turns), lengths)[:turns]
    if unit == "user":
        calls = (rng.zipf(1.6, turns) % (turns // 3))[calls]
    hit = rng.random(turns) < 0.3
    values = np.where(hit, 300, 600) * np.exp(0.2 * rng.normal(size=turns)[calls] + 0.3 * rng.normal(size=turns))
    values = values + (shape.slower_ms if name == "canary" else 0.0)
    if shape.rounded_ms:
        values = shape.rounded_ms * np.round(values / shape.rounded_ms)
    bad = rng.random(turns) < shape.unanswered
    ends = np.where(bad, rng.integers(1, len(ENDS), turns), 0)
    unknown = (rng.random(turns) < shape.missing) | bad
    values = np.where(unknown, np.nan, values * MS)
    spoken = rng.integers(1, 30, turns).astype(np.float64)
    is_open = unknown & ~bad
    return CohortTurns(
        cohort=name,
        turns=turns,
        numbers={
            "voice_to_voice": packed_numbers(values),
            missed_column(GOOD_TURNS.counted_by or ""): packed_numbers(
                np.where(is_open, np.nan, bad | (values > WITHIN))
            ),
            open_column(GOOD_TURNS.counted_by or ""): packed_numbers(is_open),
            FALLBACK: packed_numbers(np.where(rng.random(turns) < 0.1, np.nan, rng.random(turns) < 0.05)),
            CACHE_HIT: packed_numbers(np.where(rng.random(turns) < 0.1, np.nan, hit)),
            WER_ERRORS: packed_numbers(np.minimum(spoken, rng.poisson(0.4, turns))),
            WER_WORDS: packed_numbers(np.where(rng.random(turns) < 0.05, np.nan, spoken)),
            TOKENS: packed_numbers(rng.integers(1, 90, turns)),
            REPLY_AUDIO: packed_numbers(rng.integers(1, 9, turns) * 1.37e9),
        },
        codes={
            OUTCOME: packed_codes([OUTCOMES.index(ENDS[ending]) for ending in ends]),
            CALL: packed_codes(calls),
            AUDIO: packed_codes(rng.integers(-1, 40, turns)),
            "route": packed_codes(rng.integers(-1, 2, turns)),
        },
        labels={"route": ("cloud", "local")},
        first_unix_ns=0,
        newest_unix_ns=0,
        unnamed_turns=turns // 10 if unit == "user" else None,
    )


@cache
def both_cohorts(seed: int, shape: Shape, unit: str = "call", turns: int = TURNS) -> tuple[CohortTurns, CohortTurns]:
    rng = np.random.default_rng(seed)
    return a_cohort("canary", turns, shape, rng, unit), a_cohort("stable", 3 * turns, shape, rng, unit)


def rows(of: CohortTurns, chosen: Any) -> CohortTurns:
    """Some rows of a cohort in some order, with the codes of the calls as they are."""
    return replace(
        of,
        turns=int(np.arange(of.turns)[chosen].size),
        numbers={name: np.frombuffer(column, "<f8")[chosen].tobytes() for name, column in of.numbers.items()},
        codes={name: np.frombuffer(column, "<i4")[chosen].tobytes() for name, column in of.codes.items()},
    )


def otherwise(of: CohortTurns, seed: int) -> CohortTurns:
    """The same turns in another order, their calls under other numbers."""
    rng = np.random.default_rng(seed)
    permuted = rows(of, rng.permutation(of.turns))
    calls = permuted.code(CALL)
    numbers = rng.permutation(int(calls.max()) + 1)
    return replace(permuted, codes={**permuted.codes, CALL: packed_codes(numbers[calls])})


def looked(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns, history: RolloutHistory) -> GateVerdict:
    return decide(plan, RolloutEvidence(candidate, control, 0.0), history, NOW)


def figures(plan: RolloutPlan, verdict: GateVerdict) -> dict[str, Any]:
    """All of a verdict but how many looks there were."""
    document = as_object(plan, verdict)
    del document["looks"]
    return document


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(COHORT_SEEDS, SHAPES, st.sampled_from(["call", "user", "paired"]), st.integers(0, 1_000))
def test_order_of_turns_and_numbers_of_calls_do_not_matter(seed: int, shape: Shape, kind: str, order: int) -> None:
    unit = "user" if kind == "user" else "call"
    plan, (candidate, control) = a_plan(unit, paired=kind == "paired"), both_cohorts(seed, shape, unit)
    history = first_history(plan)
    one = figures(plan, looked(plan, candidate, control, history))
    other = figures(plan, looked(plan, otherwise(candidate, order), otherwise(control, order + 1), history))
    assert other == one


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(COHORT_SEEDS, SHAPES, st.lists(st.integers(1, TURNS) | st.just(TURNS), max_size=8))
def test_no_look_before_matters_unless_it_rolled_back(seed: int, shape: Shape, looks: list[int]) -> None:
    plan, (candidate, control) = a_plan(), both_cohorts(seed, shape)
    history = looked_at(plan, candidate, control, sorted(looks))
    assert len(history.looks) == len(looks)
    alone, after = (figures(plan, looked(plan, candidate, control, start)) for start in (first_history(plan), history))
    if history.is_rolled_back:  # what remains of a look; the figures are those of the turns that are there
        assert after["verdict"] == "roll_back"
        assert after["checks"] == alone["checks"]
    else:
        assert after == alone


def looked_at(plan: RolloutPlan, candidate: CohortTurns, control: CohortTurns, looks: Sequence[int]) -> RolloutHistory:
    """The history after looks at the first so many turns of the candidate, and three times as many of the control."""
    history = first_history(plan)
    for turns in looks:
        part = rows(candidate, slice(turns)), rows(control, slice(3 * turns))
        history = looked(plan, *part, history).history
    return history


# --- what a check counts, counted again


class Counted(NamedTuple):
    """The counts of a check of a quantile for two cohorts, with all values of the control."""

    threshold: float
    beyond: Fraction
    control: Fraction
    beyond_margin: Fraction


def counted(candidate: Sequence[float | None], control: Sequence[float], percent: int, margin: float) -> Counted:
    """Count directly. None is a value that was not reported, infinity a turn that nobody answered."""
    threshold = sorted(control)[-(-len(control) * percent // 100) - 1]
    values = [value for value in candidate if value is not None]
    missing = Fraction(len(candidate) - len(values), len(candidate))

    def share(of: Sequence[float], beyond: float) -> Fraction:
        return Fraction(sum(value > beyond for value in of), len(of))

    return Counted(
        threshold,
        share(values, threshold),
        share(control, threshold),
        missing + (1 - missing) * share(values, threshold + margin),
    )


def values_of(of: CohortTurns) -> list[float | None]:
    """The latencies of the turns; None where a turn, also one that was cut or is pending, has none, or is invalid."""
    latencies = of.number("voice_to_voice")
    assert latencies is not None
    values: list[float | None] = []
    for value, code in zip(latencies.tolist(), of.code(OUTCOME).tolist(), strict=True):
        end = OUTCOMES[code]
        if end == "invalid":
            values.append(None)
        else:
            values.append(math.inf if end in UNANSWERED and math.isnan(value) else None if math.isnan(value) else value)
    return values


@settings(max_examples=60, deadline=None)
@given(COHORT_SEEDS, SHAPES, st.sampled_from(CHECKS[:2]), st.integers(60, TURNS))
def test_shares_are_those_that_counting_gives(seed: int, shape: Shape, check: Check, turns: int) -> None:
    plan, (candidate, control) = a_plan(), both_cohorts(seed, shape)
    candidate = rows(candidate, slice(turns))
    reported = np.array([value is not None for value in values_of(control)])
    control = rows(control, reported)  # so that no value of the control is missing
    result = check_result(plan, check, 0.025, candidate, control)
    of_control = [value for value in values_of(control) if value is not None]
    wanted = counted(values_of(candidate), of_control, round(100 * check.fraction), check.margin)
    if result.status == "unknown":
        too_few = {"call", "needs ", "not answered"}
        assert any(words in (result.reason or "") for words in too_few), result.reason
        return
    shares = result.shares
    assert shares is not None
    assert (result.turns, result.eligible) == (
        sum(value is not None for value in values_of(candidate)),
        len(values_of(candidate)),
    )
    assert shares.threshold == wanted.threshold
    for of, exact in (
        (shares.beyond, wanted.beyond),
        (shares.control, wanted.control),
        (shares.beyond_margin, wanted.beyond_margin),
    ):
        assert of == pytest.approx(float(exact), abs=1e-12)
    assert shares.lower <= shares.beyond - shares.control + 1e-12
    assert shares.upper >= shares.beyond_margin - 1e-12
    # The two conditions, by what was counted.
    allowed = Fraction(100 - round(100 * check.fraction), 100)
    if result.status == "within":
        assert wanted.beyond_margin < allowed
    if result.status == "worse":
        assert wanted.beyond > wanted.control
        assert wanted.beyond_margin >= allowed


# --- a look after every turn


ROLLOUTS, LOOKS = 40, range(30, 230)
LEVEL = 0.05
# More than so many of 40 have a probability below 1 % where each has one of 5 %.
MOST_WRONG = 6
WIDE = Shape(rounded_ms=0, missing=0.0, longest=12, unanswered=0.0, slower_ms=0.0)


def first_claims(check: Check, shift_ms: float, status: str) -> int:
    """Count the rollouts in which a check ever has this status, with a look after every turn of the candidate."""
    plan = replace(a_plan(), primary=check, guardrails=())
    shape, hits = replace(WIDE, slower_ms=shift_ms), 0
    for seed in range(ROLLOUTS):
        rng = np.random.default_rng([35, seed])
        candidate, control = a_cohort("canary", LOOKS.stop, shape, rng), a_cohort("stable", 3 * LOOKS.stop, shape, rng)
        hits += any(
            check_result(plan, check, LEVEL, rows(candidate, slice(turns)), rows(control, slice(3 * turns))).status
            == status
            for turns in LOOKS
        )
    return hits


@pytest.mark.slow
@pytest.mark.parametrize("statistic", ["p50", "p95"])
def test_looks_after_every_turn_keep_rollback_error_level(statistic: str) -> None:
    """A margin of a nanosecond leaves only the bound to prevent a roll back by chance."""
    assert first_claims(Check(statistic, "quantile", 1.0, statistic=statistic), 0.0, "worse") <= MOST_WRONG


@pytest.mark.slow
def test_looks_after_every_turn_keep_promotion_error_level() -> None:
    """A candidate that is slower by the margin in every turn."""
    check = Check("p50", "quantile", 60.0 * MS, statistic="p50")
    assert first_claims(check, 60.0, "within") <= MOST_WRONG
    assert first_claims(check, -200.0, "within") > ROLLOUTS / 2  # and looking finds what is there
