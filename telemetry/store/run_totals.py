"""What the list of runs shows of a run's turns."""

from dataclasses import dataclass

from telemetry.model.metrics import HEADLINE
from telemetry.store.answers import Summary


@dataclass(frozen=True, slots=True)
class RunTotals:
    """How many turns there are and how many of them are invalid; percentiles of voice-to-voice, in ns; the cohorts that
    occur, None where a sidecar of an older version does not say."""

    turns: int
    invalid: int
    p50: float | None
    p95: float | None
    p99: float | None
    cohorts: tuple[str, ...] | None = None


def totals_of(summary: Summary) -> RunTotals:
    """The part of a summary."""
    turns, latency = summary.turns, summary.metrics[HEADLINE]
    cohorts = tuple(sorted(each.cohort for each in summary.cohorts))
    return RunTotals(turns.total, turns.invalid, latency.p50, latency.p95, latency.p99, cohorts)
