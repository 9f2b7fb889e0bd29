"""Telemetry kept on disk while nobody takes it: appended with fsync, deleted only after it was acknowledged.

A spool directory holds segments named `<owner>-<number>.spool`, one owner per process. A segment is a run of records:

    length u32 | crc32 of the payload u32 | signal u8 | items u32 | payload (`length` bytes)      little endian

The payload is a serialized OTLP export request. Beside a segment, `<segment>.ack` holds the offset (u64) up to which
records were acknowledged; losing it means sending twice, never losing. A torn tail (the process died while writing)
ends a segment without an error. At-least-once: receivers know turns by process and sequence.
"""

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Signal = Literal["traces", "metrics"]

SUFFIX: Final = ".spool"
_HEADER: Final = struct.Struct("<IIBI")
_OFFSET: Final = struct.Struct("<Q")
_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
_MAX_PAYLOAD_BYTES: Final = 64 * 2**20  # a longer length is a torn or foreign header
_OWNER_ONLY: Final = 0o600  # a spool may hold what callers said


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One serialized export request; `items` is how many spans (or metric points) it holds."""

    signal: Signal
    items: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What `replay` did: `left` records were not taken and stay on disk; `torn_segments` ended in half a record. Turns
    are counted as `replay` was given to count them."""

    records: int
    spans: int
    left: int
    torn_segments: int
    turns: int = 0
    left_spans: int = 0
    left_turns: int = 0


@dataclass(slots=True)
class _Segment:
    path: Path
    file: int
    written: int = 0
    acknowledged: int = 0

    @property
    def ack_path(self) -> Path:
        return self.path.with_suffix(SUFFIX + ".ack")


class Spool:
    """The spool of one process. Not thread safe: one thread writes and reads. Raises OSError where the disk does."""

    def __init__(
        self, directory: Path, owner: str, *, max_bytes: int = 256 * 2**20, segment_bytes: int = 4 * 2**20
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._segments: deque[_Segment] = deque()
        self._next_number = 0
        self._bytes = 0
        self._spans = 0
        self._records = 0

    @property
    def pending_spans(self) -> int:
        """Spans on disk which nobody has acknowledged."""
        return self._spans

    @property
    def pending_records(self) -> int:
        """Records on disk which nobody has acknowledged."""
        return self._records

    def append(self, record: SpoolRecord) -> bool:
        """Whether the record is durably on disk; False when the spool is full. Raises OSError."""
        header = _HEADER.pack(
            len(record.payload), zlib.crc32(record.payload), _SIGNALS.index(record.signal), record.items
        )
        blob = header + record.payload
        if self._bytes + len(blob) > self._max_bytes:
            return False
        segment = self._writable_segment()
        try:
            _write_all(segment.file, blob, segment.written)
            os.fsync(segment.file)
        except OSError:
            # Half a record may be there: the next one overwrites it, and a reader takes it for a torn tail.
            os.ftruncate(segment.file, segment.written)
            raise
        segment.written += len(blob)
        self._bytes += len(blob)
        self._records += 1
        self._spans += record.items if record.signal == "traces" else 0
        return True

    def oldest(self) -> SpoolRecord | None:
        """The oldest record not yet acknowledged, or None. Raises OSError."""
        while self._segments:
            segment = self._segments[0]
            record = (
                _read_record(segment.file, segment.acknowledged) if segment.acknowledged < segment.written else None
            )
            if record is not None:
                return record
            self._remove_oldest_segment()  # empty, or damaged behind our back
        return None

    def acknowledge(self, record: SpoolRecord) -> None:
        """Forget the record that `oldest` returned: somebody else is responsible for it now. Raises OSError."""
        segment = self._segments[0]
        size = _HEADER.size + len(record.payload)
        segment.acknowledged += size
        self._bytes -= size
        self._records -= 1
        self._spans -= record.items if record.signal == "traces" else 0
        if segment.acknowledged >= segment.written:
            self._remove_oldest_segment()
        else:
            _write_offset(segment.ack_path, segment.acknowledged)

    def close(self) -> None:
        """Close the files; what is pending stays on disk for `replay`."""
        for segment in self._segments:
            os.close(segment.file)
        self._segments.clear()

    def _writable_segment(self) -> _Segment:
        if not self._segments or self._segments[-1].written >= self._segment_bytes:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._directory / f"{self._owner}-{self._next_number:06d}{SUFFIX}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
            self._next_number += 1
            self._segments.append(_Segment(path, file))
            _sync_directory(self._directory)
        return self._segments[-1]

    def _remove_oldest_segment(self) -> None:
        segment = self._segments.popleft()
        os.close(segment.file)
        segment.path.unlink(missing_ok=True)
        segment.ack_path.unlink(missing_ok=True)
        if not self._segments:
            self._bytes = self._records = self._spans = 0


def replay(
    spool_dir: Path, sink: Callable[[SpoolRecord], bool], turns_in: Callable[[SpoolRecord], int] = lambda _: 0
) -> ReplayResult:
    """Hand every record left in `spool_dir` to `sink`, oldest first; each is deleted once `sink` returned True.

    Call it when the processes that write there have ended. A record that is not taken ends its segment and stays on
    disk with all after it. `turns_in` counts the turns of a record. A directory that does not exist holds nothing.
    Raises OSError, and whatever `sink` raises (the record stays).
    """
    taken, left, torn = _Tally(turns_in), _Tally(turns_in), 0
    for path in sorted(spool_dir.glob(f"*{SUFFIX}")):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ack_path = path.with_suffix(SUFFIX + ".ack")
            offset, size = _read_offset(ack_path), os.fstat(file).st_size
            remaining = deque(_records_from(file, offset))
            while remaining and sink(remaining[0]):
                record = remaining.popleft()
                taken.add(record)
                offset += _HEADER.size + len(record.payload)
                _write_offset(ack_path, offset)
            for record in remaining:
                left.add(record)
            if not remaining:
                torn += offset < size
                path.unlink()
                ack_path.unlink(missing_ok=True)
        finally:
            os.close(file)
    return ReplayResult(taken.records, taken.spans, left.records, torn, taken.turns, left.spans, left.turns)


@dataclass(slots=True)
class _Tally:
    turns_in: Callable[[SpoolRecord], int]
    records: int = 0
    spans: int = 0
    turns: int = 0

    def add(self, record: SpoolRecord) -> None:
        self.records += 1
        self.spans += record.items if record.signal == "traces" else 0
        self.turns += self.turns_in(record)


def _records_from(file: int, offset: int) -> Iterator[SpoolRecord]:
    while (record := _read_record(file, offset)) is not None:
        yield record
        offset += _HEADER.size + len(record.payload)


def _read_record(file: int, offset: int) -> SpoolRecord | None:
    header = os.pread(file, _HEADER.size, offset)
    if len(header) < _HEADER.size:
        return None
    length, checksum, signal, items = _HEADER.unpack(header)
    if length > _MAX_PAYLOAD_BYTES or signal >= len(_SIGNALS):
        return None
    payload = os.pread(file, length, offset + _HEADER.size)
    if len(payload) < length or zlib.crc32(payload) != checksum:
        return None
    return SpoolRecord(_SIGNALS[signal], items, payload)


def _write_all(file: int, blob: bytes, offset: int) -> None:
    view = memoryview(blob)
    while view:
        taken = os.pwrite(file, view, offset)
        view, offset = view[taken:], offset + taken


def _read_offset(path: Path) -> int:
    try:
        blob = path.read_bytes()
    except FileNotFoundError:
        return 0
    return _OFFSET.unpack(blob)[0] if len(blob) == _OFFSET.size else 0


def _write_offset(path: Path, offset: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        os.pwrite(file, _OFFSET.pack(offset), 0)
    finally:
        os.close(file)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
