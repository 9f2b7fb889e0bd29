"""How many of the turns that are counted are of runs whose load generator was the limit."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from telemetry.model import semconv
from telemetry.model.semconv import Source
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.instrument import TurnsOfProcess, asked_processes, processes_of_runs
from telemetry.store.questions.runs import run_spans
from telemetry.store.run_state import LimitEvidence, generator_limit
from telemetry.store.turns_of_runs import CountedTurns

_PROCESSES: Final = """
    SELECT run_id, process_id, max(ended_unix_ns) AS last_unix_ns FROM turns WHERE source = 'client'
    GROUP BY run_id, process_id
    """


@dataclass(frozen=True, slots=True)
class LimitedTurns:
    """The valid turns of runs that say nothing about the service, and the number of these runs."""

    runs: int = 0
    turns: int = 0


@dataclass(slots=True)
class _RunState:
    """What the turns and the declarations of a run say of it."""

    emitted: dict[str, int] = field(default_factory=dict[str, int])  # when the last turn of each process ended
    known: set[str] = field(default_factory=set[str])  # processes that announced their start or emitted turns
    ended: set[str] = field(default_factory=set[str])  # those that announced their end

    def turns_of_processes(self) -> list[TurnsOfProcess]:
        """When each process was last heard of by a turn; of the turns no number is asked here."""
        return [TurnsOfProcess(process_id, 1, last_unix_ns) for process_id, last_unix_ns in self.emitted.items()]


def limited_turns(
    connection: StoreConnection, counted: Mapping[str, CountedTurns], source: Source, now_unix_ns: int
) -> LimitedTurns:
    """Which of the turns of a source that are counted, by run, are of runs that say nothing about the service: a run is
    judged by all of its turns, whichever of them are counted. None of those that services report."""
    if source == "service":
        return LimitedTurns()
    found = {run_id: each for run_id, each in _runs(connection).items() if run_id in counted}
    # Whether a process is at work or lost is asked of the few runs of which one has not announced its end.
    asked = asked_processes(connection)
    unsure = {run_id: each for run_id, each in found.items() if not _is_over(each, asked.get(run_id))}
    known = processes_of_runs(connection, {run_id: each.turns_of_processes() for run_id, each in unsure.items()})
    limited = [
        run_id
        for run_id in unsure
        if generator_limit(LimitEvidence(known[run_id], asked.get(run_id)), now_unix_ns) is not None
    ]
    return LimitedTurns(len(limited), sum(counted[run_id].valid for run_id in limited))


def _is_over(run: _RunState, asked: int | None) -> bool:
    """Whether all processes that the run was to have announced their end."""
    return len(run.known) >= (asked or 1) and run.known <= run.ended


def _runs(connection: StoreConnection) -> dict[str, _RunState]:
    """The runs that have turns of callers."""
    found: defaultdict[str, _RunState] = defaultdict(_RunState)
    for row in rows(connection, _PROCESSES):
        run = found[row["run_id"]]
        if row["process_id"]:
            run.known.add(row["process_id"])
            run.emitted[row["process_id"]] = row["last_unix_ns"]
    for span in run_spans(connection):
        run_id, process_id, phase = (
            str(span.attributes.get(semconv.RUN_PREFIX + name) or "") for name in ("run_id", "process_id", "phase")
        )
        if run_id in found and process_id:
            (found[run_id].ended if phase == "end" else found[run_id].known).add(process_id)
    return found
