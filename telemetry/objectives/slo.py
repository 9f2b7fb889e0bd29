"""Objectives and verdicts: good turns / eligible turns against a target, and never a verdict from too little.

An objective is met if it is met with every open turn (telemetry.objectives.judgment) counted bad, missed if it is
missed with every open turn counted good, else undecided. Only turns that are not open count toward the minimum number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from telemetry.model.errors import ConfigError
from telemetry.model.formatting import count as counted_text
from telemetry.model.formatting import number, percent
from telemetry.model.stats import minimum_for_target
from telemetry.objectives.judgment import CountedByJudgment, EligibleTurns, Judgment, count_turns, is_good, is_met
from telemetry.objectives.objective import Counted, Objective
from telemetry.objectives.openslo import parse_objectives

__all__ = [
    "EligibleTurns",
    "NotObservable",
    "Objective",
    "Verdict",
    "count_turns",
    "default_objectives",
    "is_good",
    "judge",
    "load_objectives",
    "not_judged",
]


class NotObservable(Exception):  # noqa: N818 - reads as what it is
    """Raised by a `count` for an objective whose metric this wire cannot show; the text says why."""


@dataclass(frozen=True, slots=True)
class Verdict(CountedByJudgment):
    """`met` is None where it is not known, with the `reason`; `ratio` and `budget_left` are None then too where there
    is nothing to divide. `eligible` turns are good, bad or open; `ratio` is the share of good ones among those that are
    not open. `budget_left` is the share of the permitted bad turns that is left: 1 with no bad turn, 0 at the target
    exactly, negative beyond it."""

    name: str
    sentence: str
    met: bool | None
    good: int
    eligible: int
    ratio: float | None
    target: float
    budget_left: float | None
    minimum_turns: int
    reason: str | None
    counts: Counted = "turns"
    is_observable: bool = True  # False where this wire cannot show what the objective is about
    is_judged: bool = True  # False where the figures are not to be trusted, whatever they are
    display_name: str | None = None  # the objective's name for people
    open: Mapping[str, int] = field(default_factory=dict[str, int])  # turns that nobody can call good or bad, by cause

    @property
    def is_generator_limited(self) -> bool:
        """Whether it is undecided and the generator's own open turns are what stands between: without them there
        would be a verdict, or, had they been measured, turns enough for one."""
        of_generator = self.open.get(Judgment.GENERATOR.value, 0)
        if self.met is not None or not of_generator or not self.is_judged:
            return False
        if self.decided < self.minimum_turns:
            return self.decided + of_generator >= self.minimum_turns
        rest = EligibleTurns(self.good, self.eligible - of_generator, {"others": self.open_turns - of_generator})
        return is_met(rest, self.target) is not None

    @property
    def title(self) -> str:
        """What people read as its name."""
        return self.display_name or self.name


def default_objectives() -> list[Objective]:
    """The objectives that hold when no file is given: the 800 ms budget, split by stage (data/default-objectives.yaml).

    All count from the end of the caller's speech and so include the endpointing wait, which budgets for a stage alone
    leave out: voice_to_voice 800 ms = final transcript 400 ms (200-250 ms of silence until the turn is closed, then
    150-200 ms of ASR) + first token 200 ms (llm_first_token_latency 600 ms) + first chunk 200 ms. Each holds for 95 %
    of turns (its p95); 95 % of replies play without starving for more than 100 ms; 95 % of calls connect within 1 s;
    99 % of turns end well.
    """
    return list(_default_objectives())


@cache
def _default_objectives() -> tuple[Objective, ...]:
    found = parse_objectives(objectives_text(None), "default objectives")
    return tuple(replace(objective, where_shown=True) for objective in found)


def load_objectives(path: Path | None) -> list[Objective]:
    """The objectives of an OpenSLO file, or the default set. Raises ConfigError with every fault of the file."""
    return default_objectives() if path is None else parse_objectives(objectives_text(path), str(path))


def objectives_text(path: Path | None) -> str:
    """The text of an OpenSLO file, or that of the default set. Raises ConfigError where it cannot be read."""
    if path is None:
        return (files("telemetry") / "data" / "default-objectives.yaml").read_text(encoding="utf-8")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), ["is no UTF-8 text; save it as UTF-8"]) from error
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror or error}"]) from error


def judge(
    objectives: Sequence[Objective],
    count: Callable[[Objective], EligibleTurns],
    *,
    lost: int = 0,
) -> list[Verdict]:
    """A verdict on each objective. `count` gives its turns, or raises NotObservable. `lost` turns are known to be
    missing from the telemetry: each is one more open turn."""
    return [_verdict(objective, count, lost) for objective in objectives]


def not_judged(objectives: Sequence[Objective], verdicts: Sequence[Verdict], why: str) -> list[Verdict]:
    """The verdicts on these objectives, each without its claim: neither met nor missed, for a reason."""
    return [
        replace(
            verdict,
            sentence=f"{objective.sentence}: not judged: {why}",
            met=None,
            budget_left=None,
            reason=f"not judged: {why}",
            is_judged=False,
        )
        for objective, verdict in zip(objectives, verdicts, strict=True)
    ]


def _verdict(objective: Objective, count: Callable[[Objective], EligibleTurns], lost: int) -> Verdict:
    counts, reason, is_observable = EligibleTurns(), None, True
    try:
        counts = count(objective)
    except NotObservable as why:
        reason, is_observable = f"not observable: {why}", False
    if lost and is_observable:
        counts += EligibleTurns(0, lost, {Judgment.LOST.value: lost})
    if not 0 <= counts.good <= counts.decided <= counts.eligible:
        raise ValueError(f"objective {objective.name} was counted as {counts}")
    minimum = minimum_for_target(objective.target)
    met = None
    if reason is None and counts.decided < minimum:
        reason = _too_few(objective, counts, minimum)
    elif reason is None:
        met = is_met(counts, objective.target)
        reason = f"undecided: {_between(objective, counts)}" if met is None else None
    ratio = counts.good / counts.decided if counts.decided else None
    if met is None or ratio is None:
        ending = reason or ""
    else:
        ending = (
            f"{percent(ratio, objective.target)} of {counts.decided} {objective.counts}, {'met' if met else 'missed'}"
        )
        ending += _even_if(objective, counts, met)
    return Verdict(
        name=objective.name,
        sentence=f"{objective.sentence}: {ending}",
        met=met,
        good=counts.good,
        eligible=counts.eligible,
        ratio=ratio,
        target=objective.target,
        budget_left=None if met is None or ratio is None else 1 - (1 - ratio) / (1 - objective.target),
        minimum_turns=minimum,
        reason=reason,
        counts=objective.counts,
        is_observable=is_observable,
        display_name=objective.display_name,
        open=counts.open,
    )


def _too_few(objective: Objective, counts: EligibleTurns, minimum: int) -> str:
    counted = objective.counts[:-1] if counts.decided == 1 else objective.counts
    reason = f"undecided: {counts.decided} {counted}, needs {minimum}"
    if counts.bad:
        reason += f"; {counts.good} good so far"
    return reason + (f"; {open_text(objective, counts)}" if counts.open_turns else "")


def _between(objective: Objective, counts: EligibleTurns) -> str:
    good = (counts.good / counts.eligible, (counts.good + counts.open_turns) / counts.eligible)
    worst, best = (percent(each, objective.target) for each in good)
    return f"{open_text(objective, counts)}: {worst} to {best} of {counts.eligible} {objective.counts} are good"


def open_text(objective: Objective, counts: EligibleTurns) -> str:
    """The open turns by their causes: `4 turns are open (3 generator, 1 telemetry lost)`."""
    causes = ", ".join(f"{number(n)} {cause}" for cause, n in counts.open.items())
    verb = "is" if counts.open_turns == 1 else "are"
    return f"{counted_text(counts.open_turns, objective.counts[:-1])} {verb} open ({causes})"


def _even_if(objective: Objective, counts: EligibleTurns, met: bool) -> str:
    if not counts.open_turns:
        return ""
    unmeasured = f"unmeasured {objective.counts[:-1]}"
    which = f"the {unmeasured}" if counts.open_turns == 1 else f"all {number(counts.open_turns)} {unmeasured}s"
    return f", even if {which} had been {'bad' if met else 'good'}"
