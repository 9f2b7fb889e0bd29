"""Reads the cells of turns (telemetry.store.turn_cells) from segments, for all values of what a filter may ask for."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from telemetry.model.semconv import RAMP, Source
from telemetry.objectives.objective import Objective
from telemetry.store.connection import StoreConnection
from telemetry.store.edge_turns import overlaps, turns_of_row_group, turns_within
from telemetry.store.manifest import Segment
from telemetry.store.objectives import key_of_rules, verdicts_by_key
from telemetry.store.open_segments import RowGroup
from telemetry.store.queries import ASKED, Condition
from telemetry.store.rollups.stretches import Stretch
from telemetry.store.turn_cells import LABELS, TurnCells, Verdicts

# Segments of fewer turns are one cell of time each, and are read together.
FEWEST_ROWS: Final = 10_000
# Of more cells, the turns of a segment are read when they are asked for: about 10 MB are kept.
MOST_CELLS: Final = 131_072
# The time of a cell is `2**level` ns long: from about a second to all of it.
_FINEST_LEVEL: Final = 30
_ALL_TIME_LEVEL: Final = 62
# A segment has at most twice as many times as this power of two.
_MOST_TIMES_POWER: Final = 12
# How much longer they are where a segment has too many cells.
_COARSER: Final = 3
_VIEW: Final = "turns_of_cells"
_AT_MOMENTS: Final = "turns_of_groups"
_ALIKE: Final = "turns_of_keys"
_FILE: Final = "file"
_PLACE: Final = "place"
# Row groups that are read together.
_GROUPS_AT_ONCE: Final = 8
# So many row groups keep their cells, a MB each: the 33 ends of the period's windows lie in half as many.
_KEPT_GROUPS: Final = 128

Columns = Mapping[str, NDArray[Any]]
_Group = tuple[Segment, RowGroup]
_GroupKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReadCells:
    """The cells of segments, by objective what its rule says of each of their keys, and the segments without cells,
    whose turns are to be read."""

    cells: Sequence[tuple[Segment, TurnCells]]
    verdicts: Verdicts
    unread: Sequence[Segment]


def cells_of_turns(
    connection: StoreConnection, segments: Sequence[Segment], objectives: Sequence[Objective], source: Source
) -> ReadCells:
    """The cells of the turns of a source in some segments, without those of ramps. Only what is not known is read, and
    what was read stays known when the rest has to wait. Raises as `turns_within`, and duckdb.Error."""
    known = connection.turn_cells.of(objectives, source)
    reading = _CellReader(connection, objectives, source)
    new = [segment for segment in segments if segment.file not in known.by_file]
    for segment in new:
        if segment.rows >= FEWEST_ROWS:
            known.by_file[segment.file] = reading.large(segment)
    if small := [segment for segment in new if segment.rows < FEWEST_ROWS]:
        known.by_file |= dict(reading.small(small))
    found = [(segment, cells) for segment in segments if (cells := known.by_file[segment.file]) is not None]
    reading.learn(found)
    return ReadCells(found, known.verdicts, [each for each in segments if known.by_file[each.file] is None])


def cells_of_edges(
    connection: StoreConnection,
    stretches: Sequence[tuple[Segment, Stretch]],
    objectives: Sequence[Objective],
    source: Source,
) -> ReadCells:
    """The cells of the turns of a source in some stretches of segments, each of one moment. The row groups that hold
    them are kept: as time passes, windows end within the same ones for long. Raises as `cells_of_turns`."""
    known = connection.turn_cells.of(objectives, source)
    wanted: dict[_GroupKey, tuple[_Group, list[Stretch]]] = {}
    connection.verify([segment for segment, _ in stretches])
    for segment, stretch in stretches:
        for group in connection.files.row_groups(segment):
            if overlaps(group, stretch):
                wanted.setdefault((segment.file, group.number), ((segment, group), []))[1].append(stretch)
    reading = _CellReader(connection, objectives, source)
    new = [group for key, (group, _) in wanted.items() if key not in known.by_group]
    for begin in range(0, len(new), _GROUPS_AT_ONCE):
        known.by_group |= dict(reading.at_moments(new[begin : begin + _GROUPS_AT_ONCE]))
    found: list[tuple[Segment, TurnCells]] = []
    for key, ((segment, _), of_group) in wanted.items():
        cells = known.by_group[key]
        known.by_group.move_to_end(key)
        within = [
            (cells.begin_unix_ns >= one.begin_unix_ns) & (cells.begin_unix_ns < one.end_unix_ns) for one in of_group
        ]
        found.append((segment, cells.only(np.logical_or.reduce(within))))
    while len(known.by_group) > _KEPT_GROUPS:
        known.by_group.popitem(last=False)
    return ReadCells(found, known.verdicts, [])


class _CellReader:
    """Reads segments for some objectives and a source."""

    def __init__(self, connection: StoreConnection, objectives: Sequence[Objective], source: Source) -> None:
        self._connection = connection
        self._objectives = objectives
        self._source: Source = source
        self._verdicts = connection.turn_cells.of(objectives, source).verdicts
        self._where = Condition("source = ? AND phase_kind IS DISTINCT FROM ?", (source, RAMP))

    def large(self, segment: Segment) -> TurnCells | None:
        """The cells of a segment; None of one that has too many."""
        self._connection.verify([segment])
        level = self._level(segment)
        for each in (level, level + _COARSER):
            columns = self._of_segments([segment], each)
            if len(columns["turns"]) <= MOST_CELLS:
                return _cells(columns)
        return None

    def small(self, segments: Sequence[Segment]) -> Iterator[tuple[str, TurnCells]]:
        """The cells of each of some segments, by file."""
        columns = self._of_segments(segments, _ALL_TIME_LEVEL)
        files = np.array([Path(each).name for each in columns[_FILE]], dtype=object)
        for segment in segments:
            mine = files == segment.file
            yield segment.file, _cells({name: values[mine] for name, values in columns.items()})

    def learn(self, read: Sequence[tuple[Segment, TurnCells]]) -> None:
        """Ask the rules about one turn of each key of some cells that is new."""
        asked = set[int]()
        found: list[tuple[Segment, Stretch]] = []
        for segment, cells in read:
            for key in self._new_keys(cells.keys) - asked:
                asked.add(key)
                of_key = cells.key_codes == np.searchsorted(cells.keys, np.uint64(key))
                moment = int(cells.last_unix_ns[np.argmax(of_key)])
                found.append((segment, Stretch(0, moment, moment + 1)))
        if found:
            self._connection.show(_ALIKE, turns_within(self._connection, found, self._objectives))
            self._learn_from(_ALIKE)

    def _new_keys(self, keys: NDArray[np.uint64]) -> set[int]:
        known = next(iter(self._verdicts.values()), None)
        return set() if known is None else set(keys.tolist()) - known.keys()

    def _learn_from(self, view: str) -> None:
        *_, found = verdicts_by_key(self._connection, self._where, self._objectives, self._source, view)
        for name, verdicts in found.items():
            self._verdicts[name] |= verdicts

    def at_moments(self, groups: Sequence[_Group]) -> Iterator[tuple[_GroupKey, TurnCells]]:
        """The cells of row groups, each of them of one moment."""
        self._connection.give_way()
        tables = (turns_of_row_group(self._connection, segment, group, self._objectives) for segment, group in groups)
        marked = [
            table.append_column(_PLACE, pa.array(np.full(table.num_rows, place))) for place, table in enumerate(tables)
        ]
        self._connection.show(_AT_MOMENTS, pa.concat_tables(marked))
        columns = self._columns(_AT_MOMENTS, _PLACE, "started_unix_ns")
        if self._new_keys(np.unique(columns["key"])):
            self._learn_from(_AT_MOMENTS)
        for place, (segment, group) in enumerate(groups):
            mine = columns[_PLACE] == place
            yield (segment.file, group.number), _cells({name: values[mine] for name, values in columns.items()})

    def _level(self, segment: Segment) -> int:
        """Of times that hold the turns of a row group or two: those are read where a window ends within one."""
        groups = self._connection.files.row_groups(segment)
        usual_ns = int(median(group.last_unix_ns - group.first_unix_ns for group in groups))
        whole_ns = (segment.last_unix_ns or 0) - (segment.first_unix_ns or 0)
        return max(_FINEST_LEVEL, usual_ns.bit_length(), whole_ns.bit_length() - _MOST_TIMES_POWER)

    def _of_segments(self, segments: Sequence[Segment], level: int) -> Columns:
        """The cells of segments, up to one more than is kept of a large one."""
        self._connection.give_way()
        self._connection.view(_VIEW, "turns", segments, file=_FILE)
        time = f"started_unix_ns >> {min(level, _ALL_TIME_LEVEL):d}"
        return self._columns(_VIEW, _FILE, time, f"LIMIT {MOST_CELLS + 1}" if len(segments) == 1 else "")

    def _columns(self, view: str, origin: str, time: str, most: str = "") -> Columns:
        """The cells of a view or a table by a column that tells where they are from, and by time."""
        key, values = key_of_rules(self._objectives)
        found = self._connection.execute(
            f"""
            SELECT {origin}, {time} AS time, {", ".join(LABELS)},
                   {key} AS key, {ASKED} AS is_asked, outcome IS NOT DISTINCT FROM 'invalid' AS is_invalid,
                   min(started_unix_ns) AS first_unix_ns, max(started_unix_ns) AS last_unix_ns, count(*) AS turns
            FROM {view} WHERE {self._where.sql} AND started_unix_ns IS NOT NULL GROUP BY ALL {most}
            """,
            [*values, *self._where.values],
        ).fetchnumpy()
        labels = {name: np.ma.filled(found[name], None) for name in LABELS}
        return {name: np.asarray(column) for name, column in found.items()} | labels


def _cells(columns: Columns) -> TurnCells:
    """The cells of one segment."""
    times, places = np.unique(columns["time"], return_inverse=True)
    begin, end = np.full(len(times), np.iinfo(np.int64).max), np.full(len(times), np.iinfo(np.int64).min)
    np.minimum.at(begin, places, columns["first_unix_ns"])
    np.maximum.at(end, places, columns["last_unix_ns"])
    keys, key_codes = np.unique(columns["key"], return_inverse=True)
    coded = {name: _coded(columns[name]) for name in LABELS}
    return TurnCells(
        begin_unix_ns=begin[places],
        end_unix_ns=end[places],
        last_unix_ns=columns["last_unix_ns"],
        turns=columns["turns"],
        key_codes=key_codes,
        keys=keys,
        is_asked=columns["is_asked"],
        is_invalid=columns["is_invalid"],
        codes={name: codes for name, (codes, _) in coded.items()},
        values={name: values for name, (_, values) in coded.items()},
    )


def _coded(values: NDArray[Any]) -> tuple[NDArray[np.int32], Sequence[str | None]]:
    """Each value's place among those that occur, and these."""
    encoded = pa.array(values, pa.string()).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32), encoded.dictionary.to_pylist()
