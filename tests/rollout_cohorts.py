"""Simulated cohorts for tests and benchmarks of the rollout: turns that depend on each other within a call, and heavy
tails; seeded."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from telemetry.model.durations import Duration
from telemetry.model.semconv import OUTCOMES
from telemetry.rollout.cohort_turns import (
    AUDIO,
    CALL,
    OUTCOME,
    CohortTurns,
    missed_column,
    packed_codes,
    packed_numbers,
)
from telemetry.rollout.completeness import AssignedUnits, UnitCounts
from telemetry.rollout.plan import Check, RolloutPlan, Stage

MS = 1_000_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Regression:
    """A candidate's regression: every turn later by `shift_ms`, the slowest `tail` of turns later by `tail_ms`, turns
    drawn with probability `at_random` as well; `no_reply` more turns get no reply."""

    shift_ms: float = 0.0
    tail: float = 0.0
    tail_ms: float = 0.0
    at_random: float = 0.0
    no_reply: float = 0.0


SAME = Regression()
NO_REPLY_SHARE = 0.005
GOOD_WITHIN_MS = (1200, 1500)  # of the checks of good turns
_MOST_TURNS = 12


def latencies_ms(rng: np.random.Generator, turns: int) -> tuple[Floats, NDArray[np.int64]]:
    """Voice-to-voice of turns in calls of 3 to 12, and the call of each: a call that is slow stays slow, neighboring
    turns are more alike still (AR(1)), and 3 % wait for something with a Pareto tail."""
    calls = turns // 3 + 1
    lengths = rng.integers(3, _MOST_TURNS + 1, calls)
    noise = np.empty((calls, _MOST_TURNS))
    noise[:, 0] = rng.normal(size=calls)
    for place in range(1, _MOST_TURNS):
        noise[:, place] = 0.5 * noise[:, place - 1] + np.sqrt(0.75) * rng.normal(size=calls)
    log = 0.25 * rng.normal(size=(calls, 1)) + 0.3 * noise
    there = np.arange(_MOST_TURNS) < lengths[:, None]
    values = (350 + 250 * np.exp(log))[there][:turns]
    slow = rng.random(turns) < 0.03
    values[slow] += 300 * (1 + rng.pareto(2.2, int(slow.sum())))
    return values, np.repeat(np.arange(calls), lengths)[:turns]


def cohort(name: str, turns: int, rng: np.random.Generator, regression: Regression = SAME) -> CohortTurns:
    """A cohort's turns; one in 200 gets no reply."""
    values, calls = latencies_ms(rng, turns)
    values = values + regression.shift_ms
    if regression.tail:
        values[values > np.quantile(values, 1 - regression.tail)] += regression.tail_ms
    unanswered = rng.random(turns) < NO_REPLY_SHARE + regression.no_reply
    if regression.at_random:
        values[rng.random(turns) < regression.at_random] += regression.tail_ms
    return cohort_of(name, values, calls, unanswered)


def cohort_of(
    name: str,
    values_ms: Floats,
    calls: NDArray[np.int64],
    unanswered: NDArray[np.bool_] | None = None,
    audio: NDArray[np.int64] | None = None,
) -> CohortTurns:
    """A cohort of given values; where `unanswered`, the turn has none."""
    missing = np.zeros(values_ms.size, dtype=np.bool_) if unanswered is None else unanswered
    outcomes = np.where(missing, OUTCOMES.index("no_reply"), OUTCOMES.index("ok"))
    codes = {OUTCOME: packed_codes(outcomes), CALL: packed_codes(calls)}
    if audio is not None:
        codes[AUDIO] = packed_codes(audio)
    numbers = {"voice_to_voice": packed_numbers(np.where(missing, np.nan, values_ms * MS))}
    for within_ms in GOOD_WITHIN_MS:
        counted_by = Check("", "good_turns", 0.0, within=within_ms * MS).counted_by or ""
        numbers[missed_column(counted_by)] = packed_numbers(missing | (values_ms > within_ms))
    return CohortTurns(name, int(values_ms.size), numbers, codes, first_unix_ns=0, newest_unix_ns=0)


def units_of(candidate: CohortTurns, control: CohortTurns) -> UnitCounts:
    """The calls of two cohorts, each of which met one of them."""
    of_candidate, of_control = AssignedUnits(candidate.calls), AssignedUnits(control.calls)
    return UnitCounts(candidate.calls + control.calls, 0, of_candidate, of_control)


def first_turns(of: CohortTurns, turns: int) -> CohortTurns:
    """The first turns of a cohort: what had arrived by then."""
    return replace(
        of,
        turns=min(turns, of.turns),
        numbers={name: column[: 8 * turns] for name, column in of.numbers.items()},
        codes={name: column[: 4 * turns] for name, column in of.codes.items()},
    )


def plan(margin_ms: float = 100.0, *, share: float = 0.25, fewest_turns: int = 100, **changes: object) -> RolloutPlan:
    """A plan of one stage with the guardrails that most teams have."""
    made = RolloutPlan(
        name="streaming",
        control="stable",
        candidate="streaming",
        unit="call",
        stages=(Stage("canary", share, 1 - share, Duration(), fewest_turns),),
        primary=Check("voice_to_voice p95", "quantile", margin_ms * MS),
        guardrails=(
            Check("tail voice_to_voice", "tail", 0.01),
            Check("good_turns voice_to_voice", "good_turns", 0.02, within=1200 * MS),
            Check("no_reply", "no_reply", 0.01),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]
