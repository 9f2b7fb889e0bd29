"""Rows of the summary's statements → `Summary`: counts, exact percentiles, agreement, loss and generator health."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from telemetry.model import semconv
from telemetry.model.metrics import CONNECT, ITL, METRICS, NOT_OF_AN_ANSWER, Metric
from telemetry.model.stated_error import Interval, StatedError, instrument_part_ns, interval
from telemetry.store import error_queries, queries
from telemetry.store.answers import (
    Behavior,
    CacheStats,
    CohortSummary,
    Filter,
    MetricStats,
    PhaseSummary,
    ShareByName,
    SpeechBoundErrors,
    Summary,
    TurnCounts,
    enough,
)
from telemetry.store.connection import Connection, rows
from telemetry.store.failures import failures, retries
from telemetry.store.generator import generator
from telemetry.store.instrument_error import instrument_error_ns
from telemetry.store.joined import client_service_delta, join_services
from telemetry.store.noticed import beside
from telemetry.store.starts import StartsOfPhase, starts_by_phase, total
from telemetry.store.telemetry_loss import telemetry_loss
from telemetry.store.wer_by_condition import wer_by_condition


def summarize(connection: Connection, f: Filter, now_unix_ns: int, skipped_segments: int) -> Summary:
    """Everything about one filter; all statements see the same snapshot."""
    totals = _merged(
        rows(connection, *queries.totals(f)),
        rows(connection, *queries.metric_totals(f)),
        rows(connection, *queries.lacking_totals(f)),
    )
    gaps = rows(connection, *queries.gap_totals(f))
    named = rows(connection, *queries.names(f))
    invalid = rows(connection, *queries.invalid_reasons(f))
    withheld = rows(connection, *queries.withheld_reasons(f))
    errors = rows(connection, *error_queries.errors(f))
    instrument_ns = instrument_error_ns(connection, f)
    cut = rows(connection, *queries.cut_reasons(f))

    def part(total: dict[str, Any]) -> CohortSummary:
        everyone, cohort = bool(total["is_total"]), total["cohort"]

        def mine(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [row for row in candidates if everyone or row["cohort"] == cohort]

        def one(candidates: list[dict[str, Any]]) -> dict[str, Any] | None:
            return next((c for c in mine(candidates) if bool(c["is_total"]) == everyone), None)

        gap, error = one(gaps), one(errors)
        return CohortSummary(
            cohort=cohort or "",
            turns=_counts(total, mine(named), mine(invalid), mine(cut)),
            metrics=_metrics(total, gap, mine(withheld), error, instrument_ns),
            cache=_cache(total, mine(named)),
            fallback=_fallback(total, mine(named)),
        )

    starts = starts_by_phase(connection, f)
    join_services(connection, f)
    whole = next(row for row in totals if row["is_total"])
    overall = part(whole)
    return Summary(
        filter=f,
        turns=overall.turns,
        metrics=overall.metrics,
        cache=overall.cache,
        fallback=overall.fallback,
        routes=_routes(whole, named),
        cohorts=tuple(part(total) for total in totals if not total["is_total"] and total["cohort"] is not None),
        client_service_delta=client_service_delta(connection, f),
        loss=telemetry_loss(connection, f, now_unix_ns),
        generator=generator(connection, f),
        newest_unix_ns=whole["newest_unix_ns"],
        wer_by_condition=wer_by_condition(connection, f),
        behavior=Behavior(**rows(connection, *queries.behavior(f))[0]),
        beside=beside(connection, f),
        skipped_segments=skipped_segments,
        phases=_phases(connection, f, starts, instrument_ns),
        speech_bounds=SpeechBoundErrors(**rows(connection, *error_queries.speech_bounds(f))[0]),
        failures=failures(connection, f),
        retries=retries(connection, f),
        starts=total(starts),
    )


def _merged(counted: list[dict[str, Any]], *more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `counted`, each with what the others have of the same cohort or phase: statements over fewer turns,
    which know fewer of them."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row.get("is_total"), row.get("cohort"), row.get("phase")

    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in chain(*more):
        known.setdefault(key(row), {}).update(row)
    return [row | known.get(key(row), {}) for row in counted]


def _phases(
    connection: Connection, f: Filter, starts: dict[str, StartsOfPhase], instrument_ns: float | None
) -> tuple[PhaseSummary, ...]:
    phases = _merged(
        rows(connection, *queries.phases(f)),
        rows(connection, *queries.phase_metrics(f)),
        rows(connection, *queries.phase_lacking(f)),
    )
    outcomes = rows(connection, *queries.phase_outcomes(f)) if phases else []
    errors = {row["phase"]: row for row in rows(connection, *error_queries.phase_errors(f))}

    def of(phase: str, *, reasons: bool) -> list[dict[str, Any]]:
        return [row for row in outcomes if row["phase"] == phase and (row["reason"] is not None) is reasons]

    found = {
        row["phase"]: PhaseSummary(
            phase=row["phase"],
            kind=row["kind"],
            first_unix_ns=row["first_unix_ns"],
            turns=_counts(row, of(row["phase"], reasons=False), of(row["phase"], reasons=True)),
            metrics={
                name: _metric_stats(METRICS[name], row, None, errors.get(row["phase"]), instrument_ns)
                for name in queries.PHASE_METRICS
            },
            starts=None if row["phase"] not in starts else starts[row["phase"]].answer,
        )
        for row in phases
    }
    if not starts:
        return tuple(found.values())
    # A phase in which no call could begin has no turn, and yet its starts; the processes know the order of all.
    none = TurnCounts(total=0, ok=0, invalid=0, by_outcome={})
    of_calls = [
        found.pop(name, PhaseSummary(name, phase.kind, phase.first_unix_ns, none, {}, phase.answer))
        for name, phase in starts.items()
    ]
    return (*of_calls, *found.values())


def _counts(
    total: dict[str, Any],
    named: list[dict[str, Any]],
    invalid: list[dict[str, Any]],
    cut: Sequence[dict[str, Any]] = (),
) -> TurnCounts:
    outcomes, reasons, cut_by = Counter[str](), Counter[str](), Counter[str]()
    for row in cut:
        cut_by[row["reason"]] += row["n"]
    for row in named:
        outcomes[row["outcome"]] += row["n"]
    for row in invalid:
        reasons[row["reason"]] += row["n"]
    return TurnCounts(
        total=total["total"],
        ok=total["ok"],
        invalid=total["total"] - total["valid"],
        by_outcome={name: outcomes[name] for name in semconv.OUTCOMES if outcomes[name]},
        invalid_by_reason=dict(reasons.most_common()),
        endpoint_did_not_read=total["unread"],
        cut_by=dict(cut_by.most_common()),
    )


def _metrics(
    total: dict[str, Any],
    gap: dict[str, Any] | None,
    withheld: list[dict[str, Any]],
    error: dict[str, Any] | None,
    instrument_ns: float | None,
) -> dict[str, MetricStats]:
    reasons: dict[str, str] = {}
    for row in withheld:
        reasons.setdefault(row["metric"], row["reason"] or "not observable")
    stats = {
        name: _metric_stats(metric, total, reasons.get(name), error, instrument_ns) for name, metric in METRICS.items()
    }
    gaps = _Observed(0, None, None) if gap is None else _Observed(gap["n"], gap["q"], gap["max"])
    stats[ITL] = _stats(ITL, "ns", gaps, reasons.get(ITL))
    return stats


def _metric_stats(
    metric: Metric,
    row: dict[str, Any],
    why: str | None,
    error: dict[str, Any] | None,
    instrument_ns: float | None,
) -> MetricStats:
    """A metric's statistics from a row of `queries.totals` or `queries.phases` and the others of the same turns."""
    name = metric.name
    observed = _Observed(row.get(f"n_{name}", 0), row.get(f"q_{name}"), row.get(f"max_{name}"))
    unanswered = row.get(f"u_{name}", 0)
    stats = _stats(name, metric.unit, observed, why)
    if name == CONNECT:
        stats = replace(stats, eligible=stats.n + unanswered, unanswered=unanswered)
    elif name not in NOT_OF_AN_ANSWER:
        stats = replace(stats, eligible=row["valid"], unanswered=unanswered)
    return stats if metric.counts_from is None else replace(stats, error=_error(metric, stats, error, instrument_ns))


def _error(metric: Metric, stats: MetricStats, row: dict[str, Any] | None, instrument_ns: float | None) -> StatedError:
    name, part_ns = metric.name, instrument_part_ns(metric, instrument_ns)
    if row is None or not stats.n:
        return StatedError(None, None, None, None, 0, part_ns)
    low, high = row[f"q_low_{name}"], row[f"q_high_{name}"]

    def of(statistic: float | None, below: float | None, above: float | None) -> Interval | None:
        return None if statistic is None else interval(below, above, part_ns)

    return StatedError(
        p50=of(stats.p50, low[0], high[0]),
        p95=of(stats.p95, low[1], high[1]),
        p99=of(stats.p99, low[2], high[2]),
        max=of(stats.max, row[f"max_low_{name}"], row[f"max_high_{name}"]),
        turns_unknown=row[f"unknown_{name}"],
        instrument_ns=part_ns,
    )


@dataclass(frozen=True, slots=True)
class _Observed:
    """What a query gives of a metric's `n` values, in the metric's unit: p50, p95 and p99, and the largest."""

    n: int
    quantiles: list[float] | None
    largest: float | None


def _stats(name: str, unit: str, observed: _Observed, why: str | None) -> MetricStats:
    n, quantiles, largest = observed.n, observed.quantiles, observed.largest
    p50, p95, p99 = quantiles if quantiles is not None and n else (None, None, None)
    return MetricStats(
        name=name,
        unit=unit,
        n=n,
        p50=p50,
        p95=enough("p95", n, p95),
        p99=enough("p99", n, p99),
        max=None if largest is None else float(largest),
        withheld=why if n == 0 else None,
    )


def _valid(named: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in named if row["outcome"] != "invalid"]


def _cache(total: dict[str, Any], named: list[dict[str, Any]]) -> CacheStats:
    tiers = Counter[str]()
    for row in _valid(named):
        if row["cache_hit"]:
            tiers[row["cache_tier"] or "unnamed"] += row["n"]
    return CacheStats(reported=total["cache_reported"], hits=total["cache_hits"], hits_by_tier=dict(tiers))


def _fallback(total: dict[str, Any], named: list[dict[str, Any]]) -> ShareByName:
    # An endpoint that tells the route or the cache of a turn would tell its fallback: without one there was none.
    counts, reported = Counter[str](), 0
    for row in _valid(named):
        if row["fallback"] is not None:
            counts[row["fallback"]] += row["n"]
        if row["fallback"] is not None or row["route"] is not None or row["cache_hit"] is not None:
            reported += row["n"]
    return ShareByName(total=total["valid"], reported=reported, counts=dict(counts))


def _routes(total: dict[str, Any], named: list[dict[str, Any]]) -> ShareByName:
    counts = Counter[str]()
    for row in _valid(named):
        if row["route"] is not None:
            counts[row["route"]] += row["n"]
    return ShareByName(total=total["valid"], reported=counts.total(), counts=dict(counts))
