"""Answers of a store in memory: real shapes, chosen values."""

from collections.abc import Sequence

from telemetry.model.metrics import METRIC_NAMES, METRICS
from telemetry.store.answers import (
    CacheStats,
    ClientServiceDelta,
    CohortSummary,
    Filter,
    Generator,
    MetricStats,
    ShareByName,
    Summary,
    TelemetryLoss,
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
