"""The write-ahead log: what a process answers for until somebody else does, on disk in files of one format.

A log file begins with a header, and records follow until its end:

    header    magic, with the version of the format (8 octets) | offset up to which records were handed on u64
    record    length u32 | CRC-32 of all that follows u32 | kind u8 | items u32 | payload (`length` octets)

all little endian. A payload is a serialized OTLP export request of spans or metrics, or a turn in JSON. One process and
thread writes a file; the file goes when all in it was handed on. A process that is killed while it writes leaves half
a record at the end, which a reader finds by length and checksum. An offset that is lost means sending twice, never
losing.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

Kind = Literal["traces", "metrics", "turn"]

SUFFIX: Final = ".wal"
_MAGIC: Final = b"vpwal\0\0\1"
_KINDS: Final[tuple[Kind, ...]] = ("traces", "metrics", "turn")
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_HEADER: Final = struct.Struct("<8sQ")
_OFFSET: Final = struct.Struct("<Q")
_OFFSET_AT: Final = len(_MAGIC)
_FRAME: Final = struct.Struct("<II")
_ABOUT: Final = struct.Struct("<BI")
RECORD_OVERHEAD_BYTES: Final = _FRAME.size + _ABOUT.size
_MAX_PAYLOAD_BYTES: Final = 64 * 2**20  # a longer length is a torn or foreign record
_OWNER_ONLY: Final = 0o600  # a log may hold what callers said
_FOLDER_OF_OWNER_ONLY: Final = 0o700


class ForeignLogError(Exception):
    """A file with the name of a log that is not a log of this version."""


class LogRecord(NamedTuple):
    """One record; `items` is how many spans, metric points or turns it holds."""

    kind: Kind
    items: int
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """What the record takes in a file."""
        return RECORD_OVERHEAD_BYTES + len(self.payload)


class LogFile:
    """One file of the log. Not thread safe. Every method raises OSError where the disk does."""

    def __init__(self, path: Path, file: int, written: int, taken: int) -> None:
        self.path = path
        self.written = written  # the offset at which the next record begins
        self.taken = taken  # records before this offset were handed on
        self._file = file

    @classmethod
    def create(cls, path: Path) -> "LogFile":
        """A new file, in a folder that is made where it is missing; only the owner may read either."""
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_OF_OWNER_ONLY)
            path.parent.chmod(_FOLDER_OF_OWNER_ONLY)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            os.fchmod(file, _OWNER_ONLY)  # whatever the umask takes away
            _write_all(file, _HEADER.pack(_MAGIC, _HEADER.size), 0)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        return cls(path, file, _HEADER.size, _HEADER.size)

    @classmethod
    def open(cls, path: Path) -> "LogFile":
        """A file that another process left; `written` is its size. Raises ForeignLogError."""
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        header = os.pread(file, _HEADER.size, 0)
        size = os.fstat(file).st_size
        if len(header) < _HEADER.size and _MAGIC.startswith(header[: len(_MAGIC)]):
            return cls(path, file, size, size)  # its process was killed before it wrote anything
        if not header.startswith(_MAGIC):
            os.close(file)
            raise ForeignLogError(f"{path} is no write-ahead log of this version of voiceprobe")
        (taken,) = _OFFSET.unpack_from(header, _OFFSET_AT)
        return cls(path, file, size, taken if _HEADER.size <= taken <= size else _HEADER.size)

    @property
    def is_empty(self) -> bool:
        """Whether no record was ever written."""
        return self.written <= _HEADER.size

    def append(self, record: LogRecord, *, durable: bool) -> None:
        """Write a record. It then survives the process, and where it is to be durable the machine, too."""
        about = _ABOUT.pack(_NUMBERS[record.kind], record.items)
        checksum = zlib.crc32(record.payload, zlib.crc32(about))
        blob = _FRAME.pack(len(record.payload), checksum) + about + record.payload
        try:
            _write_all(self._file, blob, self.written)
            if durable:
                os.fsync(self._file)
        except OSError:
            # Half a record may be there: the next one overwrites it, and a reader takes it for a torn tail.
            os.ftruncate(self._file, self.written)
            raise
        self.written += len(blob)

    def read(self, offset: int) -> LogRecord | None:
        """The record at an offset; None where none is whole."""
        head = os.pread(self._file, RECORD_OVERHEAD_BYTES, offset)
        if len(head) < RECORD_OVERHEAD_BYTES:
            return None
        length, checksum = _FRAME.unpack_from(head)
        kind, items = _ABOUT.unpack_from(head, _FRAME.size)
        if length > _MAX_PAYLOAD_BYTES or kind >= len(_KINDS):
            return None
        payload = os.pread(self._file, length, offset + RECORD_OVERHEAD_BYTES)
        if len(payload) < length or zlib.crc32(payload, zlib.crc32(head[_FRAME.size :])) != checksum:
            return None
        return LogRecord(_KINDS[kind], items, payload)

    def pending(self) -> Iterator[tuple[LogRecord, int]]:
        """Every whole record that was not handed on, with the offset behind it, up to the first that is not whole."""
        offset = self.taken
        while (record := self.read(offset)) is not None:
            offset += record.size_bytes
            yield record, offset

    def take(self, until: int) -> None:
        """Note that the records before an offset were handed on."""
        self.taken = until
        os.pwrite(self._file, _OFFSET.pack(until), _OFFSET_AT)

    def close(self) -> None:
        """Leave the file as it is."""
        os.close(self._file)

    def remove(self) -> None:
        """Close the file and delete it: all in it was handed on."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)


def logs_in(directory: Path) -> list[Path]:
    """The log files of a folder in the order of their names; none if the folder does not exist."""
    return sorted(directory.glob(f"*{SUFFIX}"))


def _write_all(file: int, blob: bytes, offset: int) -> None:
    taken = os.pwrite(file, blob, offset)
    while taken < len(blob):
        taken += os.pwrite(file, blob[taken:], offset + taken)
