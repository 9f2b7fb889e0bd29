"""What was noticed beside the conversations of a filter's turns, added up in the store."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from typing import Final

from telemetry.store.answers import Filter
from telemetry.store.beside import Beside, ContradictedValue, Contradictions
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.queries import Condition, turns_of, viewed

NAMED_EVENTS: Final = 8


def beside(connection: StoreConnection, f: Filter) -> Beside:
    """Over all client turns, those of ramps and silent ones too: it is no figure of the service."""
    where = turns_of(f) & viewed(f)
    statement = f"""
        SELECT coalesce(sum(unknown_events), 0)::BIGINT AS unknown,
               coalesce(sum(duplicate_events), 0)::BIGINT AS duplicates,
               count(*) FILTER (WHERE service_latency_reports > 0) AS turns_with_service_latency,
               list_sort(list_distinct(flatten(list(unknown_event_names))))[:{NAMED_EVENTS}] AS unknown_names
        FROM turns WHERE {where.sql}
        """
    (row,) = rows(connection, statement, list(where.values))
    return Beside(
        unknown=row["unknown"],
        duplicates=row["duplicates"],
        turns_with_service_latency=row["turns_with_service_latency"],
        unknown_names=tuple(row["unknown_names"] or ()),
    )


def contradictions(connection: StoreConnection, f: Filter) -> Contradictions:
    """Over the filter's turns, those of ramps and silent ones too, and what services report of the same traces."""
    where = turns_of(f)
    traces = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    statement = f"""
        WITH noted AS (SELECT * FROM turns WHERE len(contradicted_metrics) > 0 OR late_spans > 0),
        mine AS (SELECT source, contradicted_metrics, contradicted_causes, late_spans FROM noted
                 WHERE ({where.sql}) OR (source = 'service' AND trace_id IN (
                     SELECT trace_id FROM turns WHERE {traces.sql} AND {where.sql} AND source = 'client'
                     AND trace_id IN (SELECT trace_id FROM noted WHERE trace_id <> '')))),
        named AS (SELECT source, unnest(contradicted_metrics) AS metric, unnest(contradicted_causes) AS cause FROM mine)
        SELECT source, metric, cause, count(*) AS n FROM named WHERE metric IS NOT NULL GROUP BY ALL
        UNION ALL SELECT NULL, 'late', NULL, coalesce(sum(late_spans), 0)::BIGINT FROM mine
        UNION ALL SELECT NULL, 'revised', NULL, count(*) FILTER (WHERE late_spans > 0) FROM mine
        ORDER BY n DESC, source, metric, cause
        """
    found = rows(connection, statement, [*where.values, *traces.values, *where.values])
    counts = {row["metric"]: row["n"] for row in found if row["source"] is None}
    values = tuple(
        ContradictedValue(row["source"], row["metric"], row["cause"] or "", row["n"])
        for row in found
        if row["source"] is not None
    )
    return Contradictions(values, counts["late"], counts["revised"])
