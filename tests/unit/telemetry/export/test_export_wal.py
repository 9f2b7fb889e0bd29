"""The format of the write-ahead log: what was written is read, whatever was cut off, flipped or killed."""

import errno
import itertools
import os
import signal
import stat
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from telemetry.export.wal import ForeignLogError, LogFile, LogRecord, logs_in

RECORDS = [LogRecord("traces", 3, b"spans" * 9), LogRecord("turn", 1, b"{}"), LogRecord("metrics", 70_000, b"")]


def written(path: Path, records: list[LogRecord] = RECORDS) -> Path:
    log = LogFile.create(path)
    for record in records:
        log.append(record, durable=False)
    log.close()
    return path


def read(path: Path) -> list[LogRecord]:
    log = LogFile.open(path)
    found = [record for record, _ in log.pending()]
    log.close()
    return found


def test_records_of_every_kind_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read(written(tmp_path / "new" / "one.wal")) == RECORDS
    assert logs_in(tmp_path / "new") == [tmp_path / "new" / "one.wal"]
    assert logs_in(tmp_path / "nowhere") == []


def test_the_bytes_are_those_of_the_description(tmp_path: Path) -> None:
    content = written(tmp_path / "one.wal", [LogRecord("turn", 5, b"abc")]).read_bytes()
    about = b"\2" + (5).to_bytes(4, "little") + b"abc"
    assert content == b"vpwal\0\0\1" + struct.pack("<QII", 16, 3, zlib.crc32(about)) + about


def test_a_name_is_given_once_and_only_the_owner_may_read(tmp_path: Path) -> None:
    path = written(tmp_path / "folder" / "one.wal")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        LogFile.create(path)
    assert read(path) == RECORDS


@pytest.mark.parametrize("umask", [0o000, 0o277, 0o777])
def test_only_the_owner_may_read_under_any_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "folder" / "one.wal"
    before = os.umask(umask)
    try:
        LogFile.create(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_cut_off_anywhere_the_whole_records_before_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "one.wal")
    content = path.read_bytes()
    ends = list(itertools.accumulate((record.size_bytes for record in RECORDS), initial=16))
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        assert read(path) == RECORDS[: sum(end <= size for end in ends[1:])], size


def test_no_octet_that_was_changed_is_taken_for_data(tmp_path: Path) -> None:
    path = written(tmp_path / "one.wal", RECORDS[:2])
    content = path.read_bytes()
    first_end = 16 + RECORDS[0].size_bytes
    for at in range(16, len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        assert read(path) == ([] if at < first_end else RECORDS[:1]), at


def test_what_was_taken_is_not_pending(tmp_path: Path) -> None:
    path = written(tmp_path / "one.wal")
    log = LogFile.open(path)
    log.take(next(until for _, until in log.pending()))
    log.append(RECORDS[0], durable=True)
    log.close()
    assert read(path) == [*RECORDS[1:], RECORDS[0]]


@pytest.mark.parametrize("offset", [0, 15, 10_000, 2**64 - 1])
def test_an_offset_that_cannot_be_means_sending_twice(tmp_path: Path, offset: int) -> None:
    path = written(tmp_path / "one.wal")
    content = bytearray(path.read_bytes())
    content[8:16] = struct.pack("<Q", offset)
    path.write_bytes(content)
    assert read(path) == RECORDS


@pytest.mark.parametrize("content", [b'{"run_id":"run-1"}\n', b"vpwal\0\0\2" + bytes(8), b"\0" * 16, b"x"])
def test_a_file_of_another_format_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "one.wal"
    path.write_bytes(content)
    with pytest.raises(ForeignLogError, match=r"one\.wal is no write-ahead log of this version"):
        LogFile.open(path)


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.wal"
    log = LogFile.create(path)
    log.append(RECORDS[0], durable=False)
    real = os.pwrite

    def half(file: int, data: bytes, offset: int) -> int:
        real(file, bytes(data)[:7], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="No space left"):
            log.append(RECORDS[1], durable=False)
        with pytest.raises(OSError, match="No space left"):
            LogFile.create(tmp_path / "two.wal")
    log.append(RECORDS[2], durable=False)
    log.close()
    assert read(path) == [RECORDS[0], RECORDS[2]]
    assert logs_in(tmp_path) == [path]


WRITER = """
import sys
from pathlib import Path
from telemetry.export.wal import LogFile, LogRecord
log = LogFile.create(Path(sys.argv[1]))
number = 0
while True:
    log.append(LogRecord("turn", 1, number.to_bytes(4, "little") * (1 + number % 5000)), durable=False)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("lines", [1, 2, 40, 333])
def test_killed_at_any_moment_every_confirmed_record_is_there(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "one.wal"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        confirmed = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in writer.stdout if line.endswith("\n")]
    found = [int.from_bytes(record.payload[:4], "little") for record in read(path)]
    assert found == list(range(len(found)))
    assert len(found) >= len(confirmed) >= lines
