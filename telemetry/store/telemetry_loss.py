"""Telemetry that is missing, from the sequence numbers that each process gave its turns."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from telemetry.model import semconv
from telemetry.store.answers import Filter, TelemetryLoss
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.run_catalog import CatalogRow, catalog

# A process states how many turns it emitted ahead of the turns themselves, which wait for their batch: what it reported
# this long ago must have arrived by now.
EXPORT_GRACE_NS: Final = 15_000_000_000


@dataclass(frozen=True, slots=True)
class LossOfProcess:
    """Turns of one process: how many it says it `emitted` (None where it does not say), how many were `received`, how
    many of its numbers in between did not arrive (`holes`), and how many are `missing` for either reason."""

    process_id: str
    emitted: int | None
    received: int
    holes: int
    missing: int


def received(connection: StoreConnection, f: Filter) -> list[dict[str, Any]]:
    """Rows `process_id, received, holes`: how many numbers of the turns arrived, and how many in between did not.

    Of the filter only the run narrows this, as numbers know no cohort. A process may outlive a run (an assistant does):
    its numbers are then looked at from the run's first to the run's last.
    """
    run, values = _of_run(f)
    lowest = _look_at_numbers_of(connection, f.run_id)
    return rows(
        connection,
        f"""
        WITH numbered AS (SELECT run_id, process_id, sequence FROM numbered_turns
                          WHERE sequence IS NOT NULL AND process_id <> ''),
        lowest AS (SELECT unnest(?::VARCHAR[]) AS process_id, unnest(?::BIGINT[]) AS lowest),
        mine AS (SELECT process_id, count(DISTINCT sequence) AS received, max(sequence) + 1 AS upper,
                        CASE WHEN any_value(lowest) < min(sequence) THEN min(sequence) ELSE 0 END AS lower
                 FROM numbered JOIN lowest USING (process_id) WHERE {run} GROUP BY process_id),
        holes AS (SELECT m.process_id, any_value(m.upper - m.lower) - count(DISTINCT n.sequence) AS holes
                  FROM mine m JOIN numbered n
                  ON n.process_id = m.process_id AND n.sequence >= m.lower AND n.sequence < m.upper
                  GROUP BY m.process_id)
        SELECT process_id, received, holes FROM mine JOIN holes USING (process_id)
        """,
        [list(lowest), list(lowest.values()), *values],
    )


def telemetry_loss(
    connection: StoreConnection, f: Filter, now_unix_ns: int, arrived: list[dict[str, Any]]
) -> TelemetryLoss:
    """Missing turns of all processes: holes in the numbers that each gave them (rows of `received`), and what it says
    it emitted and did not arrive."""
    return total_loss(loss_by_process(connection, f, now_unix_ns, arrived))


def total_loss(found: Sequence[LossOfProcess]) -> TelemetryLoss:
    """The loss of all of some processes."""
    emitted = [each.emitted for each in found if each.emitted is not None]
    return TelemetryLoss(
        processes=len(found),
        emitted=sum(max(each.emitted or 0, each.received + each.holes) for each in found) if emitted else None,
        received=sum(each.received for each in found),
        missing=sum(each.missing for each in found),
    )


def loss_by_process(
    connection: StoreConnection, f: Filter, now_unix_ns: int, arrived: list[dict[str, Any]]
) -> tuple[LossOfProcess, ...]:
    """As `telemetry_loss`, for each process by itself, in the order of their names."""
    run, values = _of_run(f)
    reported = rows(
        connection,
        f"""
        WITH counters AS (SELECT process_id, run_id, max(value) AS emitted,
                                 max(value) FILTER (WHERE unix_ns <= ?) AS due
                          FROM points WHERE {run} AND name = ? AND process_id IS NOT NULL GROUP BY process_id, run_id)
        SELECT process_id, sum(emitted)::BIGINT AS emitted, coalesce(sum(due), 0)::BIGINT AS due
        FROM counters GROUP BY process_id
        """,
        [now_unix_ns - EXPORT_GRACE_NS, *values, semconv.METRIC_TURNS_EMITTED],
    )
    return losses(arrived, reported)


def losses(arrived: Iterable[dict[str, Any]], reported: Iterable[dict[str, Any]]) -> tuple[LossOfProcess, ...]:
    """Of rows `process_id, received, holes`, and of rows `process_id, emitted, due`: how many turns a process says it
    emitted, and how many of them must have arrived by now."""
    nothing = {"received": 0, "holes": 0, "emitted": None, "due": 0}
    by_process: dict[str, dict[str, Any]] = {}
    for row in (*arrived, *reported):
        by_process[row["process_id"]] = by_process.get(row["process_id"], nothing) | row
    return tuple(
        LossOfProcess(
            process_id=process_id,
            emitted=row["emitted"],
            received=row["received"],
            holes=row["holes"],
            missing=max(row["holes"], row["due"] - row["received"]),
        )
        for process_id, row in sorted(by_process.items())
    )


def _of_run(f: Filter) -> tuple[str, list[Any]]:
    return ("true", []) if f.run_id is None else ("run_id = ?", [f.run_id])


def _look_at_numbers_of(connection: StoreConnection, run_id: str | None) -> dict[str, int]:
    """Make the view `numbered_turns` of all turns whose numbers matter for a run; the lowest number of each of its
    processes in the whole store.

    Beside the run's own turns these are the numbers that a process of the run gave in between to those of other runs.
    """
    numbered = [row for row in catalog(connection) if row.lowest is not None and row.process_id]
    lowest: dict[str, int] = {}
    bounds: dict[str, tuple[int, int]] = {}
    for row in numbered:
        low, high = row.lowest or 0, row.highest or 0
        lowest[row.process_id] = min(low, lowest.get(row.process_id, low))
        if run_id is None or row.run_id == run_id:
            known = bounds.get(row.process_id, (low, high))
            bounds[row.process_id] = min(low, known[0]), max(high, known[1])

    def matters(row: CatalogRow) -> bool:
        if row.process_id not in bounds:
            return False
        first, last = bounds[row.process_id]
        # Where nothing lies below the run's numbers they are looked at from 0: there is nothing below to be found.
        return (row.lowest or 0) <= last and (row.highest or 0) >= first

    files = {row.file.rpartition("/")[2] for row in numbered if matters(row)}
    segments = [segment for segment in connection.segments("turns") if segment.file in files]
    connection.view("numbered_turns", "turns", segments)
    return {process_id: lowest[process_id] for process_id in bounds}
