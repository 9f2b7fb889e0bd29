"""Which runs and processes each segment of turns holds: read once per segment, as a segment never changes.

Segments with a roll-up are not read for it.
"""

from dataclasses import dataclass
from typing import Final

from telemetry.store.connection import StoreConnection
from telemetry.store.queries import COUNTED, VIEWED
from telemetry.store.rollups.runs import catalog_rows

_STATEMENT: Final = f"""
    SELECT file, run_id, process_id, min(started_unix_ns) AS first_unix_ns, max(ended_unix_ns) AS last_unix_ns,
           count(*) FILTER (WHERE {VIEWED} AND {COUNTED}) AS viewed_turns,
           arg_min(target, started_unix_ns) FILTER (WHERE {VIEWED} AND target IS NOT NULL) AS target,
           min(started_unix_ns) FILTER (WHERE {VIEWED} AND target IS NOT NULL) AS target_unix_ns,
           arg_min(protocol, started_unix_ns) FILTER (WHERE {VIEWED} AND protocol IS NOT NULL) AS protocol,
           min(started_unix_ns) FILTER (WHERE {VIEWED} AND protocol IS NOT NULL) AS protocol_unix_ns,
           min(sequence) AS lowest, max(sequence) AS highest
    FROM one_by_one GROUP BY file, run_id, process_id
    """  # noqa: S608 - the identifiers are our own


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """The turns of one process in one run that one segment holds. `target` and `protocol` are those of the earliest
    client turn that states one, at `…_unix_ns`; `lowest` and `highest` bound the sequence numbers. `viewed_turns` are
    those that the run's figures are taken over: none of a ramp, no silent ones. Rows from a roll-up
    count the turns of a run without its processes, and bound the numbers of each process beside that."""

    file: str
    run_id: str
    process_id: str
    first_unix_ns: int
    last_unix_ns: int
    viewed_turns: int
    target: str | None
    target_unix_ns: int | None
    protocol: str | None
    protocol_unix_ns: int | None
    lowest: int | None
    highest: int | None


def catalog(connection: StoreConnection) -> list[CatalogRow]:
    """The rows of every segment of the store."""
    return [CatalogRow(**row) for row in connection.of_each_segment("catalog", "turns", _STATEMENT, catalog_rows)]
