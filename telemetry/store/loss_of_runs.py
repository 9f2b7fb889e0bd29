"""Telemetry that is missing of many runs at once, as `telemetry_loss` finds it of one: what each segment says is read
once, or taken from its roll-up."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.model import semconv
from telemetry.store.answers import TelemetryLoss
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.parts import arrived
from telemetry.store.rollups.rollup import union_of_ranges
from telemetry.store.telemetry_loss import EXPORT_GRACE_NS, losses, total_loss
from telemetry.store.turns_of_runs import numbers_of_segments

_OF_COUNTER: Final = f"name = '{semconv.METRIC_TURNS_EMITTED}' AND process_id IS NOT NULL"
_EMITTED: Final = f"""
    SELECT file, run_id, process_id, max(value)::BIGINT AS emitted, max(unix_ns) AS last_unix_ns FROM one_by_one
    WHERE {_OF_COUNTER} GROUP BY file, run_id, process_id
    """
_Process = tuple[str, str]  # run, process


@dataclass(frozen=True, slots=True)
class _Emitted:
    """How many turns a process said it had emitted, at the end of a segment."""

    file: str
    process: _Process
    emitted: int
    last_unix_ns: int


def loss_of_runs(connection: StoreConnection, run_ids: frozenset[str], now_unix_ns: int) -> TelemetryLoss:
    """What is missing of some runs, each by itself. How many turns were emitted is not known where one of them does not
    say it."""
    mine: defaultdict[_Process, list[Ints]] = defaultdict(list)
    of_process: defaultdict[str, list[Ints]] = defaultdict(list)
    for each in numbers_of_segments(connection):
        of_process[each.process_id].append(each.ranges)
        if each.run_id in run_ids:
            mine[each.run_id, each.process_id].append(each.ranges)
    known = {process_id: union_of_ranges(of_process[process_id]) for process_id in {each for _, each in mine}}
    by_run: defaultdict[str, list[Row]] = defaultdict(list)
    for (run_id, process_id), numbers in mine.items():
        by_run[run_id].append(arrived(process_id, union_of_ranges(numbers), known[process_id]))
    reported = _reported(connection, run_ids, now_unix_ns)
    found = [total_loss(losses(by_run[run_id], reported[run_id])) for run_id in run_ids]
    emitted = [each.emitted for each in found if each.emitted is not None]
    return TelemetryLoss(
        processes=sum(each.processes for each in found),
        emitted=sum(emitted) if len(emitted) == len(found) else None,
        received=sum(each.received for each in found),
        missing=sum(each.missing for each in found),
    )


def _reported(connection: StoreConnection, run_ids: frozenset[str], now_unix_ns: int) -> dict[str, list[Row]]:
    """By run, how many turns each process says it emitted, and how many of them must have arrived by now."""
    every = connection.read_of_each_segment(
        "emitted turns", "points", _EMITTED, lambda _folder, _segment: None, _read_emitted
    )
    due_unix_ns = now_unix_ns - EXPORT_GRACE_NS
    emitted, due = defaultdict[_Process, int](int), defaultdict[_Process, int](int)
    recent = set[str]()
    for row in every:
        if row.process[0] not in run_ids:
            continue
        emitted[row.process] = max(emitted[row.process], row.emitted)
        if row.last_unix_ns <= due_unix_ns:
            due[row.process] = max(due[row.process], row.emitted)
        else:
            recent.add(row.file)
    if recent:
        connection.view(
            "recent_points", "points", [each for each in connection.segments("points") if each.file in recent]
        )
        statement = f"""
            SELECT run_id, process_id, max(value)::BIGINT AS due FROM recent_points
            WHERE {_OF_COUNTER} AND unix_ns <= ? GROUP BY run_id, process_id
            """
        for each in rows(connection, statement, [due_unix_ns]):
            process = each["run_id"] or "", each["process_id"]
            due[process] = max(due[process], each["due"])
    found = {run_id: list[Row]() for run_id in run_ids}
    for (run_id, process_id), turns in emitted.items():
        found[run_id].append({"process_id": process_id, "emitted": turns, "due": due[run_id, process_id]})
    return found


def _read_emitted(row: Row) -> _Emitted:
    process = row["run_id"] or "", row["process_id"]
    return _Emitted(Path(row["file"]).name, process, row["emitted"], row["last_unix_ns"])
