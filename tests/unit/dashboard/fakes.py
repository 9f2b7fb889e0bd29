"""A reader in memory, for pages and caching: real shapes, chosen values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from telemetry.model import semconv
from telemetry.model.metrics import METRIC_NAMES, METRICS
from telemetry.model.spans import SpanRow
from telemetry.model.stated_error import GoodRange
from telemetry.model.turns import Turn
from telemetry.objectives.openslo import Objective
from telemetry.store.answers import (
    CacheStats,
    ClientServiceDelta,
    CohortSummary,
    Filter,
    Generator,
    MetricStats,
    RunRecord,
    ShareByName,
    StageStats,
    Summary,
    TelemetryLoss,
    TimelinePoint,
    TurnCounts,
)

MS = 1_000_000


def stats(name: str = "voice_to_voice", n: int = 200, p95_ms: float = 700, withheld: str | None = None) -> MetricStats:
    """Statistics of n turns, with the percentiles that n allows."""
    unit = METRICS[name].unit if name in METRICS else "ns"
    return MetricStats(
        name=name,
        unit=unit,
        n=n,
        p50=p95_ms * 0.7 * MS if n else None,
        p95=p95_ms * MS if n >= 20 else None,
        p99=p95_ms * 1.2 * MS if n >= 100 else None,
        max=p95_ms * 2 * MS if n else None,
        withheld=withheld,
    )


def summary(n: int = 200, f: Filter | None = None, cohorts: Sequence[str] = ()) -> Summary:
    """A summary of n answered turns, every metric measured on each."""
    counts = TurnCounts(n, n, 0, {"ok": n} if n else {})
    metrics = {name: stats(name, n) for name in METRIC_NAMES}
    cache = CacheStats(n, n // 4, {"edge": n // 4} if n >= 4 else {})
    fallback = ShareByName(n, n, {})
    return Summary(
        filter=f or Filter(),
        turns=counts,
        metrics=metrics,
        cache=cache,
        fallback=fallback,
        routes=ShareByName(n, 0, {}),
        cohorts=tuple(CohortSummary(name, counts, metrics, cache, fallback) for name in cohorts),
        client_service_delta=ClientServiceDelta(0, n, 0, None, None, None),
        loss=TelemetryLoss(1, n, n, 0),
        generator=Generator(0),
        newest_unix_ns=None,
    )


class FakeReader:
    """Answers from attributes, and counts what it was asked."""

    def __init__(self, runs: Sequence[RunRecord], answer: Summary) -> None:
        self.known = list(runs)
        self.answer = answer
        self.asked: list[str] = []
        self.faults: Sequence[str] = ()
        self.good = (190, 200)
        self.range: GoodRange | None = None
        self.many: Sequence[Turn] = ()

    def runs(self) -> Sequence[RunRecord]:
        self.asked.append("runs")
        return self.known

    def summary(self, f: Filter) -> Summary:
        self.asked.append("summary")
        return replace(self.answer, filter=f)

    def timeline(self, f: Filter, metric: str, buckets: int) -> Sequence[TimelinePoint]:
        self.asked.append(f"timeline {metric} {buckets}")
        return ()

    def slowest(self, f: Filter, metric: str, limit: int) -> Sequence[Turn]:
        return self.many[:limit]

    def turns(self, f: Filter, limit: int, *, source: semconv.Source | None = None) -> Sequence[Turn]:
        self.asked.append(f"turns {source} {limit}")
        return self.many

    def turn(self, trace_id: str, turn_index: int) -> tuple[Turn | None, Turn | None]:
        self.asked.append("turn")
        return None, None

    def spans(self, trace_id: str) -> Sequence[SpanRow]:
        return ()

    def count(self, f: Filter) -> Callable[[Objective], tuple[int, int]]:
        def counted(objective: Objective) -> tuple[int, int]:
            self.asked.append(f"good {f.cohort} {objective.metric or objective.kind}")
            return self.good

        return counted

    def good_range(self, f: Filter) -> Callable[[Objective], GoodRange | None]:
        return lambda objective: self.range if objective.metric == "voice_to_voice" else None

    def stage_budget(self, f: Filter) -> dict[str, StageStats]:
        return {}

    def dimension_values(self, f: Filter) -> Mapping[str, tuple[str, ...]]:
        self.asked.append("dimensions")
        return {}
