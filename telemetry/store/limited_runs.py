"""How many turns are of runs whose load generator was the limit, run after run of a stretch of time."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.store.connection import StoreConnection
from telemetry.store.generator_limit import too_many_invalid
from telemetry.store.manifest import SEGMENTS_FOLDER, Segment
from telemetry.store.processes import TurnsOfProcess, asked_processes, processes_of_runs
from telemetry.store.queries import ASKED
from telemetry.store.rollups import files
from telemetry.store.rollups.statements import SILENT
from telemetry.store.run_limit import run_limit
from telemetry.store.run_spans import run_spans
from telemetry.store.run_state import LimitTurns

_TURNS: Final = "turns"
_PROCESSES: Final = "process"
_PARTS: Final = frozenset({_TURNS, _PROCESSES})
_STEADY: Final = f"phase_kind IS DISTINCT FROM '{semconv.RAMP}'"
_STATEMENT: Final = f"""
    SELECT file, run_id, process_id, count(*) FILTER ({ASKED} AND {_STEADY}) AS total,
           count(*) FILTER ({ASKED} AND {_STEADY} AND outcome = 'invalid') AS invalid,
           max(ended_unix_ns) AS last_unix_ns
    FROM one_by_one WHERE source = 'client' GROUP BY file, run_id, process_id
    """  # noqa: S608 - the identifiers are our own


@dataclass(frozen=True, slots=True)
class LimitedTurns:
    """The valid turns of runs that say nothing about the service, and the number of these runs."""

    runs: int = 0
    turns: int = 0


@dataclass(slots=True)
class _RunState:
    """What the turns and the declarations of a run say of it."""

    total: int = 0
    invalid: int = 0
    last_unix_ns: int = 0
    emitted: dict[str, int] = field(default_factory=dict[str, int])  # when the last turn of each process ended
    known: set[str] = field(default_factory=set[str])  # processes that announced their start or emitted turns
    ended: set[str] = field(default_factory=set[str])  # those that announced their end

    def turns_of_processes(self) -> list[TurnsOfProcess]:
        """When each process was last heard of by a turn; of the turns no number is asked here."""
        return [TurnsOfProcess(process_id, 1, last_unix_ns) for process_id, last_unix_ns in self.emitted.items()]


def limited_turns(connection: StoreConnection, since_unix_ns: int, now_unix_ns: int) -> LimitedTurns:
    """The turns of runs that went on after a moment; a run that began before it counts whole.

    A run to which not all calls came is not among them: what is missed under less load than was asked for is missed.
    """
    found = {run_id: each for run_id, each in _runs(connection).items() if each.last_unix_ns >= since_unix_ns}
    limited = [each for each in found.values() if too_many_invalid(each.invalid, each.total)]
    # Whether a process is at work or lost is asked of the few other runs of which one has not announced its end.
    unsure = {
        run_id: each
        for run_id, each in found.items()
        if not too_many_invalid(each.invalid, each.total) and not _is_over(connection, run_id, each)
    }
    known = processes_of_runs(connection, {run_id: each.turns_of_processes() for run_id, each in unsure.items()})
    for run_id, each in unsure.items():
        turns = LimitTurns(each.total, each.invalid)
        if run_limit(connection, run_id, turns, None, now_unix_ns, known=known[run_id]) is not None:
            limited.append(each)
    return LimitedTurns(len(limited), sum(each.total - each.invalid for each in limited))


def _is_over(connection: StoreConnection, run_id: str, run: _RunState) -> bool:
    """Whether all processes that the run was to have announced their end."""
    return len(run.known) >= (asked_processes(connection, run_id) or 1) and run.known <= run.ended


def _runs(connection: StoreConnection) -> dict[str, _RunState]:
    """The runs that have turns of callers."""
    found: defaultdict[str, _RunState] = defaultdict(_RunState)
    for row in connection.of_each_segment("turns of runs", "turns", _STATEMENT, _rolled_up):
        run = found[row["run_id"]]
        run.total += row["total"]
        run.invalid += row["invalid"]
        run.last_unix_ns = max(run.last_unix_ns, row["last_unix_ns"])
        if process_id := row["process_id"]:
            run.known.add(process_id)
            run.emitted[process_id] = max(run.emitted.get(process_id, 0), row["last_unix_ns"])
    for span in run_spans(connection):
        run_id, process_id, phase = (
            str(span.attributes.get(semconv.RUN_PREFIX + name) or "") for name in ("run_id", "process_id", "phase")
        )
        if run_id in found and process_id:
            (found[run_id].ended if phase == "end" else found[run_id].known).add(process_id)
    return found


def _rolled_up(directory: Path, segment: Segment) -> list[dict[str, Any]] | None:
    """The rows of `_STATEMENT` from a segment's roll-up: turns without their process, and processes without turns."""
    try:
        file = files.read(directory / SEGMENTS_FOLDER, segment)
    except StoreError:
        return None
    if file is None:
        return None
    rows: list[dict[str, Any]] = []
    for key, cell in file.rollup(parts=_PARTS).of(_TURNS, _PROCESSES):
        is_of_turns = key.part == _TURNS
        n = (
            cell.n
            if is_of_turns and not (key.labels[0] or "").startswith(SILENT) and key.phase_kind != semconv.RAMP
            else 0
        )
        row = {"run_id": key.run_id or "", "last_unix_ns": cell.last or 0, "total": n}
        row["invalid"] = n if key.labels[1:2] == ("invalid",) else 0
        row["process_id"] = "" if is_of_turns else key.labels[0] or ""
        rows.append(row)
    return rows
