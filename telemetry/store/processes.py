"""The generator's processes of a run, and which of them ended without announcing it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.store.answers import ProcessInfo
from telemetry.store.connection import StoreConnection, rows
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
    """Every process that announced its start, reported its health or emitted a client turn; earliest first. `emitted`
    is what is known of the turns already; None has them counted."""
    began: dict[str, int] = {}
    names: dict[str, str] = {}
    ended: set[str] = set()
    seen: dict[str, int] = {}
    for span in run_spans(connection):
        process_id = span.attributes.get(_PROCESS)
        if span.attributes.get(_RUN_ID) != run_id or not isinstance(process_id, str):
            continue
        seen[process_id] = max(seen.get(process_id, 0), span.end_unix_ns)
        if span.attributes.get(_PHASE) == "end":
            ended.add(process_id)
        else:
            began[process_id] = span.start_unix_ns
            names[process_id] = str(span.attributes.get(_WORKER) or "")
    turns: dict[str, int] = {}
    for of in _emitted(connection, run_id) if emitted is None else emitted:
        turns[of.process_id] = of.turns
        seen[of.process_id] = max(seen.get(of.process_id, 0), of.last_unix_ns)
    calls: dict[str, int] = {}
    reported = """
        SELECT process_id, max(unix_ns) AS last, arg_max(value, unix_ns) AS calls FROM points
        WHERE run_id = ? AND name = ? AND process_id IS NOT NULL GROUP BY process_id
        """
    for row in rows(connection, reported, [run_id, gauge_metric("calls_in_flight")]):
        calls[row["process_id"]] = round(row["calls"])
        seen[row["process_id"]] = max(seen.get(row["process_id"], 0), row["last"])
    busy = """
        SELECT process_id, quantile_cont(value, 0.75) AS cpu_ratio FROM points
        WHERE run_id = ? AND name = ? AND process_id IS NOT NULL GROUP BY process_id
        """
    used = {
        row["process_id"]: float(row["cpu_ratio"])
        for row in rows(connection, busy, [run_id, gauge_metric("cpu_ratio")])
    }
    found = [
        ProcessInfo(
            process_id=process_id,
            worker=names.get(process_id, ""),
            began_unix_ns=began.get(process_id),
            last_seen_unix_ns=last_seen,
            ended=process_id in ended,
            turns=turns.get(process_id, 0),
            calls_in_flight=calls.get(process_id),
            cpu_ratio=used.get(process_id),
        )
        for process_id, last_seen in seen.items()
    ]
    return sorted(found, key=lambda process: (process.began_unix_ns or process.last_seen_unix_ns, process.process_id))


def asked_processes(connection: StoreConnection, run_id: str) -> int | None:
    """How many processes the run was to have, as they declare; None where none says so."""
    declared = [span.attributes.get(_ASKED) for span in run_spans(connection) if span.attributes.get(_RUN_ID) == run_id]
    numbers = [int(each) for each in map(str, declared) if each.isascii() and each.isdigit() and len(each) < 10]
    return max(numbers, default=0) or None


def _emitted(connection: StoreConnection, run_id: str) -> list[TurnsOfProcess]:
    statement = """
        SELECT process_id, count(*) AS turns, max(ended_unix_ns) AS last FROM run_turns
        WHERE run_id = ? AND source = 'client' AND process_id <> '' GROUP BY process_id
        """
    return [
        TurnsOfProcess(row["process_id"], row["turns"], row["last"]) for row in rows(connection, statement, [run_id])
    ]
