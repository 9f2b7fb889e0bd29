"""Whether the load generator was the limit of a run, from what its processes and its turns say in one snapshot."""

from collections.abc import Sequence

from telemetry.model.service_runs import service_day
from telemetry.store.answers import ProcessInfo, Summary
from telemetry.store.connection import StoreConnection
from telemetry.store.generator_limit import GeneratorLimit
from telemetry.store.processes import asked_processes, processes
from telemetry.store.run_state import LimitEvidence, LimitTurns, generator_limit, kept_turns


def limit_turns(summary: Summary) -> LimitTurns:
    """What a limit is seen by of the turns of a summary."""
    turns = summary.turns
    return LimitTurns(turns.total, kept_turns(turns.by_outcome, turns.endpoint_did_not_read))


def run_limit(
    connection: StoreConnection,
    run_id: str | None,
    now_unix_ns: int,
    *,
    known: Sequence[ProcessInfo] | None = None,
) -> GeneratorLimit | None:
    """Why the figures of a run say nothing about the service; None where they do. `known` are its processes, where they
    were asked for already.

    A service that reports of itself has no load generator, and turns of several runs have none in common.
    """
    if run_id is None or service_day(run_id) is not None:
        return None
    found, asked = processes(connection, run_id) if known is None else known, asked_processes(connection, run_id)
    return generator_limit(LimitEvidence(found, asked), now_unix_ns)
