"""The SQL behind telemetry.model.stated_error: how far figures may be off for the annotation of the callers' speech."""

# ruff: noqa: S608 - the identifiers in these statements come from the metric table, every value is bound

from collections.abc import Iterable
from typing import Any

from telemetry.model.metrics import METRICS, Metric
from telemetry.store.answers import Filter
from telemetry.store.queries import ASKED, FRACTIONS, PHASE_METRICS, Condition, grouped, judged, turns_of, valid


def uncertainty_column(metric: Metric) -> str:
    """How far a metric's value on a turn may be off for its clip's annotation, in ns; NULL where it is not known."""
    return "NULL" if metric.counts_from is None else f"{metric.counts_from}_uncertainty_ns"


def errors(f: Filter) -> tuple[str, list[Any]]:
    """As `totals`, for the metrics that count from a bound of the caller's speech: their maximum and quantiles over the
    values shifted down (`low`) and up (`high`) by what each turn's clip states of its annotation, by infinity where it
    states nothing, and how many of these there are (`unknown`)."""
    # A statement of its own, over valid turns only: beside the others, each behind a filter, it takes eight times as
    # long.
    metrics = [metric for metric in METRICS.values() if metric.counts_from is not None]
    shifted, columns = _shifted(metrics), _shifted_columns(metrics)
    where = grouped(f) & valid(f)
    return (
        f"""
        SELECT grouping(cohort) = 1 AS is_total, cohort, {columns}
        FROM (SELECT cohort, {shifted} FROM turns WHERE {where.sql}) GROUP BY GROUPING SETS ((), (cohort))
        """,
        list(where.values),
    )


def phase_errors(f: Filter) -> tuple[str, list[Any]]:
    """As `errors`, a row per phase, for PHASE_METRICS."""
    metrics = [METRICS[name] for name in PHASE_METRICS if METRICS[name].counts_from is not None]
    where = turns_of(f) & valid(f) & Condition(f"{ASKED} AND phase IS NOT NULL")
    return (
        f"""
        SELECT phase, {_shifted_columns(metrics)}
        FROM (SELECT phase, {_shifted(metrics)} FROM turns WHERE {where.sql}) GROUP BY phase
        """,
        list(where.values),
    )


def _shifted(metrics: Iterable[Metric]) -> str:
    columns: list[str] = []
    for metric in metrics:
        value, stated = metric.column, uncertainty_column(metric)
        by = f"coalesce({stated}, 'infinity'::DOUBLE)"
        columns.append(f"{value} - {by} AS low_{metric.name}, {value} + {by} AS high_{metric.name}")
        columns.append(f"({value} IS NOT NULL AND {stated} IS NULL) AS is_unknown_{metric.name}")
    return ", ".join(columns)


def _shifted_columns(metrics: Iterable[Metric]) -> str:
    columns: list[str] = []
    for name in (metric.name for metric in metrics):
        columns.append(f"count(*) FILTER (WHERE is_unknown_{name}) AS unknown_{name}")
        columns += [
            f"max({side}_{name}) AS max_{side}_{name}, quantile_cont({side}_{name}, {FRACTIONS}) AS q_{side}_{name}"
            for side in ("low", "high")
        ]
    return ", ".join(columns)


def speech_bounds(f: Filter) -> tuple[str, list[Any]]:
    """One row on how well it is known where the callers' speech began and ended."""
    where = judged(f) & valid(f) & Condition("speech_end_perf_ns IS NOT NULL")
    start, end = "speech_start_uncertainty_ns", "speech_end_uncertainty_ns"
    return (
        f"""
        SELECT count(*) AS turns, count(*) FILTER (WHERE {start} IS NULL OR {end} IS NULL) AS turns_unknown,
               quantile_cont({start}, 0.5) AS start_median_ns, max({start}) AS start_worst_ns,
               quantile_cont({end}, 0.5) AS end_median_ns, max({end}) AS end_worst_ns
        FROM turns WHERE {where.sql}
        """,
        list(where.values),
    )
