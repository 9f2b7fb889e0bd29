"""The log of spans: what was written is delivered once, whatever was cut off, flipped, refused or killed."""

import errno
import itertools
import logging
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from telemetry.export.encoded_spans import EncodedRequest, EncodedSpan, SpanEncoder, SpanHead, encoded_resource
from telemetry.export.sdk import SdkOptions, start
from telemetry.export.span_log import (
    ForeignLogError,
    LogFile,
    LogRecord,
    ReplayResult,
    SpanLog,
    logs_in,
    replay,
    spans_record,
)
from telemetry.model.contradictions import timestamp_contradictions, without_contradictions
from telemetry.model.turns import Turn, with_plain_texts
from tests.fixtures_sidecar import decoded_traces
from tests.strategies_turns import turns
from tests.written_spans import call_of

RESOURCE = encoded_resource(Resource({"service.name": "tests"}))
HEADER_BYTES = 20 + len(RESOURCE)


def span(name: int, length: int = 10) -> EncodedSpan:
    head = SpanHead(f"{name}", b"t" * 16, name.to_bytes(8, "big"), b"p" * 8, 1, 2)
    return SpanEncoder("scope").encoded(head, {"text": "x" * length})


def record(*names: int, turns_of: int = 1) -> LogRecord:
    return spans_record([span(name) for name in names], turns_of)


def names(request: EncodedRequest | None) -> list[int]:
    """The names of the spans of a request, whose number is the one that it states."""
    assert request is not None
    (of_process,) = ExportTraceServiceRequest.FromString(request.payload).resource_spans
    assert [attribute.key for attribute in of_process.resource.attributes] == ["service.name"]
    numbers = [int(written_span.name) for scope in of_process.scope_spans for written_span in scope.spans]
    assert request.items == len(numbers)
    return numbers


def replayed(directory: Path) -> list[list[int]]:
    requests: list[EncodedRequest] = []
    replay(directory, lambda request: requests.append(request) is None)
    return [names(one) if one.signal == "traces" else [] for one in requests]


def log_of(directory: Path, *records: LogRecord, owner: str = "one", **options: int) -> SpanLog:
    log = SpanLog(directory, owner, RESOURCE, **options)
    for written in records:
        assert log.append(written)
    return log


def test_the_bytes_are_those_of_the_description(tmp_path: Path) -> None:
    log_of(tmp_path, LogRecord("metrics", 5, 0, b"abc")).close()
    about = b"\1" + struct.pack("<II", 5, 0) + b"abc"
    expected = b"vpwal\0\0\2" + struct.pack("<QI", HEADER_BYTES, len(RESOURCE)) + RESOURCE
    assert (tmp_path / "one-000000.wal").read_bytes() == expected + struct.pack("<II", 3, zlib.crc32(about)) + about


def test_records_come_back_in_order_and_go_when_delivered(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", record(1, 2), record(3), LogRecord("metrics", 8, 0, b"m"), record(4))
    assert log.pending_spans == 4
    first = log.oldest()
    assert names(first) == [1, 2, 3]
    assert first is not None
    assert first.turns == 2
    assert log.oldest() == first  # until it is delivered
    log.delivered()
    assert log.oldest() == EncodedRequest("metrics", 8, b"m")
    log.delivered()
    assert (names(log.oldest()), log.pending_spans) == ([4], 1)
    log.delivered()
    assert log.oldest() is None
    with pytest.raises(ValueError, match="no request"):
        log.delivered()
    log.close()
    assert list((tmp_path / "log").iterdir()) == []


@pytest.mark.parametrize(
    ("lengths", "requests"),
    [
        (((1, 1), (1, 1), (1,)), [[0, 1, 2, 3], [4]]),
        (((1, 1, 1), (1, 1)), [[0, 1, 2], [3, 4]]),
        (((1,) * 6, (1,)), [[0, 1, 2, 3, 4, 5], [6]]),  # a record is never divided
        (((2**20,), (1,)), [[0], [1]]),
        (((2**19,), (2**19,), (1,)), [[0, 1], [2]]),
    ],
)
def test_a_request_is_full_by_spans_or_by_bytes(
    tmp_path: Path, lengths: tuple[tuple[int, ...], ...], requests: list[list[int]]
) -> None:
    numbers = itertools.count()
    given = [spans_record([span(next(numbers), length) for length in record_lengths], 1) for record_lengths in lengths]
    log = log_of(tmp_path, *given, batch=4)
    logged: list[list[int]] = []
    while (request := log.oldest()) is not None:
        logged.append(names(request))
        log.delivered()
    assert logged == requests


def test_files_rotate_and_are_removed_one_by_one(tmp_path: Path) -> None:
    size = record(1).size_bytes
    log = log_of(tmp_path, *map(record, range(6)), file_bytes=HEADER_BYTES + 2 * size, batch=1)
    assert len(logs_in(tmp_path)) == 3
    for number in range(4):
        assert names(log.oldest()) == [number]
        log.delivered()
    assert len(logs_in(tmp_path)) == 1
    log.close()
    assert replayed(tmp_path) == [[4, 5]]


def test_log_is_bounded_and_takes_more_after_delivery(tmp_path: Path) -> None:
    log = log_of(tmp_path, record(0), record(1), max_bytes=2 * record(0).size_bytes, batch=1)
    assert not log.append(record(2))
    assert log.pending_spans == 2
    assert names(log.oldest()) == [0]
    log.delivered()
    assert log.append(record(2))


def test_synced_records_are_durable_until_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    log = log_of(tmp_path, record(0), record(1, 2))
    assert log.durable_spans == 0
    monkeypatch.setattr(os, "fsync", synced.append)
    log.sync()
    assert (log.durable_spans, len(synced)) == (3, 2)  # the file and its folder
    log.sync()
    assert len(synced) == 2
    log.append(record(3))
    assert log.durable_spans == 3
    log.oldest()
    log.delivered()
    assert (log.durable_spans, log.pending_spans) == (0, 0)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277, 0o777])
def test_only_the_owner_may_read_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        log_of(tmp_path / "log", record(0)).close()
    finally:
        os.umask(before)
    (path,) = logs_in(tmp_path / "log")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_cut_off_anywhere_the_whole_records_before_are_read(tmp_path: Path) -> None:
    records = [record(0, 1), LogRecord("metrics", 70_000, 0, b"m"), record(2)]
    log_of(tmp_path, *records).close()
    (path,) = logs_in(tmp_path)
    content = path.read_bytes()
    ends = list(itertools.accumulate((written.size_bytes for written in records), initial=HEADER_BYTES))[1:]
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        log = LogFile.open(path)
        assert [logged for logged, _ in log.records()] == records[: sum(end <= size for end in ends)], size
        log.close()


def test_no_octet_that_was_changed_is_taken_for_data(tmp_path: Path) -> None:
    log_of(tmp_path, record(0), record(1)).close()
    (path,) = logs_in(tmp_path)
    content, first_end = path.read_bytes(), HEADER_BYTES + record(0).size_bytes
    for at in range(HEADER_BYTES, len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        log = LogFile.open(path)
        assert len(list(log.records())) == (0 if at < first_end else 1), at
        log.close()


@pytest.mark.parametrize("offset", [0, 15, 10_000, 2**64 - 1])
def test_an_offset_that_cannot_be_means_sending_twice(tmp_path: Path, offset: int) -> None:
    log = log_of(tmp_path, record(0), record(1), batch=1)
    log.oldest()
    log.delivered()
    log.close()
    (path,) = logs_in(tmp_path)
    content = bytearray(path.read_bytes())
    content[8:16] = struct.pack("<Q", offset)
    path.write_bytes(content)
    assert replayed(tmp_path) == [[0, 1]]


def test_a_log_that_was_damaged_behind_our_back_is_given_up(tmp_path: Path) -> None:
    log = log_of(tmp_path, record(0))
    (path,) = logs_in(tmp_path)
    os.truncate(path, HEADER_BYTES + 3)
    assert log.oldest() is None
    assert log.pending_spans == 0
    assert log.append(record(1))
    assert names(log.oldest()) == [1]


@pytest.mark.parametrize("content", [b'{"run_id":"run-1"}\n', b"vpwal\0\0\1" + bytes(8), b"\0" * 16, b"x"])
def test_a_log_of_another_version_stays_with_a_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "a.wal"
    other.write_bytes(content)
    log_of(tmp_path, record(0)).close()
    with pytest.raises(ForeignLogError, match=r"a\.wal is no write-ahead log of this version"):
        LogFile.open(other)
    with caplog.at_level(logging.WARNING):
        result = replay(tmp_path, lambda _: True)
    assert result == ReplayResult(requests=1, spans=1, turns=1, foreign=(other,))
    assert result.is_complete
    assert other.read_bytes() == content
    assert "a.wal is no write-ahead log of this version" in caplog.text


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path, record(0))
    real = os.pwrite

    def half(file: int, data: bytes, offset: int) -> int:
        real(file, bytes(data)[:7], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="No space left"):
            log.append(record(1))
        with pytest.raises(OSError, match="No space left"):
            SpanLog(tmp_path, "two", RESOURCE)
    assert log.pending_spans == 1
    assert log.append(record(2))
    log.close()
    assert replayed(tmp_path) == [[0, 2]]


def test_refused_record_stays_with_all_after_it(tmp_path: Path) -> None:
    log_of(tmp_path, *(LogRecord("metrics", 1, 0, b"%d" % number) for number in range(3)), record(3, 4)).close()
    log_of(tmp_path, record(5), owner="two").close()
    taken: list[EncodedRequest] = []

    def all_but_one(request: EncodedRequest) -> bool:
        taken.append(request)
        return request.payload != b"1"

    result = replay(tmp_path, all_but_one)
    assert result == ReplayResult(requests=2, spans=1, turns=1, left_requests=3, left_spans=2, left_turns=1)
    assert not result.is_complete
    assert [path.name for path in logs_in(tmp_path)] == ["one-000000.wal"]
    assert replayed(tmp_path) == [[], [], [3, 4]]
    assert replay(tmp_path / "nowhere", all_but_one) == ReplayResult()


def test_a_failing_sink_loses_nothing(tmp_path: Path) -> None:
    log_of(tmp_path, LogRecord("metrics", 1, 0, b"m"), record(1)).close()

    def failing(request: EncodedRequest) -> bool:
        if request.signal == "traces":
            raise RuntimeError("store gone")
        return True

    with pytest.raises(RuntimeError, match="store gone"):
        replay(tmp_path, failing)
    assert replayed(tmp_path) == [[1]]


WRITER = """
import sys
from pathlib import Path
from telemetry.export.encoded_spans import EncodedSpan
from telemetry.export.span_log import SpanLog, spans_record
log = SpanLog(Path(sys.argv[1]), "killed", b"", file_bytes=100_000)
number = 0
while True:
    log.append(spans_record([EncodedSpan(b"", number.to_bytes(4, "little") * (1 + number % 5000))], 1))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("lines", [1, 40, 333])
def test_killed_at_any_moment_every_confirmed_record_is_there(tmp_path: Path, lines: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        confirmed = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in writer.stdout if line.endswith("\n")]
    numbers: list[int] = []
    for path in logs_in(tmp_path):
        log = LogFile.open(path)
        numbers += [int.from_bytes(logged.payload[8:12], "little") for logged, _ in log.records()]
        log.close()
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= len(confirmed) >= lines


@pytest.mark.slow
@given(turns())
def test_a_turn_that_is_replayed_is_the_turn_that_was_emitted(turn: Turn) -> None:
    turn = msgspec.structs.replace(turn, started_unix_ns=max(1, turn.started_unix_ns))
    requests: list[EncodedRequest] = []
    with tempfile.TemporaryDirectory() as name:
        telemetry = start(SdkOptions(None, "tests", spool_dir=Path(name)))
        emitted = call_of(telemetry, turn).emit(turn)
        telemetry.shutdown(5)
        result = replay(Path(name), lambda request: requests.append(request) is None)
    assert result.turns == 1
    points = [value for name, value in msgspec.structs.asdict(turn).items() if name.endswith("_perf_ns") and value]
    last_unix_ns = turn.started_unix_ns + max(points, default=0) - min(points, default=0)
    # The receiver writes control characters out, and withholds what cannot be.
    kept = with_plain_texts(without_contradictions(emitted, timestamp_contradictions(emitted)))
    answers = [
        answer for request in requests if request.signal == "traces" for answer in decoded_traces(request.payload).turns
    ]
    # What lies beyond the 63 bits of the store is refused on any way to it.
    assert answers in ([[kept]] if last_unix_ns < 2**62 else [[kept], []])
