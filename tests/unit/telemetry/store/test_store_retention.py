"""Retention: whole segments, the oldest first, never the newest; stated, durable, and nobody has to wait for it."""

import errno
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.errors import StoreError
from telemetry.store import compaction
from telemetry.store import manifest as manifests
from telemetry.store.answers import Filter
from telemetry.store.check import check
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.manifest import TABLES, Removed, Segment, StoreManifest, Table
from telemetry.store.reader import StoreReader
from telemetry.store.repair import repair
from telemetry.store.retention import Keep, to_remove
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn, generator_points
from tests.integration.waiting import wait_until

HOUR = 3_600 * SECOND


class _Clock:
    """A wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.unix_ns = START_UNIX_NS

    def __call__(self) -> int:
        return self.unix_ns


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def _hourly(writer: StoreWriter, clock: _Clock, count: int) -> None:
    """A turn each hour, stored as it begins."""
    for index in range(count):
        clock.unix_ns = START_UNIX_NS + index * HOUR
        writer.append(Batch(turns=[client_turn(index, started_unix_ns=clock.unix_ns)]))


def _sequences(directory: Path) -> list[int]:
    with StoreReader(directory) as reader:
        assert reader.faults == ()
        return sorted(turn.sequence for turn in reader.turns(limit=10_000))


def _files(directory: Path) -> set[str]:
    return {path.name for path in (directory / manifests.SEGMENTS_FOLDER).iterdir()}


def test_what_was_stored_too_long_ago_goes(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 10)
        compactor = Compactor(writer, keep=Keep(age_ns=3 * HOUR), grace_s=0.0, unix_ns=clock)
        assert compactor.remove_old() == 6
        assert compactor.remove_old() == 0
        assert _sequences(tmp_path) == [6, 7, 8, 9]
        assert writer.manifest.removed == {
            "turns": Removed(segments=6, rows=6, until_unix_ns=START_UNIX_NS + 5 * HOUR, run_ids=("run-1",)),
        }
        clock.unix_ns += 1_000 * HOUR
        assert compactor.remove_old() == 3
        assert _sequences(tmp_path) == [9], "the newest stays, however old"
        compactor.stop()
        assert _files(tmp_path) == writer.manifest.files
    assert check(tmp_path).faults == ()
    assert check(tmp_path).removed["turns"].rows == 9


def test_what_is_too_much_goes_the_oldest_first_across_tables(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        for index in range(6):
            clock.unix_ns = START_UNIX_NS + index * HOUR
            if index % 2:
                writer.append(Batch(points=generator_points(f"run-{index}", 1)))
            else:
                writer.append(Batch(turns=[client_turn(index)]))
        segments = writer.manifest.segments
        kept_bytes = sum(segment.size_bytes for segment in segments[3:])
        compactor = Compactor(writer, keep=Keep(size_bytes=kept_bytes), grace_s=0.0, unix_ns=clock)
        assert compactor.remove_old() == 3
        assert writer.manifest.segments == segments[3:]
        assert Compactor(writer, keep=Keep(size_bytes=0), unix_ns=clock).remove_old() == 1
        assert writer.manifest.segments == segments[4:], "the newest of each table"


def test_roll_ups_count_as_what_is_kept(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        for first in range(0, 40, 10):
            writer.append(Batch(turns=[client_turn(index) for index in range(first, first + 10)]))
        maker = RollUpMaker(fewest_rows=2, most_of_segment=99.0)
        for segment in writer.manifest.segments:
            rollup = maker(manifests.segment_path(tmp_path, segment), segment)
            writer.name_rollup(segment, rollup or "")
        on_disk = [path.stat().st_size for path in (tmp_path / manifests.SEGMENTS_FOLDER).iterdir()]
        segments = writer.manifest.segments
        assert sum(segment.kept_bytes for segment in segments) == sum(on_disk)
        assert sum(segment.size_bytes for segment in segments) < sum(on_disk)
        kept_bytes = sum(segment.kept_bytes for segment in segments[1:])
        compactor = Compactor(writer, keep=Keep(size_bytes=kept_bytes), grace_s=0.0, unix_ns=clock)
        assert compactor.remove_old() == 1
        assert writer.manifest.segments == segments[1:]
        compactor.stop()
        assert _files(tmp_path) == writer.manifest.files
        assert sum(path.stat().st_size for path in (tmp_path / manifests.SEGMENTS_FOLDER).iterdir()) == kept_bytes


def test_without_a_limit_everything_stays(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 3)
        clock.unix_ns += 10**6 * HOUR
        assert Compactor(writer, unix_ns=clock).remove_old() == 0


def test_a_sender_s_clock_neither_keeps_nor_removes_anything(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        for index, moment in enumerate((2**62 - 1, 0, START_UNIX_NS, 5)):
            clock.unix_ns = START_UNIX_NS + index * HOUR
            writer.append(Batch(turns=[client_turn(index, started_unix_ns=moment)]))
        compactor = Compactor(writer, keep=Keep(age_ns=HOUR), grace_s=0.0, unix_ns=clock)
        assert compactor.remove_old() == 2
        assert _sequences(tmp_path) == [2, 3]
        assert writer.manifest.removed["turns"].until_unix_ns == START_UNIX_NS, "no later than it was stored"


def test_readers_keep_what_they_read_for_a_while(tmp_path: Path, clock: _Clock) -> None:
    now = [0.0]
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 4)
        files = _files(tmp_path)
        compactor = Compactor(writer, keep=Keep(age_ns=HOUR), grace_s=10.0, clock_s=lambda: now[0], unix_ns=clock)
        assert compactor.remove_old() == 2
        assert _sequences(tmp_path) == [2, 3]
        assert _files(tmp_path) == files
        now[0] = 10.0
        compactor.remove_old()
        assert _files(tmp_path) == writer.manifest.files


@pytest.mark.slow
def test_merged_segments_stay_small_enough_to_go_in_parts(tmp_path: Path, clock: _Clock) -> None:
    keep = Keep(age_ns=16 * HOUR)
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        compactor = Compactor(writer, keep=keep, limits=MergeLimits(fan_in=4), grace_s=0.0, unix_ns=clock)
        for index in range(40):
            clock.unix_ns = START_UNIX_NS + index * HOUR
            writer.append(Batch(turns=[client_turn(index, started_unix_ns=clock.unix_ns)]))
            compactor.remove_old()
            while compactor.run_once():
                pass
            kept = _sequences(tmp_path)
            assert kept == list(range(kept[0], index + 1))
            # 16 hours, and what shares a segment with them: two hours each time it was merged.
            assert min(index + 1, 17) <= len(kept) <= 17 + 2 * 3
        assert len(writer.manifest.segments) <= 16
        compactor.stop()


def test_killed_before_the_files_are_deleted(tmp_path: Path, clock: _Clock) -> None:
    writer = StoreWriter(tmp_path, unix_ns=clock)
    _hourly(writer, clock, 4)
    files = _files(tmp_path)
    Compactor(writer, keep=Keep(age_ns=HOUR), unix_ns=clock).remove_old()
    writer.close()  # as the kernel does for a killed process, within the readers' grace
    assert _files(tmp_path) == files
    assert (check(tmp_path).faults, check(tmp_path).unnamed) == ((), 0)
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        assert _files(tmp_path) == writer.manifest.files
        assert not (tmp_path / manifests.QUARANTINE_FOLDER).exists(), "the manifest said that they may go"
        writer.append(Batch(turns=[client_turn(9)]))
        assert writer.manifest.retired == ()


def test_a_run_that_lost_some_of_its_turns_is_named(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        for index, run_id in enumerate(["first", "second", "second", "third"]):
            clock.unix_ns = START_UNIX_NS + index * HOUR
            writer.append(Batch(turns=[client_turn(index, run_id=run_id)]))
        compactor = Compactor(writer, keep=Keep(age_ns=HOUR), grace_s=0.0, unix_ns=clock)
        assert compactor.remove_old() == 2
        assert writer.manifest.removed["turns"].run_ids == ("second",)
        assert check(tmp_path).removed["turns"].run_ids == ("second",)
        with StoreReader(tmp_path) as reader:
            assert {run.run_id: run.lacks_old_turns for run in reader.runs()} == {"second": True, "third": False}
            asked = [Filter(run_id="second"), Filter(run_id="third"), Filter()]
            assert [reader.summary(f).lacks_old_turns for f in asked] == [True, False, True]
        clock.unix_ns += HOUR
        assert compactor.remove_old() == 1
        assert writer.manifest.removed["turns"].run_ids == (), "nothing is left of it"
        with StoreReader(tmp_path) as reader:
            assert not reader.summary(Filter()).lacks_old_turns


def test_a_repair_does_not_bring_back_what_was_removed(tmp_path: Path, clock: _Clock) -> None:
    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 4)
        Compactor(writer, keep=Keep(age_ns=HOUR), unix_ns=clock).remove_old()
        victim = manifests.segment_path(tmp_path, writer.manifest.segments[0])
    victim.write_bytes(b"PAR1")
    assert repair(tmp_path).rows == {"turns": 1, "spans": 0, "points": 0}
    assert check(tmp_path).removed["turns"].rows == 2
    assert _sequences(tmp_path) == [3]


@pytest.mark.parametrize("owner", ["publish", "fsync_directory"])
def test_a_manifest_that_cannot_be_written(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    from telemetry.store import writer as writing

    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        _hourly(writer, clock, 4)
        compactor = Compactor(writer, keep=Keep(age_ns=HOUR), grace_s=0.0, unix_ns=clock)

        def full(*_arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(manifests if owner == "publish" else writing, owner, full)
            with pytest.raises(StoreError, match=r"old rows could not be removed \(No space left on device\)"):
                compactor.remove_old()
            assert "old rows could not be removed" in str(compactor.health.last_failure)
            compactor.stop()
            assert len(_files(tmp_path)) == 4, "nothing is deleted before the manifest without it is durable"
        compactor.remove_old()
        compactor.stop()
        assert compactor.health.last_failure is None
        assert _files(tmp_path) == writer.manifest.files
        assert _sequences(tmp_path) == [2, 3]
        assert writer.manifest.removed["turns"].rows == 2


@pytest.mark.slow
def test_neither_side_waits_while_rows_come_are_merged_and_go(
    tmp_path: Path, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_EVERY_S", 0.001)
    total, keep = 40, Keep(age_ns=12 * HOUR)
    done = threading.Event()
    faults: list[str] = []
    looks = [0]

    def read() -> None:
        with StoreReader(tmp_path) as reader:
            while not done.is_set():
                seen = [turn.sequence for turn in reader.turns(limit=10_000)]
                if seen != list(range(seen[0], seen[0] + len(seen))) if seen else False:
                    faults.append(f"a gap or a double in {seen}")
                faults.extend(reader.faults)
                looks[0] += 1

    with StoreWriter(tmp_path, unix_ns=clock) as writer:
        compactor = Compactor(writer, keep=keep, limits=MergeLimits(fan_in=4), grace_s=0.0, unix_ns=clock)
        writer.append(Batch(turns=[client_turn(0, started_unix_ns=clock.unix_ns)]))
        compactor.start()
        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for index in range(1, total):
            clock.unix_ns = START_UNIX_NS + index * HOUR
            assert writer.append(Batch(turns=[client_turn(index, started_unix_ns=clock.unix_ns)])).duplicates == 0
        wait_until(lambda: looks[0] > 4 and compactor.health.merges and writer.manifest.removed)
        done.set()
        for reader in readers:
            reader.join()
        compactor.stop()
        assert compactor.health.last_failure is None
        kept = _sequences(tmp_path)
        assert kept == list(range(kept[0], total))
        assert kept[0] == writer.manifest.removed["turns"].rows
    assert faults == []


def _segment(number: int, table: Table, stored: int, size_bytes: int) -> Segment:
    return Segment(
        table=table,
        file=f"{table}-{number:09d}.parquet",
        rows=1,
        size_bytes=size_bytes,
        crc32=0,
        raw_bytes=1,
        stored_unix_ns=stored,
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(TABLES), st.integers(0, 50), st.integers(0, 100)), max_size=30),
    st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 2_000)),
)
def test_what_stays_is_young_and_little_except_the_newest(
    given_segments: list[tuple[Table, int, int]], age_ns: int | None, size_bytes: int | None
) -> None:
    segments = tuple(_segment(number, *each) for number, each in enumerate(given_segments))
    gone = to_remove(StoreManifest(segments=segments), Keep(age_ns=age_ns, size_bytes=size_bytes), 50)
    stay = [segment for segment in segments if segment not in gone]
    assert len(set(gone)) == len(gone)
    spared: list[Segment] = []
    for table in TABLES:
        mine = [segment for segment in segments if segment.table == table]
        latest = max((segment.stored_unix_ns for segment in mine), default=0)
        newest = [segment for segment in stay if segment.table == table and segment.stored_unix_ns == latest]
        assert bool(newest) == bool(mine)
        spared += newest[-1:]
    others = [segment for segment in stay if segment not in spared]
    if age_ns is not None:
        assert all(segment.stored_unix_ns >= 50 - age_ns for segment in others)
    if size_bytes is not None and others:
        assert sum(segment.size_bytes for segment in stay) <= size_bytes
    if age_ns is None and size_bytes is None:
        assert gone == ()
