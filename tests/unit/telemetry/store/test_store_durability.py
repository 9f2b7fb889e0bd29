"""Nothing acknowledged is lost and nothing half-written is seen, whatever step the writer dies or fails at."""

import errno
import os
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.store import manifest as manifests
from telemetry.store.quarantine import quarantined
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, generator_points, stage_spans


class _Killed(BaseException):
    """The process ends here."""


class _Fault:
    """Fails the n-th call that changes the disk, with an error of choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.at: int | None = None
        self.error: BaseException = _Killed()
        for owner, name in ((os, "fsync"), (os, "link"), (Path, "replace")):
            monkeypatch.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, original):
        def call(*arguments):
            self.calls += 1
            if self.calls == self.at:
                raise self.error
            return original(*arguments)

        return call

    def arm(self, at: int, error: BaseException) -> None:
        self.calls, self.at, self.error = 0, at, error

    def disarm(self) -> None:
        self.at = None


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> _Fault:
    return _Fault(monkeypatch)


def _batch(index: int) -> Batch:
    turn = client_turn(index, voice_to_voice_ms=400 + index)
    points = generator_points(f"run-{index}", 1)
    return Batch([turn], stage_spans(turn) or [], points)


def _seen(directory: Path) -> tuple[int, int]:
    with StoreReader(directory) as reader:
        assert reader.faults == ()
        return reader.summary().turns.total, len([s for s in reader.runs() if s.run_id == "run-1"])


def _steps(directory: Path, fault: _Fault) -> int:
    with StoreWriter(directory) as writer:
        fault.arm(10**9, _Killed())
        writer.append(_batch(0))
        return fault.calls


@pytest.mark.slow
def test_killed_at_any_step(tmp_path: Path, fault: _Fault) -> None:
    steps = _steps(tmp_path / "count", fault)
    assert steps >= 6
    for step in range(1, steps + 1):
        directory = tmp_path / f"step-{step}"
        writer = StoreWriter(directory)
        writer.append(_batch(0))
        fault.arm(step, _Killed())
        with pytest.raises(_Killed):
            writer.append(_batch(1))
        fault.disarm()
        writer.close()  # as the kernel does for a killed process
        total, _ = _seen(directory)
        assert total in (1, 2)
        left = {path.name for path in (directory / manifests.SEGMENTS_FOLDER).iterdir()}
        with StoreWriter(directory) as writer:
            found = {path.name for path in (directory / manifests.SEGMENTS_FOLDER).iterdir()}
            assert found == {segment.file for segment in writer.manifest.segments}
            assert {path.name for path in quarantined(directory)} == left - found
            writer.append(_batch(1))  # the exporter had no answer: it sends it again
            assert _seen(directory)[0] == 2


@pytest.mark.slow
def test_a_full_disk_at_any_step_refuses_the_batch_and_takes_it_later(tmp_path: Path, fault: _Fault) -> None:
    steps = _steps(tmp_path / "count", fault)
    for step in range(1, steps + 1):
        directory = tmp_path / f"step-{step}"
        with StoreWriter(directory) as writer:
            writer.append(_batch(0))
            fault.arm(step, OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(StoreError, match="the disk is full"):
                writer.append(_batch(1))
            fault.disarm()
            assert _seen(directory)[0] in (1, 2)
            writer.append(_batch(1))
            assert _seen(directory)[0] == 2
            named = {segment.file for segment in writer.manifest.segments}
            assert {path.name for path in (directory / manifests.SEGMENTS_FOLDER).iterdir()} == named


def test_a_duplicate_is_acknowledged_only_when_the_first_is_durable(tmp_path: Path, fault: _Fault) -> None:
    steps = _steps(tmp_path / "count", fault)
    with StoreWriter(tmp_path / "store") as writer:
        fault.arm(steps, OSError(errno.EIO, "Input/output error"))  # the last step: the directory's own fsync
        with pytest.raises(StoreError):
            writer.append(_batch(1))
        fault.arm(10**9, _Killed())
        assert writer.append(_batch(1)).rows == 0
        assert fault.calls == 1, "the rename must be made durable before the retry is acknowledged"


def test_a_second_writer_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with StoreWriter(tmp_path), pytest.raises(StoreError, match="another sidecar is writing to this store"):
        StoreWriter(tmp_path)
    StoreWriter(tmp_path).close()


def test_duplicates_are_known_after_a_restart_and_within_one_batch(tmp_path: Path) -> None:
    batch = _batch(1)
    with StoreWriter(tmp_path) as writer:
        assert writer.append(Batch(turns=[*batch.turns, *batch.turns])).duplicates == 1
        writer.append(Batch(spans=batch.spans, points=batch.points))
    with StoreWriter(tmp_path) as writer:
        again = writer.append(batch)
    assert (again.rows, again.duplicates) == (0, batch.rows)


def test_a_store_of_an_older_format_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / manifests.MANIFEST_NAME).write_bytes(b'{"version": 3, "sequence": 1, "next_file": 1, "segments": []}')
    sentence = r"manifest\.json: has format 3, this version reads 4; use the version that wrote it or another directory"
    with StoreReader(tmp_path) as reader, pytest.raises(StoreError, match=sentence):
        reader.summary()


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 99, "segments": []}', b'{"segments": 3}'])
def test_a_manifest_that_cannot_be_understood_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / manifests.MANIFEST_NAME).write_bytes(content)
    with StoreReader(tmp_path) as reader, pytest.raises(StoreError, match=r"manifest\.json"):
        reader.summary()
    with pytest.raises(StoreError, match=r"manifest\.json"):
        StoreWriter(tmp_path)
