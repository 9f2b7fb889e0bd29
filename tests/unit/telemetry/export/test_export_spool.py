"""The spool: durable, bounded, torn tails tolerated, deleted only after an acknowledgment."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.export.recovery import replay
from telemetry.export.spool import Spool, SpoolRecord


def record(number: int, spans: int = 2) -> SpoolRecord:
    return SpoolRecord("traces", spans, f"payload {number} ".encode() * 5)


def replayed(directory: Path) -> list[SpoolRecord]:
    taken: list[SpoolRecord] = []

    def sink(entry: SpoolRecord) -> bool:
        taken.append(entry)
        return True

    replay(directory, sink)
    return taken


def test_records_come_back_in_order_and_go_when_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "one")
    assert spool.oldest() is None
    for number in range(3):
        assert spool.append(record(number))
    assert spool.pending_spans == 6
    for number in range(3):
        oldest = spool.oldest()
        assert oldest == record(number)
        assert spool.oldest() == oldest  # until it is acknowledged
        spool.acknowledge(oldest)
    assert spool.pending_spans == 0
    assert list((tmp_path / "spool").iterdir()) == []
    assert spool.append(record(9))
    assert spool.oldest() == record(9)


def test_metrics_are_no_spans(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    spool.append(SpoolRecord("metrics", 8, b"m"))
    assert spool.pending_spans == 0
    spool.close()
    assert replayed(tmp_path) == [SpoolRecord("metrics", 8, b"m")]


def test_logs_rotate_and_are_removed_one_by_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one", log_bytes=100)
    for number in range(6):
        spool.append(record(number))
    assert len(list(tmp_path.glob("*.wal"))) == 3
    for number in range(4):
        oldest = spool.oldest()
        assert oldest == record(number)
        spool.acknowledge(oldest)
    assert len(list(tmp_path.glob("*.wal"))) == 1
    spool.close()
    assert replayed(tmp_path) == [record(4), record(5)]


def test_it_is_bounded_and_takes_more_after_an_acknowledgment(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one", max_bytes=150)
    assert spool.append(record(0))
    assert spool.append(record(1))
    assert not spool.append(record(2))
    assert spool.pending_spans == 4
    oldest = spool.oldest()
    assert oldest is not None
    spool.acknowledge(oldest)
    assert spool.append(record(2))


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", "one")
    spool.append(record(0))
    (path,) = (tmp_path / "spool").glob("*.wal")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700


def test_what_was_acknowledged_before_the_end_is_not_replayed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    for number in range(3):
        spool.append(record(number))
    oldest = spool.oldest()
    assert oldest is not None
    spool.acknowledge(oldest)
    spool.close()
    assert replayed(tmp_path) == [record(1), record(2)]
    assert list(tmp_path.iterdir()) == []


def test_several_owners_share_a_directory(tmp_path: Path) -> None:
    one, two = Spool(tmp_path, "one"), Spool(tmp_path, "two")
    one.append(record(1))
    two.append(record(2))
    oldest = one.oldest()
    assert oldest == record(1)
    one.acknowledge(oldest)
    one.close()
    two.close()
    assert replayed(tmp_path) == [record(2)]


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, "one")
    spool.append(record(0))
    real = os.pwrite

    def half(file: int, data: bytes, offset: int) -> int:
        real(file, bytes(data)[:7], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="No space left"):
            spool.append(record(1))
    assert spool.pending_spans == 2
    assert spool.append(record(2))
    spool.close()
    assert replayed(tmp_path) == [record(0), record(2)]


def test_a_killed_process_leaves_every_record_that_append_confirmed(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from telemetry.export.spool import Spool, SpoolRecord
spool = Spool(Path(sys.argv[1]), "killed")
for number in range(5):
    assert spool.append(SpoolRecord("traces", 1, bytes([number]) * 100))
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=180)
    assert ended.returncode == -9
    assert [entry.payload[0] for entry in replayed(tmp_path)] == [0, 1, 2, 3, 4]
