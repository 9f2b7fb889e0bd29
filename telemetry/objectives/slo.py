"""Objectives and verdicts: good turns / eligible turns against a target, and never a verdict from too little."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError
from telemetry.model.formatting import percent
from telemetry.model.metrics import CONNECT, METRICS, NOT_OF_AN_ANSWER, is_withheld
from telemetry.model.semconv import UNANSWERED, Source
from telemetry.model.stated_error import GoodRange
from telemetry.model.stats import minimum_for_target
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Counted, Objective
from telemetry.objectives.openslo import parse_objectives

__all__ = [
    "NotObservable",
    "Objective",
    "Verdict",
    "count_turns",
    "default_objectives",
    "exact",
    "is_good",
    "judge",
    "load_objectives",
    "not_judged",
]

# From where a caller waits for what a metric measures, as the name of a timestamp of the turn: on a turn that the
# generator cut, what had not come by then took at least as long.
WAITED_FROM: Final[dict[str, str]] = {
    "voice_to_voice": "speech_end",
    "endpointing": "speech_end",
    "asr_partial_latency": "speech_start",
    "asr_final_latency": "speech_end",
    "llm_first_token_latency": "speech_end",
    "time_to_first_sentence": "speech_end",
    "connect": "started",
}
# What stays as it is once it is known, however the turn goes on. Other figures of a turn that was cut may have become
# worse: they count only where they are bad already.
SETTLED: Final = frozenset({*WAITED_FROM, "llm_ttft", "tts_first_chunk_latency", "leading_silence", "wer"})


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
    counts: Counted = "turns"
    # Whether the measurement's error leaves the verdict open: with every clip annotated as wrongly as it states that it
    # may be, it could be the other one. None where there is no verdict, where turns of unknown uncertainty could turn
    # it, and where the objective is about nothing that counts from the caller's speech.
    within_error: bool | None = None
    is_observable: bool = True  # False where this wire cannot show what the objective is about
    good_range: GoodRange | None = None
    is_judged: bool = True  # False where the figures are not to be trusted, whatever they are
    display_name: str | None = None  # the objective's name for people

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


def exact(objective: Objective) -> GoodRange | None:
    """The range of figures whose error nobody asks about."""
    del objective
    return None


def judge(
    objectives: Sequence[Objective],
    count: Callable[[Objective], tuple[int, int]],
    good_range: Callable[[Objective], GoodRange | None] = exact,
) -> list[Verdict]:
    """A verdict on each objective. `count` gives (good, eligible) turns, or raises NotObservable; `good_range` gives
    how many would be good within the measurement's error, None for an objective that does not depend on it."""
    return [_with_error(_verdict(objective, count), objective, good_range) for objective in objectives]


def not_judged(objectives: Sequence[Objective], verdicts: Sequence[Verdict], why: str) -> list[Verdict]:
    """The verdicts on these objectives, each without its claim: neither met nor missed, for a reason."""
    return [
        replace(
            verdict,
            sentence=f"{objective.sentence}: not judged: {why}",
            met=None,
            budget_left=None,
            reason=f"not judged: {why}",
            within_error=None,
            is_judged=False,
        )
        for objective, verdict in zip(objectives, verdicts, strict=True)
    ]


def is_good(objective: Objective, turn: Turn, source: Source = "client") -> bool | None:
    """Whether a turn is good by the objective; None where it does not count at all.

    Only valid turns of one `source` (those that a client heard, or those that a service reports) and of the objective's
    dimensions count; a silent turn asked nothing and does not. A metric that the wire withholds does not count. A turn
    that got no answer, or broke down, is bad by every metric of an answer. A metric that was not measured never passes:
    voice_to_voice is then bad; elsewhere the turn had nothing to measure (no barge-in, no second connect). A service
    need not report a metric; then the turn does not count. A call that could not be connected is a bad one, also where
    its caller was to begin with a silent turn. A fallback counts where the endpoint said how it answered, a cache where
    it said hit or miss.

    A turn that the generator cut (a stop time-out, the end of a process) is not the service's failure, and must not
    hide one either. What was measured before the cut counts where it can change no more, or is bad already. Where
    nothing was heard yet and the caller had by then waited longer than the threshold, the turn is bad: the answer would
    have come too late. All else of it does not count, and the turn is shown as cut.
    """
    asks = turn.turn_kind != "silence" or objective.metric == CONNECT
    if turn.source != source or turn.outcome == "invalid" or not asks or not _matches(objective, turn):
        return None
    if objective.kind == "outcome":
        return None if turn.outcome == "cut" else turn.outcome in objective.outcomes
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
    if turn.outcome == "cut":
        return _is_cut_good(objective, turn, value)
    if turn.outcome in UNANSWERED and metric.name not in NOT_OF_AN_ANSWER:
        return False
    if value is None and turn.source == "service":
        return None
    if value is None and metric.name == CONNECT:
        return False if turn.turn_index == 0 and turn.outcome == "error" else None
    if value is None:
        return False if metric.name == "voice_to_voice" else None
    return value >= objective.threshold if metric.higher_is_better else value <= objective.threshold


def _is_cut_good(objective: Objective, turn: Turn, value: float | None) -> bool | None:
    metric, threshold = METRICS[objective.metric or ""], objective.threshold or 0
    if value is None:
        since = getattr(turn, f"{WAITED_FROM[metric.name]}_perf_ns") if metric.name in WAITED_FROM else None
        if since is None or turn.hangup_perf_ns is None or turn.first_audio_perf_ns is not None:
            return None
        if metric.name == "connect" and (turn.turn_index or turn.speech_start_perf_ns is not None):
            return None
        return False if turn.hangup_perf_ns - since > threshold else None
    good = value >= threshold if metric.higher_is_better else value <= threshold
    return good if not good or metric.name in SETTLED else None


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
    is_observable = True
    try:
        good, eligible = count(objective)
    except NotObservable as why:
        reason, is_observable = f"not observable: {why}", False
    if not 0 <= good <= eligible:
        raise ValueError(f"objective {objective.name} was counted as {good} good of {eligible} turns")
    ratio = good / eligible if eligible else None
    target = Fraction(str(objective.target))
    if reason is None and eligible < minimum:
        counted = objective.counts[:-1] if eligible == 1 else objective.counts
        reason = f"undecided: {eligible} {counted}, needs {minimum}"
        if good < eligible:
            reason += f"; {good} good so far"
    if reason is not None or ratio is None:
        sentence = f"{objective.sentence}: {reason}"
        return Verdict(
            objective.name,
            sentence,
            None,
            good,
            eligible,
            ratio,
            objective.target,
            None,
            minimum,
            reason,
            objective.counts,
            is_observable=is_observable,
            display_name=objective.display_name,
        )
    met = Fraction(good, eligible) >= target
    found = f"{percent(ratio, objective.target)} of {eligible} {objective.counts}, {'met' if met else 'missed'}"
    return Verdict(
        name=objective.name,
        sentence=f"{objective.sentence}: {found}",
        met=met,
        good=good,
        eligible=eligible,
        ratio=ratio,
        target=objective.target,
        budget_left=1 - (1 - ratio) / (1 - objective.target),
        minimum_turns=minimum,
        reason=None,
        counts=objective.counts,
        display_name=objective.display_name,
    )


def _with_error(verdict: Verdict, objective: Objective, good_range: Callable[[Objective], GoodRange | None]) -> Verdict:
    """The verdict with what the measurement's error makes of it, in the sentence too."""
    found = None if verdict.met is None else good_range(objective)
    if found is None:
        return verdict
    target = Fraction(str(verdict.target))

    def turns_it(good: int) -> bool:
        return (Fraction(good, verdict.eligible) >= target) != verdict.met

    within: bool | None = turns_it(found.least) or turns_it(found.most)
    if not within and (turns_it(found.least - found.unknown_good) or turns_it(found.most + found.unknown_bad)):
        within = None
    sentence = verdict.sentence
    if within:
        low, high = (percent(good / verdict.eligible, verdict.target) for good in (found.least, found.most))
        sentence += f", within the measurement's error ({low} to {high})"
    if found.unknown:
        open_ = ", which could turn it" if within is None else ""
        sentence += f"; ± not known for {found.unknown} of {verdict.eligible} turns{open_}"
    return replace(verdict, sentence=sentence, within_error=within, good_range=found)
