"""Compaction that fails, is killed or meets a full disk: no row is lost or doubled, no file left, and it goes on."""

import errno
import io
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from telemetry.model.errors import StoreError
from telemetry.store import compaction
from telemetry.store import manifest as manifests
from telemetry.store.compaction import RETRY_S, Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import START_UNIX_NS, client_turn, generator_points
from tests.integration.waiting import wait_until

FAN_IN = 4


class _Killed(BaseException):
    """The process ends here."""


class _Fault:
    """Fails the n-th call that changes the disk, with an error of choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.at: int | None = None
        self.error: BaseException = _Killed()
        for owner, name in ((os, "fsync"), (os, "open"), (os, "link"), (Path, "replace"), (Path, "unlink")):
            monkeypatch.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                raise self.error
            return original(*arguments, **options)

        return call

    def arm(self, at: int | None, error: BaseException) -> None:
        self.calls, self.at, self.error = 0, at, error


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> _Fault:
    return _Fault(monkeypatch)


def _compactor(writer: StoreWriter, **options: Any) -> Compactor:
    return Compactor(writer, limits=MergeLimits(fan_in=FAN_IN), **options)


def _fill(writer: StoreWriter, count: int = FAN_IN) -> None:
    for index in range(count):
        writer.append(Batch(turns=[client_turn(index)]))


def _sequences(directory: Path) -> list[int]:
    with StoreReader(directory) as reader:
        assert reader.faults == ()
        return sorted(turn.sequence for turn in reader.turns(limit=10_000))


def _files(directory: Path) -> set[str]:
    return {path.name for path in (directory / manifests.SEGMENTS_FOLDER).iterdir()}


def _merge_and_stop(compactor: Compactor) -> None:
    compactor.run_once()
    compactor.stop()


def _steps(directory: Path, fault: _Fault) -> int:
    with StoreWriter(directory) as writer:
        _fill(writer)
        fault.arm(None, _Killed())
        compactor = _compactor(writer, grace_s=0.0)
        assert compactor.run_once()
        compactor.stop()
        return fault.calls


@pytest.mark.slow
def test_killed_at_any_step(tmp_path: Path, fault: _Fault) -> None:
    steps = _steps(tmp_path / "count", fault)
    assert steps >= 8
    for step in range(1, steps + 1):
        directory = tmp_path / f"step-{step}"
        writer = StoreWriter(directory)
        _fill(writer)
        fault.arm(step, _Killed())
        compactor = _compactor(writer, grace_s=0.0)
        with pytest.raises(_Killed):
            _merge_and_stop(compactor)
        fault.arm(None, _Killed())
        writer.close()  # as the kernel does for a killed process
        assert _sequences(directory) == list(range(FAN_IN)), step
        with StoreWriter(directory) as writer:
            assert _files(directory) == manifests.load(directory).files, step
            compactor = _compactor(writer, grace_s=0.0)
            while compactor.run_once():
                pass
            compactor.stop()
            assert [segment.rows for segment in writer.manifest.segments] == [FAN_IN], step
            assert writer.append(Batch(turns=[client_turn(0)])).duplicates == 1
        assert _sequences(directory) == list(range(FAN_IN)), step


@pytest.mark.slow
def test_a_full_disk_at_any_step_leaves_no_file_and_is_stated(tmp_path: Path, fault: _Fault) -> None:
    steps = _steps(tmp_path / "count", fault)
    now = [0.0]
    failed = 0
    for step in range(1, steps + 1):
        directory = tmp_path / f"step-{step}"
        with StoreWriter(directory) as writer:
            _fill(writer)
            compactor = _compactor(writer, grace_s=0.0, clock_s=lambda: now[0])
            fault.arm(step, OSError(errno.ENOSPC, "No space left on device"))
            sentence = None
            try:
                _merge_and_stop(compactor)
            except StoreError as error:
                sentence = str(error)
                failed += 1
            assert sentence is None or "4 segments of turns could not be merged (No space left on device)" in sentence
            assert compactor.health.last_failure == sentence
            fault.arm(None, _Killed())
            assert _sequences(directory) == list(range(FAN_IN)), step
            now[0] += RETRY_S
            compactor.run_once()
            compactor.stop()
            assert _files(directory) == writer.manifest.files, step
            assert [segment.rows for segment in writer.manifest.segments] == [FAN_IN], step
    assert failed > 4


def test_a_disk_that_fills_while_the_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from telemetry.store import segment_stream

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 1_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    with StoreWriter(tmp_path) as writer:
        _fill(writer)
        before = _files(tmp_path)
        monkeypatch.setattr(segment_stream, "open_private", lambda path, _flags: (path.touch(), Full())[1])
        compactor = _compactor(writer)
        with pytest.raises(StoreError, match="No space left on device"):
            compactor.run_once()
        assert _files(tmp_path) == before


def test_a_merge_begins_only_where_the_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter(tmp_path) as writer:
        _fill(writer)
        size = sum(segment.size_bytes for segment in writer.manifest.segments)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**9, 10**9, 2 * size - 1))
        with pytest.raises(StoreError, match="the disk has no room"):
            _compactor(writer).run_once()
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**9, 10**9, 2 * size))
        assert _compactor(writer).run_once()


def test_segments_whose_merge_fails_rest_while_others_are_merged(tmp_path: Path) -> None:
    now = [0.0]
    broken = [True]

    def roll_up(_path: Path, segment: manifests.Segment) -> None:
        if broken[0] and segment.table == "turns":
            raise ValueError("no roll-up of this")

    with StoreWriter(tmp_path) as writer:
        for index in range(FAN_IN):
            writer.append(Batch(turns=[client_turn(index)], points=generator_points(f"run-{index}", 1)))
        compactor = _compactor(writer, grace_s=0.0, clock_s=lambda: now[0], roll_up=roll_up)
        with pytest.raises(StoreError, match=r"4 segments of turns could not be merged \(no roll-up of this\)"):
            compactor.run_once()
        assert compactor.health.backlog == 2 * FAN_IN
        assert compactor.run_once(), "the points"
        assert not compactor.run_once()
        assert {(each.table, each.level) for each in writer.manifest.segments} == {("turns", 0), ("points", 1)}
        broken[0] = False
        now[0] = RETRY_S + 1
        assert compactor.run_once()
        assert (compactor.health.backlog, compactor.health.last_failure, compactor.health.merges) == (0, None, 2)
        compactor.stop()
        assert _files(tmp_path) == writer.manifest.files


def test_a_roll_up_belongs_to_the_merged_segment_and_goes_with_it(tmp_path: Path) -> None:
    def roll_up(path: Path, segment: manifests.Segment) -> str:
        assert pq.read_metadata(path).num_rows == segment.rows
        name = f"rollup-{segment.file.split('-')[1]}.parquet"
        (path.parent / name).write_bytes(b"sums")
        return name

    with StoreWriter(tmp_path) as writer:
        compactor = _compactor(writer, grace_s=0.0, roll_up=roll_up)
        _fill(writer, FAN_IN * FAN_IN)
        while compactor.run_once():
            pass
        compactor.stop()
        (only,) = writer.manifest.segments
        assert only.rollup is not None
        assert _files(tmp_path) == {only.file, only.rollup}


@pytest.mark.parametrize("error", [ValueError("a fault"), MemoryError(), KeyError("x")], ids=repr)
def test_the_thread_goes_on_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(compaction, "_EVERY_S", 0.01)
    monkeypatch.setattr(compaction, "RETRY_S", 0.01)
    failing = threading.Event()

    def fail(*_arguments: object) -> None:
        if not failing.is_set():
            raise error

    with StoreWriter(tmp_path) as writer:
        compactor = _compactor(writer, roll_up=fail, unix_ns=lambda: START_UNIX_NS)
        assert not compactor.health.running
        _fill(writer)
        compactor.start()
        assert "could not be merged" in wait_until(lambda: compactor.health.last_failure)
        assert compactor.health.running
        failing.set()
        wait_until(lambda: compactor.health.merges == 1)
        health = compactor.health
        assert (health.running, health.last_failure, health.backlog) == (True, None, 0)
        assert health.last_merge_unix_ns == START_UNIX_NS
        compactor.stop()
        assert not compactor.health.running


def test_even_planning_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_EVERY_S", 0.01)
    planned = compaction.plan
    monkeypatch.setattr(compaction, "plan", lambda *_arguments: 1 / 0)
    with StoreWriter(tmp_path) as writer:
        _fill(writer)
        compactor = _compactor(writer)
        compactor.start()
        assert wait_until(lambda: compactor.health.last_failure) == "division by zero"
        monkeypatch.setattr(compaction, "plan", planned)
        wait_until(lambda: compactor.health.merges == 1)
        compactor.stop()


def test_a_damaged_segment_is_stated(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        _fill(writer)
        victim = manifests.segment_path(tmp_path, writer.manifest.segments[1])
        victim.write_bytes(victim.read_bytes()[:-9])
        compactor = _compactor(writer)
        assert compactor.run_once()
        assert compactor.health.damaged == (victim.name,)
        assert not compactor.run_once()


def test_too_many_open_files_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    with StoreWriter(tmp_path) as writer:
        _fill(writer)
        compactor = _compactor(writer, grace_s=0.0, clock_s=lambda: now[0])
        opened = Path.open

        def too_many(path: Path, *arguments: Any, **options: Any) -> Any:
            if path.suffix == ".parquet":
                raise OSError(errno.EMFILE, "Too many open files")
            return opened(path, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", too_many)
            with pytest.raises(StoreError, match="Too many open files"):
                compactor.run_once()
        assert compactor.health.damaged == ()
        now[0] = RETRY_S
        assert compactor.run_once()
