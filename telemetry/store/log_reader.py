"""Reads an ingest log from another process than the one that writes it, in windows."""

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.store.log_positions import Position
from telemetry.store.log_records import Damage, Record, file_name, log_files, parts


@dataclass(slots=True)
class LogWindow:
    """Records that follow one another, each with the position behind it; `next` is where to go on."""

    next: Position
    records: list[tuple[Record, Position]] = field(default_factory=list[tuple[Record, Position]])
    damaged_bytes: int = 0


class LogReader:
    """Reads between positions. What lies before an `end` that the writer gave out does not change any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def window(self, begin: Position, end: Position, bytes_max: int) -> LogWindow:
        """Read records from `begin` on until their payloads come to `bytes_max`: at least one, if there is any.

        Damage is left out, and so is what an interrupted append left. Raises OSError.
        """
        window = LogWindow(begin)
        files = log_files(self._folder)
        for number in sorted(files):
            if begin.file <= number <= end.file:
                start = begin.offset if number == begin.file else 0
                bytes_max -= self._read(files[number], window, Position(number, start), end, bytes_max)
                if bytes_max <= 0:
                    return window
        window.next = max(begin, end)
        return window

    def waiting_bytes(self, begin: Position, end: Position) -> int:
        """How much the files hold between two positions. Raises OSError."""
        total = 0
        for number, path in log_files(self._folder).items():
            if begin.file <= number <= end.file:
                size = end.offset if number == end.file else _size(path)
                total += max(0, size - (begin.offset if number == begin.file else 0))
        return total

    def numbers(self) -> list[int]:
        """The numbers of the files, in their order. Raises OSError."""
        return sorted(log_files(self._folder))

    def written_unix_ns(self, number: int) -> int | None:
        """When a file was last written to; None if it is gone."""
        try:
            return (self._folder / file_name(number)).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    @staticmethod
    def _read(path: Path, window: LogWindow, begin: Position, end: Position, bytes_max: int) -> int:
        """Add the records of one file until there are enough; return the size of their payloads."""
        found_bytes = 0
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return 0  # its writer needed the room
        with file:
            size = os.fstat(file.fileno()).st_size
            size = min(size, end.offset) if begin.file == end.file else size
            if size <= begin.offset:
                return 0
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
                for part in parts(content, begin.offset):
                    if isinstance(part, Damage):
                        window.damaged_bytes += part.end - part.start
                        continue
                    window.next = Position(begin.file, part.end)
                    window.records.append((part.record, window.next))
                    found_bytes += len(part.record.payload)
                    if found_bytes >= bytes_max:
                        break
        return found_bytes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
