"""The spans with which a generator's processes declare a run: at its beginning and at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.model import semconv
from telemetry.store.attribute_values import read_attributes
from telemetry.store.connection import Row, StoreConnection
from telemetry.store.rollups.runs import declaration_rows

# The attributes under which a sender may name the run; the first that it states counts.
RUN_IDS: Final = (semconv.RUN_PREFIX + "run_id", semconv.RUN_PREFIX + "id", "run_id")
_STATEMENT: Final = f"""
    SELECT file, timestamp_unix_ns, duration_ns, span_attributes FROM one_by_one
    WHERE span_name = '{semconv.SPAN_RUN}'
    """  # noqa: S608 - the name is our own


@dataclass(frozen=True, slots=True)
class RunSpan:
    """One `voice.run` span; `file` is the segment that holds it."""

    file: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, object]


def run_spans(connection: StoreConnection) -> list[RunSpan]:
    """Every `voice.run` span of the store in the order of their beginning."""
    found = connection.read_of_each_segment("run spans", "spans", _STATEMENT, declaration_rows, _read)
    return sorted(found, key=lambda span: span.start_unix_ns)


def _read(row: Row) -> RunSpan:
    return RunSpan(
        file=Path(row["file"]).name,
        start_unix_ns=row["timestamp_unix_ns"],
        end_unix_ns=row["timestamp_unix_ns"] + row["duration_ns"],
        attributes=read_attributes(row["span_attributes"]),
    )
