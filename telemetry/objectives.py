"""Objectives counted over a store: what `telemetry.slo.judge` asks for, answered by `StoreReader`."""

from collections.abc import Callable
from dataclasses import replace

from telemetry.openslo import Objective
from telemetry.slo import NotObservable, Verdict, judge
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader


def judge_store(objectives: list[Objective], reader: StoreReader, f: Filter) -> list[Verdict]:
    """A verdict on each objective over the turns of a filter."""
    return judge(objectives, counter(reader, f))


def counter(reader: StoreReader, f: Filter) -> Callable[[Objective], tuple[int, int]]:
    """A `count` for `judge`: (good, eligible) client-heard valid turns that both the filter and the objective mean.

    It raises NotObservable for a metric that the wire shows on no turn.
    """

    def count(objective: Objective) -> tuple[int, int]:
        narrowed = _narrowed(f, objective)
        if narrowed is None:
            return 0, 0
        if objective.kind == "metric" and objective.metric is not None and objective.threshold is not None:
            counted = reader.good_turns(narrowed, objective.metric, objective.threshold)
            if counted == (0, 0):
                _explain(reader, narrowed, objective.metric)
            return counted
        summary = reader.summary(narrowed)
        if objective.kind == "outcome":
            by_outcome = summary.turns.by_outcome
            return sum(by_outcome.get(outcome, 0) for outcome in objective.outcomes), summary.turns.eligible
        if objective.kind == "fallback":
            return summary.fallback.reported - sum(summary.fallback.counts.values()), summary.fallback.reported
        return summary.cache.hits, summary.cache.reported

    return count


def _narrowed(f: Filter, objective: Objective) -> Filter | None:
    """The filter with the objective's dimensions; None where the two exclude each other."""
    for name in ("cohort", "length_class", "noise_profile", "channel_profile", "route"):
        asked, wanted = getattr(f, name), getattr(objective, name)
        if asked is not None and wanted is not None and asked != wanted:
            return None
        if wanted is not None:
            f = replace(f, **{name: wanted})
    return f


def _explain(reader: StoreReader, f: Filter, metric: str) -> None:
    summary = reader.summary(f)
    if summary.turns.eligible:
        withheld = summary.metrics[metric].withheld
        raise NotObservable(withheld or f"no turn on this wire shows {metric}")
