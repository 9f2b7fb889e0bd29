"""Writes rows as the segments that compaction would have made of them, each row once.

Small segments would be written, read and written again, which takes longer than all measurements. Each table is written
in a thread of its own: most of that is Arrow and DuckDB, which run beside the making of the rows.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

import msgspec
import numpy as np
import pyarrow as pa

from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.identity import starts
from telemetry.store.manifest import Segment, Table, segment_path
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.row_groups import row_groups
from telemetry.store.schema import ArrowTable
from telemetry.store.writer import StoreWriter

_LEVEL: Final = 1
_LIMITS: Final = MergeLimits()
_ROLL_UP: Final = RollUpMaker()


class MergedSegments:
    """The turns and spans of a store that holds none of them yet, until the end of the `with` block.

    What fails in a thread is raised by `add` or at the end.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._rolling_up = ThreadPoolExecutor(1, "fill roll-ups")
        self._rolled_up: list[Future[None]] = []
        self._tables = (_TableThread(writer, "turns", self._finish), _TableThread(writer, "spans", self._finish))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_rest: object) -> None:
        for each in self._tables:
            each.end()
        for each in self._tables:
            each.join()
        self._rolling_up.shutdown()
        if kind is None:
            self._raise()

    def add(self, turns: ArrowTable, spans: ArrowTable) -> None:
        """Add rows that are later than those before."""
        for each, content in zip(self._tables, (turns, spans), strict=True):
            each.put(content)
        self._raise()

    def _raise(self) -> None:
        for each in self._tables:
            if each.failure is not None:
                raise each.failure
        for each in self._rolled_up:
            if each.done():
                each.result()

    def _finish(self, segment: Segment) -> None:
        """Roll up a segment that was written, and make it part of the store, while the next one is written."""

        def finish() -> None:
            rollup = _ROLL_UP(segment_path(self._writer.directory, segment), segment)
            self._writer.add(msgspec.structs.replace(segment, rollup=rollup))

        self._rolled_up.append(self._rolling_up.submit(finish))


class _TableThread(threading.Thread):
    """Writes one table; its segments end where compaction would make them no larger."""

    def __init__(self, writer: StoreWriter, table: Table, finish: Callable[[Segment], None]) -> None:
        super().__init__(name=f"fill {table}", daemon=True)
        self.failure: Exception | None = None
        self._writer = writer
        self._table: Table = table
        self._finish = finish
        self._given: queue.Queue[ArrowTable | None] = queue.Queue(maxsize=1)
        self._next: ArrowTable | None = None
        self.start()

    def put(self, content: ArrowTable) -> None:
        self._given.put(content)

    def end(self) -> None:
        self._given.put(None)

    def run(self) -> None:
        try:
            self._take()
            while self._next is not None:
                self._finish(self._writer.write_segment(self._table, self._groups(), _LEVEL))
        except Exception as error:  # noqa: BLE001 - raised where rows are added
            self.failure = error
            while self._next is not None:
                self._take()

    def _groups(self) -> Iterator[ArrowTable]:
        """The row groups of one segment."""
        rows = raw_bytes = 0
        while (content := self._next) is not None:
            rows, raw_bytes = rows + content.num_rows, raw_bytes + content.nbytes
            if rows > content.num_rows and (rows > _LIMITS.rows or raw_bytes > _LIMITS.raw_bytes):
                return
            yield from row_groups(_in_order(self._table, content))
            self._take()

    def _take(self) -> None:
        self._next = self._given.get()


def _in_order(table: Table, content: ArrowTable) -> ArrowTable:
    order: Any = pa.array(np.argsort(starts(table, content), kind="stable"))
    return content.combine_chunks().take(order)
