"""Objectives and verdicts: good turns / eligible turns against a target, and never a verdict from too little.

An objective is met if it is met with every open turn (telemetry.objectives.judgment) counted bad, missed if it is
missed with every open turn counted good, else undecided. Only turns that are not open count toward the minimum number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError
from telemetry.model.formatting import about, causes, number, percent
from telemetry.model.formatting import count as counted_text
from telemetry.model.stats import minimum_for_target
from telemetry.objectives.judgment import (
    SETTLED,
    CountedByJudgment,
    EligibleTurns,
    Judgment,
    count_turns,
    is_good,
    is_met,
    turns_to_verdict,
)
from telemetry.objectives.objective import Counted, Objective

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


# The file of a run that was judged by none.
NO_OBJECTIVES: Final = "# No objectives: nothing is judged.\n"
# What somebody waits for.
WAITS: Final = SETTLED - {"wer"} | {"barge_in_stop"}


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
    # How many more turns bring a verdict at the present shares of good, bad and open ones, and about how long they
    # take; None where there is one, where no number does, and where the rate of turns is not known.
    more_turns: int | None = None
    more_s: float | None = None
    # The 95 % interval of `ratio` as a sample of calls, whose turns are not independent; it changes no verdict. None:
    # not known, or not asked for.
    sampling: tuple[float, float] | None = None

    @property
    def is_generator_limited(self) -> bool:
        """Whether it is undecided and only the generator's own open turns prevent a verdict: had they been measured,
        as many of them good as of the others, there would be a verdict, and turns enough for one."""
        generator_open = self.open.get(Judgment.GENERATOR.value, 0)
        if self.met is not None or not generator_open or not self.is_judged:
            return False
        if self.decided + generator_open < self.minimum_turns:
            return False
        good = self.good + generator_open * (Fraction(self.good, self.decided) if self.decided else 1)
        others, wanted = self.open_turns - generator_open, Fraction(str(self.target)) * self.eligible
        return good >= wanted or good + others < wanted

    @property
    def title(self) -> str:
        """The display name."""
        return self.display_name or self.name


def default_objectives() -> list[Objective]:
    """The objectives used without a file: the 800 ms budget, split by stage (data/default-objectives.yaml).

    All count from the end of the caller's speech and so include the endpointing wait, which budgets for a stage alone
    leave out: voice_to_voice 800 ms = final transcript 400 ms (200-250 ms of silence until the turn is closed, then
    150-200 ms of ASR) + first token 200 ms (llm_first_token_latency 600 ms) + first chunk 200 ms. Each holds for 95 %
    of turns (its p95); 95 % of replies play without gaps of more than 100 ms; 95 % of calls connect within 1 s; 99 % of
    turns end well.
    """
    return list(_default_objectives())


@cache
def _default_objectives() -> tuple[Objective, ...]:
    parsed = parsed_objectives(objectives_text(None), "default objectives")
    return tuple(replace(objective, where_shown=True) for objective in parsed)


def parsed_objectives(text: str, where: str) -> list[Objective]:
    """The objectives of a text: none of NO_OBJECTIVES. Raises ConfigError with every fault; `where` names the file."""
    if text == NO_OBJECTIVES:
        return []
    # Imported when a file is read: pydantic takes as long as a tenth of all that `voiceprobe --help` does.
    from telemetry.objectives.openslo import parse_objectives

    return parse_objectives(text, where)


def load_objectives(path: Path | None) -> list[Objective]:
    """The objectives of an OpenSLO file, or the default set. Raises ConfigError with every fault of the file."""
    return default_objectives() if path is None else parsed_objectives(objectives_text(path), str(path))


def objectives_text(path: Path | None) -> str:
    """The text of an OpenSLO file, or that of the default set. Raises ConfigError if it cannot be read."""
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
    prevented: int = 0,
    measured_s: float | None = None,
) -> list[Verdict]:
    """A verdict on each objective. `count` gives its turns, or raises NotObservable. `lost` turns are known to be
    missing from the telemetry, and `prevented` calls never began: each is one more open turn. `measured_s` is how long
    the turns took to come, if that is known: by it, an objective without a verdict says how long it needs."""
    more = {Judgment.LOST.value: lost, Judgment.GENERATOR.value: prevented}
    unheard = EligibleTurns(0, lost + prevented, {cause: turns for cause, turns in more.items() if turns})
    return [_verdict(objective, count, unheard, measured_s) for objective in objectives]


def not_judged(objectives: Sequence[Objective], verdicts: Sequence[Verdict], why: str) -> list[Verdict]:
    """The verdicts on these objectives without their claims: neither met nor missed, for a reason."""
    return [
        replace(
            verdict,
            sentence=f"{objective.sentence}: not judged: {why}",
            met=None,
            budget_left=None,
            reason=f"not judged: {why}",
            more_turns=None,
            more_s=None,
            is_judged=False,
        )
        for objective, verdict in zip(objectives, verdicts, strict=True)
    ]


def _verdict(
    objective: Objective, count: Callable[[Objective], EligibleTurns], unheard: EligibleTurns, measured_s: float | None
) -> Verdict:
    counts, reason, is_observable = EligibleTurns(), None, True
    try:
        counts = count(objective)
    except NotObservable as why:
        reason, is_observable = f"not observable: {why}", False
    if is_observable:
        counts += unheard
    if not 0 <= counts.good <= counts.decided <= counts.eligible:
        raise ValueError(f"objective {objective.name} was counted as {counts}")
    minimum = minimum_for_target(objective.target)
    met = more = more_s = None
    if reason is None and counts.decided >= minimum:
        met = is_met(counts, objective.target)
    if reason is None and met is None:
        more = turns_to_verdict(counts, objective.target, minimum)
        more_s = more * measured_s / counts.eligible if more and measured_s and counts.eligible else None
        reason = _undecided(objective, counts, minimum, needed_text(objective, more, more_s))
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
        more_turns=more,
        more_s=more_s,
    )


def _undecided(objective: Objective, counts: EligibleTurns, minimum: int, needed: str) -> str:
    """Return why there is no verdict, and how many more turns it needs."""
    open_turns_text = f"{open_text(objective, counts)}: {_between(objective, counts)}" if counts.open_turns else ""
    if counts.decided >= minimum:
        return f"undecided: {open_turns_text}; {needed}"
    parts = [f"undecided: {number(counts.decided)} of {counted_text(minimum, objective.counts[:-1])}", needed]
    parts += [f"{number(counts.good)} good so far"] if counts.bad else []
    return "; ".join([*parts, *([open_turns_text] if open_turns_text else [])])


def needed_text(objective: Objective, more: int | None, more_s: float | None) -> str:
    """Return how many more turns a verdict needs, and how long they take: `8 more needed, about 40 s at this rate`."""
    if more is None:
        return f"more {objective.counts} cannot decide it while as many are open"
    return f"{number(more)} more needed" + ("" if more_s is None else f", {about(more_s)} at this rate")


def _between(objective: Objective, counts: EligibleTurns) -> str:
    good = (counts.good / counts.eligible, (counts.good + counts.open_turns) / counts.eligible)
    worst, best = (percent(count, objective.target) for count in good)
    return f"{worst} to {best} of {counts.eligible} {objective.counts} are good"


def open_text(objective: Objective, counts: EligibleTurns) -> str:
    """The open turns by their causes: `4 turns are open (3 generator, 1 telemetry lost)`."""
    verb = "is" if counts.open_turns == 1 else "are"
    return f"{counted_text(counts.open_turns, objective.counts[:-1])} {verb} open ({causes(counts.open)})"


def _even_if(objective: Objective, counts: EligibleTurns, met: bool) -> str:
    if not counts.open_turns:
        return ""
    return even_if_text(counts.open_turns, objective.counts, bad_word(objective) if met else "good")


def even_if_text(open_turns: int, counted: Counted, word: str) -> str:
    """The end of a claim over open turns: `, even if all 4 unmeasured turns had been slow`."""
    which = f"the unmeasured {counted[:-1]}" if open_turns == 1 else f"all {number(open_turns)} unmeasured {counted}"
    return f", even if {which} had been {word}"


def bad_word(objective: Objective) -> str:
    """A word for a bad turn of an objective: slow if the objective is about waiting."""
    return "slow" if objective.metric in WAITS else "bad"
