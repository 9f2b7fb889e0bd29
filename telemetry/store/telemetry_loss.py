"""Telemetry that is missing, from the sequence numbers that each process gave its turns."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model import semconv
from telemetry.store.answers import Filter, TelemetryLoss
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.queries import Condition

# A process states how many turns it emitted ahead of the turns themselves, which wait for their batch: what it reported
# this long ago must have arrived by now.
EXPORT_GRACE_NS: Final = 15_000_000_000
_PROCESS: Final = ("process_id",)
_PROCESS_OF_RUN: Final = ("run_id", "process_id")


@dataclass(frozen=True, slots=True)
class LossOfProcess:
    """Turns of one process: how many it says it `emitted` (None where it does not say), how many were `received`, how
    many of its numbers in between did not arrive (`holes`), and how many are `missing` for either reason."""

    process_id: str
    emitted: int | None
    received: int
    holes: int
    missing: int


def telemetry_loss(connection: StoreConnection, f: Filter, now_unix_ns: int) -> TelemetryLoss:
    """Missing turns of all processes: holes in the numbers that each gave them, and what it says it emitted and did not
    arrive."""
    return _total(loss_by_process(connection, f, now_unix_ns))


def loss_by_process(connection: StoreConnection, f: Filter, now_unix_ns: int) -> tuple[LossOfProcess, ...]:
    """As `telemetry_loss`, for each process by itself, in the order of their names.

    Of the filter only the run narrows this, as numbers know no cohort.
    """
    run = Condition("true") if f.run_id is None else Condition("run_id = ?", (f.run_id,))
    return _losses([*_arrived(connection, run, _PROCESS), *_emitted(connection, run, _PROCESS, now_unix_ns)])


def loss_of_runs(connection: StoreConnection, run_ids: frozenset[str], now_unix_ns: int) -> TelemetryLoss:
    """What is missing of some runs, each by itself. How many turns were emitted is not known where one of them does not
    say it."""
    run = Condition("list_contains(?::VARCHAR[], run_id)", (sorted(run_ids),))
    by_run: dict[str, list[Row]] = {run_id: [] for run_id in run_ids}
    for row in _arrived(connection, run, _PROCESS_OF_RUN):
        by_run[row["run_id"]].append(row)
    for row in _emitted(connection, run, _PROCESS_OF_RUN, now_unix_ns):
        by_run[row["run_id"]].append(row)
    found = [_total(_losses(of_run)) for of_run in by_run.values()]
    emitted = [each.emitted for each in found if each.emitted is not None]
    return TelemetryLoss(
        processes=sum(each.processes for each in found),
        emitted=sum(emitted) if len(emitted) == len(found) else None,
        received=sum(each.received for each in found),
        missing=sum(each.missing for each in found),
    )


def _arrived(connection: StoreConnection, run: Condition, by: tuple[str, ...]) -> list[Row]:
    """By process, how many numbers of its turns arrived, and how many in between did not.

    A process may outlive a run (an assistant does): where the store has lower numbers of it, its numbers are looked at
    from the run's first to the run's last, whichever runs the turns in between belong to.
    """
    columns = ", ".join(by)
    return rows(
        connection,
        f"""
        WITH mine AS (
            SELECT {columns}, count(DISTINCT sequence) AS received, min(sequence) AS first, max(sequence) AS last
            FROM turns WHERE sequence IS NOT NULL AND process_id <> '' AND {run.sql} GROUP BY {columns})
        SELECT {", ".join(f"mine.{name}" for name in by)}, received,
               last + 1 - CASE WHEN min(sequence) < first THEN first ELSE 0 END
               - count(DISTINCT sequence) FILTER (sequence BETWEEN first AND last) AS holes
        FROM mine JOIN turns ON turns.process_id = mine.process_id AND sequence IS NOT NULL
        GROUP BY {", ".join(f"mine.{name}" for name in by)}, received, first, last
        """,
        list(run.values),
    )


def _emitted(connection: StoreConnection, run: Condition, by: tuple[str, ...], now_unix_ns: int) -> list[Row]:
    """By process, how many turns it says it emitted, and how many of them must have arrived by now."""
    columns = ", ".join(by)
    return rows(
        connection,
        f"""
        WITH counters AS (
            SELECT process_id, run_id, max(value) AS emitted, max(value) FILTER (WHERE unix_ns <= ?) AS due
            FROM points WHERE name = ? AND process_id IS NOT NULL AND {run.sql} GROUP BY process_id, run_id)
        SELECT {columns}, sum(emitted)::BIGINT AS emitted, coalesce(sum(due), 0)::BIGINT AS due
        FROM counters GROUP BY {columns}
        """,
        [now_unix_ns - EXPORT_GRACE_NS, semconv.METRIC_TURNS_EMITTED, *run.values],
    )


def _losses(found: Sequence[Row]) -> tuple[LossOfProcess, ...]:
    """The loss of each process from the rows of both statements."""
    nothing: Row = {"received": 0, "holes": 0, "emitted": None, "due": 0}
    by_process: defaultdict[str, Row] = defaultdict(nothing.copy)
    for row in found:
        by_process[row["process_id"]].update(row)
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


def _total(found: Sequence[LossOfProcess]) -> TelemetryLoss:
    """The loss of all of some processes."""
    emitted = [each.emitted for each in found if each.emitted is not None]
    return TelemetryLoss(
        processes=len(found),
        emitted=sum(max(each.emitted or 0, each.received + each.holes) for each in found) if emitted else None,
        received=sum(each.received for each in found),
        missing=sum(each.missing for each in found),
    )
