"""What health pages know of a store, and that it is taken back."""

import errno
import os
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.sidecar.messages import Faults
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.sidecar.store_process.watch import ROOM_BYTES_MIN, Watch
from telemetry.store.compaction import Compactor
from telemetry.store.ingest_log import IngestLog, Record
from telemetry.store.writer import StoreWriter

_Usage = namedtuple("_Usage", "total used free")


class _Watched:
    def __init__(self, directory: Path) -> None:
        self.reported: list[Faults] = []
        self.writer = StoreWriter(directory)
        self.log = IngestLog(directory / "ingest", directory / "quarantine")
        self.compactor = Compactor(self.writer)
        self.compactor.start()
        self.watch = Watch(self.log, self.writer, self.compactor, FaultBoard(self.reported.append))

    def names(self) -> dict[str, bool]:
        self.watch.look()
        return {fault.name: fault.stops_storing for fault in self.reported[-1].faults} if self.reported else {}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[_Watched]:
    found = _Watched(tmp_path)
    yield found
    found.compactor.stop()
    found.log.close()
    found.writer.close()


def test_a_sound_store_has_no_fault_and_nothing_is_reported(watched: _Watched) -> None:
    assert (watched.names(), watched.reported) == ({}, [])


def test_a_disk_that_takes_nothing_stops_storing_until_it_does(
    watched: _Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        assert watched.names() == {"ingest_log": True}
        assert "the disk is full" in watched.reported[-1].faults[0].sentence
        watched.names()
        assert len(watched.reported) == 1, "the same is not reported again"
    assert watched.names() == {}


def test_a_disk_that_will_be_full_soon_is_named(watched: _Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: _Usage(1 << 40, 0, ROOM_BYTES_MIN - 1))
    assert watched.names() == {"room": False}


def test_merging_that_ended_is_named(watched: _Watched) -> None:
    watched.compactor.stop()
    assert watched.names() == {"compaction": False}


def test_damage_of_the_log_is_named(tmp_path: Path) -> None:
    log = IngestLog(tmp_path / "ingest", tmp_path / "quarantine")
    log.append([Record(1, bytes(100)), Record(1, bytes(100))])
    (path,) = (tmp_path / "ingest").glob("*.log")
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    watched = _Watched(tmp_path)
    assert len(list(watched.log.replay())) == 1
    assert watched.names() == {"ingest_log_damage": False}
    assert "are damaged" in watched.reported[-1].faults[0].sentence
    watched.compactor.stop()
    watched.writer.close()
