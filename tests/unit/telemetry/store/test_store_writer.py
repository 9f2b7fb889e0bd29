"""Appended rows are durable, whole and stored once, however a batch is sent again."""

import itertools
import os
import shutil
import subprocess
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.errors import StoreError
from telemetry.store import identity
from telemetry.store import writer as writer_module
from telemetry.store.check import check
from telemetry.store.database import LOG_NAME, owned, read_only
from telemetry.store.retention import Keep, Retention
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn, synthetic_run
from tests.nightly import examples

HOUR = 3_600 * SECOND
DISK_BYTES = 24 << 20
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def _ids(directory: Path, table: str = "turns") -> list[str]:
    with read_only(directory) as database, database.snapshot() as cursor:
        return sorted(span_id for (span_id,) in cursor.execute(f"SELECT span_id FROM {table}").fetchall())  # noqa: S608


def test_a_batch_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = synthetic_run("run", 20)
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([client_turn(9_999)]))
        insert = StoreWriter._insert

        def fail_at_points(self: StoreWriter, table: Any, content: Any, *moments: Any) -> None:
            insert(self, table, content, *moments)
            if table == "points" and content.num_rows:
                raise duckdb.IOException("IO Error: could not write: No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(StoreWriter, "_insert", fail_at_points)
            with pytest.raises(StoreError, match=r"nothing of this batch could be stored \(the disk is full\)"):
                writer.append(run.batch)
        assert writer.why_unwritable() == "the disk is full"
        commits = writer.commits
        assert writer.append(run.batch).duplicates == 0, "nothing of it was there"
        assert (writer.commits, writer.why_unwritable()) == (commits + 1, None)
    assert len(_ids(tmp_path)) == 1 + len(run.turns)


@pytest.mark.slow
def test_full_disk_stores_no_partial_batch_and_later_recovers(small_disk: Path) -> None:
    store, filling = small_disk / "store", small_disk / "filling"
    run = synthetic_run("run", 300)
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(10_000)]))
        room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filling.write_bytes(bytes(room - (64 << 10)))
        for _ in range(2):
            with pytest.raises(StoreError, match="the disk is full"):
                writer.append(run.batch)
        assert writer.why_unwritable() == "the disk is full"
        filling.unlink()
        assert writer.append(run.batch).duplicates == 0
        assert writer.why_unwritable() is None
    assert check(store).faults == ()
    assert check(store).rows["turns"] == 1 + len(run.turns)


@pytest.mark.slow
def test_store_opened_again_on_a_full_disk_can_be_read(small_disk: Path) -> None:
    store = small_disk / "store"
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(1)]))
        room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        (small_disk / "filling").write_bytes(bytes(room - (64 << 10)))
        for _ in range(2):
            with pytest.raises(StoreError, match="the disk is full"):
                writer.append(synthetic_run("run", 300).batch)
            writer.reopen()
            with writer.database.snapshot() as cursor:
                assert cursor.execute("SELECT count(*) FROM turns").fetchall() == [(1,)]


@pytest.mark.slow
def test_full_disk_at_checkpoint_loses_no_acknowledged_rows(small_disk: Path) -> None:
    store, filling = small_disk / "store", small_disk / "filling"
    batches = [synthetic_run(f"run-{number}", 100).batch for number in range(16)]
    acknowledged: list[Batch] = []
    with StoreWriter(store, database=owned(store, checkpoint_bytes=1 << 20)) as writer:
        filling.write_bytes(bytes(21 << 20))

        def fill() -> None:
            for batch in batches:
                writer.append(batch)
                acknowledged.append(batch)

        with pytest.raises(StoreError), writer.database.snapshot():  # who reads meanwhile is in nobody's way
            fill()
        filling.unlink()
        with pytest.raises(StoreError):  # DuckDB has given the file up
            writer.append(batches[-1])
        assert writer.why_unwritable() is not None
        writer.reopen()
        again = [writer.append(batch) for batch in batches]
        assert writer.why_unwritable() is None
        assert all(entry.rows == 0 for entry in again[: len(acknowledged)])
    rows = [turn.span_id for batch in batches for turn in batch.turns]
    assert _ids(store) == sorted(rows)


def test_a_long_log_goes_into_the_file_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_BYTES", 100_000)
    with StoreWriter(tmp_path, database=owned(tmp_path, checkpoint_bytes=1 << 40)) as writer:
        writer.append(synthetic_run("run", 150).batch)
        log = tmp_path / LOG_NAME
        assert log.stat().st_size > 100_000
        with monkeypatch.context() as full:
            full.setattr(shutil, "disk_usage", lambda _path: Usage(1, 1, 0))
            writer.checkpoint_when_due()
        assert log.stat().st_size > 100_000
        writer.checkpoint_when_due()
        assert not log.exists() or log.stat().st_size < 100_000


def test_a_read_only_disk_is_named_until_it_is_writable(small_disk: Path) -> None:
    store = small_disk / "store"
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(0)]))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    try:
        with pytest.raises(StoreError, match="Read-only file system"):
            StoreWriter(store)
        assert len(_ids(store)) == 1
        assert check(store).faults == ()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with StoreWriter(store) as writer:
        writer.append(Batch([client_turn(1)]))
    assert len(_ids(store)) == 2


@pytest.mark.slow
def test_resent_rows_are_stored_once_after_restart_and_an_hour(tmp_path: Path) -> None:
    run = synthetic_run("run", 30)
    with StoreWriter(tmp_path) as writer:
        writer.append(run.batch)
        for index in range(6):
            at = START_UNIX_NS + index * 12 * 60 * SECOND
            writer.append(Batch([client_turn(20_000 + index, started_unix_ns=at)]))
        again = writer.append(run.batch)
        assert (again.rows, again.duplicates) == (0, run.batch.rows)
    with StoreWriter(tmp_path) as writer:
        again = writer.append(run.batch)
        assert (again.rows, again.duplicates) == (0, run.batch.rows)
    assert check(tmp_path).rows == {"turns": len(run.turns) + 6, "spans": len(run.spans), "points": len(run.points)}


@pytest.mark.slow
@settings(max_examples=examples(6, 15), deadline=None)
@given(cuts=st.lists(st.integers(0, 40), max_size=4), doubled=st.booleans())
def test_rows_that_come_again_in_other_batches_are_stored_once(
    cuts: list[int], doubled: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("store")
    run = synthetic_run("run", 20)
    with StoreWriter(directory) as writer:
        writer.append(Batch(run.turns[:15], run.spans[:15], run.points[:3]))
        bounds = [0, *sorted(cuts), len(run.turns)]
        for begin, end in itertools.pairwise(bounds):
            part = run.turns[begin:end]
            writer.append(Batch(part * 2 if doubled else part, run.spans, run.points))
        writer.append(Batch((), run.spans * 2, run.points))
    result = check(directory)
    assert result.rows == {"turns": len(run.turns), "spans": len(run.spans), "points": len(run.points)}
    assert result.faults == ()


def test_a_turn_without_ids_is_known_by_its_place_in_the_call(tmp_path: Path) -> None:
    bare = [client_turn(0, trace_id="", span_id=""), client_turn(0, trace_id="", span_id="", turn_index=1)]
    with StoreWriter(tmp_path) as writer:
        assert writer.append(Batch(bare)).duplicates == 0
        assert writer.append(Batch(bare)).duplicates == 2


def test_resent_rows_removed_by_retention_are_not_doubled(tmp_path: Path) -> None:
    now = [START_UNIX_NS]
    with StoreWriter(tmp_path, unix_ns=lambda: now[0]) as writer:
        writer.append(Batch([client_turn(0), client_turn(1)]))
        now[0] += 2 * HOUR
        writer.append(Batch([client_turn(2)]))
        retention = Retention(writer, Keep(age_ns=HOUR), unix_ns=lambda: now[0])
        assert retention.remove_some() == 2
        writer.append(Batch([client_turn(0), client_turn(2)]))
    assert len(_ids(tmp_path)) == len(set(_ids(tmp_path))) == 2


def test_a_changed_turn_takes_the_place_of_what_was_stored(tmp_path: Path) -> None:
    turns = [client_turn(index) for index in range(3)]
    changed = msgspec.structs.replace(turns[1], route="cache")
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(turns))
        replaced = writer.replace_turns([(turns[1], changed), (client_turn(77), client_turn(77))])
        assert [turn.route for turn in replaced] == ["cache"], "what is not stored any more is left out"
        added = writer.replace_turns([(None, turns[0]), (None, client_turn(5)), (turns[2], None)])
        assert [turn.span_id for turn in added] == [client_turn(5).span_id], "what is stored is not doubled"
    with read_only(tmp_path) as database, database.snapshot() as cursor:
        rows = cursor.execute("SELECT span_id, route FROM turns ORDER BY span_id").fetchall()
    expected = {turns[0].span_id: None, turns[1].span_id: "cache", client_turn(5).span_id: None}
    assert rows == sorted(expected.items())


def test_text_is_not_stored_unless_it_is_asked_for(tmp_path: Path) -> None:
    spoken = client_turn(0, transcript_pii="my name is Ada")
    for keep_text, expected in ((False, None), (True, "my name is Ada")):
        with StoreWriter(tmp_path / str(keep_text), keep_text=keep_text) as writer:
            writer.append(Batch([spoken]))
        with read_only(tmp_path / str(keep_text)) as database, database.snapshot() as cursor:
            assert cursor.execute("SELECT transcript_pii FROM turns").fetchall() == [(expected,)]


def test_rows_say_when_and_with_which_commit_they_were_stored(tmp_path: Path) -> None:
    now = [START_UNIX_NS]
    with StoreWriter(tmp_path, unix_ns=lambda: now[0]) as writer:
        for index in range(3):
            now[0] += SECOND
            # A sender's clock says nothing about it.
            writer.append(Batch([client_turn(index, started_unix_ns=START_UNIX_NS - index * HOUR)]))
        # A turn of which more is known later is as old as it was, so that its run does not become the newest.
        now[0] += HOUR
        before = client_turn(2, started_unix_ns=START_UNIX_NS - 2 * HOUR)
        writer.replace_turns([(before, msgspec.structs.replace(before, route="cache"))])
    with read_only(tmp_path) as database, database.snapshot() as cursor:
        rows = cursor.execute("SELECT stored_unix_ns, commit_number FROM turns ORDER BY commit_number").fetchall()
    assert rows == [(START_UNIX_NS + n * SECOND, commit) for n, commit in ((1, 1), (2, 2), (3, 4))]


@pytest.mark.slow
@pytest.mark.parametrize("recent_max", [0, 7, 10**6])
def test_row_is_stored_once_by_remembered_or_queried_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recent_max: int
) -> None:
    monkeypatch.setattr(identity, "RECENT_MAX", recent_max)
    # In an order of its own, over half an hour, so that rows come before and behind those that are remembered.
    turns = [client_turn(index, started_unix_ns=START_UNIX_NS + index * 7 % 30 * 60 * SECOND) for index in range(30)]
    with StoreWriter(tmp_path) as writer:
        for begin in range(0, 30, 5):
            writer.append(Batch(turns[begin : begin + 5]))
            again = writer.append(Batch([*turns[: begin + 5]]))
            assert (again.rows, again.duplicates) == (0, begin + 5)
        moved = msgspec.structs.replace(turns[3], started_unix_ns=START_UNIX_NS + 3 * HOUR)
        writer.replace_turns([(turns[3], moved)])
        assert writer.append(Batch([moved])).rows == 0
    with StoreWriter(tmp_path) as writer:
        assert writer.append(Batch([*turns[4:], moved, client_turn(99)])).turn_places == [27]
    assert len(_ids(tmp_path)) == 31
