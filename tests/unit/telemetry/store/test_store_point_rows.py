"""Metric points of every kind through the life of a store, and points that a former version stored."""

from pathlib import Path

import pyarrow.parquet as pq

from telemetry.store.connection import StoreConnection, rows
from telemetry.store.database import read_only
from telemetry.store.export import export
from telemetry.store.point_rows import Exemplar
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import START_UNIX_NS

NUMBER = PointRow("requests", START_UNIX_NS, 3.0, {"gen_ai.operation.name": "chat"}, "bot")
HISTOGRAM = PointRow(
    "latency",
    START_UNIX_NS,
    None,
    {"gen_ai.operation.name": "chat", "prompt": "my card is 4711"},
    "bot",
    kind="histogram",
    unit="s",
    scope_name="meter",
    temporality="delta",
    start_unix_ns=START_UNIX_NS - 1,
    flags=0,
    count=3,
    sum=1.5,
    min=0.25,
    max=1.0,
    explicit_bounds=(0.5,),
    bucket_counts=(2, 1),
    exemplars=(Exemplar(START_UNIX_NS, 0.25, "ab" * 16, "cd" * 8),),
)
EXPONENTIAL = PointRow(
    "latency",
    START_UNIX_NS,
    None,
    HISTOGRAM.attributes,
    "bot",
    kind="exponential_histogram",
    count=3,
    scale=1,
    zero_count=0,
    zero_threshold=0.0,
    positive_offset=-2,
    positive_bucket_counts=(3,),
    negative_offset=0,
    negative_bucket_counts=(),
)
SUMMARY = PointRow(
    "latency", START_UNIX_NS, None, HISTOGRAM.attributes, "bot", kind="summary", quantiles=((0.5, 1.0), (0.9, None))
)


def _store_of_all(directory: Path) -> Path:
    """A store with a point of each kind, each sent twice."""
    with StoreWriter(directory) as writer:
        writer.append(Batch(points=[NUMBER]))
        added = writer.append(Batch(points=[NUMBER, HISTOGRAM, EXPONENTIAL, SUMMARY, HISTOGRAM]))
        assert (added.points.num_rows, added.duplicates) == (3, 2), "by name, moment, service, attributes and kind"
    return directory


def _kept(directory: Path) -> dict[str | None, dict[str, object]]:
    """The points of a store by their kind, without what is unknown."""
    with read_only(directory) as database, database.snapshot() as cursor:
        statement = "SELECT * EXCLUDE (stored_unix_ns, commit_number) FROM points"
        written = rows(StoreConnection(cursor, directory), statement)
    assert len({row["kind"] for row in written}) == len(written)
    return {row["kind"]: {name: value for name, value in row.items() if value is not None} for row in written}


def _assert_whole(directory: Path) -> None:
    kept = _kept(directory)
    assert set(kept) == {None, "histogram", "exponential_histogram", "summary"}
    assert kept[None]["value"] == 3.0
    assert kept["histogram"] == {
        "name": "latency",
        "unix_ns": START_UNIX_NS,
        "service": "bot",
        "kind": "histogram",
        "unit": "s",
        "attributes": '{"gen_ai.operation.name":"chat"}',
        "scope_name": "meter",
        "temporality": "delta",
        "start_unix_ns": START_UNIX_NS - 1,
        "flags": 0,
        "count": 3,
        "sum": 1.5,
        "min": 0.25,
        "max": 1.0,
        "explicit_bounds": [0.5],
        "bucket_counts": [2, 1],
        "exemplars": [
            {"unix_ns": START_UNIX_NS, "value": 0.25, "trace_id": "ab" * 16, "span_id": "cd" * 8},
        ],
    }
    assert kept["exponential_histogram"]["positive_bucket_counts"] == [3]
    assert kept["exponential_histogram"]["negative_bucket_counts"] == []
    assert kept["summary"]["quantiles"] == [{"quantile": 0.5, "value": 1.0}, {"quantile": 0.9, "value": None}]


def test_points_of_every_kind_are_kept_whole_and_once(tmp_path: Path) -> None:
    _assert_whole(_store_of_all(tmp_path))
    with StoreWriter(tmp_path) as writer:
        assert writer.append(Batch(points=[NUMBER, HISTOGRAM, SUMMARY])).rows == 0, "sent again after a restart"
    _assert_whole(tmp_path)


def test_points_are_exported_with_all_columns(tmp_path: Path) -> None:
    done = export(_store_of_all(tmp_path / "store"), tmp_path / "out")
    assert done.points == 4
    table = pq.read_table(tmp_path / "out" / "points.parquet")
    by_kind = {row["kind"]: row for row in table.to_pylist()}
    assert by_kind["histogram"]["bucket_counts"] == [2, 1]
    assert by_kind["summary"]["quantiles"][0] == {"quantile": 0.5, "value": 1.0}
