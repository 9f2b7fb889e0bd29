"""Telemetry kept in the write-ahead log while nobody takes it: appended with fsync, deleted only after it was taken.

A spool is a run of log files named `<owner>-<number>.wal`, one owner per process. At-least-once: receivers know turns
by process and sequence.
"""

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from telemetry.export.wal import SUFFIX, LogFile, LogRecord

Signal = Literal["traces", "metrics"]


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One serialized export request; `items` is how many spans (or metric points) it holds."""

    signal: Signal
    items: int
    payload: bytes


class Spool:
    """The spool of one process. Not thread safe: one thread writes and reads. Raises OSError where the disk does."""

    def __init__(
        self, directory: Path, owner: str, *, max_bytes: int = 256 * 2**20, log_bytes: int = 4 * 2**20
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._max_bytes = max_bytes
        self._log_bytes = log_bytes
        self._logs: deque[LogFile] = deque()
        self._next_number = 0
        self._bytes = 0
        self._spans = 0

    @property
    def pending_spans(self) -> int:
        """Spans on disk which nobody has acknowledged."""
        return self._spans

    def append(self, record: SpoolRecord) -> bool:
        """Whether the record is durably on disk; False when the spool is full. Raises OSError."""
        entry = LogRecord(record.signal, record.items, record.payload)
        if self._bytes + entry.size_bytes > self._max_bytes:
            return False
        self._writable_log().append(entry, durable=True)
        self._bytes += entry.size_bytes
        self._spans += record.items if record.signal == "traces" else 0
        return True

    def oldest(self) -> SpoolRecord | None:
        """The oldest record not yet acknowledged, or None. Raises OSError."""
        while self._logs:
            entry = next(self._logs[0].pending(), None)
            if entry is not None and (record := export_request(entry[0])) is not None:
                return record
            self._remove_oldest_log()  # empty, or damaged behind our back
        return None

    def acknowledge(self, record: SpoolRecord) -> None:
        """Forget the record that `oldest` returned: somebody else is responsible for it now. Raises OSError."""
        log = self._logs[0]
        size = LogRecord(record.signal, record.items, record.payload).size_bytes
        self._bytes -= size
        self._spans -= record.items if record.signal == "traces" else 0
        if log.taken + size >= log.written:
            self._remove_oldest_log()
        else:
            log.take(log.taken + size)

    def close(self) -> None:
        """Close the files; what is pending stays on disk for `replay`."""
        for log in self._logs:
            log.close()
        self._logs.clear()

    def _writable_log(self) -> LogFile:
        if not self._logs or self._logs[-1].written >= self._log_bytes:
            self._logs.append(LogFile.create(self._directory / f"{self._owner}-{self._next_number:06d}{SUFFIX}"))
            self._next_number += 1
            _sync_directory(self._directory)
        return self._logs[-1]

    def _remove_oldest_log(self) -> None:
        self._logs.popleft().remove()
        if not self._logs:
            self._bytes = self._spans = 0


def export_request(entry: LogRecord) -> SpoolRecord | None:
    """The export request that a record of the log holds; None for a turn."""
    return None if entry.kind == "turn" else SpoolRecord(entry.kind, entry.items, entry.payload)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
