"""The log of what a process has to deliver: on disk from the moment a span ends until somebody else answers for it.

A log is a run of files named `<owner>-<number>.wal`, one owner per process. Each file begins with a header, and records
follow until its end:

    header    magic, with the version of the format (8 octets) | offset up to which records were delivered u64 |
              length of the resource u32 | the resource of all spans
    record    length u32 | CRC-32 of all that follows u32 | signal u8 | items u32 | turns u32 | payload

all little endian. The payload of metrics is an OTLP export request; that of traces are spans, each as the lengths of
its scope and of its field (u32 each) and then both. A write goes into the system's cache and so survives the process;
`SpanLog.sync` makes it survive the machine, too. A process that is killed while it writes leaves half a record at the
end, which a reader finds by length and checksum. A file goes when all in it was delivered. An offset that is lost means
sending twice, never losing: receivers know spans by their ids.
"""

import logging
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from telemetry.export.encoded_spans import EncodedRequest, EncodedSpan, Signal, request_payload

_logger = logging.getLogger(__name__)

SUFFIX: Final = ".wal"
BATCH_SPANS: Final = 256  # 64 turns: put together in a fraction of 0.1 ms
FULL_BYTES: Final = 2**20  # a request is no longer than this and one record; collectors refuse one of 20 MiB
_MAGIC: Final = b"vpwal\0\0\2"
_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
_HEADER: Final = struct.Struct("<8sQI")
_OFFSET: Final = struct.Struct("<Q")
_FRAME: Final = struct.Struct("<II")
_ABOUT: Final = struct.Struct("<BII")
_LENGTHS: Final = struct.Struct("<II")
_OVERHEAD_BYTES: Final = _FRAME.size + _ABOUT.size
_MAX_PAYLOAD_BYTES: Final = 64 * 2**20  # a longer length is a torn or foreign record
_OWNER_ONLY: Final = 0o600  # a log may hold what callers said
_FOLDER_OF_OWNER_ONLY: Final = 0o700


class ForeignLogError(Exception):
    """Raised for a file with the name of a log that is not a log of this version."""


class LogRecord(NamedTuple):
    """One record; `items` is how many spans or metric points it holds, `turns` how many of the spans are turns."""

    signal: Signal
    items: int
    turns: int
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """The length of the record in a file, in octets."""
        return _OVERHEAD_BYTES + len(self.payload)


def spans_record(spans: Sequence[EncodedSpan], turns: int) -> LogRecord:
    """The record of some spans that ended at the same time."""
    payload = b"".join(part for s in spans for part in (_LENGTHS.pack(len(s.scope), len(s.field)), s.scope, s.field))
    return LogRecord("traces", len(spans), turns, payload)


def _spans_of(payload: bytes) -> Iterator[EncodedSpan]:
    at = 0
    while at < len(payload):
        scope, field = _LENGTHS.unpack_from(payload, at)
        at += _LENGTHS.size
        yield EncodedSpan(payload[at : at + scope], payload[at + scope : at + scope + field])
        at += scope + field


class LogFile:
    """One file of the log. Not thread-safe. Every method raises OSError if the disk fails."""

    def __init__(self, path: Path, file: int, written: int, delivered: int, resource: bytes = b"") -> None:
        self.path = path
        self.written = written  # the offset at which the next record begins
        self.delivered = delivered  # records before this offset were delivered
        self._file, self._resource = file, resource

    @classmethod
    def create(cls, path: Path, resource: bytes) -> "LogFile":
        """Create a file, and its folder if missing; only the owner may read either."""
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_OF_OWNER_ONLY)
            path.parent.chmod(_FOLDER_OF_OWNER_ONLY)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
        begin = _HEADER.size + len(resource)
        try:
            os.fchmod(file, _OWNER_ONLY)  # whatever the umask takes away
            _write_all(file, _HEADER.pack(_MAGIC, begin, len(resource)) + resource, 0)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        return cls(path, file, begin, begin, resource)

    @classmethod
    def open(cls, path: Path) -> "LogFile":
        """Open a file that another process left. Raises ForeignLogError."""
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        header, size = os.pread(file, _HEADER.size, 0), os.fstat(file).st_size
        if header[: len(_MAGIC)] != _MAGIC[: len(header)]:
            os.close(file)
            raise ForeignLogError(f"{path} is no write-ahead log of this version of voiceprobe")
        if len(header) < _HEADER.size:
            return cls(path, file, size, size)  # its process was killed before it wrote anything
        _, delivered, length = _HEADER.unpack(header)
        begin = _HEADER.size + length
        delivered = delivered if begin <= delivered <= size else min(begin, size)
        return cls(path, file, size, delivered, os.pread(file, length, _HEADER.size))

    def append(self, record: LogRecord) -> None:
        """Write a record."""
        about = _ABOUT.pack(_SIGNALS.index(record.signal), record.items, record.turns)
        checksum = zlib.crc32(record.payload, zlib.crc32(about))
        blob = _FRAME.pack(len(record.payload), checksum) + about + record.payload
        try:
            _write_all(self._file, blob, self.written)
        except OSError:
            # Half a record may be there: the next one overwrites it, and a reader takes it for a torn tail.
            os.ftruncate(self._file, self.written)
            raise
        self.written += len(blob)

    def records(self) -> Iterator[tuple[LogRecord, int]]:
        """Every complete record that was not delivered, with the offset after it, up to the first incomplete one."""
        offset = self.delivered
        while len(head := os.pread(self._file, _OVERHEAD_BYTES, offset)) == _OVERHEAD_BYTES:
            length, checksum = _FRAME.unpack_from(head)
            signal, items, turns = _ABOUT.unpack_from(head, _FRAME.size)
            if length > _MAX_PAYLOAD_BYTES or signal >= len(_SIGNALS):
                return
            payload = os.pread(self._file, length, offset + _OVERHEAD_BYTES)
            if len(payload) < length or zlib.crc32(payload, zlib.crc32(head[_FRAME.size :])) != checksum:
                return
            offset += _OVERHEAD_BYTES + length
            yield LogRecord(_SIGNALS[signal], items, turns, payload), offset

    def requests(self, batch: int = BATCH_SPANS) -> Iterator[tuple[EncodedRequest, int]]:
        """The undelivered records as export requests, with the offset after each; the spans of several records are
        combined."""
        spans: list[EncodedSpan] = []
        turns = size = 0
        until = self.delivered
        for record, behind in self.records():
            is_full = len(spans) + record.items > batch or size >= FULL_BYTES
            if spans and (is_full or record.signal == "metrics"):
                yield self._request(spans, turns), until
                spans, turns, size = [], 0, 0
            if record.signal == "metrics":
                yield EncodedRequest("metrics", record.items, record.payload), behind
            else:
                spans += _spans_of(record.payload)
                turns, size = turns + record.turns, size + len(record.payload)
            until = behind
        if spans:
            yield self._request(spans, turns), until

    def _request(self, spans: Sequence[EncodedSpan], turns: int) -> EncodedRequest:
        return EncodedRequest("traces", len(spans), request_payload(self._resource, spans), turns)

    def mark_delivered(self, until: int) -> None:
        """Record that all records before an offset were delivered."""
        self.delivered = until
        os.pwrite(self._file, _OFFSET.pack(until), len(_MAGIC))

    def sync(self) -> None:
        """Write everything to disk, so that it survives a crash of the machine."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file without changing it."""
        os.close(self._file)


class SpanLog:
    """The log of one process. Threads may append while one of them delivers. Raises OSError if the disk fails, also on
    creation."""

    def __init__(
        self,
        directory: Path,
        owner: str,
        resource: bytes,
        *,
        batch: int = BATCH_SPANS,
        max_bytes: int = 256 * 2**20,
        file_bytes: int = 4 * 2**20,
    ) -> None:
        self._directory, self._owner, self._resource = directory, owner, resource
        self._batch, self._max_bytes, self._file_bytes = batch, max_bytes, file_bytes
        self._lock = threading.Lock()
        self._files: deque[LogFile] = deque()
        self._spans: deque[int] = deque()  # spans of each file that were not delivered
        self._unsynced: list[LogFile] = []
        self._oldest: tuple[EncodedRequest, int] | None = None
        self._next_number = self._bytes = 0
        self.durable_spans = 0  # of the pending ones: those that survive the machine
        self._add_file()

    @property
    def pending_spans(self) -> int:
        """The number of spans that were not delivered."""
        return sum(self._spans)

    def append(self, record: LogRecord) -> bool:
        """Write a record; return False if the log is full."""
        with self._lock:
            if self._bytes + record.size_bytes > self._max_bytes:
                return False
            if not self._files or self._files[-1].written >= self._file_bytes:
                self._add_file()
            self._files[-1].append(record)
            if self._files[-1] not in self._unsynced:
                self._unsynced.append(self._files[-1])
            self._bytes += record.size_bytes
            self._spans[-1] += record.items if record.signal == "traces" else 0
            return True

    def oldest(self) -> EncodedRequest | None:
        """The oldest records not yet delivered, as one request; None where there are none."""
        with self._lock:
            while self._files:
                self._oldest = next(self._files[0].requests(self._batch), None)
                if self._oldest is not None:
                    return self._oldest[0]
                if len(self._files) == 1 and self._files[0].delivered >= self._files[0].written:
                    return None
                self._remove_oldest()  # all delivered, or damaged behind our back
            return None

    def delivered(self) -> None:
        """Remove the request that `oldest` returned: another process is responsible for it now."""
        with self._lock:
            if self._oldest is None:
                raise ValueError("no request was taken from the log")
            request, until = self._oldest
            self._oldest = None
            spans = request.items if request.signal == "traces" else 0
            self._bytes -= until - self._files[0].delivered
            self._spans[0] -= spans
            self.durable_spans = max(0, self.durable_spans - spans)
            self._files[0].mark_delivered(until)
            if self._files[0].delivered >= self._files[0].written >= self._file_bytes:
                self._remove_oldest()

    def sync(self) -> None:
        """Write everything appended so far to disk, so that it survives a crash of the machine. May block on the
        disk."""
        with self._lock:
            files, spans = list(self._unsynced), self.pending_spans
            self._unsynced.clear()
        for file in files:
            file.sync()
        if files:
            _sync_directory(self._directory)
        self.durable_spans = spans

    def close(self) -> None:
        """Close the files. Those with undelivered records stay on disk for `replay`."""
        while self._files and self._files[0].delivered >= self._files[0].written:
            self._remove_oldest()
        for file in self._files:
            file.close()
        self._files.clear()

    def _add_file(self) -> None:
        name = f"{self._owner}-{self._next_number:06d}{SUFFIX}"
        self._files.append(LogFile.create(self._directory / name, self._resource))
        self._spans.append(0)
        self._next_number += 1

    def _remove_oldest(self) -> None:
        file = self._files.popleft()
        self._spans.popleft()
        self._bytes -= file.written - file.delivered
        if file in self._unsynced:
            self._unsynced.remove(file)
        file.close()
        file.path.unlink(missing_ok=True)


@dataclass(slots=True)
class ReplayResult:
    """Requests that `replay` delivered, with their spans and turns, and those that were not taken and stay on disk.
    `foreign` logs were written by another version, and stay, too."""

    requests: int = 0
    spans: int = 0
    turns: int = 0
    left_requests: int = 0
    left_spans: int = 0
    left_turns: int = 0
    foreign: tuple[Path, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything that this version can read was taken."""
        return not self.left_requests

    def add(self, request: EncodedRequest, *, is_taken: bool) -> None:
        """Count a request."""
        spans = request.items if request.signal == "traces" else 0
        if is_taken:
            self.requests += 1
            self.spans += spans
            self.turns += request.turns
        else:
            self.left_requests += 1
            self.left_spans += spans
            self.left_turns += request.turns


def replay(directory: Path, sink: Callable[[EncodedRequest], bool]) -> ReplayResult:
    """Hand everything in the logs of `directory` to `sink`, oldest first; each log is deleted once `sink` returned True
    for all of it.

    Call it when the processes that write there have ended. A request that is not taken stays on disk with all after it.
    A directory that does not exist holds nothing, and a log of another version stays as it is, with a warning. Raises
    OSError, and whatever `sink` raises (the request stays).
    """
    result = ReplayResult()
    for path in logs_in(directory):
        try:
            log = LogFile.open(path)
        except ForeignLogError as error:
            _logger.warning("%s; it stays where it is", error)
            result.foreign += (path,)
            continue
        with closing(log):
            is_taken = True
            for request, until in log.requests():
                if is_taken and (is_taken := sink(request)):
                    log.mark_delivered(until)
                result.add(request, is_taken=is_taken)
        if is_taken:
            path.unlink()
    return result


def logs_in(directory: Path) -> list[Path]:
    """The log files of a folder in the order of their names; none if the folder does not exist."""
    return sorted(directory.glob(f"*{SUFFIX}"))


def _write_all(file: int, blob: bytes, offset: int) -> None:
    taken = os.pwrite(file, blob, offset)
    while taken < len(blob):
        taken += os.pwrite(file, blob[taken:], offset + taken)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
