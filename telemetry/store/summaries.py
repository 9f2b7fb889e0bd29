"""Rows of the summary's statements → `Summary`: counts, percentiles, agreement, loss and generator health."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from telemetry.model import semconv
from telemetry.model.bounds import BOUNDED
from telemetry.model.measured_within import MeasuredWithin, finite
from telemetry.model.metrics import CONNECT, HEADLINE, ITL, METRICS, NOT_OF_AN_ANSWER, Metric
from telemetry.model.stats import enough
from telemetry.store import queries
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
    WerByCondition,
)
from telemetry.store.beside import Beside
from telemetry.store.causes import FailureCount, RemarkCount, Retries
from telemetry.store.client_service_delta import ClientServiceDelta
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.failures import failures, remarks, retries
from telemetry.store.generator import evidence, generator
from telemetry.store.joined import client_service_delta, join_services
from telemetry.store.noticed import beside, contradictions
from telemetry.store.run_totals import RunTotals
from telemetry.store.schema import SIDES
from telemetry.store.starts import StartsOfPhase, starts_by_phase, total
from telemetry.store.telemetry_loss import telemetry_loss
from telemetry.store.wer_by_condition import wer_by_condition

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRows:
    """What a summary is put together from: rows of the shapes of the statements in `queries` (those of totals and
    phases with their metrics and lacking values), and the parts that nothing else goes into."""

    totals: list[Row]
    gaps: list[Row]
    names: list[Row]
    invalid_reasons: list[Row]
    cut_reasons: list[Row]
    withheld_reasons: list[Row]
    phases: list[Row]
    phase_outcomes: list[Row]
    client_service_delta: ClientServiceDelta
    evidence: Row
    wer_by_condition: tuple[WerByCondition, ...]
    behavior: Behavior
    beside: Beside
    speech_bounds: SpeechBoundErrors
    failures: tuple[FailureCount, ...]
    remarks: tuple[RemarkCount, ...]
    retries: Retries


def summarize(connection: StoreConnection, f: Filter, now_unix_ns: int) -> Summary:
    """Everything about one filter from its turns; all statements see the same snapshot."""
    return assemble(connection, f, now_unix_ns, _read(connection, f))


def run_totals(connection: StoreConnection, f: Filter) -> RunTotals:
    """What the list of runs shows of a filter's turns, as `summarize` has it, without all else."""
    headline = rows(connection, *queries.headline_totals(f))
    return totals_of_rows(_merged(rows(connection, *queries.totals(f)), headline))


def totals_of_rows(counted: list[Row]) -> RunTotals:
    """The same from rows of totals with those of the headline."""
    whole = next(row for row in counted if row["is_total"])
    latency = _metric_stats(METRICS[HEADLINE], whole, None)
    cohorts = sorted(row["cohort"] for row in counted if not row["is_total"] and row["cohort"] is not None)
    invalid = whole["total"] - whole["valid"]
    return RunTotals(whole["total"], invalid, latency.p50, latency.p95, latency.p99, tuple(cohorts))


def _read(connection: StoreConnection, f: Filter) -> SummaryRows:
    phases = _merged(
        rows(connection, *queries.phases(f)),
        rows(connection, *queries.phase_metrics(f)),
        rows(connection, *queries.phase_lacking(f)),
        rows(connection, *queries.phase_connects(f)),
    )
    join_services(connection, f)
    return SummaryRows(
        totals=_merged(
            rows(connection, *queries.totals(f)),
            rows(connection, *queries.metric_totals(f)),
            rows(connection, *queries.lacking_totals(f)),
            rows(connection, *queries.connect_totals(f)),
        ),
        gaps=rows(connection, *queries.gap_totals(f)),
        names=rows(connection, *queries.names(f)),
        invalid_reasons=rows(connection, *queries.invalid_reasons(f)),
        cut_reasons=rows(connection, *queries.cut_reasons(f)),
        withheld_reasons=rows(connection, *queries.withheld_reasons(f)),
        phases=phases,
        phase_outcomes=rows(connection, *queries.phase_outcomes(f)) if phases else [],
        client_service_delta=client_service_delta(connection, f),
        evidence=evidence(connection, f),
        wer_by_condition=wer_by_condition(connection, f),
        behavior=Behavior(**rows(connection, *queries.behavior(f))[0]),
        beside=beside(connection, f),
        speech_bounds=SpeechBoundErrors(**rows(connection, *queries.speech_bounds(f))[0]),
        failures=failures(connection, f),
        remarks=remarks(connection, f),
        retries=retries(connection, f),
    )


def assemble(connection: StoreConnection, f: Filter, now_unix_ns: int, found: SummaryRows) -> Summary:
    """The summary from its rows; what processes reported of themselves is read here."""
    totals = _merged(found.totals, rows(connection, *queries.not_as_recorded(f)))
    phases = _merged(found.phases, rows(connection, *queries.phase_not_as_recorded(f)))

    def part(total: Row) -> CohortSummary:
        everyone, cohort = bool(total["is_total"]), total["cohort"]

        def mine(candidates: list[Row]) -> list[Row]:
            return [row for row in candidates if everyone or row["cohort"] == cohort]

        def one(candidates: list[Row]) -> Row | None:
            return next((c for c in mine(candidates) if bool(c["is_total"]) == everyone), None)

        named = mine(found.names)
        return CohortSummary(
            cohort=cohort or "",
            turns=_counts(total, named, mine(found.invalid_reasons), mine(found.cut_reasons)),
            metrics=_metrics(total, one(found.gaps), mine(found.withheld_reasons)),
            cache=_cache(total, named),
            fallback=_fallback(total, named),
        )

    starts, cut_runs = starts_by_phase(connection, f), connection.cut_runs()
    whole = next(row for row in totals if row["is_total"])
    overall = part(whole)
    return Summary(
        filter=f,
        turns=overall.turns,
        metrics=overall.metrics,
        cache=overall.cache,
        fallback=overall.fallback,
        routes=_routes(whole, found.names),
        cohorts=tuple(part(each) for each in totals if not each["is_total"] and each["cohort"] is not None),
        client_service_delta=found.client_service_delta,
        loss=telemetry_loss(connection, f, now_unix_ns),
        generator=generator(connection, f, found.evidence),
        newest_unix_ns=whole["newest_unix_ns"],
        wer_by_condition=found.wer_by_condition,
        behavior=found.behavior,
        beside=found.beside,
        contradictions=contradictions(connection, f),
        lacks_old_turns=bool(cut_runs) if f.run_id is None else f.run_id in cut_runs,
        phases=_phases(replace(found, phases=phases), starts),
        speech_bounds=found.speech_bounds,
        failures=found.failures,
        remarks=found.remarks,
        retries=found.retries,
        starts=total(starts),
    )


def _merged(counted: list[Row], *more: list[Row]) -> list[Row]:
    """The rows of `counted`, each with what the others have of the same cohort or phase: statements over fewer turns,
    which know fewer of them."""

    def key(row: Row) -> tuple[Any, ...]:
        return row.get("is_total"), row.get("cohort"), row.get("phase")

    known: dict[tuple[Any, ...], Row] = {}
    for row in chain(*more):
        known.setdefault(key(row), {}).update(row)
    return [row | known.get(key(row), {}) for row in counted]


def _phases(rows_of_phases: SummaryRows, starts: dict[str, StartsOfPhase]) -> tuple[PhaseSummary, ...]:
    outcomes = rows_of_phases.phase_outcomes

    def of(phase: str, *, reasons: bool) -> list[Row]:
        return [row for row in outcomes if row["phase"] == phase and (row["reason"] is not None) is reasons]

    found = {
        row["phase"]: PhaseSummary(
            phase=row["phase"],
            kind=row["kind"],
            first_unix_ns=row["first_unix_ns"],
            turns=_counts(row, of(row["phase"], reasons=False), of(row["phase"], reasons=True)),
            metrics={name: _metric_stats(METRICS[name], row, None) for name in queries.PHASE_METRICS},
            starts=None if row["phase"] not in starts else starts[row["phase"]].answer,
        )
        for row in rows_of_phases.phases
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
    total: Row,
    named: list[Row],
    invalid: list[Row],
    cut: Sequence[Row] = (),
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
        not_as_recorded=total.get("not_as_recorded", 0),
    )


def _metrics(total: Row, gap: Row | None, withheld: list[Row]) -> dict[str, MetricStats]:
    reasons: dict[str, str] = {}
    for row in withheld:
        reasons.setdefault(row["metric"], row["reason"] or "not observable")
    stats = {name: _metric_stats(metric, total, reasons.get(name)) for name, metric in METRICS.items()}
    gaps = _Observed(0, None, None)
    if gap is not None:
        gaps = _Observed(gap["n"], gap["q"], gap["max"], _is_approximate(gap))
    stats[ITL] = _stats(ITL, "ns", gaps, reasons.get(ITL))
    return stats


def _metric_stats(metric: Metric, row: Row, why: str | None) -> MetricStats:
    """A metric's statistics from a row of `queries.totals` or `queries.phases` and the others of the same turns."""
    name = metric.name
    observed = _Observed(row.get(f"n_{name}", 0), row.get(f"q_{name}"), row.get(f"max_{name}"), _is_approximate(row))
    unanswered = row.get(f"u_{name}", 0)
    stats = _stats(name, metric.unit, observed, why)
    if name == CONNECT:
        stats = replace(stats, eligible=stats.n + unanswered, unanswered=unanswered)
    elif name not in NOT_OF_AN_ANSWER:
        stats = replace(stats, eligible=row["valid"], unanswered=unanswered)
    return replace(stats, measured_within=_measured_within(metric, stats, row))


def _measured_within(metric: Metric, stats: MetricStats, row: Row) -> MeasuredWithin | None:
    name = metric.name
    if stats.approximate:
        return None
    if metric not in BOUNDED or not stats.n:
        return MeasuredWithin.exactly(stats.p50, stats.p95, stats.p99, stats.max)
    if f"q_lower_{name}" not in row:
        return None
    lower, upper = ([*row[f"q_{side}_{name}"], row[f"max_{side}_{name}"]] for side in SIDES)
    figures = (stats.p50, stats.p95, stats.p99, stats.max)
    between = (
        None if figure is None else finite(low, high) for figure, low, high in zip(figures, lower, upper, strict=True)
    )
    return MeasuredWithin(*between, turns_unknown=row[f"unknown_{name}"])


@dataclass(frozen=True, slots=True)
class _Observed:
    """What a query gives of a metric's `n` values, in the metric's unit: p50, p95 and p99, and the largest."""

    n: int
    quantiles: list[float] | None
    largest: float | None
    is_approximate: bool = False


def _is_approximate(row: Row) -> bool:
    """Whether the quantiles of a row were estimated from histograms."""
    return bool(row.get("is_approximate"))


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
        approximate=observed.is_approximate,
    )


def _valid(named: list[Row]) -> list[Row]:
    return [row for row in named if row["outcome"] != "invalid"]


def _cache(total: Row, named: list[Row]) -> CacheStats:
    tiers = Counter[str]()
    for row in _valid(named):
        if row["cache_hit"]:
            tiers[row["cache_tier"] or "unnamed"] += row["n"]
    return CacheStats(reported=total["cache_reported"], hits=total["cache_hits"], hits_by_tier=dict(tiers))


def _fallback(total: Row, named: list[Row]) -> ShareByName:
    # As an objective on fallbacks counts: an endpoint that says the route says how it answered, so that without a
    # fallback there was none. Whether a cache was hit says nothing of it.
    counts, reported = Counter[str](), 0
    for row in _valid(named):
        if row["fallback"] is not None:
            counts[row["fallback"]] += row["n"]
        if row["fallback"] is not None or row["route"] is not None:
            reported += row["n"]
    return ShareByName(total=total["valid"], reported=reported, counts=dict(counts))


def _routes(total: Row, named: list[Row]) -> ShareByName:
    counts = Counter[str]()
    for row in _valid(named):
        if row["route"] is not None:
            counts[row["route"]] += row["n"]
    return ShareByName(total=total["valid"], reported=counts.total(), counts=dict(counts))
