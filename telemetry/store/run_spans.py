"""The spans with which a generator's processes declare a run: at its beginning and at its end."""

from dataclasses import dataclass
from typing import Final

from telemetry.model import semconv
from telemetry.store.attribute_values import read_attributes
from telemetry.store.snapshot import Connection, rows

# The attributes under which a sender may name the run; the first that it states counts.
RUN_IDS: Final = (semconv.RUN_PREFIX + "run_id", semconv.RUN_PREFIX + "id", "run_id")


@dataclass(frozen=True, slots=True)
class RunSpan:
    """One `voice.run` span."""

    start_unix_ns: int
    end_unix_ns: int
    attributes: dict[str, object]


def run_spans(connection: Connection) -> list[RunSpan]:
    """Every `voice.run` span of the store in the order of their beginning."""
    statement = """
        SELECT timestamp_unix_ns, duration_ns, span_attributes FROM spans WHERE span_name = ?
        ORDER BY timestamp_unix_ns
        """
    return [
        RunSpan(
            start_unix_ns=row["timestamp_unix_ns"],
            end_unix_ns=row["timestamp_unix_ns"] + row["duration_ns"],
            attributes=read_attributes(row["span_attributes"]),
        )
        for row in rows(connection, statement, [semconv.SPAN_RUN])
    ]
