"""Requests from queued spans: in order, bounded in number and in bytes, each span once."""

import errno
import os
import threading
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from telemetry.export.encoded_spans import EncodedRequest, EncodedSpan, SpanEncoder, SpanHead, encoded_resource
from telemetry.export.otlp_http import Delivery
from telemetry.export.span_log import LogFile, SpanLog, replay, spans_record
from telemetry.export.span_processor import SpoolingSpanProcessor

MIB = 2**20
RESOURCE = encoded_resource(Resource({}))


class TakingSender:
    """Takes everything, and keeps it."""

    def __init__(self) -> None:
        self.records: list[EncodedRequest] = []

    def send(self, record: EncodedRequest) -> Delivery:
        self.records.append(record)
        return Delivery("taken")


def spans_of(*lengths: int) -> list[EncodedSpan]:
    """Spans with names from "0" on, and texts of so many octets."""
    encoder = SpanEncoder("scope")
    return [
        encoder.encoded(SpanHead(str(number), b"t" * 16, b"s" * 8, b"p" * 8, 1, 2), {"text": "x" * length})
        for number, length in enumerate(lengths)
    ]


def names_in(record: EncodedRequest) -> list[str]:
    (of_process,) = ExportTraceServiceRequest.FromString(record.payload).resource_spans
    (of_scope,) = of_process.scope_spans
    assert record.items == len(of_scope.spans)
    return [span.name for span in of_scope.spans]


@pytest.mark.parametrize(
    ("lengths", "requests"),
    [
        ((1, 1, 1), [["0", "1", "2"]]),
        ((1,) * 5, [["0", "1", "2", "3"], ["4"]]),
        ((MIB, 1, 1), [["0"], ["1", "2"]]),
        ((1, 3 * MIB, 1), [["0", "1"], ["2"]]),
        ((MIB // 2, MIB // 2, MIB // 2), [["0", "1"], ["2"]]),
        ((MIB // 2, MIB // 2 - 400, 1, 1, 1), [["0", "1", "2", "3"], ["4"]]),
    ],
)
def test_a_request_is_full_by_spans_or_by_bytes(lengths: tuple[int, ...], requests: list[list[str]]) -> None:
    sender = TakingSender()
    processor = SpoolingSpanProcessor(RESOURCE, sender, None, batch=4, queue=100, clock_s=lambda: 0.0)
    processor.offer_spans(spans_of(*lengths))
    assert processor.force_flush()
    processor.shutdown()
    assert [names_in(record) for record in sender.records] == requests
    stats = processor.stats()
    assert (stats.exported_spans, stats.dropped_spans, stats.waiting_spans) == (len(lengths), 0, 0)


class LateSender:
    """Fails, long after the end was asked for."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.may_fail = threading.Event()

    def send(self, _record: EncodedRequest) -> Delivery:
        self.is_asked.set()
        self.may_fail.wait()
        return Delivery("failed", reason="too late")


def test_what_a_late_collector_did_not_take_is_on_disk_when_shutdown_returns(tmp_path: Path) -> None:
    sender = LateSender()
    processor = SpoolingSpanProcessor(
        RESOURCE, sender, lambda: SpanLog(tmp_path, "owner", RESOURCE), batch=2, queue=100
    )
    processor.offer_spans(spans_of(1, 1, 1, 1, 1))
    sender.is_asked.wait()
    # Longer than a shutdown waits that has no disk to wait for.
    threading.Timer(1.0, sender.may_fail.set).start()
    processor.shutdown(timeout_s=0.01)
    stats = processor.stats()
    assert (stats.dropped_spans, stats.drop_reason, stats.exported_spans) == (0, None, 0)
    (log,) = tmp_path.glob("*.wal")
    opened = LogFile.open(log)
    assert sum(record.items for record, _ in opened.records()) == 5
    opened.close()


def test_where_the_disk_takes_no_more_a_live_collector_gets_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sender, log = TakingSender(), SpanLog(tmp_path, "owner", RESOURCE)
    processor = SpoolingSpanProcessor(RESOURCE, sender, lambda: log, batch=2, queue=3)
    real = os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        if len(data) > 8:  # all but the offset of what was delivered
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, offset)

    spans = spans_of(*(1,) * 9)
    processor.offer_spans(spans[:3], turns=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        for each in spans[3:6]:
            processor.offer_spans([each])
        assert processor.force_flush()
    processor.offer_spans(spans[6:])
    processor.shutdown()
    assert sorted(name for record in sender.records for name in names_in(record)) == [str(n) for n in range(9)]
    assert caplog.text.count("the spool takes no more: [Errno 28] No space left on device") == 1
    stats = processor.stats()
    assert (stats.exported_spans, stats.dropped_spans, stats.waiting_spans) == (9, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_spool_fills_the_memory_and_the_rest_is_counted(tmp_path: Path) -> None:
    class Deaf:
        def send(self, _request: EncodedRequest) -> Delivery:
            return Delivery("failed", reason="deaf")

    spans = spans_of(*(1,) * 9)
    room = 4 * spans_record(spans[:1], 0).size_bytes
    processor = SpoolingSpanProcessor(
        RESOURCE, Deaf(), lambda: SpanLog(tmp_path, "owner", RESOURCE, max_bytes=room), queue=3
    )
    for each in spans:
        processor.offer_spans([each])
    assert not processor.force_flush()  # what is in memory alone is neither sent nor spooled
    stats = processor.stats()
    assert (stats.spooled_spans, stats.waiting_spans, stats.dropped_spans) == (4, 3, 2)
    assert stats.drop_reason == "the spool is full"
    processor.shutdown(0.1)
    stats = processor.stats()
    assert (stats.spooled_spans, stats.waiting_spans, stats.dropped_spans) == (4, 0, 5)
    assert replay(tmp_path, lambda _: True).spans == 4
