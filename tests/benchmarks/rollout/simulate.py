"""One rollout: looks at what has come until the gate's rules promote, roll back or the turns end."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, cycle, takewhile
from typing import Final

import numpy as np

from telemetry.rollout.checks import CheckResult, applied_checks
from telemetry.rollout.gate import RolloutEvidence, decide, first_history
from telemetry.rollout.plan import Decision, RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.sentences import undecided
from tests.benchmarks.rollout.generator import CANDIDATE_INTERVAL_S, BothCohorts, Service, both_cohorts
from tests.benchmarks.rollout.scenarios import MARGIN_MS, Scenario

# Turns of the candidate between two looks, again and again.
BETWEEN_LOOKS: Final = (50, 80, 60, 100, 70, 90, 55, 95)
_FIRST_OF_EVERY_TURN: Final = 20
_PARTS: Final = (0.25, 0.5)  # of the turns that a promotion took: there its forecast is judged
_STAGES: Final = (("canary", 0.05), ("more", 0.25), ("half", 0.5))
_PAUSE_S: Final = 2 * 3600
_SECOND: Final = 1_000_000_000
_BEGAN_UNIX_NS: Final = 1_790_000_000 * _SECOND


@dataclass(frozen=True)
class Simulated:
    """The end of a rollout, the candidate's turns until then, and the kinds of checks that rolled it back, if any.
    `primary_turns` is when the primary check alone would have promoted; `forecasts` are forecast turns / turns, None
    where nothing could be said. `waiting` are the kinds of checks that were not decided at the end, and
    `reasons` say why."""

    verdict: Decision
    turns: int
    worse: tuple[str, ...] = ()
    primary_turns: int | None = None
    forecasts: tuple[float | None, ...] = ()
    waiting: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def simulated(scenario: Scenario, number: int, seed: int) -> Simulated:
    """The rollout of this number."""
    if scenario.looks == "every stage":
        return _through_stages(scenario, generator(scenario, number, seed))
    return _through_one_stage(scenario, turns_of(scenario, number, seed), plan_of(scenario, service(scenario, number)))


def turns_of(scenario: Scenario, number: int, seed: int) -> BothCohorts:
    """The turns of the rollout of this number."""
    rng = generator(scenario, number, seed)
    return both_cohorts(service(scenario, number), scenario.change, scenario.share, scenario.most_turns, rng)


def service(scenario: Scenario, number: int) -> Service:
    """The service of the rollout of this number."""
    return scenario.services[number % len(scenario.services)]


def generator(scenario: Scenario, number: int, seed: int) -> np.random.Generator:
    """Numbers that depend on the row's name, so that a row is the same alone and among others."""
    return np.random.default_rng([seed, zlib.crc32(scenario.name.encode()), number])


@cache
def plan_of(scenario: Scenario, of: Service) -> RolloutPlan:
    """The plan as its file says it, with the checks that are there by default."""
    unit = "user" if of.are_users else "call"
    stages = _STAGES if scenario.looks == "every stage" else (("canary", scenario.share),)
    primary = "" if "[primary]" in scenario.plan else f'[primary]\nmargin = "{MARGIN_MS:g}ms"\n'
    text = f'name = "simulated"\nunit = "{unit}"\npaired = {str(scenario.is_paired).lower()}\n'
    text += f'[cohorts]\ncontrol = "control"\ncandidate = "candidate"\n{primary}{scenario.plan}\n'
    text += "".join(f'[[stages]]\nname = "{name}"\nshare = {share}\nshortest = "0s"\n' for name, share in stages)
    return parse_plan(text, "rollout.toml")


def looks(scenario: Scenario, turns: int) -> Iterator[int]:
    """After how many turns of the candidate somebody looks; at the end in any case."""
    if scenario.looks == "every turn":
        yield from range(_FIRST_OF_EVERY_TURN, turns + 1)
        return
    last = 0
    for last in takewhile(lambda count: count <= turns, accumulate(cycle(BETWEEN_LOOKS))):
        yield last
    if last < turns:
        yield turns


def _through_one_stage(scenario: Scenario, both: BothCohorts, plan: RolloutPlan) -> Simulated:
    """The first verdict that is not hold. Where the candidate changes later, the stage is long enough: nothing is
    promoted before its end."""
    primary_turns: int | None = None
    results: tuple[CheckResult, ...] = ()
    for turns in looks(scenario, both.candidate.turns):
        results = applied_checks(plan, *both.first(turns)).results
        if worse := tuple(result.check.kind for result in results if result.status == "worse"):
            return Simulated("roll_back", turns, worse, primary_turns)
        if primary_turns is None and results[0].status == "within":
            primary_turns = turns
        if not scenario.change.onset and not any(result.holds for result in results):
            forecasts = tuple(_forecast(plan, both, round(part * turns)) for part in _PARTS)
            known = tuple(None if forecast is None else forecast / turns for forecast in forecasts)
            return Simulated("promote", turns, (), primary_turns, known)
    waiting = [result for result in results if result.holds]
    return Simulated(
        "hold",
        both.candidate.turns,
        primary_turns=primary_turns,
        waiting=tuple(result.check.kind for result in waiting),
        reasons=tuple(map(undecided, waiting)),
    )


def _forecast(plan: RolloutPlan, both: BothCohorts, turns: int) -> float | None:
    """After how many turns in all a look says that the promotion will come; None where it cannot say."""
    results = applied_checks(plan, *both.first(turns)).results
    needed = [result.turns_needed for result in results if result.holds]
    known = [more_turns for more_turns in needed if more_turns is not None]
    return turns + max(known, default=0) if len(known) == len(needed) else None


def _through_stages(scenario: Scenario, rng: np.random.Generator) -> Simulated:
    """Every stage of the plan, each judged by its own turns, with pauses between them."""
    of = scenario.services[0]
    plan = plan_of(scenario, of)
    now, history, before = _BEGAN_UNIX_NS, first_history(plan, _BEGAN_UNIX_NS), 0
    while True:
        stage = plan.stage(history.stage)
        both = both_cohorts(of, scenario.change, stage.share, scenario.most_turns, rng)
        began, verdict = now, None
        for turns in looks(scenario, both.candidate.turns):
            now = began + round(turns * CANDIDATE_INTERVAL_S * _SECOND)
            verdict = decide(plan, RolloutEvidence(*both.first(turns), 0.0), history, now)
            history = verdict.history
            if verdict.verdict != "hold":
                break
        if verdict is None or verdict.verdict == "hold":
            reasons = () if verdict is None else verdict.reasons
            return Simulated("hold", before + both.candidate.turns, reasons=reasons)
        before += verdict.candidate_turns
        if verdict.verdict == "roll_back":
            worse = tuple(result.check.kind for result in verdict.checks if result.status == "worse")
            return Simulated("roll_back", before, worse)
        if verdict.next_stage is None:
            return Simulated("promote", before)
        now += _PAUSE_S * _SECOND
        history = history.at_stage(verdict.next_stage.name, now)
