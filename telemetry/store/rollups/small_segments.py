"""The roll-up of segments that are too small to have a file of one: their turns are kept in memory, as a segment never
changes, and are rolled up together; of many, those that came since are rolled up alone and added."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from telemetry.store.manifest import Segment
from telemetry.store.rollups.database import Database
from telemetry.store.rollups.making import BATCH_ROWS, tables_of_file
from telemetry.store.rollups.partials import lacking_text, unpaired, with_slowest_turns
from telemetry.store.rollups.rollup import Rollup, added
from telemetry.store.rollups.staged import NEEDED, complete
from telemetry.store.schema import SCHEMAS, ArrowTable, without_rows

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

_NO_TURNS: Final = without_rows(pa.schema([SCHEMAS["turns"].field(name) for name in NEEDED]))
# Rolling up fewer turns takes hardly less than rolling up so many.
MOST_AT_ONCE: Final = 4_096


class SmallSegments:
    """Turns of small segments of one store, and what they were rolled up to. Not thread-safe."""

    def __init__(self, folder: Path, *, most_at_once: int = MOST_AT_ONCE) -> None:
        self._folder = folder
        self._most_at_once = most_at_once
        self._rows: dict[str, int] = {}  # by file, in the order in which their turns are in the table
        self._turns: ArrowTable = _NO_TURNS
        self._settled: tuple[frozenset[str], Rollup] = frozenset(), Rollup()
        self._texts: dict[tuple[str | None, ...], str] = {}  # of turns in the table, by trace and span

    def keep_only(self, files: set[str]) -> None:
        """Forget the turns of segments that are not among these."""
        if self._rows.keys() <= files:
            return
        self._turns = pa.concat_tables([_NO_TURNS, *self._tables(files)]).combine_chunks()
        self._rows = {file: rows for file, rows in self._rows.items() if file in files}
        self._texts = {}
        if not self._settled[0] <= files:
            self._settled = frozenset(), Rollup()

    def rollup(self, database: Database, segments: Sequence[Segment]) -> Rollup:
        """The roll-up of these segments' turns, the slowest of them with their text. All of the turns stay open:
        whoever asks adds other roll-ups, and brings the two sides together once.

        Raises OSError, pyarrow.ArrowException and duckdb.Error when a segment cannot be read.
        """
        self._read([segment.file for segment in segments if segment.file not in self._rows])
        files = _files(segments)
        settled, known = self._settled if self._settled[0] <= files else (frozenset[str](), Rollup())
        rest = files - settled
        if self._count(rest) > max(self._most_at_once, self._count(settled) // 2):
            known = self._rolled_up(database, files)
            self._settled = files, known
            return known
        if not rest:
            return known
        found = self._rolled_up(database, rest)
        return added([known, found]) if settled else found

    def turns(self, segments: Sequence[Segment]) -> ArrowTable:
        """The turns of these segments, with the columns of NEEDED. Raises as `rollup`."""
        self._read([segment.file for segment in segments if segment.file not in self._rows])
        return pa.concat_tables(self._tables(_files(segments)))

    def with_text(self, database: Database, rollup: Rollup, others: Sequence[Path] = ()) -> Rollup:
        """A roll-up with each of its slowest turns as JSON, of turns of these segments and of other files."""
        slowest = lacking_text(rollup)
        for key, cell in slowest.items():
            if key.labels in self._texts:
                cell.text_at, cell.text = cell.first, self._texts[key.labels]
        paths = [self._folder / file for file in self._holding(key.labels[1] for key in lacking_text(rollup))]
        found = with_slowest_turns(database, rollup, [*others, *paths])
        if not others:  # what those hold may be taken out of them
            self._texts |= {key.labels: cell.text for key, cell in slowest.items() if cell.text is not None}
        return found

    def _read(self, files: Sequence[str]) -> None:
        if not files:
            return
        tables = [complete(pa.concat_tables(tables_of_file(self._folder / file))) for file in files]
        self._turns = pa.concat_tables([self._turns, *tables]).combine_chunks()
        self._rows.update({file: table.num_rows for file, table in zip(files, tables, strict=True)})

    def _count(self, files: frozenset[str]) -> int:
        return sum(self._rows[file] for file in files)

    def _rolled_up(self, database: Database, files: frozenset[str]) -> Rollup:
        turns = pa.concat_tables(self._tables(files))
        batches = (turns.slice(begin, BATCH_ROWS) for begin in range(0, turns.num_rows, BATCH_ROWS))
        return self.with_text(database, added(unpaired(database, batch) for batch in batches))

    def _tables(self, files: set[str] | frozenset[str]) -> Iterator[ArrowTable]:
        """The turns of some files, those of neighbors together."""
        begin = end = 0
        for file, rows in self._rows.items():
            if file not in files:
                yield self._turns.slice(begin, end - begin)
                begin = end + rows
            end += rows
        yield self._turns.slice(begin, end - begin)

    def _holding(self, span_ids: Iterator[str | None]) -> list[str]:
        """The files with turns of these spans."""
        wanted = pa.array(list(span_ids), pa.string())
        places = np.flatnonzero(pc.is_in(self._turns.column("span_id"), wanted).to_numpy())
        ends = np.cumsum(list(self._rows.values()))
        files = list(self._rows)
        return [files[number] for number in np.unique(np.searchsorted(ends, places, side="right"))]


def _files(segments: Sequence[Segment]) -> frozenset[str]:
    return frozenset(segment.file for segment in segments)
