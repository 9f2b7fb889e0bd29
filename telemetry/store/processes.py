"""The generator's processes of a run, and which of them ended without announcing it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.store.answers import ProcessInfo
from telemetry.store.connection import Row, StoreConnection, rows
from telemetry.store.run_spans import run_spans

_RUN_ID: Final = f"{semconv.RUN_PREFIX}run_id"
_PROCESS: Final = f"{semconv.RUN_PREFIX}process_id"
_PHASE: Final = f"{semconv.RUN_PREFIX}phase"
_WORKER: Final = f"{semconv.RUN_PREFIX}worker"
_ASKED: Final = f"{semconv.RUN_PREFIX}processes"


@dataclass(frozen=True, slots=True)
class TurnsOfProcess:
    """How many client turns a process emitted, and when the last of them ended."""

    process_id: str
    turns: int
    last_unix_ns: int


def processes(
    connection: StoreConnection, run_id: str, emitted: Sequence[TurnsOfProcess] | None = None
) -> list[ProcessInfo]:
    """Every process of a run that announced its start, reported its health or emitted a client turn; earliest first.
    `emitted` is what is known of the turns already; None has them counted."""
    known = _emitted(connection, run_id) if emitted is None else emitted
    return processes_of_runs(connection, {run_id: known})[run_id]


def processes_of_runs(
    connection: StoreConnection, emitted: Mapping[str, Sequence[TurnsOfProcess]]
) -> dict[str, list[ProcessInfo]]:
    """The processes of several runs, as `processes` gives those of one; by run, `emitted` is what is known of the
    turns."""
    if not emitted:
        return {}
    runs = {run_id: _Seen() for run_id in emitted}
    for span in run_spans(connection):
        run, process_id = runs.get(str(span.attributes.get(_RUN_ID))), span.attributes.get(_PROCESS)
        if run is None or not isinstance(process_id, str):
            continue
        run.heard(process_id, span.end_unix_ns)
        if span.attributes.get(_PHASE) == "end":
            run.ended.add(process_id)
        else:
            run.began[process_id] = span.start_unix_ns
            run.names[process_id] = str(span.attributes.get(_WORKER) or "")
    for run_id, of_run in emitted.items():
        for of in of_run:
            runs[run_id].turns[of.process_id] = of.turns
            runs[run_id].heard(of.process_id, of.last_unix_ns)
    for row in _gauge(connection, emitted, "calls_in_flight", "max(unix_ns) AS last, arg_max(value, unix_ns) AS value"):
        run = runs[row["run_id"]]
        run.calls[row["process_id"]] = (round(row["value"]), row["last"])
        run.heard(row["process_id"], row["last"])
    for row in _gauge(connection, emitted, "cpu_ratio", "quantile_cont(value, 0.75) AS value"):
        runs[row["run_id"]].cpu_ratio[row["process_id"]] = float(row["value"])
    return {run_id: run.found() for run_id, run in runs.items()}


def _gauge(connection: StoreConnection, run_ids: Iterable[str], name: str, columns: str) -> list[Row]:
    """These columns of a gauge, by run and process, of at least one run."""
    values = [*run_ids, gauge_metric(name)]
    statement = f"""
        SELECT run_id, process_id, {columns} FROM points
        WHERE run_id IN ({", ".join("?" for _ in values[1:])}) AND name = ? AND process_id IS NOT NULL
        GROUP BY run_id, process_id
        """  # noqa: S608 - the columns are our own, values are bound
    return rows(connection, statement, values)


@dataclass(slots=True)
class _Seen:
    """What was seen of the processes of a run."""

    began: dict[str, int] = field(default_factory=dict[str, int])
    names: dict[str, str] = field(default_factory=dict[str, str])
    ended: set[str] = field(default_factory=set[str])
    turns: dict[str, int] = field(default_factory=dict[str, int])
    calls: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # and when they were so many
    cpu_ratio: dict[str, float] = field(default_factory=dict[str, float])
    last_seen_unix_ns: dict[str, int] = field(default_factory=dict[str, int])

    def heard(self, process_id: str, unix_ns: int) -> None:
        """Keep when a process was last heard of."""
        self.last_seen_unix_ns[process_id] = max(self.last_seen_unix_ns.get(process_id, 0), unix_ns)

    def found(self) -> list[ProcessInfo]:
        """The processes, earliest first."""
        found = [
            ProcessInfo(
                process_id=process_id,
                worker=self.names.get(process_id, ""),
                began_unix_ns=self.began.get(process_id),
                last_seen_unix_ns=last_seen,
                ended=process_id in self.ended,
                turns=self.turns.get(process_id, 0),
                calls_in_flight=self.calls.get(process_id, (None, None))[0],
                cpu_ratio=self.cpu_ratio.get(process_id),
                calls_reported_unix_ns=self.calls.get(process_id, (None, None))[1],
            )
            for process_id, last_seen in self.last_seen_unix_ns.items()
        ]
        return sorted(found, key=lambda each: (each.began_unix_ns or each.last_seen_unix_ns, each.process_id))


def asked_processes(connection: StoreConnection, run_id: str) -> int | None:
    """How many processes the run was to have, as they declare; None where none says so."""
    declared = [span.attributes.get(_ASKED) for span in run_spans(connection) if span.attributes.get(_RUN_ID) == run_id]
    numbers = [int(each) for each in map(str, declared) if each.isascii() and each.isdigit() and len(each) < 10]
    return max(numbers, default=0) or None


def _emitted(connection: StoreConnection, run_id: str) -> list[TurnsOfProcess]:
    statement = """
        SELECT process_id, count(*) AS turns, max(ended_unix_ns) AS last FROM turns
        WHERE run_id = ? AND source = 'client' AND process_id <> '' GROUP BY process_id
        """
    return [
        TurnsOfProcess(row["process_id"], row["turns"], row["last"]) for row in rows(connection, statement, [run_id])
    ]
