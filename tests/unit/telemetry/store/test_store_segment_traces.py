"""What is known of the traces of a segment is what DuckDB's probe of the same filters says, and what its rows say."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from telemetry.store.manifest import Segment, segment_path
from telemetry.store.schema import SCHEMAS, ArrowTable
from telemetry.store.segment_traces import SoughtTrace, TracesOfSegments
from telemetry.store.writer import StoreWriter

NEVER = 10**9
# Ids that a sender may make: of every length that its hash treats in a way of its own, and beyond ASCII.
ODD_IDS = ["", "a", "abc", "abcd", "12345678", "x" * 31, "x" * 33, "x" * 47, "x" * 100, "ü" * 9, "語"]


def spans(trace_ids: list[str | None]) -> ArrowTable:
    """A span for each of the ids."""
    columns = {field.name: pa.nulls(len(trace_ids), field.type) for field in SCHEMAS["spans"]}
    columns["trace_id"] = pa.array(trace_ids, pa.string())
    columns["timestamp_unix_ns"] = pa.array(np.arange(len(trace_ids)))
    return pa.table(columns, schema=SCHEMAS["spans"])


def trace(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"


def written(folder: Path, groups: list[list[str | None]], filter_rows_min: int) -> Segment:
    with StoreWriter(folder, filter_rows_min=filter_rows_min) as writer:
        return writer.write_segment("spans", [spans(group) for group in groups], level=0)


def asked(folder: Path, segment: Segment, trace_ids: list[str]) -> list[bool]:
    traces = TracesOfSegments(folder)
    return [traces.may_hold(segment, SoughtTrace.of(each)) for each in trace_ids]


def probed(folder: Path, segment: Segment, trace_ids: list[str]) -> list[bool]:
    """What DuckDB says of the same filters."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        statement = "SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe(?, 'trace_id', ?)"
        path = str(segment_path(folder, segment))
        found = [connection.execute(statement, [path, each]).fetchone() for each in trace_ids]
    return [row is not None and not row[0] for row in found]


def test_filters_are_asked_as_duckdb_asks_them(tmp_path: Path) -> None:
    groups = [[*ODD_IDS, *map(trace, range(90))], [trace(number) for number in range(90, 700)]]
    segment = written(tmp_path, [list[str | None](group) for group in groups], filter_rows_min=1)
    held = [each for group in groups for each in group]
    assert all(asked(tmp_path, segment, held))
    # The filter of the second group is too small for it, so that many of these may be there.
    others = [trace(number) for number in range(10_000, 10_300)]
    found = asked(tmp_path, segment, others)
    assert found == probed(tmp_path, segment, others)
    assert 5 < sum(found) < 295


def test_of_a_segment_without_filters_the_ids_are_known(tmp_path: Path) -> None:
    segment = written(tmp_path, [[*ODD_IDS, None], [trace(1), trace(1)]], filter_rows_min=NEVER)
    assert asked(tmp_path, segment, [*ODD_IDS, trace(1)]) == [True] * (len(ODD_IDS) + 1)
    assert asked(tmp_path, segment, [trace(2), "ab", "x" * 32]) == [False] * 3


@pytest.mark.parametrize("filter_rows_min", [1, NEVER])
def test_a_segment_that_cannot_be_read_may_hold_every_trace(tmp_path: Path, filter_rows_min: int) -> None:
    segment = written(tmp_path, [[trace(1)]], filter_rows_min)
    path = segment_path(tmp_path, segment)
    path.write_bytes(path.read_bytes()[:-3] + b"bad")
    assert asked(tmp_path, segment, [trace(2)]) == [True]


def test_a_segment_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    segment = written(tmp_path, [[trace(1)]], filter_rows_min=1)
    segment_path(tmp_path, segment).unlink()
    with pytest.raises(FileNotFoundError):
        asked(tmp_path, segment, [trace(1)])


def test_what_is_no_longer_named_or_to_be_read_anew_is_forgotten(tmp_path: Path) -> None:
    segment = written(tmp_path, [[trace(1)]], filter_rows_min=NEVER)
    traces = TracesOfSegments(tmp_path)
    assert traces.may_hold(segment, SoughtTrace.of(trace(1)))
    segment_path(tmp_path, segment).unlink()
    traces.keep_only({segment.file})
    assert traces.may_hold(segment, SoughtTrace.of(trace(1)))
    traces.keep_only(set())
    with pytest.raises(FileNotFoundError):
        traces.may_hold(segment, SoughtTrace.of(trace(1)))
