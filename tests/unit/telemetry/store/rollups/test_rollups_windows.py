"""Windows over segments that have roll-ups: what they read turn by turn is verified, and counted where it stands."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.model.turns import Turn
from telemetry.store import manifest as manifests
from telemetry.store.answers import Filter
from telemetry.store.manifest import Segment
from telemetry.store.reader import StoreReader
from telemetry.store.rollups.windows import _LeftOver, _services
from tests.fixtures_turns import MS, START_UNIX_NS, client_turn
from tests.unit.telemetry.store.rollups.answers_compared import mixed_turns, stored

TURNS: Final = 200


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose content is verified."""
    found: list[str] = []
    crc32_of = manifests.crc32_of

    def noted(path: Path) -> int:
        found.append(path.name)
        return crc32_of(path)

    monkeypatch.setattr(manifests, "crc32_of", noted)
    return found


def turns_segment(folder: Path) -> Segment:
    (only,) = manifests.load(folder).of("turns")
    assert only.rollup is not None
    return only


@pytest.mark.slow
def test_a_segment_is_verified_once(tmp_path: Path, verified: list[str]) -> None:
    folder = stored(tmp_path / "store", mixed_turns(1, TURNS), segments=2, compacted=2)
    segment = turns_segment(folder)
    middle = ((segment.first_unix_ns or 0) + (segment.last_unix_ns or 0)) // 2
    with StoreReader(folder, fewest_rolled_up=0) as reader:
        whole = reader.summary(Filter(run_id="run-1")).turns.total
        part = reader.summary(Filter(run_id="run-1", since_unix_ns=middle)).turns.total
        assert 0 < part < whole
        assert verified.count(segment.file) == 1


@pytest.mark.slow
def test_no_figure_of_a_window_holds_turns_of_a_damaged_segment(tmp_path: Path) -> None:
    folder = stored(tmp_path / "store", mixed_turns(1, TURNS), segments=2, compacted=2)
    segment = turns_segment(folder)
    path = manifests.segment_path(folder, segment)
    middle = ((segment.first_unix_ns or 0) + (segment.last_unix_ns or 0)) // 2
    path.write_bytes(other_rows_of_the_same_size(path, middle))
    with StoreReader(folder, fewest_rolled_up=0) as reader:
        summary = reader.summary(Filter(run_id="run-1", since_unix_ns=middle))
        assert (summary.turns.total, summary.skipped_segments) == (0, 1)
        assert [segment.file in fault for fault in reader.faults] == [True]


def other_rows_of_the_same_size(path: Path, since_unix_ns: int) -> bytes:
    """A whole Parquet file, as long as this one, in which the client's turns since a moment have another outcome."""
    metadata, table = pq.read_metadata(path), pq.read_table(path)
    place = table.column_names.index("outcome")
    changed = [
        "no_reply" if started >= since_unix_ns else outcome
        for started, outcome in zip(table["started_unix_ns"].to_pylist(), table["outcome"].to_pylist(), strict=True)
    ]
    assert changed != table["outcome"].to_pylist()
    field = table.schema.field(place)
    table = table.set_column(place, field, pa.array(changed).cast(field.type))
    sink = pa.BufferOutputStream()
    assert metadata.num_row_groups == 1
    pq.write_table(table, sink, compression="zstd")
    content, size = sink.getvalue().to_pybytes(), path.stat().st_size
    assert len(content) <= size
    # Bytes between the magic number and the rows move all offsets; before the footer they move none.
    footer = int.from_bytes(content[-8:-4], "little") + 8
    return content[:-footer] + b"\0" * (size - len(content)) + content[-footer:]


@pytest.fixture
def groups(tmp_path: Path) -> Any:
    """A segment's file of four row groups, in each of which the service has one turn."""
    turns: list[Turn] = []
    for number in range(4):
        client = client_turn(number, started_unix_ns=START_UNIX_NS + number * MS)
        turns += [
            client,
            msgspec.structs.replace(client, source="service", process_id="service", span_id=f"{number + 9:016x}"),
        ]
    folder = stored(tmp_path / "store", turns, segments=1)
    (segment,) = manifests.load(folder).of("turns")
    path = tmp_path / "groups.parquet"
    table = pq.read_table(manifests.segment_path(folder, segment))
    pq.write_table(table, path, row_group_size=2)
    with pq.ParquetFile(path) as file:
        assert file.metadata.num_row_groups == 4
        yield file, segment


def test_the_services_turns_are_taken_from_the_row_group_that_holds_them(groups: Any) -> None:
    file, segment = groups
    left = _LeftOver(segment, [(START_UNIX_NS, START_UNIX_NS + 4 * MS)], is_rolled_up=False)
    found = [trace for table in _services(file, left, None) for trace in table.column("trace_id").to_pylist()]
    assert sorted(found) == [f"{number + 1:032x}" for number in range(4)]
    clients = file.read_row_group(2, columns=["source", "trace_id", "response_id", "started_unix_ns"])
    (only,) = [table for table in _services(file, left, clients) if table.num_rows]
    assert only.column("trace_id").to_pylist() == [f"{3:032x}"]
