"""Large segments carry a Bloom filter of their traces in every row group, small ones do not."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.store import manifest as manifests
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import Segment, Table
from telemetry.store.row_groups import GROUP_BYTES
from telemetry.store.schema import SCHEMAS, ArrowTable, points_table, spans_table, turns_table
from telemetry.store.trace_filters import FILTER_ROWS_MIN, trace_filters
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, exchange, generator_points, stage_spans

SPANS_OF_A_TRACE = 8


def trace(number: int) -> str:
    """The id of the trace with a number, spread like random ones."""
    return f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"


def many(table: Table, rows: int, first_trace: int = 0) -> ArrowTable:
    """Rows of the table that differ in their trace (one for each eight), their span and their moment."""
    turn = exchange(0)[0]
    content = turns_table([turn]) if table == "turns" else spans_table(stage_spans(turn))
    number = np.arange(rows)
    columns = dict(zip(content.schema.names, content.take(pa.array(number % content.num_rows)).columns, strict=True))
    columns["trace_id"] = pa.array([trace(first_trace + each // SPANS_OF_A_TRACE) for each in range(rows)])
    columns["span_id"] = pa.array([f"{first_trace * SPANS_OF_A_TRACE + each:016x}" for each in range(rows)])
    moment = "started_unix_ns" if table == "turns" else "timestamp_unix_ns"
    columns[moment] = pa.array(START_UNIX_NS + first_trace * SECOND + number * SECOND // SPANS_OF_A_TRACE)
    return pa.table(columns, schema=SCHEMAS[table])


def filter_bytes(store: Path, segment: Segment) -> list[int | None]:
    """The size of the filter of each row group's trace ids."""
    metadata: Any = pq.read_metadata(manifests.segment_path(store, segment))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [next(c for c in map(g.column, range(g.num_columns)) if c.path_in_schema == "trace_id") for g in groups]
    return [column.bloom_filter_length for column in columns]


def excluding(store: Path, segment: Segment, trace_id: str) -> list[bool]:
    """For each row group, whether its filter says that the trace is not in it."""
    path = str(manifests.segment_path(store, segment))
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        found = connection.execute(
            "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'trace_id', ?) ORDER BY row_group_id",
            [path, trace_id],
        )
        return [row[0] for row in found.fetchall()]


@pytest.mark.parametrize("table", ["turns", "spans"])
def test_a_segment_of_many_rows_has_filters_and_one_of_fewer_has_none(tmp_path: Path, table: Table) -> None:
    content = many(table, FILTER_ROWS_MIN)
    with StoreWriter(tmp_path) as writer:
        small = writer.write_segment(table, [content.slice(0, FILTER_ROWS_MIN // 2)], level=0)
        large = writer.write_segment(table, [content], level=0)
    assert filter_bytes(tmp_path, small) == [None]
    (size,) = filter_bytes(tmp_path, large)
    traces = FILTER_ROWS_MIN // SPANS_OF_A_TRACE
    assert size is not None
    assert traces < size < 8 * traces


def test_points_have_no_traces_and_no_filters(tmp_path: Path) -> None:
    points = points_table(generator_points("run", 1))
    with StoreWriter(tmp_path, filter_rows_min=1) as writer:
        segment = writer.write_segment("points", [points], level=0)
    path = manifests.segment_path(tmp_path, segment)
    assert pq.read_table(path).equals(points)
    group: Any = pq.read_metadata(path).row_group(0)
    assert {group.column(place).bloom_filter_length for place in range(group.num_columns)} == {None}


@pytest.mark.slow
def test_the_filters_of_merged_segments_exclude_what_is_not_there(tmp_path: Path) -> None:
    rows = FILTER_ROWS_MIN * 3 // 5
    with StoreWriter(tmp_path) as writer:
        for part in range(2):
            spans = many("spans", rows, first_trace=part * rows)
            writer.append_tables(SCHEMAS["turns"].empty_table(), spans, SCHEMAS["points"].empty_table())
        assert [filter_bytes(tmp_path, segment) for segment in writer.manifest.of("spans")] == [[None], [None]]
        assert Compactor(writer, limits=MergeLimits(fan_in=2)).run_once()
        (merged,) = writer.manifest.of("spans")
    assert merged.rows == 2 * rows
    assert None not in filter_bytes(tmp_path, merged)
    held = rows // SPANS_OF_A_TRACE
    for number in (0, 1, held - 1, rows, rows + held - 1):
        assert not all(excluding(tmp_path, merged, trace(number)))
    absent = [each for number in range(100) for each in excluding(tmp_path, merged, trace(10**9 + number))]
    assert sum(absent) >= len(absent) - 2


def test_every_row_group_has_a_filter_that_excludes_the_traces_of_the_others(tmp_path: Path) -> None:
    parts = [many("spans", FILTER_ROWS_MIN, first_trace=part * FILTER_ROWS_MIN) for part in range(3)]
    with StoreWriter(tmp_path) as writer:
        segment = writer.write_segment("spans", parts, level=0)
    assert len(set(filter_bytes(tmp_path, segment))) == 1
    for part in range(3):
        found = excluding(tmp_path, segment, trace(part * FILTER_ROWS_MIN + 5))
        assert found == [other != part for other in range(3)]


def test_the_first_row_group_decides_by_its_rows() -> None:
    traces = pa.table({"trace_id": [trace(number) for number in range(FILTER_ROWS_MIN)]})
    assert trace_filters(traces.slice(1)) is None
    chosen = trace_filters(traces)
    assert chosen is not None
    assert chosen["trace_id"]["ndv"] == FILTER_ROWS_MIN


def test_few_large_rows_are_a_large_segment() -> None:
    large = pa.table({"trace_id": ["a", "b", "b"], "body": [bytes(GROUP_BYTES // 4)] * 3})
    chosen = trace_filters(large)
    assert chosen is not None
    assert chosen["trace_id"]["ndv"] == 2
    assert trace_filters(large.slice(0, 1)) is None


def test_a_first_row_group_of_one_trace_leaves_room_for_more_traces_in_the_others() -> None:
    chosen = trace_filters(pa.table({"trace_id": ["a"] * 6_400}), rows_min=1)
    assert chosen is not None
    assert chosen["trace_id"]["ndv"] == 200


def test_rows_without_any_trace_are_stored(tmp_path: Path) -> None:
    content = many("spans", 20)
    place = content.schema.names.index("trace_id")
    unknown = content.set_column(place, "trace_id", pa.nulls(20, pa.string()))
    with StoreWriter(tmp_path, filter_rows_min=1) as writer:
        for table in (unknown, unknown.slice(0, 0)):
            segment = writer.write_segment("spans", [table], level=0)
            assert pq.read_table(manifests.segment_path(tmp_path, segment)).num_rows == table.num_rows
