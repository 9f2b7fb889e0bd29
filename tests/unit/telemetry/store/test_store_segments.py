"""What a segment says of itself, in the manifest and in its own footer, and who may read its file."""

import os
import stat
import zlib
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.store import manifest as manifests
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import Segment
from telemetry.store.private_files import make_folder, write_durably
from telemetry.store.schema import Batch, points_table, spans_table, turns_table
from telemetry.store.segment_files import RUN_IDS_MAX, read_footer
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, exchange, generator_points, stage_spans


def _only(writer: StoreWriter, table: manifests.Table) -> Segment:
    (segment,) = writer.manifest.of(table)
    return segment


def test_the_manifest_knows_time_runs_and_size_of_every_segment(tmp_path: Path) -> None:
    turns = [exchange(index, run_id=f"run-{index % 3}")[0] for index in range(7)]
    spans = [span for turn in turns for span in stage_spans(turn)]
    points = generator_points("run-b", 2) + generator_points("run-a", 1)
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(turns, spans, points))
        found = {table: _only(writer, table) for table in manifests.TABLES}
    starts = [turn.started_unix_ns for turn in turns]
    assert (found["turns"].first_unix_ns, found["turns"].last_unix_ns) == (min(starts), max(starts))
    assert found["turns"].run_ids == ("run-0", "run-1", "run-2")
    starts = [span.start_unix_ns for span in spans]
    assert (found["spans"].first_unix_ns, found["spans"].last_unix_ns) == (min(starts), max(starts))
    assert found["spans"].run_ids is None
    moments = [point.unix_ns for point in points]
    assert (found["points"].first_unix_ns, found["points"].last_unix_ns) == (min(moments), max(moments))
    assert found["points"].run_ids == ("run-a", "run-b")
    for segment in found.values():
        data = manifests.segment_path(tmp_path, segment).read_bytes()
        assert (segment.rollup, segment.level, segment.size_bytes) == (None, 0, len(data))
        assert segment.crc32 == zlib.crc32(data)
        assert segment.file.endswith(f"-{segment.crc32:08x}.parquet")
        # Columns in memory: no less than eight bytes for each of its integers, far more than compressed.
        assert segment.raw_bytes >= 8 * segment.rows
        in_memory_bytes = pq.read_table(manifests.segment_path(tmp_path, segment)).nbytes
        assert segment.raw_bytes == pytest.approx(in_memory_bytes, rel=0.02)  # bits for missing values may differ


def test_more_runs_than_may_be_named_are_not_named(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([client_turn(index, run_id=f"run-{index:02}") for index in range(RUN_IDS_MAX)]))
        assert _only(writer, "turns").run_ids == tuple(f"run-{index:02}" for index in range(RUN_IDS_MAX))
        writer.append(Batch([client_turn(100 + index, run_id=f"run-{index:02}") for index in range(RUN_IDS_MAX + 1)]))
        assert writer.manifest.of("turns")[-1].run_ids is None


def test_a_segment_without_rows_has_no_time(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for table, content in (("turns", turns_table([])), ("spans", spans_table([])), ("points", points_table([]))):
            segment = writer.write_segment(table, [content], level=0)  # pyright: ignore[reportArgumentType]
            assert (segment.rows, segment.first_unix_ns, segment.last_unix_ns) == (0, None, None)


def test_the_footer_says_what_the_manifest_says_and_which_files_a_merge_replaces(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(2):
            writer.append(Batch([client_turn(index)]))
        parts = writer.manifest.of("turns")
        assert Compactor(writer, limits=MergeLimits(fan_in=2)).run_once()
        merged = _only(writer, "turns")
        for segment, replaces in ((parts[0], ()), (parts[1], ()), (merged, (parts[0].file, parts[1].file))):
            found = read_footer(manifests.segment_path(tmp_path, segment), segment.crc32)
            assert found is not None
            assert found[0] == segment
            assert found[1].replaces == replaces


def test_a_parquet_file_of_somebody_else_is_none_of_ours(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    assert read_footer(tmp_path / "other.parquet", 0) is None
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:-3])
    assert read_footer(tmp_path / "torn.parquet", 0) is None


def test_the_manifest_before_is_kept_with_each_publish(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(3):
            before = writer.manifest
            writer.append(Batch([client_turn(index)]))
            kept = (tmp_path / manifests.PREVIOUS_NAME).read_bytes()
            assert msgspec.json.decode(kept, type=manifests.StoreManifest) == before
            assert manifests.load(tmp_path) == writer.manifest


def test_the_manifest_before_is_kept_where_the_file_system_has_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with StoreWriter(tmp_path) as writer:
        before = writer.manifest
        writer.append(Batch([client_turn(0)]))
        assert manifests.decode(tmp_path, (tmp_path / manifests.PREVIOUS_NAME).read_bytes()) == before


def _modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in [folder, *folder.rglob("*")]}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277, 0o777])
def test_only_the_owner_may_read_anything_of_a_store_under_any_umask(tmp_path: Path, umask: int) -> None:
    store = tmp_path / "new" / "store"
    before = os.umask(umask)
    try:
        with StoreWriter(store) as writer:
            writer.append(Batch([client_turn(0)], points=generator_points("run", 1)))
    finally:
        os.umask(before)
    modes = _modes(tmp_path / "new")
    folders = {name for name in modes if (tmp_path / "new" / name).is_dir()}
    assert {f"store/{name}" for name in (manifests.MANIFEST_NAME, manifests.PREVIOUS_NAME, manifests.LOCK_NAME)} < {
        *modes
    }
    assert {name: oct(mode) for name, mode in modes.items()} == {
        name: oct(0o700 if name in folders else 0o600) for name in modes
    }


def test_a_folder_that_exists_keeps_its_mode_and_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


def test_what_is_half_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []
