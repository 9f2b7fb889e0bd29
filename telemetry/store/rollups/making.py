"""Making the roll-up of a segment: from its turns, in parts that fit memory, or from those of what it replaces."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.store.manifest import Segment
from telemetry.store.rollups import files, run_declarations
from telemetry.store.rollups.by_value import TURNS_OF_ONE, VALUES, are_few
from telemetry.store.rollups.database import Database, open_database
from telemetry.store.rollups.pairs import closed_beyond, pair
from telemetry.store.rollups.partials import unpaired, with_slowest_turns
from telemetry.store.rollups.rollup import Rollup, SegmentRollup, added, without_faster
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.slots import NO_SLOTS, SLOT_TURNS, Slot, SlotGrid, folded
from telemetry.store.rollups.staged import NEEDED, TurnLabels, with_labels
from telemetry.store.schema import ArrowTable
from telemetry.store.segment_files import METADATA_KEY, Origin

_log = logging.getLogger(__name__)
pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# Smaller segments are rolled up when they are asked for.
FEWEST_ROWS: Final = 10_000
# Turns that are counted at once: some 30 MB of columns.
BATCH_ROWS: Final = 32_768
# Turns without a counterpart among so many others have none.
_MOST_OPEN: Final = 200_000
# Cells of several tables that are added up before others come: some 50 MB of them.
_MOST_CELLS: Final = 100_000
# A slot of more than so many times the turns that are asked for is divided anew, from the turns.
_MOST_OF_A_SLOT: Final = 4


class _RollUpStoppedError(Exception):
    """A roll-up was given up, as its process ends."""


@dataclass(frozen=True, slots=True)
class RollUpMaker:
    """What compaction calls with each segment that it wrote; gives the name of the roll-up's file, None for no roll-up.

    A roll-up that says no less than its turns (of a store with about as many runs or phases as turns) is not kept.
    Nothing that fails here stops a merge: a segment without a roll-up is only slower to ask. Of a large segment one
    takes longer than a process is given to end: it is given up when `is_stopping` says so.
    """

    fewest_rows: int = FEWEST_ROWS
    most_of_segment: float = 1 / 8
    slot_turns: int = SLOT_TURNS
    value_turns: int = TURNS_OF_ONE
    is_stopping: Callable[[], bool] = lambda: False

    def __call__(self, path: Path, segment: Segment) -> str | None:
        """Make and write the roll-up of a segment in its folder."""
        if segment.table == "points" or segment.rows < self.fewest_rows:
            return None
        most_bytes = int(segment.size_bytes * self.most_of_segment)
        try:
            if segment.table == "spans":
                return run_declarations.write(path, segment, most_bytes)
            with open_database() as database:
                made = _with_few_open(database, self._made(database, path), segment)
                return files.write(path.parent, segment, made, most_bytes)
        except _RollUpStoppedError:
            return None
        except Exception as error:  # noqa: BLE001 - a merge must not fail for what only saves time
            _log.warning("%s: it was not rolled up (%s)", path, error)
            return None

    def _made(self, database: Database, path: Path) -> SegmentRollup:
        """The roll-up of a segment, if possible from those of the segments that it replaces."""
        with_values = are_few(path, self.value_turns)
        known = [(path.parent / file, _usable(path.parent, file, with_values=with_values)) for file in _replaced(path)]
        if any(rollup for _, rollup in known):
            parts = [
                self._rolled_up(database, source, with_values=with_values) if found is None else found
                for source, found in known
            ]
            together = _in_common_slots(added(part.by_slot for part in parts), self.slot_turns)
            if together is not None:
                by_value = [part.by_value for part in parts if part.by_value is not None]
                return SegmentRollup(
                    pair(database, together, is_last=False),
                    pair(database, added(by_value), is_last=False) if with_values else None,
                )
        return self._rolled_up(database, path, with_values=with_values)

    def _rolled_up(self, database: Database, path: Path, *, with_values: bool) -> SegmentRollup:
        by_slot = roll_up_by_slot(database, path, self._tables(path), self.slot_turns)
        # Arrow keeps what it freed for its next use: as much as was read at once.
        pa.default_memory_pool().release_unused()
        by_value = roll_up_by_value(database, path, self._tables(path)) if with_values else None
        return SegmentRollup(by_slot, by_value)

    def _tables(self, path: Path) -> Iterator[ArrowTable]:
        for table in tables_of_file(path):
            if self.is_stopping():
                raise _RollUpStoppedError
            yield table


def _with_few_open(database: Database, made: SegmentRollup, segment: Segment) -> SegmentRollup:
    """With the open turns near to where the segment begins and ends alone."""

    def closed(rollup: Rollup) -> Rollup:
        return closed_beyond(database, rollup, segment.first_unix_ns or 0, segment.last_unix_ns or 0)

    return SegmentRollup(closed(made.by_slot), None if made.by_value is None else closed(made.by_value))


def _usable(folder: Path, file: str, *, with_values: bool) -> SegmentRollup | None:
    """The roll-up of a segment. One that lacks what is asked for is made anew whole: which turns it keeps open depends
    on how it was made."""
    found = files.read_of_file(folder, file)
    return None if found is None or (with_values and found.by_value is None) else found


def _in_common_slots(rollup: Rollup, slot_turns: int) -> Rollup | None:
    """The sum of roll-ups by slot with slots that are apart; None where a slot would hold far more turns than asked
    for, as the roll-ups have different slots of the same time."""
    rows = Counter[Slot]()
    for key, cell in rollup.of("turns"):
        if key.slot is not None:
            rows[Slot.named(key.slot)] += cell.n
    target = folded(rows, slot_turns) if rows else {}
    after = Counter[Slot]()
    for slot, n in rows.items():
        after[target[slot]] += n
    if any(n > _MOST_OF_A_SLOT * slot_turns for n in after.values()):
        return None
    names = {slot.name: whole.name for slot, whole in target.items()}
    cells = gathered(
        (key if key.slot is None else key._replace(slot=names[key.slot]), cell) for key, cell in rollup.cells.items()
    )
    grid = SlotGrid(tuple(sorted(after, key=lambda slot: slot.begin_unix_ns)))
    open_turns = None if rollup.open_turns is None else with_labels(rollup.open_turns, grid)
    return Rollup(without_faster(cells), rollup.sequences, open_turns)


def _replaced(path: Path) -> tuple[str, ...]:
    metadata = pq.read_metadata(path).metadata or {}
    return msgspec.json.decode(metadata[METADATA_KEY.encode()], type=Origin).replaces


def roll_up_file(database: Database, path: Path) -> Rollup:
    """The roll-up of a segment's turns. Raises OSError, pyarrow.ArrowException and duckdb.Error."""
    found = roll_up_tables(database, tables_of_file(path))
    return with_slowest_turns(database, found, [path])


def roll_up_by_slot(database: Database, path: Path, tables: Iterable[ArrowTable], slot_turns: int) -> Rollup:
    """As `roll_up_file`, from the tables of the file, with the cells of the client's turns by their slot."""
    with pq.ParquetFile(path) as file:
        turns = file.read(columns=["source", "started_unix_ns"])
    of_client = turns.filter(pc.equal(turns.column("source"), "client"))
    moments = of_client.column("started_unix_ns").fill_null(0).to_numpy()
    found = roll_up_tables(database, tables, SlotGrid.of_moments(moments, slot_turns))
    return with_slowest_turns(database, found, [path])


def roll_up_by_value(database: Database, path: Path, tables: Iterable[ArrowTable]) -> Rollup:
    """As `roll_up_by_slot`, by the combination of values; without sequence numbers."""
    found = roll_up_tables(database, tables, VALUES)
    return Rollup(with_slowest_turns(database, found, [path]).cells, {}, found.open_turns)


def roll_up_tables(database: Database, tables: Iterable[ArrowTable], labels: TurnLabels = NO_SLOTS) -> Rollup:
    """The roll-up of turns in several tables, those of about one time near each other; the slowest turns are without
    their text."""
    parts: list[Rollup] = []
    open_turns: ArrowTable | None = None
    left_open = 0
    for table in tables:
        part = added([unpaired(database, table, labels), Rollup(open_turns=open_turns)])
        # Pairing takes its time for each open turn: where few have a counterpart, it must not be done for each table.
        if _open_turns(part) >= left_open + max(BATCH_ROWS, left_open):
            part = pair(database, part, is_last=False)
            if _open_turns(part) > _MOST_OPEN:
                newest = pc.max(table.column("started_unix_ns")).as_py() or 0
                part = closed_beyond(database, part, newest, newest, kept=_MOST_OPEN // 2)
            left_open = _open_turns(part)
        open_turns, part.open_turns = part.open_turns, None
        parts.append(part)
        if sum(len(each.cells) for each in parts[1:]) > max(_MOST_CELLS, len(parts[0].cells)):
            parts = [added(parts)]
    return pair(database, added([*parts, Rollup(open_turns=open_turns)]), is_last=False)


def _open_turns(rollup: Rollup) -> int:
    return 0 if rollup.open_turns is None else rollup.open_turns.num_rows


def tables_of_file(path: Path, names: Sequence[str] = NEEDED) -> Iterator[ArrowTable]:
    """Some columns of a segment's turns, those that a roll-up needs, in tables of some BATCH_ROWS rows."""
    with pq.ParquetFile(path) as file:
        columns = known_columns(file, names)
        yield from in_batches(file.read_row_group(number, columns=columns) for number in range(file.num_row_groups))


def of_service(tables: Iterable[ArrowTable], run_id: str) -> Iterator[ArrowTable]:
    """The turns of a view by service and day, to be counted as those of callers are."""
    for table in tables:
        is_meant = pc.and_(pc.equal(table.column("source"), "service"), pc.equal(table.column("run_id"), run_id))
        found = table.filter(is_meant.fill_null(False))
        if found.num_rows:
            heard = pa.array(["client"]).take(pa.array(np.zeros(found.num_rows, dtype=np.int64)))
            yield found.set_column(found.column_names.index("source"), "source", heard)


def known_columns(file: Any, names: Sequence[str]) -> list[str]:
    """The columns of these names that a Parquet file has."""
    known = frozenset(file.schema_arrow.names)
    return [name for name in names if name in known]


def in_batches(tables: Iterable[ArrowTable]) -> Iterator[ArrowTable]:
    """The rows of tables in others of some BATCH_ROWS rows."""
    waiting: list[ArrowTable] = []
    for table in tables:
        waiting.append(table)
        if sum(each.num_rows for each in waiting) >= BATCH_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
