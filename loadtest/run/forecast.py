"""The expected yield of a run: about how many turns and calls, against how many its objectives need. Pure.

How long a service takes to answer and how much it says is not known beforehand. A turn is taken to last as long as the
caller's speech, the pause before it, and `REPLY_S`: an answer after 1 s that lasts 3 s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.conversation.plan import SECOND_NS
from loadtest.scenario.settings import SwarmSettings
from telemetry.model import formatting
from telemetry.model.stats import minimum_for_target
from telemetry.objectives.objective import Counted, Objective

REPLY_S: Final = 4.0
CONNECT_S: Final = 0.3
# Turns that come to nothing (silent, invalid, cut) are made up for.
SPARE: Final = 1.1
LONGEST_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Need:
    """The demand of the objectives: `most` is how many turns (or calls) the most demanding one needs, at its
    `target`."""

    most: int = 0
    target: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """The load that is asked for: callers for a time (None: until all calls are made), saying clips of a mean
    length."""

    users: int
    run_time_s: float | None
    speech_s: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """About how many turns that count, and calls, a run yields; None where nothing bounds it."""

    turns: int | None
    calls: int | None


def needs(objectives: Sequence[Objective], counted: Counted) -> Need:
    """Return what the objectives over all turns (or calls) need. How many are of a part of them is not known
    beforehand."""
    targets = [
        objective.target for objective in objectives if objective.counts == counted and not objective.is_of_a_part
    ]
    return max((Need(minimum_for_target(target), target) for target in targets), key=lambda n: n.most, default=Need())


def calls_needed(objectives: Sequence[Objective], settings: SwarmSettings, users: int) -> int:
    """Return how many calls have enough turns for every objective, and let each caller call once."""
    turns = SPARE * needs(objectives, "turns").most / _turns_of_a_call(settings)
    return max(users, math.ceil(turns), math.ceil(SPARE * needs(objectives, "calls").most))


def forecast(settings: SwarmSettings, load: Load) -> Forecast:
    """Return what a run yields. A call of a few turns that would begin but not end in time yields the turns that fit.
    Scripts of conversations have their own numbers of turns: nothing is said of them."""
    if settings.conversations:
        return Forecast(None, None)
    turn_s = _turn_s(settings, load.speech_s)
    pause = settings.behavior.call_pause
    call_s = CONNECT_S + settings.turns * turn_s + (0.0 if pause is None else pause.mean_ns / SECOND_NS)
    if settings.has_open_arrivals:
        calls = None if load.run_time_s is None else _begun(settings, load.run_time_s)
    else:
        calls = None if load.run_time_s is None else load.users * load.run_time_s / call_s
        if settings.scenario.phases:
            calls = sum(
                phase.duration_s * (phase.level_from + phase.level_to) / 2 / call_s
                for phase in settings.scenario.phases
                if phase.kind != "ramp"
            )
    if settings.calls is not None:
        calls = settings.calls if calls is None else min(calls, settings.calls)
    if calls is None:
        return Forecast(None, None)
    return Forecast(round(calls * _turns_of_a_call(settings)), math.ceil(calls))


def sentence(settings: SwarmSettings, load: Load, objectives: Sequence[Objective]) -> str | None:
    """Return what will come of the run, and what to ask for where that is too little; None where nothing can be
    said."""
    expected = forecast(settings, load)
    if expected.turns is None:
        return None
    text = f"about {formatting.turns(expected.turns)} expected"
    need = needs(objectives, "turns")
    if expected.turns >= need.most:
        return text
    objective = f"the {formatting.declared_percent(need.target)} objective needs {need.most}"
    remedy = _remedy(settings, load, need.most / max(expected.turns, 1) * SPARE)
    return f"{text}, {objective}{remedy}"


def _remedy(settings: SwarmSettings, load: Load, factor: float) -> str:
    if settings.calls is not None:
        return f"; try --calls {math.ceil(settings.calls * factor)}"
    if settings.scenario.phases or load.run_time_s is None:
        return "; try longer phases"
    if settings.has_open_arrivals:
        return f"; try --run-time {_minutes(load.run_time_s * factor)}"
    return f"; try --users {math.ceil(load.users * factor)}, or --run-time {_minutes(load.run_time_s * factor)}"


def _minutes(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)}m"


def _turns_of_a_call(settings: SwarmSettings) -> float:
    """Return how many turns of a call count: a silent one asks nothing."""
    return settings.turns * (1 - settings.silence)


def _turn_s(settings: SwarmSettings, speech_s: float) -> float:
    behavior = settings.behavior
    asking = speech_s + REPLY_S
    silent = behavior.silence_for.mean_ns / SECOND_NS
    return behavior.think.mean_ns / SECOND_NS + (1 - behavior.silence) * asking + behavior.silence * silent


def _begun(settings: SwarmSettings, run_time_s: float) -> float:
    begun = 0.0
    for phase in settings.phases:
        lasts_s = min(phase.end_s, run_time_s) - phase.begin_s
        if lasts_s > 0 and phase.kind != "ramp":
            begun += lasts_s * (phase.level_from + phase.level_to) / 2
    return begun
