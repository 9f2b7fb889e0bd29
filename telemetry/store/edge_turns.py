"""Turns of some stretches of time and of row groups, read with what the rules of objectives read of them."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from telemetry.objectives.objective import Objective
from telemetry.store.connection import StoreConnection
from telemetry.store.manifest import Segment
from telemetry.store.objectives import columns_of_rules
from telemetry.store.open_segments import RowGroup
from telemetry.store.rollups.making import known_columns
from telemetry.store.rollups.staged import complete
from telemetry.store.rollups.stretches import Stretch
from telemetry.store.schema import SCHEMAS, ArrowTable

_READ: Final = (
    "source",
    "run_id",
    "cohort",
    "target",
    "phase",
    "phase_kind",
    "started_unix_ns",
    "outcome",
    "turn_kind",
)


def turns_within(
    connection: StoreConnection, stretches: Sequence[tuple[Segment, Stretch]], objectives: Sequence[Objective]
) -> ArrowTable:
    """The turns of some stretches of segments, each once; all of a segment's, of whichever source and run. Raises
    UnsoundSegmentsError, OSError and pyarrow.ArrowException when a segment cannot be read."""
    schema = pa.schema([SCHEMAS["turns"].field(name) for name in _columns(objectives)])
    found: list[ArrowTable] = [schema.empty_table()]
    connection.verify([segment for segment, _ in stretches])
    by_segment: dict[str, list[tuple[Segment, Stretch]]] = {}
    for segment, stretch in stretches:
        by_segment.setdefault(segment.file, []).append((segment, stretch))
    for of_segment in by_segment.values():
        segment = of_segment[0][0]
        of_one = [stretch for _, stretch in of_segment]
        for group in connection.files.row_groups(segment):
            near = [each for each in of_one if overlaps(group, each)]
            if near:
                table = turns_of_row_group(connection, segment, group, objectives)
                found.append(table.filter(_is_within(table, near)))
    return pa.concat_tables(found)


def turns_of_row_group(
    connection: StoreConnection, segment: Segment, group: RowGroup, objectives: Sequence[Objective]
) -> ArrowTable:
    """All turns of a row group of a segment, which somebody has verified. Raises OSError and pyarrow.ArrowException
    when it cannot be read."""
    columns = _columns(objectives)
    with connection.files.opened(segment) as file:
        return complete(file.read_row_group(group.number, columns=known_columns(file, columns)), columns)


def overlaps(group: RowGroup, stretch: Stretch) -> bool:
    """Whether a row group can hold turns of a stretch of time."""
    return stretch.begin_unix_ns <= group.last_unix_ns and group.first_unix_ns < stretch.end_unix_ns


def _columns(objectives: Sequence[Objective]) -> list[str]:
    return list(dict.fromkeys((*_READ, *columns_of_rules(objectives))))


def _is_within(table: ArrowTable, stretches: Sequence[Stretch]) -> Any:
    started = table.column("started_unix_ns").to_numpy()
    within = [(started >= each.begin_unix_ns) & (started < each.end_unix_ns) for each in stretches]
    return pa.array(np.logical_or.reduce(within))
