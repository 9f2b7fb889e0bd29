"""Telemetry that is missing of many runs at once, as `telemetry_loss` finds it of one."""

from collections import defaultdict
from typing import Final

from telemetry.model import semconv
from telemetry.store.answers import TelemetryLoss
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.telemetry_loss import EXPORT_GRACE_NS, losses, total_loss

# Of each process of a run: how many of its numbers arrived, and how many in between did not. A process that gave lower
# numbers to turns of other runs is looked at from the run's first number on.
_ARRIVED: Final = """
    WITH numbered AS (SELECT run_id, process_id, sequence FROM turns WHERE sequence IS NOT NULL AND process_id <> ''),
    known AS (SELECT run_id, process_id, count(DISTINCT sequence) AS received, min(sequence) AS low,
                     max(sequence) AS high FROM numbered GROUP BY run_id, process_id),
    mine AS (SELECT *, CASE WHEN min(low) OVER process < low THEN low ELSE 0 END AS first,
                    count(*) OVER process > 1 AS is_shared FROM known WINDOW process AS (PARTITION BY process_id)),
    shared AS (SELECT m.run_id, m.process_id, count(DISTINCT n.sequence) AS arrived
               FROM mine m JOIN numbered n ON n.process_id = m.process_id AND n.sequence BETWEEN m.first AND m.high
               WHERE m.is_shared GROUP BY m.run_id, m.process_id)
    SELECT run_id, process_id, received, high + 1 - first - coalesce(arrived, received) AS holes
    FROM mine LEFT JOIN shared USING (run_id, process_id)
    """
_REPORTED: Final = """
    SELECT run_id, process_id, max(value)::BIGINT AS emitted,
           coalesce(max(value) FILTER (unix_ns <= ?), 0)::BIGINT AS due
    FROM points WHERE name = ? AND process_id IS NOT NULL GROUP BY run_id, process_id
    """


def loss_of_runs(connection: StoreConnection, run_ids: frozenset[str], now_unix_ns: int) -> TelemetryLoss:
    """What is missing of some runs, each by itself. How many turns were emitted is not known where one of them does not
    say it."""
    arrived, reported = defaultdict[str, list[Row]](list), defaultdict[str, list[Row]](list)
    for row in rows(connection, _ARRIVED):
        arrived[row.pop("run_id")].append(row)
    for row in rows(connection, _REPORTED, [now_unix_ns - EXPORT_GRACE_NS, semconv.METRIC_TURNS_EMITTED]):
        reported[row.pop("run_id") or ""].append(row)
    found = [total_loss(losses(arrived[run_id], reported[run_id])) for run_id in run_ids]
    emitted = [each.emitted for each in found if each.emitted is not None]
    return TelemetryLoss(
        processes=sum(each.processes for each in found),
        emitted=sum(emitted) if len(emitted) == len(found) else None,
        received=sum(each.received for each in found),
        missing=sum(each.missing for each in found),
    )
