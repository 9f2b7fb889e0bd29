"""What waits for a destination, on disk and in memory, and what its limits drop."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.disk_queue import DiskQueue, LogSource
from telemetry.sidecar.forwarding.encryption import UnreadableRecordError
from telemetry.sidecar.forwarding.memory_queue import MemoryQueue
from telemetry.sidecar.forwarding.queued import QueuedRequest, QueueWindow
from telemetry.sidecar.forwarding.tally import Tally, Waiting
from telemetry.sidecar.signals import Signal
from telemetry.store.ingest_log import IngestLog
from telemetry.store.log_positions import START, read_position
from telemetry.store.log_records import Record

DESTINATION = Destination("tempo", "http://127.0.0.1:1", "redact", max_age_ns=100 * 10**9)
SIGNALS: dict[int, Signal] = {1: "traces", 2: "metrics"}


def request_of(record: Record) -> QueuedRequest | None:
    if record.payload.startswith(b"unreadable"):
        raise UnreadableRecordError("it is damaged")
    signal = SIGNALS.get(record.kind)
    return QueuedRequest(signal, record.payload, len(record.payload)) if signal else None


class OnDisk:
    """A log and a queue on it, with a clock and a disk that the test sets."""

    def __init__(self, folder: Path, destination: Destination = DESTINATION, file_bytes_max: int = 1000) -> None:
        self.folder = folder
        self.now_s = 1_000.0
        self.missing_room = 0
        self.tally = Tally()
        self.destination = destination
        self.log = IngestLog(folder / "ingest", folder / "quarantine", file_bytes_max=file_bytes_max)
        self.log.hold(START)
        self.queue = self.queue_of_next_life()

    def queue_of_next_life(self) -> DiskQueue:
        return DiskQueue(
            self.destination,
            LogSource(self.folder / "ingest", request_of, lambda record: SIGNALS.get(record.kind)),
            self.folder / "cursor",
            self.tally,
            self.log.end,
            wall_clock_ns=lambda: round(self.now_s * 1e9),
            missing_room=lambda: self.missing_room,
        )

    def add(self, *numbers: int, kind: int = 1, start: bytes = b"") -> None:
        for number in numbers:
            self.log.append([Record(kind, start + bytes([number]) * (100 - len(start)))])
        self.queue.reached(self.log.end)


def numbers(window: QueueWindow) -> list[int]:
    return [request.body[-1] for request in window.requests]


def drained(queue: DiskQueue, bytes_max: int = 250) -> list[int]:
    found: list[int] = []
    while (window := queue.take(bytes_max)).requests:
        found += numbers(window)
        queue.settle(window)
    return found


def test_what_is_settled_stays_settled_in_the_next_life(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.add(*range(20))
    first = disk.queue.take(250)
    assert numbers(first) == [0, 1, 2]
    assert numbers(disk.queue.take(250)) == [0, 1, 2], "it was taken, not settled"
    disk.queue.settle(first)
    assert read_position(tmp_path / "cursor") == disk.queue.cursor
    second = disk.queue_of_next_life()
    assert drained(second) == list(range(3, 20))
    assert second.backlog() == Waiting()
    assert drained(disk.queue_of_next_life()) == []


def test_a_lost_cursor_means_all_of_it_again(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.add(*range(20))
    assert drained(disk.queue) == list(range(20))
    (tmp_path / "cursor").write_bytes(b"\0\0\0")
    assert drained(disk.queue_of_next_life()) == list(range(20))


def test_a_cursor_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = OnDisk(tmp_path)
    (tmp_path / "cursor.tmp").mkdir()
    disk.add(*range(5))
    assert drained(disk.queue) == list(range(5))
    assert "cursor: cannot be written" in caplog.text


def test_records_for_somebody_else_are_passed_over(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.add(1, kind=9)
    disk.add(2)
    disk.add(3, kind=2)
    assert drained(disk.queue) == [2, 3]
    assert disk.tally == Tally()


def test_unreadable_records_are_counted_and_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = OnDisk(tmp_path)
    disk.add(1, 2, start=b"unreadable")
    disk.add(3)
    assert drained(disk.queue, 10_000) == [3]
    assert disk.tally.dropped_requests == {"unreadable": 2}
    assert disk.queue.unreadable == "a request cannot be read: it is damaged"
    assert caplog.text.count("it is damaged") == 1


def test_the_oldest_are_dropped_beyond_the_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = OnDisk(tmp_path, replace(DESTINATION, max_bytes=400_000), file_bytes_max=100_000)
    for number in range(8):
        disk.log.append([Record(1, bytes([number]) * 100_000)])
    disk.queue.reached(disk.log.end)
    assert disk.queue.backlog().size_bytes > 800_000
    disk.queue.enforce()
    assert disk.queue.backlog().size_bytes <= 400_000
    left = drained(disk.queue, 1)
    assert left == list(range(8 - len(left), 8))
    assert disk.tally.dropped_requests == {"size": 8 - len(left)}
    assert disk.tally.dropped_bytes == (8 - len(left)) * 100_000
    assert "are dropped: more than max_mib waited" in caplog.text


def test_what_was_dropped_is_not_needed_any_more(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path, replace(DESTINATION, max_bytes=1), file_bytes_max=100)
    disk.add(*range(4))
    disk.log.committed(disk.log.end)
    assert len(list((tmp_path / "ingest").glob("*.log"))) == 4
    disk.queue.enforce()
    assert disk.queue.cursor == disk.log.end
    disk.log.hold(disk.queue.cursor)
    assert len(list((tmp_path / "ingest").glob("*.log"))) == 1


def test_what_is_too_old_is_dropped_and_what_is_not_stays(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.add(1, 2)
    disk.now_s += 60
    disk.add(3)
    disk.queue.enforce()
    assert disk.queue.backlog().age_s == pytest.approx(60)
    disk.now_s += 50
    disk.queue.enforce()
    assert disk.tally.dropped_requests == {"age": 2}
    assert disk.queue.backlog().age_s == pytest.approx(50)
    assert drained(disk.queue) == [3]


def test_room_is_made_for_what_is_received(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path, file_bytes_max=100)
    disk.add(*range(10))
    disk.missing_room = 1
    disk.queue.enforce()
    assert disk.tally.dropped_requests == {"disk": 1}
    disk.queue.enforce()
    assert disk.tally.dropped_requests == {"disk": 1}, "the file of the first is not removed yet"
    disk.now_s += 10
    disk.missing_room = 300
    disk.queue.enforce()
    assert disk.tally.dropped_requests == {"disk": 4}
    assert drained(disk.queue) == [4, 5, 6, 7, 8, 9]


def test_what_is_being_sent_is_not_dropped_under_the_sender_s_hands(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path, replace(DESTINATION, max_bytes=1))
    disk.add(*range(10))
    window = disk.queue.take(1)
    disk.queue.enforce()
    assert disk.tally.dropped_requests == {"size": 9}
    disk.queue.settle(window)
    assert disk.queue.cursor == disk.log.end, "it does not go back"


def test_what_is_being_sent_stays_in_the_queue_while_nothing_is_beyond_the_limits(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.add(1, 2, 3)
    disk.queue.take(250)
    disk.queue.enforce()
    assert drained(disk.queue_of_next_life()) == [1, 2, 3]


def test_the_age_of_what_an_earlier_life_left_is_that_of_its_file(tmp_path: Path) -> None:
    disk = OnDisk(tmp_path)
    disk.add(1)
    (path,) = (tmp_path / "ingest").glob("*.log")
    disk.log.close()
    second = OnDisk(tmp_path)
    second.now_s = path.stat().st_mtime + 70
    assert second.queue.backlog().age_s == pytest.approx(70, abs=0.01)
    second.now_s += 40
    second.queue.enforce()
    assert second.tally.dropped_requests == {"age": 1}


def in_memory(max_bytes: int, clock_s: Callable[[], float] = lambda: 0.0) -> tuple[MemoryQueue, Tally]:
    tally = Tally()
    destination = replace(DESTINATION, text="keep", in_memory=True, max_bytes=max_bytes)
    return MemoryQueue(destination, tally, wall_clock_ns=lambda: round(clock_s() * 1e9)), tally


def test_memory_holds_its_limit_and_drops_the_oldest() -> None:
    queue, tally = in_memory(1000)
    for number in range(30):
        queue.add(QueuedRequest("traces", bytes([number]) * 100, 100))
        assert queue.backlog().size_bytes <= 1000
    assert numbers(queue.take(1 << 20)) == list(range(20, 30))
    assert tally.dropped_requests == {"size": 20}


def test_memory_keeps_what_is_being_sent_and_drops_the_next() -> None:
    queue, tally = in_memory(300)
    for number in range(3):
        queue.add(QueuedRequest("traces", bytes([number]) * 100, 100))
    window = queue.take(1)
    queue.add(QueuedRequest("traces", b"\3" * 100, 100))
    queue.settle(window)
    assert numbers(window) == [0]
    assert numbers(queue.take(1000)) == [2, 3]
    assert tally.dropped_requests == {"size": 1}


def test_memory_drops_what_is_too_old() -> None:
    now = {"s": 0.0}
    queue, tally = in_memory(1000, lambda: now["s"])
    queue.add(QueuedRequest("traces", b"1", 1))
    now["s"] = 60.0
    queue.add(QueuedRequest("traces", b"2", 1))
    assert queue.backlog() == Waiting(2, 60.0)
    now["s"] = 101.0
    queue.enforce()
    assert numbers(queue.take(10)) == [ord("2")]
    assert tally.dropped_requests == {"age": 1}
