"""A disk that is full, read-only or failing: nothing half-written, visible at once, and well again when it is."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.check import check
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import SEGMENTS_FOLDER
from telemetry.store.quarantine import quarantined
from telemetry.store.reader import StoreReader
from telemetry.store.repair import repair
from telemetry.store.schema import Batch, turns_table
from telemetry.store.write_health import WriteHealth
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, synthetic_run

MOUNT_BYTES = 2 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES},mode=700", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def _named(store: Path) -> set[str]:
    return {segment.file for segment in manifests.load(store).segments}


def _present(store: Path) -> set[str]:
    return {path.name for path in (store / SEGMENTS_FOLDER).iterdir()}


def test_a_disk_that_is_really_full_takes_nothing_in_half_and_all_again_with_room(small_disk: Path) -> None:
    store, filling = small_disk / "store", small_disk / "filling"
    run = synthetic_run("run", 200)
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(10_000)]))
        room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filling.write_bytes(bytes(room - (16 << 10)))
        for _ in range(2):
            with pytest.raises(StoreError, match="the disk is full"):
                writer.append(run.batch)
            assert _present(store) == _named(store)
            assert {path.name for path in store.iterdir() if path.suffix == manifests.TEMPORARY_SUFFIX} == set()
        assert writer.faults().why_unwritable == "the disk is full"
        with StoreReader(store) as reader:
            assert [turn.sequence for turn in reader.turns()] == [client_turn(10_000).sequence]
        filling.unlink()
        assert writer.append(run.batch).duplicates == 0
        assert writer.faults().why_unwritable is None
    assert check(store).faults == ()
    assert check(store).rows["turns"] == 1 + len(run.turns)


def test_a_store_starts_on_a_full_disk_with_left_overs(small_disk: Path) -> None:
    store = small_disk / "store"
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(0)]))
    (store / SEGMENTS_FOLDER / "turns-000000009-00000000.parquet").write_bytes(b"half")
    room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "filling").write_bytes(bytes(room))
    with StoreWriter(store) as writer:
        assert writer.faults().quarantined == 1
        with pytest.raises(StoreError, match="the disk is full"):
            writer.append(Batch([client_turn(1)]))


def test_a_read_only_disk_is_named_until_it_is_writable(small_disk: Path) -> None:
    store = small_disk / "store"
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(0)]))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    try:
        with pytest.raises(StoreError, match=r"cannot be used as a store \(Read-only file system\)"):
            StoreWriter(store)
        with StoreReader(store) as reader:
            assert len(reader.turns()) == 1
        assert check(store).faults == ()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(1)]))
    assert check(store).rows["turns"] == 2


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "Read-only file system"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_faults_say_why_until_a_write_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    fsync = os.fsync

    def refuse(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with StoreWriter(tmp_path) as writer:
        assert writer.faults().why_unwritable is None
        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreError, match=why):
            writer.append(Batch([client_turn(0)]))
        assert writer.faults().why_unwritable == why
        assert _present(tmp_path) == set()
        monkeypatch.setattr(os, "fsync", fsync)
        writer.append(Batch([client_turn(0)]))
        assert writer.faults().why_unwritable is None


def test_a_store_that_nobody_writes_to_is_known_to_be_writable_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, attempts, fsync = [0.0], [0], os.fsync

    def refuse(_descriptor: int) -> None:
        attempts[0] += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    health = WriteHealth(tmp_path, lambda: now_s[0])
    health.failed(OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr(os, "fsync", refuse)
    seen: list[str | None] = []
    for now_s[0] in (0.5, 1.0, 1.5, 2.0):
        seen.append(health.why_unwritable())
    assert seen == ["Input/output error", "the disk is full", "the disk is full", "the disk is full"]
    assert attempts == [2], "one small write a second at most"
    monkeypatch.setattr(os, "fsync", fsync)
    now_s[0] = 3.0
    assert health.why_unwritable() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_damage_is_known_from_the_start(tmp_path: Path, damage: str) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(3):
            writer.append(Batch([client_turn(index)]))
        assert writer.faults().damaged == ()
        victim = manifests.segment_path(tmp_path, writer.manifest.segments[1])
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1])
    why = {"missing": "the file is missing", "short": "its content is not what was written"}[damage]
    with StoreWriter(tmp_path) as writer:
        assert writer.faults().damaged == (f"{victim}: 1 rows of turns cannot be read, {why}",)
        writer.append(Batch([client_turn(7)]))


def test_damage_that_is_found_later_is_shown_while_the_segment_is_named(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(2):
            writer.append(Batch([client_turn(index)]))
        first, second = writer.manifest.segments
        writer.note_damage(first, "it was damaged")
        assert [first.file in sentence for sentence in writer.faults().damaged] == [True]
        writer.swap([first], second)
        assert writer.faults().damaged == ()


def test_what_a_kill_leaves_behind_is_shown_only_if_it_may_hold_rows(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(2):
            writer.append(Batch([client_turn(index)]))
        Compactor(writer, limits=MergeLimits(fan_in=2)).run_once()  # its parts are retired
        writer.write_segment("turns", [turns_table([client_turn(0)])], level=0)
    (tmp_path / SEGMENTS_FOLDER / "spans-000000009-00000000.parquet.tmp").write_bytes(b"half")
    (tmp_path / SEGMENTS_FOLDER / "rollup-000000002.parquet").write_bytes(b"PAR1")
    for _ in range(2):
        with StoreWriter(tmp_path) as writer:
            assert len(quarantined(tmp_path)) == 3
            assert writer.faults().quarantined == 1
    assert check(tmp_path).faults == (), "its rows are in the store"


def test_retired_files_stay_while_the_one_that_replaced_them_is_missing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        for index in range(2):
            writer.append(Batch([client_turn(index)]))
        assert Compactor(writer, limits=MergeLimits(fan_in=2)).run_once()
        (merged,) = writer.manifest.segments
    manifests.segment_path(tmp_path, merged).unlink()
    for _ in range(2):
        with StoreWriter(tmp_path) as writer:
            assert len(writer.faults().damaged) == 1
            assert len(_present(tmp_path)) == 2
    assert repair(tmp_path).lost_rows == 0
    with StoreReader(tmp_path) as reader:
        assert len(reader.turns()) == 2
