"""A store of the rows of a test, and the reader that asks it."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import Run

# Long after everything that a test stores.
LATER_UNIX_NS = 2**61


class OwningReader(StoreReader):
    """The reader of a store whose writer is open until the reader is closed: a question need not open the file."""

    def __init__(self, writer: StoreWriter, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__(writer.directory, wall_clock_ns=wall_clock_ns)
        self._writer = writer

    def close(self) -> None:
        self._writer.close()


def reader_of(
    folder: Path,
    *turns: Turn,
    spans: Sequence[SpanRow] = (),
    points: Sequence[PointRow] = (),
    now_unix_ns: int = LATER_UNIX_NS,
) -> OwningReader:
    """Open a reader of a store into which the rows came as one batch."""
    writer = StoreWriter(folder)
    writer.append(Batch(turns, spans, points))
    return OwningReader(writer, lambda: now_unix_ns)


def reader_of_runs(folder: Path, *runs: Run, wall_clock_ns: Callable[[], int] = time.time_ns) -> OwningReader:
    """Open a reader of a store into which each run came as one batch."""
    writer = StoreWriter(folder)
    for run in runs:
        writer.append(run.batch)
    return OwningReader(writer, wall_clock_ns)
