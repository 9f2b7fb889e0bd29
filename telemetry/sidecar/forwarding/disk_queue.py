"""A queue whose requests stand in a log on disk, and whose cursor is a small file replaced atomically.

The log belongs to the store process, which keeps its files from the cursor on. What is settled is noted after the
destination's acknowledgment; a process that is killed in between sends it again.
"""

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.encryption import UnreadableRecordError
from telemetry.sidecar.forwarding.queued import QueuedRequest, QueueWindow
from telemetry.sidecar.forwarding.tally import DropReason, Tally, Waiting
from telemetry.sidecar.signals import Signal
from telemetry.store.log_positions import START, Position, read_position, write_position
from telemetry.store.log_reader import LogReader
from telemetry.store.log_records import Record

_STEP_BYTES: Final = 256 << 10
# Times are noted in this number at most; then every second of them is forgotten.
_MARKS_MAX: Final = 4096
_MARK_NS: Final = 10**9
# A disk with less room than this, or than a twentieth of it, is kept free for what is received.
ROOM_BYTES: Final = 256 << 20
# A file that was given up is removed by the store process a moment later.
_ROOM_EVERY_NS: Final = 5 * 10**9

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log, and how its records are made requests: `request_of` raises UnreadableRecordError, and gives None for
    records that the destination does not get."""

    folder: Path
    request_of: Callable[[Record], QueuedRequest | None]
    signal_of: Callable[[Record], Signal | None]


class DiskQueue:
    """A log from a cursor on, within the destination's limits. `end` is where the log ends at first."""

    def __init__(
        self,
        destination: Destination,
        source: LogSource,
        cursor: Path,
        tally: Tally,
        end: Position,
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
        missing_room: Callable[[], int] | None = None,
    ) -> None:
        self._destination = destination
        self._wanted = frozenset(destination.signals)
        self._source = source
        self._reader = LogReader(source.folder)
        self._cursor_path = cursor
        self._tally = tally
        self._wall_clock_ns = wall_clock_ns
        self._missing_room = missing_room or (lambda: missing_room_bytes(source.folder))
        self._lock = threading.Lock()
        self._cursor = read_position(cursor) or START
        self._taken: Position | None = None
        self._end = self._first_end = end
        self._marks: deque[tuple[Position, int]] = deque([(end, self._wall_clock_ns())])
        self._room_due_unix_ns = 0
        self.unreadable: str | None = None

    @property
    def cursor(self) -> Position:
        """Before it, nothing is needed any more."""
        return self._cursor

    def reached(self, end: Position) -> None:
        """Note that the log is durable up to `end`."""
        now_unix_ns = self._wall_clock_ns()
        with self._lock:
            if end <= self._end:
                return
            self._end = end
            if self._marks and now_unix_ns - self._marks[-1][1] < _MARK_NS and len(self._marks) > 1:
                # The earlier time stands for both: nothing looks younger than it is.
                self._marks[-1] = (end, self._marks[-1][1])
            else:
                self._marks.append((end, now_unix_ns))
            if len(self._marks) > _MARKS_MAX:
                kept = list(self._marks)
                self._marks = deque([*kept[1:-1:2], kept[-1]])

    def take(self, bytes_max: int) -> QueueWindow:
        """The oldest requests, some `bytes_max` of them. Raises OSError."""
        with self._lock:
            oldest_unix_ns = self._written_unix_ns(self._cursor)
            window = self._reader.window(self._cursor, self._end, bytes_max)
            self._taken = window.next
            if window.damaged_bytes:
                self._unreadable("a part of the log is damaged", 0, window.damaged_bytes)
            requests = [request for record, _ in window.records if (request := self._request(record)) is not None]
            return QueueWindow(tuple(requests), oldest_unix_ns, window.next)

    def settle(self, window: QueueWindow) -> None:
        """Move the cursor behind what was taken, durably."""
        with self._lock:
            self._taken = None
            self._move(window.next)

    def has_expired(self, window: QueueWindow) -> bool:
        """Whether what was taken waits for too long by now."""
        return self._wall_clock_ns() - window.oldest_unix_ns > self._destination.max_age_ns

    def enforce(self) -> None:
        """Drop what is beyond the limits, or takes the room that received telemetry needs. Raises OSError."""
        now_unix_ns = self._wall_clock_ns()
        with self._lock:
            self._drop("age", self._until(now_unix_ns - self._destination.max_age_ns))
            waiting_bytes = self._reader.waiting_bytes(self._kept, self._end)
            self._drop("size", self._end, waiting_bytes - self._destination.max_bytes)
            if now_unix_ns >= self._room_due_unix_ns:
                self._room_due_unix_ns = now_unix_ns + _ROOM_EVERY_NS
                self._drop("disk", self._end, self._missing_room())

    def backlog(self) -> Waiting:
        """What waits. Raises OSError."""
        with self._lock:
            size_bytes = self._reader.waiting_bytes(self._cursor, self._end)
            if self._cursor >= self._end or not size_bytes:
                return Waiting()
            return Waiting(size_bytes, max(0.0, (self._wall_clock_ns() - self._written_unix_ns(self._cursor)) / 1e9))

    @property
    def _kept(self) -> Position:
        return max(self._cursor, self._taken or self._cursor)

    def _request(self, record: Record) -> QueuedRequest | None:
        try:
            return self._source.request_of(record)
        except UnreadableRecordError as error:
            self._unreadable(f"a request cannot be read: {error}", 1, len(record.payload))
            return None

    def _unreadable(self, sentence: str, requests: int, size_bytes: int) -> None:
        self._tally.drop("unreadable", requests, size_bytes)
        if self.unreadable != sentence:
            self.unreadable = sentence
            _log.warning("forwarding to %s: %s; it is left out", self._destination.name, sentence)

    def _drop(self, reason: DropReason, until: Position, least_bytes: int | None = None) -> None:
        """Drop what is not being sent up to a position, or the oldest `least_bytes` of it; count and log it."""
        at = begin = self._kept
        requests = size_bytes = 0
        left_bytes = least_bytes
        while at < until and (left_bytes is None or left_bytes > 0):
            window = self._reader.window(at, until, _STEP_BYTES if left_bytes is None else min(left_bytes, _STEP_BYTES))
            if left_bytes is not None:
                left_bytes -= self._reader.waiting_bytes(at, window.next)
            at = window.next
            wanted = [record for record, _ in window.records if self._source.signal_of(record) in self._wanted]
            requests += len(wanted)
            size_bytes += sum(len(record.payload) for record in wanted)
        if at > begin:
            self._move(at)
        if requests:
            self._tally.drop(reason, requests, size_bytes)
            name, kib = self._destination.name, size_bytes >> 10
            _log.warning("forwarding to %s: %d requests (%d KiB) are dropped: %s", name, requests, kib, _WHY[reason])

    def _move(self, position: Position) -> None:
        if position <= self._cursor:
            return
        self._cursor = position
        while len(self._marks) > 1 and self._marks[0][0] <= position:
            self._marks.popleft()
        try:
            write_position(self._cursor_path, position, durable=True)
        except OSError as error:
            # What is sent twice for it is recognized by whoever wants to.
            _log.warning("%s: cannot be written (%s)", self._cursor_path, error.strerror)

    def _until(self, before_unix_ns: int) -> Position:
        """Up to where everything was written before a moment."""
        until = START
        for number in self._earlier_files(self._kept):
            if (self._reader.written_unix_ns(number) or 0) >= before_unix_ns:
                return until
            until = Position(number + 1, 0)
        for end, at_unix_ns in self._marks:
            if at_unix_ns >= before_unix_ns:
                break
            until = end
        return until

    def _written_unix_ns(self, position: Position) -> int:
        """When what stands at a position was written, or somewhat later."""
        for number in self._earlier_files(position):
            if written_unix_ns := self._reader.written_unix_ns(number):
                return written_unix_ns
        return next((at_unix_ns for end, at_unix_ns in self._marks if end > position), self._wall_clock_ns())

    def _earlier_files(self, position: Position) -> list[int]:
        """The files from a position on that were whole when this began."""
        numbers = self._reader.numbers() if position.file < self._first_end.file else []
        return [number for number in numbers if position.file <= number < self._first_end.file]


_WHY: Final[dict[DropReason, str]] = {
    "age": "they waited for longer than max_age",
    "size": "more than max_mib waited",
    "disk": "the disk is nearly full",
    "unreadable": "they cannot be read",
    "restart": "they were in the memory of a process that has ended",
}


def missing_room_bytes(folder: Path) -> int:
    """How much must be given up so that a disk has room for what is received. Raises OSError."""
    usage = shutil.disk_usage(folder)
    return max(0, min(ROOM_BYTES, usage.total // 20) - usage.free)
