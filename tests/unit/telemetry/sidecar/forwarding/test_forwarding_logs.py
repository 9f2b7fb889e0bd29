"""What the store process holds for destinations, and what it writes for those that texts are kept for."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar.forwarding import folders
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.encryption import RecordCipher
from telemetry.sidecar.forwarding.spool_logs import ForwardingLogs
from telemetry.store.ingest_log import IngestLog
from telemetry.store.log_positions import START, Position, read_position
from telemetry.store.log_reader import LogReader
from telemetry.store.log_records import Record

KEY = "ab" * 32
REDACT = Destination("redacting", "http://127.0.0.1:1", "redact")
KEEP = Destination("keeping", "http://127.0.0.1:1", "keep", key_env="TEST_FORWARD_KEY")
RECORD = Record(1, b"hello caller")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FORWARD_KEY", KEY)


def ingest_log(store: Path) -> IngestLog:
    return IngestLog(folders.ingest(store), store / "quarantine", file_bytes_max=100)


def files(folder: Path) -> int:
    return len(list(folder.glob("*.log")))


def test_the_ingest_log_is_held_for_the_slowest(tmp_path: Path) -> None:
    ingest = ingest_log(tmp_path)
    logs = ForwardingLogs(tmp_path, [REDACT, replace(REDACT, name="slow")], ingest)
    positions = [ingest.append([Record(1, bytes(100))]) for _ in range(6)]
    ingest.committed(ingest.end)
    assert files(folders.ingest(tmp_path)) == 6
    logs.passed("redacting", positions[4])
    assert files(folders.ingest(tmp_path)) == 6
    logs.passed("slow", positions[2])
    assert files(folders.ingest(tmp_path)) == 4
    logs.passed("slow", START)
    assert files(folders.ingest(tmp_path)) == 4


def test_a_new_destination_begins_now_and_one_with_a_damaged_cursor_with_all_there_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ingest = ingest_log(tmp_path)
    end = ingest.append([RECORD])
    ForwardingLogs(tmp_path, [REDACT], ingest)
    cursor = folders.cursor(tmp_path, "redacting")
    assert read_position(cursor) == end
    cursor.write_bytes(b"")
    logs = ForwardingLogs(tmp_path, [REDACT], ingest)
    assert "is damaged; what the ingest log holds is forwarded again" in caplog.text
    ingest.committed(ingest.append([RECORD]))
    assert files(folders.ingest(tmp_path)) == 1
    assert logs.ends.ingest == ingest.end


def test_what_is_kept_is_encrypted_on_disk(tmp_path: Path) -> None:
    logs = ForwardingLogs(tmp_path, [KEEP, replace(KEEP, name="metrics", signals=("metrics",))], ingest_log(tmp_path))
    logs.add([RECORD, Record(9, b"unknown")])
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"caller" not in content
    assert bytes.fromhex(KEY) not in content
    assert files(folders.queue(tmp_path, "metrics")) == 0
    reader = LogReader(folders.queue(tmp_path, "keeping"))
    ((record, _),) = reader.window(START, logs.ends.queues["keeping"], 1 << 20).records
    assert RecordCipher(bytes.fromhex(KEY)).decrypt(record) == RECORD
    modes = {path.stat().st_mode & 0o077 for path in folders.of_all(tmp_path).rglob("*")}
    assert modes == {0}


def test_a_queue_under_another_key_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = ForwardingLogs(tmp_path, [KEEP], ingest_log(tmp_path))
    logs.add([RECORD])
    monkeypatch.setenv("TEST_FORWARD_KEY", "cd" * 32)
    with pytest.raises(StoreError, match="was encrypted with another key; give that key to the destination keeping"):
        ForwardingLogs(tmp_path, [KEEP], ingest_log(tmp_path))
    logs.passed("keeping", logs.ends.queues["keeping"])
    ForwardingLogs(tmp_path, [KEEP], ingest_log(tmp_path))


def test_what_a_disk_does_not_take_is_counted_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logs = ForwardingLogs(tmp_path, [KEEP], ingest_log(tmp_path))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        logs.add([RECORD, RECORD])
    assert logs.lost_requests("keeping") == 2
    assert "forwarding to keeping: requests are lost for it" in caplog.text
    logs.add([RECORD])
    assert logs.lost_requests("keeping") == 2


@pytest.mark.parametrize("destination", [REDACT, KEEP])
def test_limits_hold_though_nobody_forwards(tmp_path: Path, destination: Destination) -> None:
    destination = replace(destination, max_bytes=40 << 20)
    ingest = IngestLog(folders.ingest(tmp_path), tmp_path / "quarantine", file_bytes_max=16 << 20)
    logs = ForwardingLogs(tmp_path, [destination], ingest)
    for _ in range(9):
        ingest.append([Record(1, bytes(9 << 20))])
        logs.add([Record(1, bytes(9 << 20))])
    ingest.committed(ingest.end)
    folder = folders.ingest(tmp_path) if destination.text == "redact" else folders.queue(tmp_path, "keeping")
    requests, size_bytes = logs.give_up(destination)
    assert requests == 6
    assert size_bytes >= 6 * (9 << 20)
    assert sum(path.stat().st_size for path in folder.glob("*.log")) < 40 << 20
    assert logs.give_up(destination) == (0, 0)


def test_the_queue_of_a_destination_that_is_not_configured_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = ForwardingLogs(tmp_path, [KEEP], ingest_log(tmp_path))
    logs.add([RECORD])
    ForwardingLogs(tmp_path, [REDACT], ingest_log(tmp_path))
    assert (
        f"{folders.of_all(tmp_path) / 'keeping'}: holds a queue of a destination that is not configured" in caplog.text
    )


def test_positions_of_unknown_destinations_move_nothing(tmp_path: Path) -> None:
    ingest = ingest_log(tmp_path)
    logs = ForwardingLogs(tmp_path, [REDACT], ingest)
    ingest.committed(ingest.append([RECORD]))
    logs.passed("unknown", Position(99, 0))
    assert files(folders.ingest(tmp_path)) == 1
