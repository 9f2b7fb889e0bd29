"""An ingest log read by another process in windows, and held for it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.store.ingest_log import IngestLog
from telemetry.store.log_positions import START, Position, read_position, write_position
from telemetry.store.log_reader import LogReader
from telemetry.store.log_records import Record

QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
RECORDS = [Record(1, bytes([number]) * 100) for number in range(10)]


def _log(tmp_path: Path, file_bytes_max: int = 300) -> IngestLog:
    return IngestLog(tmp_path / "ingest", tmp_path / "quarantine", file_bytes_max=file_bytes_max)


def _names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "ingest").glob("*.log"))


def _read(tmp_path: Path, begin: Position, end: Position, bytes_max: int) -> list[Record]:
    reader = LogReader(tmp_path / "ingest")
    found: list[Record] = []
    while begin < end:
        window = reader.window(begin, end, bytes_max)
        assert window.next > begin
        assert not window.records or window.records[-1][1] <= window.next
        found += [record for record, _ in window.records]
        begin = window.next
    return found


@QUIET
@given(
    lives=st.lists(st.lists(st.integers(0, 400), max_size=8), min_size=1, max_size=4),
    file_bytes_max=st.integers(1, 800),
    bytes_max=st.integers(1, 900),
)
def test_windows_of_any_size_hold_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, lives: list[list[int]], file_bytes_max: int, bytes_max: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    written: list[Record] = []
    for sizes in lives:
        log = _log(folder, file_bytes_max)
        for size in sizes:
            written.append(Record(len(written) % 3, bytes([len(written) % 256]) * size))
            log.append(written[-1:])
    assert _read(folder, START, _log(folder).end, bytes_max) == written


def test_what_is_not_durable_yet_is_not_read(tmp_path: Path) -> None:
    log = _log(tmp_path, 10_000)
    end = log.append(RECORDS[:2])
    log.append(RECORDS[2:])
    assert _read(tmp_path, START, end, 1_000_000) == RECORDS[:2]


def test_half_an_append_and_damage_are_left_out(tmp_path: Path) -> None:
    log = _log(tmp_path, 10_000)
    positions = [log.append([record]) for record in RECORDS]
    (path,) = (tmp_path / "ingest").glob("*.log")
    content = bytearray(path.read_bytes())
    content[positions[3].offset + 40] ^= 1
    path.write_bytes(content[:-50])
    end = _log(tmp_path).end
    assert _read(tmp_path, START, end, 250) == [*RECORDS[:4], *RECORDS[5:9]]
    assert LogReader(tmp_path / "ingest").window(START, end, 1 << 20).damaged_bytes == 117


def test_a_file_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for record in RECORDS:
        log.append([record])
    (tmp_path / "ingest" / _names(tmp_path)[1]).unlink()
    assert _read(tmp_path, START, log.end, 100) == [*RECORDS[:3], *RECORDS[6:]]


def test_what_waits_is_counted_in_bytes(tmp_path: Path) -> None:
    log = _log(tmp_path)
    positions = [log.append([record]) for record in RECORDS]
    reader = LogReader(tmp_path / "ingest")
    assert reader.waiting_bytes(positions[4], log.end) == 117 + 8 + 3 * 117 + 8 + 117
    assert reader.waiting_bytes(log.end, log.end) == 0


def test_files_are_held_for_a_reader_though_all_is_committed(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.hold(START)
    positions = [log.append([record]) for record in RECORDS]
    log.committed(positions[-1])
    assert len(_names(tmp_path)) == 4
    log.hold(positions[4])
    assert len(_names(tmp_path)) == 3
    log.close()
    assert len(_names(tmp_path)) == 3, "the reader has not had the last file"
    log = _log(tmp_path)
    assert list(log.replay()) == []
    log.hold(positions[4])
    log.committed(log.append(RECORDS[:1]))
    assert _read(tmp_path, positions[4], log.end, 1 << 20) == [*RECORDS[5:], RECORDS[0]]
    log.hold(log.end)
    log.close()
    assert _names(tmp_path) == []


def test_what_the_reader_has_had_stays_until_it_is_committed(tmp_path: Path) -> None:
    log = _log(tmp_path)
    positions = [log.append([record]) for record in RECORDS]
    log.hold(positions[-1])
    assert len(_names(tmp_path)) == 4
    log.committed(positions[4])
    assert len(_names(tmp_path)) == 3


def test_a_noted_position_is_read_back_and_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    assert read_position(path) is None
    write_position(path, Position(12, 345), durable=True)
    assert read_position(path) == Position(12, 345)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["cursor"]
    for damaged in (b"", b"12 346 " + path.read_bytes().split()[2] + b"\n", b"\xff\xff", b"12 345\n"):
        path.write_bytes(damaged)
        assert read_position(path) is None
