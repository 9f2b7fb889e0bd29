"""The spans with which a generator's processes declare a run: at its beginning and at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from telemetry.model import semconv
from telemetry.store.attribute_values import read_attributes
from telemetry.store.connection import StoreConnection, rows

# The attributes under which a sender may name the run; the first that it states counts.
RUN_IDS: Final = (semconv.RUN_PREFIX + "run_id", semconv.RUN_PREFIX + "id", "run_id")
_STATEMENT: Final = f"""
    SELECT timestamp_unix_ns, duration_ns, span_attributes, stored_unix_ns FROM spans
    WHERE span_name = '{semconv.SPAN_RUN}' ORDER BY timestamp_unix_ns, span_id
    """  # noqa: S608 - the name is our own


@dataclass(frozen=True, slots=True)
class RunSpan:
    """One `voice.run` span; `stored_unix_ns` is by the store's clock."""

    start_unix_ns: int
    end_unix_ns: int
    stored_unix_ns: int
    attributes: Mapping[str, object]

    @property
    def run_id(self) -> str | None:
        """The run that it declares; None where it names none."""
        return next((str(self.attributes[name]) for name in RUN_IDS if self.attributes.get(name)), None)


def run_spans(connection: StoreConnection) -> list[RunSpan]:
    """Every `voice.run` span of the store in the order of their beginning."""
    return [
        RunSpan(
            start_unix_ns=row["timestamp_unix_ns"],
            end_unix_ns=row["timestamp_unix_ns"] + row["duration_ns"],
            stored_unix_ns=row["stored_unix_ns"],
            attributes=read_attributes(row["span_attributes"]),
        )
        for row in rows(connection, _STATEMENT)
    ]
