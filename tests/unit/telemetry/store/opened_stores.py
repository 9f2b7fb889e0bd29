"""A store of the rows of a test, and the reader that asks it."""

from collections.abc import Sequence
from pathlib import Path

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter

# Long after everything that a test stores.
LATER_UNIX_NS = 2**61


def reader_of(
    folder: Path,
    *turns: Turn,
    spans: Sequence[SpanRow] = (),
    points: Sequence[PointRow] = (),
    now_unix_ns: int = LATER_UNIX_NS,
) -> StoreReader:
    """Open a reader of a store into which the rows came as one batch."""
    with StoreWriter(folder) as writer:
        writer.append(Batch(turns, spans, points))
    return StoreReader(folder, wall_clock_ns=lambda: now_unix_ns)
