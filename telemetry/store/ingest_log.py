"""The ingest log: what was acknowledged and is not yet in segments, on disk in files of numbered names.

`telemetry.store.log_records` has their format. `append` writes records, waits for the disk once and returns the
position behind them. The owner says up to which position everything is in segments (`committed`); that position is a
small file replaced atomically, and a log file goes when all of it was committed. If the position is lost, records are
read again, never left out: the store recognizes what it has. Each life of a process writes new files.

A killed process leaves half an append at the end of a file. It is left out: nobody heard that it was stored. All other
damage is copied to the quarantine, and the records behind it are found by their marks.
"""

import contextlib
import errno
import logging
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.store.log_positions import START, Position, read_position, write_position
from telemetry.store.log_records import MAGIC, Damage, Record, file_name, header, log_files, parts
from telemetry.store.private_files import fsync_directory

FOLDER: Final = "ingest"
FILE_BYTES_MAX: Final = 64 << 20
COMMITTED_NAME: Final = "committed"
PROBE_NAME: Final = "probe"
_PROBE_BYTES: Final = 64 << 10
_OWNER_ONLY: Final = 0o600

_log = logging.getLogger(__name__)


class IngestLog:
    """The log of one store, in a folder that is made where it is missing. `append` is for one thread at a time.

    Raises StoreError when the folder cannot be used.
    """

    def __init__(self, folder: Path, quarantine: Path, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self._folder = folder
        self._quarantine = quarantine
        self._file_bytes_max = file_bytes_max
        self._lock = threading.Lock()
        self._file: int | None = None
        self._written = START
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._left = sorted(log_files(folder))
            self._committed = read_position(folder / COMMITTED_NAME) or START
        except OSError as error:
            raise StoreError(f"{folder}: cannot be used for the ingest log ({_why(error)})") from error
        self._next_number = max([self._committed.file, *self._left]) + 1
        self._own: list[int] = []
        self._damage: list[str] = []

    @property
    def position(self) -> Position:
        """The position behind the last record of this life."""
        return self._written

    def append(self, records: Sequence[Record]) -> Position:
        """Make records durable. Raises StoreError when the disk does not take them: then none of them is in the log."""
        blob = b"".join(part for record in records for part in (header(record), record.payload))
        try:
            if self._file is None or self._written.offset >= self._file_bytes_max:
                self._begin_file()
            self._write(blob)
        except OSError as error:
            raise StoreError(
                f"{self._folder}: nothing of this could be stored ({_why(error)}); send it again"
            ) from error
        return self._written

    def probe(self) -> None:
        """Try whether the disk takes octets at all. Raises StoreError."""
        path = self._folder / PROBE_NAME
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
            try:
                _write_all(file, bytes(_PROBE_BYTES), 0)
                os.fdatasync(file)
            finally:
                os.close(file)
            path.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise StoreError(f"{self._folder}: nothing can be stored ({_why(error)})") from error

    def committed(self, position: Position) -> None:
        """Note that every record before `position` is in segments, and remove the files that hold no other.

        A disk that does not take the note is no error: more is read again than needed.
        """
        with self._lock:
            if position <= self._committed:
                return
            self._committed = position
            try:
                write_position(self._folder / COMMITTED_NAME, position)
                self._remove_unneeded()
            except OSError as error:
                _log.warning("%s: the committed position could not be noted (%s)", self._folder, _why(error))

    def replay(self) -> Iterator[tuple[Record, Position]]:
        """Yield the records that earlier lives left and that are not committed, each with the position behind it.

        What is damaged is copied to the quarantine. Raises StoreError when a file cannot be read.
        """
        for number in tuple(self._left):
            if number >= self._committed.file:
                yield from self._read_file(number, self._committed.offset if number == self._committed.file else 0)

    def read(self, begin: Position, end: Position) -> Iterator[tuple[Record, Position]]:
        """Yield the records between two positions, each with the position behind it. Raises StoreError."""
        for number in sorted({*self._left, *self._own}):
            if begin.file <= number <= end.file:
                for record, position in self._read_file(number, begin.offset if number == begin.file else 0):
                    if position > end:
                        return
                    yield record, position

    def to_quarantine(self, record: Record, position: Position) -> Path:
        """Keep a record that can never be committed in the quarantine. Raises StoreError."""
        try:
            return self._keep(f"{FOLDER}-{position.file:012d}-{position.offset}.record", header(record), record.payload)
        except OSError as error:
            raise StoreError(f"{self._quarantine}: cannot be written ({_why(error)})") from error

    @property
    def damage(self) -> tuple[str, ...]:
        """One sentence for each damage that was found when files were read."""
        return tuple(self._damage)

    def close(self) -> None:
        """Release the files, and remove the last one if everything in it was committed."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        with self._lock:
            if self._committed >= self._written:
                self._path(self._written.file).unlink(missing_ok=True)

    def _begin_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        number = self._next_number
        self._next_number += 1  # a name is not used twice, even if this fails
        path = self._path(number)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            _write_all(file, MAGIC, 0)
            os.fsync(file)
            fsync_directory(self._folder)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        with self._lock:
            self._own.append(number)
        self._file = file
        self._written = Position(number, len(MAGIC))

    def _write(self, blob: bytes) -> None:
        assert self._file is not None  # noqa: S101 - `append` has opened it
        try:
            _write_all(self._file, blob, self._written.offset)
            os.fdatasync(self._file)
            if os.fstat(self._file).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "somebody has deleted its file")
        except OSError:
            # Half of it may be there, and after a failed wait nobody knows what is: the next append has a new file.
            file, self._file = self._file, None
            try:
                os.ftruncate(file, self._written.offset)
            finally:
                os.close(file)
            raise
        self._written = Position(self._written.file, self._written.offset + len(blob))

    def _remove_unneeded(self) -> None:
        number = self._committed.file
        for numbers in (self._left, self._own):
            for old in [each for each in numbers if each < number]:
                self._path(old).unlink(missing_ok=True)
                numbers.remove(old)

    def _read_file(self, number: int, start: int) -> Iterator[tuple[Record, Position]]:
        path = self._path(number)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size == 0:
                    return  # its process was killed before it wrote anything
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    for part in parts(content, start if start <= size else 0):
                        if isinstance(part, Damage):
                            self._keep_damaged(path, part, content)
                        else:
                            yield part.record, Position(number, part.end)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({_why(error)})") from error

    def _keep_damaged(self, path: Path, damage: Damage, content: mmap.mmap) -> None:
        kept = self._keep(f"{FOLDER}-{path.stem}-{damage.start}.damaged", content[damage.start : damage.end])
        self._damage.append(f"{path}: {damage.end - damage.start} octets are damaged; they are kept in {kept}")
        _log.warning("%s", self._damage[-1])

    def _keep(self, name: str, *octets: bytes) -> Path:
        self._quarantine.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = self._quarantine / name
        kept.touch(_OWNER_ONLY)
        kept.write_bytes(b"".join(octets))
        return kept

    def _path(self, number: int) -> Path:
        return self._folder / file_name(number)


def _write_all(file: int, blob: bytes, offset: int) -> None:
    view = memoryview(blob)
    while view:
        taken = os.pwrite(file, view, offset)
        view, offset = view[taken:], offset + taken


def _why(error: OSError) -> str:
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
