"""Metric points of every kind through the life of a store, beside those that a former version stored."""

from pathlib import Path

import pyarrow.parquet as pq

from telemetry.store.check import check
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.connection import rows
from telemetry.store.export import export
from telemetry.store.manifest import MANIFEST_NAME, PREVIOUS_NAME
from telemetry.store.point_rows import POINT_COLUMNS, Exemplar
from telemetry.store.repair import repair
from telemetry.store.schema import ArrowTable, Batch, PointRow, points_table
from telemetry.store.snapshot import Snapshots
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


def _as_formerly(points: list[PointRow]) -> ArrowTable:
    """The table that a version before these kinds would have stored."""
    return points_table(points).drop_columns(list(POINT_COLUMNS))


def _store_of_both(directory: Path) -> Path:
    """A store with a segment of a former version, and one of this."""
    with StoreWriter(directory) as writer:
        former = writer.write_segment("points", [_as_formerly([NUMBER])], 0)
        writer.add(former)
    with StoreWriter(directory) as writer:
        added = writer.append(Batch(points=[NUMBER, HISTOGRAM, EXPONENTIAL, SUMMARY, HISTOGRAM]))
        assert (added.points.num_rows, added.duplicates) == (3, 2), "by name, moment, service, attributes and kind"
    return directory


def _kept(directory: Path) -> dict[str | None, dict[str, object]]:
    """The points of a store by their kind, without what is unknown."""
    snapshots = Snapshots(directory)
    try:
        found = snapshots.ask(lambda connection: rows(connection, "SELECT * FROM points"))
    finally:
        snapshots.close()
    assert len({row["kind"] for row in found}) == len(found)
    return {row["kind"]: {name: value for name, value in row.items() if value is not None} for row in found}


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


def test_a_store_of_a_former_version_is_read_beside_the_new_kinds(tmp_path: Path) -> None:
    _assert_whole(_store_of_both(tmp_path))


def test_points_survive_a_merge_with_those_of_a_former_version(tmp_path: Path) -> None:
    _store_of_both(tmp_path)
    with StoreWriter(tmp_path) as writer:
        compactor = Compactor(writer, limits=MergeLimits(fan_in=2))
        while compactor.run_once():
            pass
        (segment,) = writer.manifest.of("points")
        assert (segment.level, segment.rows) == (1, 4)
        again = writer.append(Batch(points=[NUMBER, HISTOGRAM, SUMMARY]))
        assert again.rows == 0, "sent again after the merge"
    _assert_whole(tmp_path)


def test_points_are_in_a_manifest_that_is_made_anew(tmp_path: Path) -> None:
    _store_of_both(tmp_path)
    for name in (MANIFEST_NAME, PREVIOUS_NAME):
        (tmp_path / name).unlink(missing_ok=True)
    repair(tmp_path)
    _assert_whole(tmp_path)
    assert check(tmp_path).faults == ()


def test_points_are_exported_with_all_columns(tmp_path: Path) -> None:
    done = export(_store_of_both(tmp_path / "store"), tmp_path / "out")
    assert done.points == 4
    table = pq.read_table(tmp_path / "out" / "points.parquet")
    by_kind = {row["kind"]: row for row in table.to_pylist()}
    assert by_kind["histogram"]["bucket_counts"] == [2, 1]
    assert by_kind["summary"]["quantiles"][0] == {"quantile": 0.5, "value": 1.0}
