"""Turns to look at one by one: all that a filter means while they are few, of many a sample spread over their time.

A sample is the first turns of row groups that lie evenly over the filter's time: stretches of turns one after the
other, so that the turns of a call stay together. It is the same whenever the same segments are asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.manifest import Segment
from telemetry.store.queries import Condition, judged, valid
from telemetry.store.row_groups import ranges
from telemetry.store.schema import SCHEMAS, ArrowTable

# More turns than that take longer than a page may.
MOST_TURNS: Final = 120_000
# So many stretches make a sample, of so many turns each at most.
STRETCHES: Final = 24
STRETCH_TURNS: Final = 4096


@dataclass(frozen=True, slots=True)
class TurnSample:
    """A name of a table or view with the turns, the condition that the wanted ones of it meet, and whether they are a
    sample only."""

    table: str
    where: Condition
    is_sample: bool


def turns_to_look_at(connection: StoreConnection, f: Filter, columns: Sequence[str]) -> TurnSample:
    """The valid turns of a filter, all of them or a sample with these columns of the turn."""
    where = judged(f) & valid(f)
    segments = [segment for segment in connection.segments("turns", f.run_id) if _is_near(segment, f)]
    if sum(segment.rows for segment in segments) <= MOST_TURNS:
        return TurnSample("turns", where, is_sample=False)
    kept = _stretches(connection.folder, segments, f, [*dict.fromkeys(columns)])
    connection.show("sampled_turns", kept)
    return TurnSample("sampled_turns", where, is_sample=True)


def _is_near(segment: Segment, f: Filter) -> bool:
    starts_late = f.until_unix_ns is not None and (segment.first_unix_ns or 0) >= f.until_unix_ns
    ends_early = f.since_unix_ns is not None and (segment.last_unix_ns or 2**62) < f.since_unix_ns
    return not (starts_late or ends_early)


def _stretches(folder: Path, segments: Sequence[Segment], f: Filter, columns: Sequence[str]) -> ArrowTable:
    groups: list[tuple[int, int, Segment, int]] = []  # when it begins, its rows, and where it is
    for segment in segments:
        with pq.ParquetFile(folder / segment.file) as file:
            for number, (first, last) in enumerate(ranges(file.metadata, segment)):
                if first < (f.until_unix_ns or 2**63) and last >= (f.since_unix_ns or 0):
                    groups.append((first, file.metadata.row_group(number).num_rows, segment, number))
    groups.sort(key=lambda each: each[0])
    schema = pa.schema([SCHEMAS["turns"].field(name) for name in columns])
    tables = [_first_turns(folder, segment, number, schema) for segment, number in _evenly(groups)]
    return pa.concat_tables([schema.empty_table(), *tables])


def _evenly(groups: Sequence[tuple[int, int, Segment, int]]) -> list[tuple[Segment, int]]:
    """Row groups at the middle of STRETCHES equal parts of all rows."""
    total = sum(rows for _, rows, *_ in groups)
    wanted = [total * (2 * place + 1) // (2 * STRETCHES) for place in range(STRETCHES)]
    found: dict[tuple[str, int], tuple[Segment, int]] = {}
    reached = 0
    for _, rows, segment, number in groups:
        if any(reached <= place < reached + rows for place in wanted):
            found[segment.file, number] = segment, number
        reached += rows
    return list(found.values())


def _first_turns(folder: Path, segment: Segment, number: int, schema: Any) -> ArrowTable:
    """The first turns of a row group; columns that the segment does not have are empty."""
    with pq.ParquetFile(folder / segment.file) as file:
        known = [name for name in schema.names if name in file.schema_arrow.names]
        batch = next(file.iter_batches(STRETCH_TURNS, row_groups=[number], columns=known, use_threads=False), None)
    if batch is None:
        return schema.empty_table()
    table = pa.Table.from_batches([batch])
    return pa.table(
        {
            field.name: table.column(field.name).cast(field.type)
            if field.name in known
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        },
        schema=schema,
    )
