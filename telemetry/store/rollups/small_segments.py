"""The roll-up of segments that are too small to have a file of one: their turns are kept in memory, as a segment never
changes, and some of them are rolled up together."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

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
# Turns of one segment alone are a block; more of them are put together.
MOST_BLOCKS: Final = 64
_MOST_TEXTS: Final = 1_000
_MOST_TOGETHER: Final = 16
# Segments of so many rows are rolled up each alone: that takes hardly longer than rolling them up together.
ALONE_ROWS: Final = 1_024


@dataclass(frozen=True, slots=True)
class _Block:
    """Turns of some segments: how many are of each file, in the order of the table."""

    rows: dict[str, int]
    turns: ArrowTable

    @classmethod
    def of(cls, blocks: Sequence["_Block"]) -> Self:
        """Several blocks as one, the turns of each column together in memory."""
        rows = {file: rows for block in blocks for file, rows in block.rows.items()}
        return cls(rows, pa.concat_tables([block.turns for block in blocks]).combine_chunks())

    def without_others(self, files: Set[str]) -> "_Block":
        """The turns of these files alone."""
        if self.rows.keys() <= files:
            return self
        turns = pa.concat_tables([_NO_TURNS, *self.tables(files)]).combine_chunks()
        return _Block({file: rows for file, rows in self.rows.items() if file in files}, turns)

    def tables(self, files: Set[str]) -> Iterator[ArrowTable]:
        """The turns of some files, those of neighbors together."""
        begin = end = 0
        for file, rows in self.rows.items():
            if file not in files:
                yield self.turns.slice(begin, end - begin)
                begin = end + rows
            end += rows
        yield self.turns.slice(begin, end - begin)

    def holding(self, span_ids: Any) -> list[str]:
        """The files with turns of these spans."""
        places = np.flatnonzero(pc.is_in(self.turns.column("span_id"), span_ids).to_numpy())
        files, ends = list(self.rows), np.cumsum(list(self.rows.values()))
        return [files[number] for number in np.unique(np.searchsorted(ends, places, side="right"))]


class SmallSegments:
    """Turns of small segments of one store. Not thread-safe."""

    def __init__(self, folder: Path, *, most_blocks: int = MOST_BLOCKS) -> None:
        self._folder = folder
        self._most_blocks = most_blocks
        self._blocks: list[_Block] = []
        # Roll-ups that other runs ask for, too, and whoever asks after some of the segments became one.
        self._alone: dict[str, Rollup] = {}  # of one segment, by file
        self._together: dict[frozenset[str], Rollup] = {}  # of several shorter ones
        self._texts: dict[tuple[str | None, ...], str] = {}  # of turns, by trace and span

    def keep_only(self, files: set[str]) -> None:
        """Forget the turns of segments that are not among these."""
        if all(block.rows.keys() <= files for block in self._blocks):
            return
        self._alone = {file: rollup for file, rollup in self._alone.items() if file in files}
        self._together = {those: rollup for those, rollup in self._together.items() if those <= files}
        self._blocks = [kept for block in self._blocks if (kept := block.without_others(files)).rows]
        if len(self._texts) > _MOST_TEXTS:
            self._texts = {}

    def rollup(self, database: Database, segments: Sequence[Segment]) -> Rollup:
        """The roll-up of these segments' turns, without the text of the slowest ones. All of the turns stay open:
        whoever asks adds other roll-ups, and brings the two sides together once.

        Raises OSError, pyarrow.ArrowException and duckdb.Error when a segment cannot be read.
        """
        parts = [self._of_one(database, segment) for segment in segments if segment.rows >= ALONE_ROWS]
        rest = frozenset(segment.file for segment in segments if segment.rows < ALONE_ROWS)
        for files in sorted(self._together, key=len, reverse=True):
            if files <= rest:
                parts.append(self._together[files])
                rest -= files
        if rest:
            parts.append(self._unpaired(database, [segment for segment in segments if segment.file in rest]))
            self._keep(rest, parts[-1])
        return added(parts)

    def _of_one(self, database: Database, segment: Segment) -> Rollup:
        if segment.file not in self._alone:
            self._alone[segment.file] = self._unpaired(database, [segment])
        return self._alone[segment.file]

    def _unpaired(self, database: Database, segments: Sequence[Segment]) -> Rollup:
        turns = self.turns(segments)
        batches = (turns.slice(begin, BATCH_ROWS) for begin in range(0, turns.num_rows, BATCH_ROWS))
        return added(unpaired(database, batch) for batch in batches)

    def _keep(self, files: frozenset[str], rollup: Rollup) -> None:
        self._together[files] = rollup
        if len(self._together) > _MOST_TOGETHER:
            apart: dict[frozenset[str], Rollup] = {}
            for each in sorted(self._together, key=len, reverse=True):
                if all(each.isdisjoint(other) for other in apart):
                    apart[each] = self._together[each]
            self._together = {frozenset().union(*apart): added(apart.values())}

    def turns(self, segments: Sequence[Segment]) -> ArrowTable:
        """The turns of these segments, with the columns of NEEDED. Raises as `rollup`."""
        files = frozenset(segment.file for segment in segments)
        self._read(segment.file for segment in segments)
        holding = (block for block in self._blocks if not files.isdisjoint(block.rows))
        return pa.concat_tables([_NO_TURNS, *(part for block in holding for part in block.tables(files))])

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

    def _read(self, files: Iterable[str]) -> None:
        known = {file for block in self._blocks for file in block.rows}
        for file in files:
            if file not in known:
                turns = complete(pa.concat_tables(tables_of_file(self._folder / file)))
                self._blocks.append(_Block({file: turns.num_rows}, turns))
        if len(self._blocks) > self._most_blocks:
            # Blocks of many turns stay as they are: no turn is copied more than a few times.
            short = [block for block in self._blocks if block.turns.num_rows < BATCH_ROWS]
            self._blocks = [block for block in self._blocks if block.turns.num_rows >= BATCH_ROWS]
            self._blocks += [_Block.of(short)] if short else []

    def _holding(self, span_ids: Iterable[str | None]) -> list[str]:
        """The files with turns of these spans."""
        wanted = pa.array(list(span_ids), pa.string())
        return [file for block in self._blocks for file in block.holding(wanted)] if len(wanted) else []
