"""The exit code that the objectives of a run's summary require: derived from its JSON alone, independent of the
program."""

import math
from fractions import Fraction
from typing import Any

from loadtest.exit_codes import ExitCode


def code_by_objectives(summary: dict[str, Any]) -> ExitCode:
    """Return the exit code of an uninterrupted run with connected calls and no lost turn. A lost process is the limit;
    a missed objective is a miss whatever else is undecided; one that the generator's own open turns leave undecided is
    the generator's."""
    generator = summary["generator"]
    if generator["processes_lost"] or generator["killed_by"] or generator["workers_missing"]:
        return ExitCode.GENERATOR_LIMITED
    met = [objective["met"] for objective in summary["objectives"]]
    if False in met:
        return ExitCode.OBJECTIVE_MISSED
    if any(objective["met"] is None and _is_between(objective) for objective in summary["objectives"]):
        return ExitCode.GENERATOR_LIMITED
    if None in met or not summary["turns"]["total"]:
        return ExitCode.UNDECIDED
    return ExitCode.OK


def _is_between(objective: dict[str, Any]) -> bool:
    """Whether there would be a verdict without the turns that the generator spoiled, or turns enough had it not."""
    spoiled = objective["open"].get("generator", 0)
    others = sum(objective["open"].values()) - spoiled
    decided, target = objective["good"] + objective["bad"], Fraction(str(objective["target"]))
    needed = math.ceil(1 / (1 - target))
    if not spoiled or decided < needed:
        return spoiled > 0 and decided + spoiled >= needed
    worst = Fraction(objective["good"], decided + others)
    best = Fraction(objective["good"] + others, decided + others)
    return worst >= target or best < target
