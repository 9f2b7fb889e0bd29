"""A store whose manifest is missing, torn, older or another store's loses nothing, and comes back whole."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.check import check
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import MANIFEST_NAME, PREVIOUS_NAME, QUARANTINE_FOLDER, SEGMENTS_FOLDER
from telemetry.store.quarantine import move_to_quarantine
from telemetry.store.reader import StoreReader
from telemetry.store.repair import repair
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.schema import Batch, turns_table
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, exchange, generator_points, stage_spans

TURNS = 10


def _filled(directory: Path, turns: int = TURNS, first: int = 0) -> Path:
    """A store with a segment for each turn."""
    with StoreWriter(directory) as writer:
        for index in range(first, first + turns):
            writer.append(Batch([client_turn(index)]))
    return directory


def _files(directory: Path) -> dict[str, bytes]:
    """Every segment below the folder by its name, wherever it lies."""
    return {path.name: path.read_bytes() for path in directory.rglob("*.parquet*")}


def _numbers(directory: Path) -> list[int]:
    """The turns that a reader finds, by their numbers."""
    with StoreReader(directory) as reader:
        numbers = [turn.sequence for turn in reader.turns(limit=100_000)]
        assert reader.faults == ()
    return sorted(number for number in numbers if number is not None)


def _missing(store: Path) -> None:
    (store / MANIFEST_NAME).unlink()


def _both_missing(store: Path) -> None:
    (store / MANIFEST_NAME).unlink()
    (store / PREVIOUS_NAME).unlink()


def _torn(store: Path) -> None:
    content = (store / MANIFEST_NAME).read_bytes()
    (store / MANIFEST_NAME).write_bytes(content[: len(content) // 2])


def _empty(store: Path) -> None:
    (store / MANIFEST_NAME).write_bytes(b"")


def _of_somebody_else(store: Path) -> None:
    (store / MANIFEST_NAME).write_bytes(b'{"name": "an app", "icons": []}')


def _of_another_store(store: Path) -> None:
    other = _filled(store.parent / "other", 20, first=100)
    shutil.copy(other / MANIFEST_NAME, store / MANIFEST_NAME)


def _older(store: Path) -> None:
    """The manifest of a backup that was made when half of the turns were there."""
    old = manifests.load(store)
    kept = manifests.StoreManifest(sequence=5, next_file=5, segments=old.segments[:5])
    manifests.publish(store, kept, keep_previous=False)
    (store / PREVIOUS_NAME).unlink()


DAMAGES: list[Callable[[Path], None]] = [
    _missing,
    _both_missing,
    _torn,
    _empty,
    _of_somebody_else,
    _of_another_store,
    _older,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_segment_is_deleted_or_hidden_whatever_the_manifest_is(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    store = _filled(tmp_path / "store")
    before = _files(store)
    damage(store)
    with pytest.raises(StoreError, match=f"voiceprobe store repair {store}"):
        StoreWriter(store)
    assert _files(store) == before
    assert check(store).faults != ()
    planned = repair(store, dry_run=True)
    assert _files(store) == before
    with pytest.raises(StoreError, match="voiceprobe store repair"):
        StoreWriter(store)
    assert repair(store) == planned
    assert planned.lost_rows == 0
    assert _numbers(store) == list(range(TURNS))
    assert _files(store) == before
    assert check(store).faults == ()
    assert repair(store).faults == ()
    with StoreWriter(store) as writer:
        assert writer.append(Batch([client_turn(index) for index in range(TURNS + 1)])).duplicates == TURNS
    assert _numbers(store) == list(range(TURNS + 1))


@pytest.mark.parametrize("damage", [_missing, _torn, _empty, _of_somebody_else], ids=lambda damage: damage.__name__)
def test_a_reader_says_what_is_wrong_and_how_to_mend_it(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = _filled(tmp_path / "store")
    damage(store)
    with StoreReader(store) as reader, pytest.raises(StoreError, match=f"voiceprobe store repair {store}"):
        reader.summary()


def test_the_manifest_that_was_there_is_kept(tmp_path: Path) -> None:
    store = _filled(tmp_path)
    _torn(store)
    torn, previous = (store / MANIFEST_NAME).read_bytes(), (store / PREVIOUS_NAME).read_bytes()
    repair(store)
    assert (store / QUARANTINE_FOLDER / MANIFEST_NAME).read_bytes() == torn
    assert (store / QUARANTINE_FOLDER / PREVIOUS_NAME).read_bytes() == previous
    assert (store / PREVIOUS_NAME).read_bytes() == previous, "a torn manifest is no way back"


def test_one_that_is_one_commit_older_is_visible_and_its_rows_come_back(tmp_path: Path) -> None:
    """It cannot be told from a writer that was killed before it published."""
    store = _filled(tmp_path)
    shutil.copy(store / PREVIOUS_NAME, store / MANIFEST_NAME)
    StoreWriter(store).close()
    found = check(store)
    assert (found.segments, found.quarantined, found.unnamed) == (TURNS - 1, 1, 0)
    assert len(found.faults) == 1
    repair(store)
    assert _numbers(store) == list(range(TURNS))


def test_files_of_others_stay_where_they_are(tmp_path: Path) -> None:
    store = _filled(tmp_path)
    stranger = store / SEGMENTS_FOLDER / "mine.parquet"
    pq.write_table(pa.table({"a": [1]}), stranger)
    other = store / SEGMENTS_FOLDER / "turns-7.parquet.tmp"
    other.write_text("notes")
    before = (stranger.read_bytes(), other.read_bytes())
    StoreWriter(store).close()
    assert check(store).strangers == 2
    _missing(store)
    repair(store)
    assert (stranger.read_bytes(), other.read_bytes()) == before
    assert _numbers(store) == list(range(TURNS))


def test_nothing_in_quarantine_is_overwritten(tmp_path: Path) -> None:
    store = _filled(tmp_path, 2)
    folder = store / SEGMENTS_FOLDER
    names = ["turns-000000050-00000000.parquet", "spans-000000051-00000000.parquet.tmp"]
    for content in (b"first", b"second", b"third"):
        for name in names:
            (folder / name).write_bytes(content)
        StoreWriter(store).close()
    for name in names:
        kept = [(store / QUARANTINE_FOLDER / (name + end)).read_bytes() for end in ("", ".1", ".2")]
        assert kept == [b"first", b"second", b"third"]
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(7)]))
        assert manifests.number_of(writer.manifest.segments[-1].file) == 52


def test_a_repair_is_refused_while_a_writer_works(tmp_path: Path) -> None:
    with StoreWriter(tmp_path), pytest.raises(StoreError, match="another sidecar is writing to this store"):
        repair(tmp_path)


def test_a_store_of_another_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(b'{"version": 3, "sequence": 1, "next_file": 1, "segments": [{"file": 3}]}')
    for refuse in (repair, check, StoreWriter):
        with pytest.raises(StoreError, match="has format 3, this version reads 4; use the version that wrote it"):
            refuse(tmp_path)


@pytest.mark.parametrize("name", ["nothing", "folder"])
def test_what_is_not_a_store_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    for refuse in (repair, check):
        with pytest.raises(StoreError, match=r"is not a folder|holds nothing of a store"):
            refuse(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder"]


def _merged(store: Path) -> tuple[list[Path], Path]:
    """A store of one merged segment, whose parts are still there."""
    with StoreWriter(store) as writer:
        for index in range(4):
            writer.append(Batch([client_turn(index)]))
        parts = [manifests.segment_path(store, segment) for segment in writer.manifest.segments]
        assert Compactor(writer, limits=MergeLimits(fan_in=4)).run_once()
        (merged,) = writer.manifest.segments
        return parts, manifests.segment_path(store, merged)


def test_a_merged_segment_and_its_parts_are_counted_once_without_any_manifest(tmp_path: Path) -> None:
    parts, merged = _merged(tmp_path)
    _both_missing(tmp_path)
    repair(tmp_path)
    assert [segment.file for segment in manifests.load(tmp_path).segments] == [merged.name]
    assert {path.name for path in (tmp_path / QUARANTINE_FOLDER).iterdir()} == {part.name for part in parts}
    assert _numbers(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("manifest", ["current", "torn", "missing"])
def test_the_parts_stand_in_for_a_merged_segment_that_is_damaged(tmp_path: Path, manifest: str) -> None:
    parts, merged = _merged(tmp_path)
    for part in parts:
        move_to_quarantine(tmp_path, part)
    merged.write_bytes(merged.read_bytes()[:-9])
    if manifest != "current":
        {"torn": _torn, "missing": _both_missing}[manifest](tmp_path)
    done = repair(tmp_path)
    assert _numbers(tmp_path) == [0, 1, 2, 3]
    assert f"{merged} is damaged: its content is not what was written" in done.faults
    assert (tmp_path / QUARANTINE_FOLDER / merged.name).exists()


def test_only_the_rows_that_are_missing_are_taken_from_a_segment(tmp_path: Path) -> None:
    """A merge that was not committed, of segments one of which is lost."""
    parts, merged = _merged(tmp_path)
    data = merged.read_bytes()
    shutil.copy(tmp_path / PREVIOUS_NAME, tmp_path / MANIFEST_NAME)  # the swap never happened
    parts[2].unlink()
    (tmp_path / PREVIOUS_NAME).unlink()
    done = repair(tmp_path)
    assert done.lost_rows == 0
    assert done.rows["turns"] == 4
    assert _numbers(tmp_path) == [0, 1, 2, 3]
    assert (tmp_path / QUARANTINE_FOLDER / merged.name).read_bytes() == data
    assert check(tmp_path).faults == ()


def test_a_lost_segment_is_named_with_its_rows(tmp_path: Path) -> None:
    store = _filled(tmp_path, 3)
    lost = sorted((store / SEGMENTS_FOLDER).iterdir())[1]
    lost.unlink()
    found = check(store)
    assert (found.segments, found.damaged, found.rows["turns"]) == (3, 1, 2)
    assert found.faults == (f"{lost.name} is lost: 1 rows of turns",)
    done = repair(store)
    assert (done.faults, done.lost_rows) == (found.faults, 1)
    assert _numbers(store) == [0, 2]


def test_every_table_comes_back(tmp_path: Path) -> None:
    turns = [exchange(index)[0] for index in range(3)]
    with StoreWriter(tmp_path) as writer:
        for turn in turns:
            writer.append(Batch([turn], stage_spans(turn), generator_points(f"run-{turn.sequence}", 1)))
        expected = Counter({table: sum(each.rows for each in writer.manifest.of(table)) for table in manifests.TABLES})
        first = writer.manifest.segments[:3]
    for copy in first:  # copies under other names, as a half-done restore leaves them
        path = manifests.segment_path(tmp_path, copy)
        shutil.copy(path, path.with_name(path.name + ".tmp"))
    _both_missing(tmp_path)
    assert repair(tmp_path).rows == expected
    assert check(tmp_path).rows == expected


def test_turns_that_stand_there_twice_are_a_fault(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([client_turn(0), client_turn(1)]))
        again = writer.write_segment("turns", [turns_table([client_turn(0)])], level=0)
        one = writer.manifest
    twice = msgspec.structs.replace(one, sequence=one.sequence + 1, segments=(*one.segments, again))
    manifests.publish(tmp_path, twice)
    found = check(tmp_path)
    assert (found.duplicate_turns, found.faults) == (1, ("1 turns stand in the store more than once",))


def test_a_store_that_is_written_is_checked_beside_its_writer(tmp_path: Path) -> None:
    _merged(tmp_path)
    with StoreWriter(tmp_path) as writer:
        before = check(tmp_path)
        writer.write_segment("turns", [pq.read_table(next((tmp_path / SEGMENTS_FOLDER).iterdir()))], level=0)
        after = check(tmp_path)
    assert (before.is_in_use, before.faults, before.unnamed) == (True, (), 0)
    assert (after.is_in_use, after.faults, after.unnamed) == (True, (), 1)
    assert not check(tmp_path).is_in_use


def test_what_cannot_be_read_for_a_while_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _filled(tmp_path, 2)
    _missing(store)
    before = _files(store)

    def too_many(_path: Path) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(manifests, "crc32_of", too_many)
    with pytest.raises(StoreError, match=r"cannot be read \(Too many open files\)"):
        repair(store)
    assert _files(store) == before


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [_damage, Path.unlink], ids=["damaged", "missing"])
@pytest.mark.parametrize("is_in_use", [False, True], ids=["at rest", "in use"])
def test_a_roll_up_that_is_not_what_was_written_is_a_fault_and_left_out(
    tmp_path: Path, spoil: Callable[[Path], None], is_in_use: bool
) -> None:
    maker = RollUpMaker(fewest_rows=2, most_of_segment=99.0)
    with StoreWriter(tmp_path) as writer:
        for first in (0, TURNS):
            writer.append(Batch([client_turn(index) for index in range(first, first + TURNS)]))
        for segment in writer.manifest.segments:
            writer.name_rollup(segment, maker(manifests.segment_path(tmp_path, segment), segment) or "")
        segment, other = writer.manifest.segments
        if not is_in_use:
            writer.close()
        assert check(tmp_path).faults == ()
        spoil(tmp_path / SEGMENTS_FOLDER / (segment.rollup or ""))
        found = check(tmp_path)
        assert found.is_in_use is is_in_use
        assert (found.damaged, found.rows["turns"]) == (0, 2 * TURNS), "no turn is lost"
        assert found.faults
        assert all(segment.file.removesuffix(".parquet") in fault for fault in found.faults)
    repair(tmp_path)
    assert check(tmp_path).faults == ()
    assert _numbers(tmp_path) == list(range(2 * TURNS))
    assert [each.rollup for each in manifests.load(tmp_path).segments] == [None, other.rollup]
    assert manifests.load(tmp_path).segments[1].rollup_bytes == other.rollup_bytes > 0
