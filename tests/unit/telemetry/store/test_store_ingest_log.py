"""The ingest log: what it took is there after anything, what it refused is not, and damage is kept."""

import errno
import os
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.model.errors import StoreError
from telemetry.store.ingest_log import COMMITTED_NAME, IngestLog, Position, Record

QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
RECORDS = [
    Record(1, b"first"),
    Record(2, b""),
    Record(1, b"\xf3vp\xa5" * 5),
    Record(1, b"\0" * 100),
    Record(2, b"last"),
]


def _log(tmp_path: Path, **options: int) -> IngestLog:
    return IngestLog(tmp_path / "ingest", tmp_path / "quarantine", **options)


def _left(tmp_path: Path) -> list[Record]:
    """What the next life reads."""
    return [record for record, _ in _log(tmp_path).replay()]


def _files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "ingest").glob("*.log"))


def _quarantined(tmp_path: Path) -> bytes:
    folder = tmp_path / "quarantine"
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())) if folder.exists() else b""


def _written(folder: Path) -> tuple[Path, list[int]]:
    """A log of one file with RECORDS; the file, and the offsets behind each record."""
    log = _log(folder)
    ends = [log.append([record]).offset for record in RECORDS]
    (path,) = _files(folder)
    return path, ends


def test_what_was_appended_is_read_in_its_order(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(RECORDS[:2])
    end = log.append(RECORDS[2:])
    assert end == log.position
    found = list(_log(tmp_path).replay())
    assert [record for record, _ in found] == RECORDS
    assert found[-1][1] == end
    positions = [position for _, position in found]
    assert positions == sorted(positions)


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.committed(log.append(RECORDS))
    assert (tmp_path / "ingest").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "ingest").iterdir()} == {0o600}


def test_what_is_committed_is_not_read_again(tmp_path: Path) -> None:
    log = _log(tmp_path)
    position = log.append(RECORDS[:3])
    log.append(RECORDS[3:])
    log.committed(position)
    assert _left(tmp_path) == RECORDS[3:]


def test_a_file_goes_when_all_of_it_is_committed(tmp_path: Path) -> None:
    log = _log(tmp_path, file_bytes_max=40)
    positions = [log.append([record]) for record in RECORDS]
    assert len(_files(tmp_path)) > 2
    for index, position in enumerate(positions):
        log.committed(position)
        assert _left(tmp_path) == RECORDS[index + 1 :]
        assert [int(path.stem) for path in _files(tmp_path)] == sorted({each.file for each in positions[index:]})
    log.close()
    assert _files(tmp_path) == []


def test_a_second_life_writes_files_of_its_own_and_removes_the_first_one_s(tmp_path: Path) -> None:
    _log(tmp_path).append(RECORDS[:1])
    second = _log(tmp_path)
    replayed = [position for _, position in second.replay()]
    position = second.append(RECORDS[1:2])
    assert position.file > replayed[-1].file
    assert _left(tmp_path) == RECORDS[:2]
    second.committed(replayed[-1])
    assert _left(tmp_path) == RECORDS[1:2]
    second.committed(position)
    second.close()
    assert _files(tmp_path) == []
    third = _log(tmp_path)
    assert third.append(RECORDS[:1]).file > position.file, "a number must not come again"


@pytest.mark.parametrize("content", [b"", b"x", b"1 9999999\n", b"7 8 00000000\n", b"\xff\xfe\n"])
def test_a_position_that_cannot_be_trusted_means_reading_again(tmp_path: Path, content: bytes) -> None:
    log = _log(tmp_path)
    log.committed(log.append(RECORDS))
    (tmp_path / "ingest" / COMMITTED_NAME).write_bytes(content)
    assert _left(tmp_path) == RECORDS


@QUIET
@given(st.data())
def test_cut_at_any_octet_it_gives_exactly_the_whole_records(tmp_path_factory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path, ends = _written(folder)
    cut = data.draw(st.integers(0, path.stat().st_size))
    os.truncate(path, cut)
    assert _left(folder) == [record for record, end in zip(RECORDS, ends, strict=True) if end <= cut]
    assert _quarantined(folder) == b"", "half an append is no damage"


@QUIET
@given(st.integers(1, 5000), st.integers(0, 4))
def test_blocks_that_were_never_written_are_half_an_append(tmp_path_factory, zeros: int, whole: int) -> None:
    folder = tmp_path_factory.mktemp("zeros")
    path, ends = _written(folder)
    os.truncate(path, ends[whole])
    os.truncate(path, ends[whole] + zeros)
    assert _left(folder) == RECORDS[: whole + 1]
    assert _quarantined(folder) == b""


@QUIET
@given(st.data())
def test_a_flipped_bit_costs_one_record_which_is_kept(tmp_path_factory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flip")
    path, ends = _written(folder)
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    begins = [8, *ends[:-1]]
    hit = [index for index, (begin, end) in enumerate(zip(begins, ends, strict=True)) if begin <= bit // 8 < end]
    assert _left(folder) == [record for index, record in enumerate(RECORDS) if index not in hit]
    damaged = slice(begins[hit[0]], ends[hit[0]]) if hit else slice(0, 8)
    assert _quarantined(folder) == bytes(content[damaged])


@QUIET
@given(st.binary(max_size=300), st.integers(0, 5))
def test_whatever_stands_in_a_file_reading_it_ends(tmp_path_factory, junk: bytes, before: int) -> None:
    folder = tmp_path_factory.mktemp("junk")
    path, ends = _written(folder)
    content = path.read_bytes()
    at = [8, *ends][before]
    path.write_bytes(content[:at] + junk + content[at:])
    found = _left(folder)
    assert [record for record in found if record in RECORDS][: len(RECORDS)] == RECORDS


class _Disk:
    """Lets writes through until it is told to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: int | None = None
        self.room = 10
        self._pwrite, self._fdatasync = os.pwrite, os.fdatasync
        self.fails_at = "write"
        monkeypatch.setattr(os, "pwrite", self._write)
        monkeypatch.setattr(os, "fdatasync", self._wait)

    def _write(self, file: int, octets: memoryview, offset: int) -> int:
        if self.error is not None and self.fails_at == "write":
            if self.room == 0:
                raise OSError(self.error, os.strerror(self.error))
            octets, self.room = octets[: self.room], 0
        return self._pwrite(file, octets, offset)

    def _wait(self, file: int) -> None:
        if self.error is not None and self.fails_at == "wait":
            raise OSError(self.error, os.strerror(self.error))
        self._fdatasync(file)


@pytest.mark.parametrize("fails_at", ["write", "wait"])
@pytest.mark.parametrize(("error", "text"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "error")])
def test_what_the_disk_does_not_take_is_refused_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str, error: int, text: str
) -> None:
    log = _log(tmp_path)
    log.append(RECORDS[:1])
    disk = _Disk(monkeypatch)
    disk.fails_at, disk.error = fails_at, error
    for _ in range(3):
        with pytest.raises(StoreError, match=text):
            log.append(RECORDS[1:3])
    disk.error = None
    position = log.append(RECORDS[3:])
    assert _left(tmp_path) == [RECORDS[0], *RECORDS[3:]]
    log.committed(position)
    log.close()
    assert _files(tmp_path) == [], "the files of the failures must go, too"


def test_nothing_is_acknowledged_into_a_file_that_somebody_deleted(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(RECORDS[:1])
    _files(tmp_path)[0].unlink()
    with pytest.raises(StoreError, match="deleted"):
        log.append(RECORDS[1:2])
    log.append(RECORDS[2:])
    assert _left(tmp_path) == RECORDS[2:]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ingest").write_text("a file")
    with pytest.raises(StoreError, match="ingest"):
        _log(tmp_path)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for name in ("notes.txt", "12.log", "000000000001.log.bak"):
        (tmp_path / "ingest" / name).write_text("mine")
    log.committed(log.append(RECORDS))
    log.committed(Position(10**6, 0))
    log.close()
    assert {path.name for path in (tmp_path / "ingest").iterdir()} == {
        "notes.txt",
        "12.log",
        "000000000001.log.bak",
        COMMITTED_NAME,
    }


def test_the_format_is_what_its_description_says(tmp_path: Path) -> None:
    path, _ = _written(tmp_path)
    content = path.read_bytes()
    header = b"\xf3vp\xa5" + (5).to_bytes(4, "little") + b"\1" + zlib.crc32(b"first").to_bytes(4, "little")
    assert content.startswith(b"vpingst\1" + header + zlib.crc32(header).to_bytes(4, "little") + b"first")


_APPENDING = """
import random, sys
from pathlib import Path
from telemetry.store.ingest_log import IngestLog, Record
folder = Path(sys.argv[1])
log = IngestLog(folder / "ingest", folder / "quarantine", file_bytes_max=20_000)
chance = random.Random(int(sys.argv[2]))
positions = []
for number in range(1_000_000):
    payload = f"{sys.argv[2]} {number} ".encode() + chance.randbytes(chance.randrange(4000))
    positions.append(log.append([Record(1, payload)]))
    print(number, flush=True)
    if number % 7 == 6 and len(positions) > 40:
        log.committed(positions[-41])
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    """The child commits at most what lies 40 records back: the 40 newest of every life must be there."""
    chance = random.Random(3)
    for life in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", _APPENDING, str(tmp_path), str(life)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(chance.randrange(1, 300)):
            last = int(child.stdout.readline())
        child.kill()
        last = int(([str(last), *child.stdout.read().split()])[-1])
        child.wait(timeout=60)
        child.stdout.close()
        found = [tuple(map(int, record.payload.split(b" ", 2)[:2])) for record in _left(tmp_path)]
        assert found == sorted(found)
        newest = [number for of, number in found if of == life]
        assert newest[-1] in (last, last + 1)
        assert newest == list(range(newest[0], newest[-1] + 1))
        assert newest[0] <= max(0, last - 39)
    assert _quarantined(tmp_path) == b""
