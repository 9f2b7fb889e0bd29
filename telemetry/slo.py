"""Objectives and verdicts: good turns / eligible turns against a target, and never a verdict from too little."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Final

from telemetry.errors import ConfigError
from telemetry.metrics import METRICS, is_withheld
from telemetry.openslo import Objective, parse_objectives
from telemetry.stats import minimum_for_target, percent
from telemetry.turns import Turn

__all__ = [
    "NotObservable",
    "Objective",
    "Verdict",
    "count_turns",
    "default_objectives",
    "is_good",
    "judge",
    "load_objectives",
]

# A turn that got no answer is bad by every metric of an answer: hanging up must never improve a figure. These are
# about something else, and have no value on most turns.
_NOT_OF_AN_ANSWER: Final = frozenset({"connect", "barge_in_stop", "talk_over"})
_UNANSWERED: Final = frozenset({"no_reply", "timeout", "abandoned", "error"})


class NotObservable(Exception):  # noqa: N818 - reads as what it is
    """Raised by a `count` for an objective whose metric this wire cannot show; the text says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`met` is None where it is not known, with the `reason`; `ratio` and `budget_left` are None then too where there
    is nothing to divide. `budget_left` is the share of the permitted bad turns that is left: 1 with no bad turn, 0 at
    the target exactly, negative beyond it."""

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


def default_objectives() -> list[Objective]:
    """The objectives that hold when no file is given: the 800 ms budget, split by stage (data/default-objectives.yaml).

    All count from the end of the caller's speech and so include the endpointing wait, which budgets for a stage alone
    leave out: voice_to_voice 800 ms = final transcript 400 ms (200-250 ms of silence until the turn is closed, then
    150-200 ms of ASR) + first token 200 ms (llm_first_token_latency 600 ms) + first chunk 200 ms. Each holds for 95 %
    of turns (its p95); 95 % of replies play without starving for more than 100 ms; 99 % of turns end well.
    """
    text = (files("telemetry") / "data" / "default-objectives.yaml").read_text(encoding="utf-8")
    return parse_objectives(text, "default objectives")


def load_objectives(path: Path | None) -> list[Objective]:
    """The objectives of an OpenSLO file, or the default set. Raises ConfigError with every fault of the file."""
    if path is None:
        return default_objectives()
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), ["is no UTF-8 text; save it as UTF-8"]) from error
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror or error}"]) from error
    return parse_objectives(text, str(path))


def judge(objectives: Sequence[Objective], count: Callable[[Objective], tuple[int, int]]) -> list[Verdict]:
    """A verdict on each objective. `count` gives (good, eligible) turns, or raises NotObservable."""
    return [_verdict(objective, count) for objective in objectives]


def is_good(objective: Objective, turn: Turn) -> bool | None:
    """Whether a turn is good by the objective; None where it does not count at all.

    Only valid client-heard turns of the objective's dimensions count; a silent turn asked nothing and does not. A
    metric that the wire withholds does not count. A turn that got no answer, or broke down, is bad by every metric of
    an answer. A metric that was not measured never passes: voice_to_voice is then bad; elsewhere the turn had nothing
    to measure (no barge-in, no first connect). A fallback counts where the endpoint said how it answered, a cache where
    it said hit or miss.
    """
    if (
        turn.source != "client"
        or turn.outcome == "invalid"
        or turn.turn_kind == "silence"
        or not _matches(objective, turn)
    ):
        return None
    if objective.kind == "outcome":
        return turn.outcome in objective.outcomes
    if objective.kind == "fallback":
        return None if turn.fallback is None and turn.route is None else turn.fallback is None
    if objective.kind == "cache":
        return turn.cache_hit
    return _is_metric_good(objective, turn)


def count_turns(turns: Iterable[Turn]) -> Callable[[Objective], tuple[int, int]]:
    """A `count` for `judge` over turns in memory."""
    known = list(turns)

    def count(objective: Objective) -> tuple[int, int]:
        verdicts = [verdict for turn in known if (verdict := is_good(objective, turn)) is not None]
        return sum(verdicts), len(verdicts)

    return count


def _is_metric_good(objective: Objective, turn: Turn) -> bool | None:
    if objective.metric is None or objective.threshold is None:
        raise ValueError(f"objective {objective.name} has no metric or no threshold")
    if is_withheld(turn, objective.metric):
        return None
    metric = METRICS[objective.metric]
    value = metric.value(turn)
    if turn.outcome in _UNANSWERED and metric.name not in _NOT_OF_AN_ANSWER:
        return False
    if value is None:
        return False if metric.name == "voice_to_voice" else None
    return value >= objective.threshold if metric.higher_is_better else value <= objective.threshold


def _matches(objective: Objective, turn: Turn) -> bool:
    asked = (
        (objective.cohort, turn.cohort),
        (objective.length_class, turn.length_class),
        (objective.noise_profile, turn.noise_profile),
        (objective.channel_profile, turn.channel_profile),
        (objective.route, turn.route),
    )
    return all(wanted is None or wanted == found for wanted, found in asked)


def _verdict(objective: Objective, count: Callable[[Objective], tuple[int, int]]) -> Verdict:
    minimum = minimum_for_target(objective.target)
    good = eligible = 0
    reason: str | None = None
    try:
        good, eligible = count(objective)
    except NotObservable as why:
        reason = f"not observable: {why}"
    if not 0 <= good <= eligible:
        raise ValueError(f"objective {objective.name} was counted as {good} good of {eligible} turns")
    ratio = good / eligible if eligible else None
    if reason is None and eligible < minimum:
        reason = f"not shown: {eligible} turns, needs {minimum}"
    if reason is not None or ratio is None:
        sentence = f"{objective.sentence}: {reason}"
        return Verdict(objective.name, sentence, None, good, eligible, ratio, objective.target, None, minimum, reason)
    met = Fraction(good, eligible) >= Fraction(str(objective.target))
    return Verdict(
        name=objective.name,
        sentence=f"{objective.sentence}: {percent(ratio)} of {eligible} turns, {'met' if met else 'missed'}",
        met=met,
        good=good,
        eligible=eligible,
        ratio=ratio,
        target=objective.target,
        budget_left=1 - (1 - ratio) / (1 - objective.target),
        minimum_turns=minimum,
        reason=None,
    )
