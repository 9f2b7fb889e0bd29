"""The verdict on a run in one sentence: missed, met, undecided or not judged, and of a miss what is shown of its cause.

`Missing the objective “The caller hears an answer in time” since 21:53 UTC: cohort candidate, LLM first token + 700 ms
at p50; control is within it`. Cohort, stage, size and beginning are each named only where they are shown
(`telemetry.explanation.miss_cause` has the rules); what is not shown is left out, never guessed.

Of several missed objectives the sentence is about voice-to-voice, else about the one whose error budget is overspent
most. A run that was limited by its generator has no verdict, which is stated first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict, bad_word, even_if_text, needed_text

State = Literal["met", "missed", "undecided", "not_judged"]
Statistic = Literal["p50", "p95", "p99"]

# The parts of voice-to-voice as the stage budget divides it, in their order.
STAGES: Final[dict[str, str]] = {
    "endpointing": "endpointing",
    "asr": "ASR",
    "llm": "LLM first token",
    "tts": "TTS first chunk",
    "leading_silence": "leading silence",
    "unexplained": "time that no stage explains",
}
# A name that somebody else gave is no longer than this in a sentence, and so many of them are named.
_LONGEST_NAME: Final = 60
_MOST_NAMES: Final = 3
_NS_PER_S: Final = 1_000_000_000
# Within a shorter stretch of time moments have seconds.
_SECONDS_BELOW_NS: Final = 600 * _NS_PER_S


@dataclass(frozen=True, slots=True)
class StageGrowth:
    """The growth of a stage (a name of STAGES), and the percentile of its lengths that grew."""

    stage: str
    by_ns: float
    statistic: Statistic


@dataclass(frozen=True, slots=True)
class MissCause:
    """The cause of a missed objective, as far as it is shown; empty or None where nothing is.

    `cohorts` miss it and `within` do not; `others` are too small to say. `since_unix_ns` is the beginning of the first
    turn from which on it was missed, `until_unix_ns` of the first from which on it no longer was. `turns` is how many
    were looked at, of which `first_unix_ns` and `last_unix_ns` are the earliest and latest beginnings.
    """

    objective: str
    turns: int = 0
    first_unix_ns: int | None = None
    last_unix_ns: int | None = None
    cohorts: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    others: int = 0
    stage: StageGrowth | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on a run and its sentence; of a missed objective also the cause, as far as it is shown."""

    state: State
    sentence: str
    cause: MissCause | None = None


def run_verdict(
    objectives: Sequence[Objective],
    verdicts: Sequence[Verdict],
    *,
    cause: MissCause | None = None,
    limited: str | None = None,
    kept: str | None = None,
) -> RunVerdict:
    """The verdict on a run from those on its objectives, in the same order.

    `limited` is why the run says nothing about the service, `kept` how many calls never began because the service kept
    the earlier ones, each half a sentence. `cause` is left aside where it is about another objective than the sentence.
    """
    if limited is not None:
        return RunVerdict("not_judged", f"Not judged: {limited}")
    missed = leading_miss(objectives, verdicts)
    if missed is not None:
        known = cause if cause is not None and cause.objective == missed.name else None
        sentence = _missed_sentence(missed, verdicts, known)
        return RunVerdict("missed", sentence if kept is None else f"{sentence}; {kept}", known)
    if kept is not None:
        # Whatever was heard of the calls that did begin: callers for whom there was no place had no answer at all.
        return RunVerdict("missed", f"Missed: {kept}")
    if not verdicts:
        return RunVerdict("not_judged", "Not judged: no objective was asked for")
    if any(not verdict.is_judged for verdict in verdicts):
        return RunVerdict("not_judged", f"Not judged: {_first_reason(verdicts)}")
    undecided = [verdict for verdict in verdicts if verdict.met is None]
    if undecided:
        return RunVerdict("undecided", f"Undecided: {_lacking(objectives, verdicts)}")
    return RunVerdict("met", _met_sentence(objectives, verdicts))


def leading_miss(objectives: Sequence[Objective], verdicts: Sequence[Verdict]) -> Objective | None:
    """The missed objective that a sentence is about: voice-to-voice first, else the one missed by most; None if none is
    missed."""
    missed = [
        (objective, verdict)
        for objective, verdict in zip(objectives, verdicts, strict=True)
        if verdict.met is False and verdict.is_judged
    ]

    def rank(miss: tuple[Objective, Verdict]) -> tuple[bool, float]:
        objective, verdict = miss
        return objective.metric != HEADLINE, verdict.budget_left if verdict.budget_left is not None else 0.0

    return min(missed, key=rank)[0] if missed else None


def clock_time(unix_ns: int, *others_unix_ns: int) -> str:
    """A time as `21:53 UTC`; with its date if the others are of another day, with seconds if all are within ten
    minutes."""
    moments = (unix_ns, *others_unix_ns)
    at = datetime.fromtimestamp(unix_ns // _NS_PER_S, UTC)
    days = {datetime.fromtimestamp(moment // _NS_PER_S, UTC).date() for moment in moments}
    is_short = bool(others_unix_ns) and max(moments) - min(moments) < _SECONDS_BELOW_NS
    text = at.strftime("%H:%M:%S" if is_short else "%H:%M")
    return f"{text} UTC" if len(days) == 1 else f"{at:%Y-%m-%d} {text} UTC"


def _missed_sentence(missed: Objective, verdicts: Sequence[Verdict], cause: MissCause | None) -> str:
    name = f"the objective “{_name(missed.display_name or missed.name)}”"
    verdict = next(verdict for verdict in verdicts if verdict.name == missed.name)
    named = [] if cause is None else [part for part in (_cohorts(cause.cohorts), _stage(cause)) if part]
    sentence = f"Missing {name}" if cause is None else f"{_verb_and_time(cause, name)}"
    good = formatting.percent(verdict.ratio, verdict.target)
    figures = f"{good} of {formatting.number(verdict.decided)} {verdict.counts} are good"
    sentence += f": {', '.join(named) if named else f'{figures}, {formatting.declared_percent(missed.target)} asked'}"
    ends: list[str] = []
    if cause is not None and cause.cohorts:
        ends.append(_within(cause))
    more = sum(verdict.met is False for verdict in verdicts) - 1
    if more:
        ends.append(f"{formatting.count(more, 'other objective is', 'other objectives are')} missed too")
    return "; ".join([sentence, *ends])


def _verb_and_time(cause: MissCause, name: str) -> str:
    if cause.since_unix_ns is None:
        return f"Missing {name}"
    around = [moment for moment in (cause.first_unix_ns, cause.last_unix_ns) if moment is not None]
    since = clock_time(cause.since_unix_ns, *around)
    if cause.until_unix_ns is None:
        return f"Missing {name} since {since}"
    until = clock_time(cause.until_unix_ns, *around)
    return f"Missed {name} from {since.removesuffix(' UTC')} to {until}"


def _cohorts(names: Sequence[str]) -> str:
    return f"cohort{'s' if len(names) > 1 else ''} {_listed(names)}" if names else ""


def _within(cause: MissCause) -> str:
    text = f"{_listed(cause.within)} {'is' if len(cause.within) == 1 else 'are'} within it"
    if cause.others:
        text += f", {formatting.count(cause.others, 'other cohort is', 'other cohorts are')} too small to say"
    return text


def _stage(cause: MissCause) -> str:
    """The stage, by how much it takes longer, and than what: than in the cohorts within, which the sentence names."""
    growth = cause.stage
    if growth is None:
        return ""
    text = f"{STAGES[growth.stage]} + {formatting.milliseconds(growth.by_ns)} at {growth.statistic}"
    if cause.cohorts:
        return text
    return f"{text} against before" if cause.since_unix_ns is not None else f"{text} in the turns that miss it"


def _listed(names: Sequence[str]) -> str:
    shown = [_name(name) for name in names[:_MOST_NAMES]]
    if len(names) > _MOST_NAMES:
        return f"{', '.join(shown)} and {len(names) - _MOST_NAMES} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _name(text: str) -> str:
    return one_line(text, _LONGEST_NAME)


def _first_reason(verdicts: Sequence[Verdict]) -> str:
    reason = next(verdict.reason or "" for verdict in verdicts if not verdict.is_judged)
    return reason.removeprefix("not judged: ")


def _lacking(objectives: Sequence[Objective], verdicts: Sequence[Verdict]) -> str:
    """The reason why a run is undecided: the objective that lacks most turns, else one that the wire does not show."""
    known = [verdict for verdict in verdicts if verdict.met is None and verdict.is_observable]
    lacking = [verdict for verdict in known if verdict.decided < verdict.minimum_turns]
    if lacking:
        worst = min(lacking, key=lambda verdict: (verdict.decided / verdict.minimum_turns, -verdict.minimum_turns))
        target = formatting.declared_percent(worst.target)
        return (
            f"{formatting.number(worst.decided)} of the {formatting.count(worst.minimum_turns, worst.counts[:-1])}"
            f" that the {target} objective needs{_needed(objectives, worst)}"
        )
    if known:
        return (known[0].reason or "").removeprefix("undecided: ")
    unseen = [objective for objective, verdict in zip(objectives, verdicts, strict=True) if not verdict.is_observable]
    names = _listed([f"“{_name(objective.display_name or objective.name)}”" for objective in unseen])
    met = sum(verdict.met is True for verdict in verdicts)
    rest = f"; {formatting.count(met, 'other is', 'others are')} met" if met else ""
    return f"this wire does not show {names}{rest}"


def _needed(objectives: Sequence[Objective], verdict: Verdict) -> str:
    """Return how many more turns an objective with too few needs, or what keeps it undecided whatever their number."""
    objective = next(objective for objective in objectives if objective.name == verdict.name)
    needed = needed_text(objective, verdict.more_turns, verdict.more_s)
    return f"; {needed}" + (f" ({formatting.causes(verdict.open)})" if verdict.more_turns is None else "")


def _met_sentence(objectives: Sequence[Objective], verdicts: Sequence[Verdict]) -> str:
    most = max(verdict.decided for verdict in verdicts)
    what = "the objective" if len(verdicts) == 1 else f"all {len(verdicts)} objectives"
    sentence = f"Meeting {what} over {formatting.turns(most)}"
    open_turns = max(verdict.open_turns for verdict in verdicts)
    if open_turns:
        words = {
            bad_word(objective) for objective, verdict in zip(objectives, verdicts, strict=True) if verdict.open_turns
        }
        sentence += even_if_text(open_turns, "turns", words.pop() if len(words) == 1 else "bad")
    return sentence
