"""The format of the files of an ingest log.

    file      magic, with the version of the format (8 octets), then records
    record    header | payload
    header    mark (4 octets) | length u32 | kind u8 | CRC-32 of the payload u32 | CRC-32 of the header so far u32

all little endian.
"""

import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

MAGIC: Final = b"vpingst\1"
_MARK: Final = b"\xf3vp\xa5"
_HEADER: Final = struct.Struct("<4sIBI")
_CHECK: Final = struct.Struct("<I")
_HEADER_BYTES: Final = _HEADER.size + _CHECK.size
_NAME: Final = re.compile(r"([0-9]{12})\.log")


class Record(NamedTuple):
    """One record. What `kind` (0 to 255) means is its writer's affair."""

    kind: int
    payload: bytes


def file_name(number: int) -> str:
    """The name of a file of a log."""
    return f"{number:012d}.log"


def log_files(folder: Path) -> dict[int, Path]:
    """The files of a log by their numbers. Raises OSError."""
    return {int(found[1]): path for path in folder.iterdir() if (found := _NAME.fullmatch(path.name))}


class Found(NamedTuple):
    """A record, and the offset behind it."""

    record: Record
    end: int


class Damage(NamedTuple):
    """Octets that are not a record."""

    start: int
    end: int


def parts(content: mmap.mmap, start: int) -> Iterator[Found | Damage]:
    """Yield the records from an offset on, and what lies between them; half an append is left out."""
    size = len(content)
    at = max(start, len(MAGIC))
    if content[: len(MAGIC)] != MAGIC[:size]:
        yield Damage(0, _next_header(content, 0))
        at = max(start, _next_header(content, 0))
    while at < size:
        found = _header_at(content, at)
        if found is None:
            end = _next_header(content, at + 1)
            if end < size or not _is_torn_header(content, at):
                yield Damage(at, end)
        else:
            kind, length, checksum = found
            end = at + _HEADER_BYTES + length
            if end <= size:
                payload = content[at + _HEADER_BYTES : end]
                whole = zlib.crc32(payload) == checksum
                yield Found(Record(kind, payload), end) if whole else Damage(at, end)
        at = end


def header(record: Record) -> bytes:
    """What stands before the payload of a record."""
    octets = _HEADER.pack(_MARK, len(record.payload), record.kind, zlib.crc32(record.payload))
    return octets + _CHECK.pack(zlib.crc32(octets))


def _header_at(content: mmap.mmap, at: int) -> tuple[int, int, int] | None:
    """Read kind, length and checksum of the record at an offset; None where no record begins."""
    octets = content[at : at + _HEADER_BYTES]
    if len(octets) < _HEADER_BYTES or not octets.startswith(_MARK):
        return None
    if _CHECK.unpack_from(octets, _HEADER.size)[0] != zlib.crc32(octets[: _HEADER.size]):
        return None
    _mark, length, kind, checksum = _HEADER.unpack_from(octets)
    return kind, length, checksum


def _next_header(content: mmap.mmap, start: int) -> int:
    """Find where the next record begins; the size of the content if none does."""
    at = content.find(_MARK, start)
    while at >= 0:
        if _header_at(content, at) is not None:
            return at
        at = content.find(_MARK, at + 1)
    return len(content)


def _is_torn_header(content: mmap.mmap, at: int) -> bool:
    """Whether the rest is what an interrupted append leaves: a part of a header, or blocks that were never written."""
    rest = content[at:]
    return (len(rest) < _HEADER_BYTES and rest[: len(_MARK)] == _MARK[: len(rest)]) or not any(rest)
