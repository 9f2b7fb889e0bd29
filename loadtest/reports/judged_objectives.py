"""The objectives of a run with what may be claimed of each: the one place where every report reads it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from loadtest.reports import tables
from telemetry.model import formatting
from telemetry.model.bounds import STATISTICS, Statistic
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import METRICS
from telemetry.model.turns import OF_OBJECTIVES
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import MetricStats, Summary

_PART: Final[dict[Statistic, str]] = {"p50": "at least half", "p95": "the slowest 5 %", "p99": "the slowest 1 %"}


def tail_sentence(objective: Objective, summary: Summary) -> str | None:
    """The bad tail of an objective's metric: `p99 is bad: 4,100 ms (the slowest 1 % of the turns); p95 is within:
    640 ms`.

    None where all that is known is within the threshold, where there is none, and where the summary has no figures of
    the very turns that the objective is about. Of a metric that is better high, the percentiles show the good end.
    """
    stats = _stats_of(objective, summary)
    if stats is None or objective.threshold is None or METRICS[stats.name].higher_is_better:
        return None
    known: list[tuple[Statistic, float]] = [
        (which, value) for which in STATISTICS if (value := getattr(stats, which)) is not None
    ]
    beyond = next((index for index, (_, value) in enumerate(known) if value > objective.threshold), None)
    if beyond is None:
        return None
    which = known[beyond][0]
    shown, measured = tables.statistic(stats, which), stats.within(which)
    if which == "max":
        sentence = f"the slowest {objective.counts[:-1]} took {shown}" + (f" ({measured})" if measured else "")
    else:
        part = f"{_PART[which]} of the {_counted(objective, stats)}"
        sentence = f"{which} is bad: {shown} ({f'{measured}; {part}' if measured else part})"
    if beyond:
        before = known[beyond - 1][0]
        measured = stats.within(before)
        sentence += f"; {before} is within: {tables.statistic(stats, before)}" + (f" ({measured})" if measured else "")
    return sentence


def _counted(objective: Objective, stats: MetricStats) -> str:
    return f"answered {objective.counts}" if stats.unanswered else objective.counts


def _stats_of(objective: Objective, summary: Summary) -> MetricStats | None:
    """The figures over the turns that the objective is about: all of them, or those of one cohort."""
    metric = objective.metric
    if metric not in METRICS:
        return None
    if not objective.is_of_a_part:
        return summary.metrics.get(metric)
    narrowed = [name for name in OF_OBJECTIVES if getattr(objective, name) is not None]
    if narrowed != ["cohort"]:
        return None
    cohort = next((cohort for cohort in summary.cohorts if cohort.cohort == objective.cohort), None)
    return None if cohort is None else cohort.metrics.get(metric)


Claim = Literal["missed", "undecided", "not judged", "met"]
# In the order in which people need to see them.
_ORDER: Final[tuple[Claim, ...]] = ("missed", "undecided", "not judged", "met")


@dataclass(frozen=True, slots=True)
class JudgedObjective:
    """One objective: its name for people, what is claimed, the whole verdict, and which tail is bad, if one is."""

    title: str
    claim: Claim
    sentence: str
    verdict: Verdict
    tail: str | None = None

    @property
    def line(self) -> str:
        """The sentence, for a place that says of the whole run already why nothing is judged."""
        return self.sentence if self.claim != "not judged" else self.sentence.removesuffix(f": {self.verdict.reason}")

    @property
    def counts_sentence(self) -> str | None:
        """The counts that the sentence of the verdict leaves out; None where it leaves out nothing."""
        verdict = self.verdict
        if verdict.budget_left is None or self.claim in ("undecided", "not judged"):
            return None
        left = formatting.percent(verdict.budget_left)
        budget = f"error budget left {left}" if verdict.budget_left >= 0 else "error budget overspent"
        good, decided = formatting.number(verdict.good), formatting.number(verdict.decided)
        opened = f" · {formatting.number(verdict.open_turns)} open" if verdict.open_turns else ""
        return f"{good} of {decided} {verdict.counts} good{opened} · {budget}"

    @property
    def sampling_sentence(self) -> str | None:
        """A sentence on the sampling error of the share; None if no share is known."""
        verdict = self.verdict
        if verdict.ratio is None or self.claim == "not judged":
            return None
        good = f"{formatting.percent(verdict.ratio, verdict.target)} good"
        if verdict.sampling is None:
            return f"{good}; the sampling interval needs two calls"
        low, high = map(formatting.percent, verdict.sampling)
        return f"{good}; 95 % sampling interval by call {low} to {high}, which does not change the verdict"


def judged_objectives(
    objectives: Sequence[Objective], verdicts: Sequence[Verdict], summary: Summary
) -> tuple[JudgedObjective, ...]:
    """Each verdict with its claim, in the order of the verdicts. `objectives` are those that they are on; without them
    no tail is named.
    """
    by_name = {objective.name: objective for objective in objectives}
    judged: list[JudgedObjective] = []
    for verdict in verdicts:
        claim = _claim(verdict)
        objective = by_name.get(verdict.name)
        is_claimed = objective is not None and claim in ("met", "missed")
        tail = tail_sentence(objective, summary) if is_claimed and objective is not None else None
        judged.append(JudgedObjective(one_line(verdict.title), claim, one_line(verdict.sentence), verdict, tail))
    return tuple(judged)


def missed_first(judged: Sequence[JudgedObjective]) -> list[JudgedObjective]:
    """The objectives in the order in which people need to see them."""
    return sorted(judged, key=lambda objective: _ORDER.index(objective.claim))


def _claim(verdict: Verdict) -> Claim:
    if verdict.met is None:
        return "undecided" if verdict.is_judged else "not judged"
    return "met" if verdict.met else "missed"
