"""Which part of the turns is beyond an objective's threshold, in words. Pure."""

from typing import Final

from loadtest.reports import figures
from telemetry.model.measured_within import STATISTICS, Statistic
from telemetry.model.metrics import METRICS
from telemetry.objectives.objective import Objective
from telemetry.store.answers import MetricStats, Summary

_PART: Final[dict[Statistic, str]] = {"p50": "at least half", "p95": "the slowest 5 %", "p99": "the slowest 1 %"}


def tail_sentence(objective: Objective, summary: Summary) -> str | None:
    """Which tail of an objective's metric is bad: `p99 is bad: 4,100 ms (the slowest 1 % of the turns); p95 is within:
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
    shown, measured = figures.statistic(stats, which), stats.within(which)
    if which == "max":
        sentence = f"the slowest {objective.counts[:-1]} took {shown}" + (f" ({measured})" if measured else "")
    else:
        part = f"{_PART[which]} of the {_counted(objective, stats)}"
        sentence = f"{which} is bad: {shown} ({f'{measured}; {part}' if measured else part})"
    if beyond:
        before = known[beyond - 1][0]
        measured = stats.within(before)
        sentence += f"; {before} is within: {figures.statistic(stats, before)}" + (f" ({measured})" if measured else "")
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
    elsewhere = (objective.length_class, objective.noise_profile, objective.channel_profile, objective.route)
    if objective.cohort is None or any(value is not None for value in elsewhere):
        return None
    found = next((each for each in summary.cohorts if each.cohort == objective.cohort), None)
    return None if found is None else found.metrics.get(metric)
