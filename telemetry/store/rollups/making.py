"""Making the roll-up of a segment: from its turns, in parts that fit memory, or from those of what it replaces."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.store.manifest import Segment
from telemetry.store.rollups import files, run_declarations
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.pairs import closed_beyond, pair
from telemetry.store.rollups.partials import partial, with_slowest_turns
from telemetry.store.rollups.rollup import Rollup, added
from telemetry.store.rollups.staged import NEEDED
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_files import METADATA_KEY, Origin

_log = logging.getLogger(__name__)

# Smaller segments are rolled up when they are asked for.
FEWEST_ROWS: Final = 10_000
# Turns that are counted at once: some 30 MB of columns.
BATCH_ROWS: Final = 32_768


@dataclass(frozen=True, slots=True)
class RollUpMaker:
    """What compaction calls with each segment that it wrote; gives the name of the roll-up's file, None for no roll-up.

    A roll-up that says no less than its turns (of a store with about as many runs or phases as turns) is not kept.
    Nothing that fails here stops a merge: a segment without a roll-up is only slower to ask.
    """

    fewest_rows: int = FEWEST_ROWS
    most_of_segment: float = 1 / 8

    def __call__(self, path: Path, segment: Segment) -> str | None:
        """Make and write the roll-up of a segment in its folder."""
        if segment.table == "points" or segment.rows < self.fewest_rows:
            return None
        most_bytes = int(segment.size_bytes * self.most_of_segment)
        try:
            if segment.table == "spans":
                return run_declarations.write(path, segment, most_bytes)
            with open_database() as database:
                rollup = _made(database, path)
                rollup = closed_beyond(database, rollup, segment.first_unix_ns or 0, segment.last_unix_ns or 0)
                return files.write(path.parent, segment, rollup, most_bytes)
        except Exception as error:  # noqa: BLE001 - a merge must not fail for what only saves time
            _log.warning("%s: it was not rolled up (%s)", path, error)
            return None


def _made(database: Database, path: Path) -> Rollup:
    """The roll-up of a segment, if possible from those of the segments that it replaces."""
    known = [(path.parent / file, files.read_of_file(path.parent, file)) for file in _replaced(path)]
    if not any(rollup for _, rollup in known):
        return roll_up_file(database, path)
    parts = (roll_up_file(database, source) if rollup is None else rollup for source, rollup in known)
    return pair(database, added(parts), is_last=False)


def _replaced(path: Path) -> tuple[str, ...]:
    metadata = pq.read_metadata(path).metadata or {}
    return msgspec.json.decode(metadata[METADATA_KEY.encode()], type=Origin).replaces


def roll_up_file(database: Database, path: Path) -> Rollup:
    """The roll-up of a segment's turns. Raises OSError, pyarrow.ArrowException and duckdb.Error."""
    found = roll_up_tables(database, tables_of_file(path))
    return with_slowest_turns(database, found, [path])


def roll_up_tables(database: Database, tables: Iterable[ArrowTable]) -> Rollup:
    """The roll-up of turns in several tables; the slowest turns are without their text."""
    found, left_open = Rollup(), 0
    for table in tables:
        found = added([found, partial(database, table)])
        # Pairing takes its time for each open turn: where few have a counterpart, it must not be done for each table.
        if _open_turns(found) >= left_open + max(BATCH_ROWS, left_open):
            found = pair(database, found, is_last=False)
            left_open = _open_turns(found)
    return pair(database, found, is_last=False)


def _open_turns(rollup: Rollup) -> int:
    return 0 if rollup.open_turns is None else rollup.open_turns.num_rows


def tables_of_file(path: Path, skipped_groups: frozenset[int] = frozenset()) -> Iterator[ArrowTable]:
    """What a roll-up needs of a segment's turns, in tables of some BATCH_ROWS rows, without some row groups."""
    with pq.ParquetFile(path) as file:
        columns = [name for name in NEEDED if name in file.schema_arrow.names]
        waiting: list[ArrowTable] = []
        for number in range(file.num_row_groups):
            if number in skipped_groups:
                continue
            waiting.append(file.read_row_group(number, columns=columns))
            if sum(table.num_rows for table in waiting) >= BATCH_ROWS:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)
