"""Large segments get the roll-ups that they lack without a merge; what fails is tried again and leaves no file."""

import errno
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store import missing_rollups
from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.manifest import Segment, load
from telemetry.store.missing_rollups import RETRY_S
from telemetry.store.reader import StoreReader
from telemetry.store.rollups import files
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn
from tests.integration.waiting import wait_until

TURNS = 12
OF_ALL = RollUpMaker(fewest_rows=2, most_of_segment=99.0)


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(missing_rollups.FEWEST_ROWS, "turns", TURNS // 2)


def _filled(writer: StoreWriter) -> None:
    """Two segments that are large here, and one that is not."""
    for first, last in ((0, TURNS), (TURNS, 2 * TURNS), (2 * TURNS, 2 * TURNS + 2)):
        writer.append(Batch(turns=[client_turn(index) for index in range(first, last)]))


def _files(directory: Path) -> set[str]:
    return {path.name for path in (directory / manifests.SEGMENTS_FOLDER).iterdir()}


@pytest.mark.slow
def test_each_large_segment_gets_its_roll_up_without_a_merge(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        before = writer.manifest
        compactor = Compactor(writer, roll_up=OF_ALL)
        assert not compactor.run_once(), "nothing is to be merged"
        assert compactor.roll_up_once()
        assert [each.rollup is not None for each in writer.manifest.segments] == [False, True, False]
        assert compactor.roll_up_once()
        assert not compactor.roll_up_once()
        assert [each.rollup is not None for each in writer.manifest.segments] == [True, True, False]
        assert [each.file for each in writer.manifest.segments] == [each.file for each in before.segments]
        assert (load(tmp_path).retired, writer.manifest.sequence) == ((), before.sequence + 2)
        compactor.stop()
        assert _files(tmp_path) == writer.manifest.files
        writer.append(Batch(turns=[client_turn(1)]))
    with StoreReader(tmp_path) as exact, StoreReader(tmp_path, fewest_rolled_up=-1) as rolled:
        assert exact.summary(Filter()).turns == rolled.summary(Filter()).turns
        assert exact.summary(Filter()).turns.total == 2 * TURNS + 2


def test_the_thread_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.store.compaction._EVERY_S", 0.01)
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        compactor = Compactor(writer, roll_up=OF_ALL)
        compactor.start()
        wait_until(lambda: sum(each.rollup is not None for each in writer.manifest.segments) == 2)
        compactor.stop()


def test_a_damaged_segment_gets_none_and_is_stated(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        damaged, intact, _ = writer.manifest.segments
        path = manifests.segment_path(tmp_path, damaged)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        compactor = Compactor(writer, roll_up=OF_ALL)
        while compactor.roll_up_once():
            pass
        assert compactor.health.damaged == (damaged.file,)
        assert [each.file for each in writer.manifest.segments if each.rollup] == [intact.file]


def test_what_is_not_worth_a_file_is_not_made_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def roll_up(_path: Path, segment: Segment) -> None:
        asked.append(segment.file)

    now = [0.0]
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        compactor = Compactor(writer, roll_up=roll_up, clock_s=lambda: now[0])
        while compactor.roll_up_once():
            pass
        now[0] = 10 * RETRY_S
        assert not compactor.roll_up_once()
        assert asked == [each.file for each in reversed(writer.manifest.segments[:2])]


def test_a_manifest_that_cannot_be_written_leaves_no_file_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        before = _files(tmp_path)
        compactor = Compactor(writer, roll_up=OF_ALL, clock_s=lambda: now[0])

        def full(*_arguments: object, **_options: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(manifests, "publish", full)
            for _ in range(2):
                with pytest.raises(StoreError, match=r"could not be rolled up \(No space left on device\)"):
                    compactor.roll_up_once()
            assert not compactor.roll_up_once(), "both rest"
        assert _files(tmp_path) == before
        assert "rolled up" in (compactor.health.last_failure or "")
        now[0] = RETRY_S
        assert compactor.roll_up_once()
        assert compactor.health.last_failure is None
        assert _files(tmp_path) == writer.manifest.files


def test_a_segment_that_was_removed_meanwhile_leaves_no_roll_up(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _filled(writer)

        def roll_up(path: Path, segment: Segment) -> str | None:
            name = OF_ALL(path, segment)
            writer.remove([segment])
            return name

        compactor = Compactor(writer, roll_up=roll_up)
        assert compactor.roll_up_once()
        assert not [name for name in _files(tmp_path) if name.startswith("rollup-")]
        assert len(writer.manifest.segments) == 2


def test_a_segment_of_just_so_many_rows_is_large(tmp_path: Path) -> None:
    fewest = missing_rollups.FEWEST_ROWS["turns"]
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch(turns=[client_turn(index) for index in range(fewest)]))
        writer.append(Batch(turns=[client_turn(index) for index in range(fewest, 2 * fewest - 1)]))
        compactor = Compactor(writer, roll_up=OF_ALL)
        assert compactor.roll_up_once()
        assert not compactor.roll_up_once()
        assert [each.rollup is not None for each in writer.manifest.segments] == [True, False]


def test_a_roll_up_of_a_segment_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        gone = writer.manifest.segments[0]
        rollup = OF_ALL(manifests.segment_path(tmp_path, gone), gone)
        assert rollup is not None
        writer.remove([gone])
        before = writer.manifest
        writer.name_rollup(gone, rollup)
        assert writer.manifest == before == load(tmp_path)


def _of_another_version(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose large segments have roll-ups of a version that is not ours."""
    with StoreWriter(directory) as writer, monkeypatch.context() as before:
        before.setattr(files, "VERSION", files.VERSION - 1)
        _filled(writer)
        compactor = Compactor(writer, roll_up=OF_ALL)
        while compactor.roll_up_once():
            pass
        compactor.stop()


@pytest.mark.slow
def test_roll_ups_of_another_version_are_made_anew_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _of_another_version(tmp_path, monkeypatch)
    old = [each.rollup for each in load(tmp_path).segments]
    with (
        StoreReader(tmp_path) as exact,
        StoreReader(tmp_path, fewest_rolled_up=-1) as rolled,
        StoreWriter(tmp_path) as writer,
    ):
        expected = exact.summary(Filter()).turns
        assert rolled.summary(Filter()).turns == expected
        assert rolled.summary(Filter()).turns_to_roll_up == 2 * TURNS
        now_s = [0.0]
        compactor = Compactor(writer, roll_up=OF_ALL, clock_s=lambda: now_s[0])
        assert compactor.roll_up_once()
        assert sum(each.rollup in old for each in writer.manifest.segments if each.rollup) == 1
        # Whoever still has the manifest of before finds its files for a while.
        assert old[1] in writer.manifest.retired
        assert old[1] in _files(tmp_path)
        writer.append(Batch(turns=[client_turn(100)]))
        assert rolled.summary(Filter()).turns_to_roll_up == TURNS
        assert rolled.summary(Filter()).turns.total == expected.total + 1
        assert compactor.roll_up_once()
        assert not compactor.roll_up_once()
        assert rolled.summary(Filter()).turns_to_roll_up == 0
        assert rolled.summary(Filter()).turns == exact.summary(Filter()).turns
        now_s[0] = 60.0
        compactor.run_once()
        assert not _files(tmp_path) & {each for each in old if each}
        compactor.stop()


def test_a_damaged_roll_up_is_made_anew(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _filled(writer)
        compactor = Compactor(writer, roll_up=OF_ALL)
        while compactor.roll_up_once():
            pass
        compactor.stop()
        named = next(each.rollup for each in writer.manifest.segments if each.rollup is not None)
        path = tmp_path / manifests.SEGMENTS_FOLDER / named
        sound = path.read_bytes()
        path.write_bytes(sound[:-30] + bytes(30))
        again = Compactor(writer, roll_up=OF_ALL)
        assert again.roll_up_once()
        assert path.read_bytes() == sound
        assert not again.roll_up_once()
        again.stop()
        assert path.exists()


def test_a_question_does_not_roll_up_many_turns_of_an_old_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _of_another_version(tmp_path, monkeypatch)
    monkeypatch.setattr("telemetry.store.rollups.library._MOST_ROWS_MADE", TURNS)
    with StoreReader(tmp_path, fewest_rolled_up=-1) as rolled:
        found = rolled.summary(Filter())
    assert found.turns.total == 2 * TURNS + 2
    assert not found.metrics["voice_to_voice"].approximate
