"""Requests from queued spans: in order, bounded in number and in bytes, each span once."""

import threading
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from telemetry.export.encoded_spans import EncodedSpan, RequestEncoder, SpanEncoder, SpanHead
from telemetry.export.otlp_http import Delivery
from telemetry.export.span_processor import SpoolingSpanProcessor
from telemetry.export.spool import Spool, SpoolRecord
from telemetry.export.wal import LogFile

MIB = 2**20


class TakingSender:
    """Takes everything, and keeps it."""

    def __init__(self) -> None:
        self.records: list[SpoolRecord] = []

    def send(self, record: SpoolRecord) -> Delivery:
        self.records.append(record)
        return Delivery("taken")


def spans_of(*lengths: int) -> list[EncodedSpan]:
    """Spans with names from "0" on, and texts of so many octets."""
    encoder = SpanEncoder("scope")
    return [
        encoder.encoded(SpanHead(str(number), b"t" * 16, b"s" * 8, b"p" * 8, 1, 2), {"text": "x" * length})
        for number, length in enumerate(lengths)
    ]


def names_in(record: SpoolRecord) -> list[str]:
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
    processor = SpoolingSpanProcessor(
        RequestEncoder(Resource({})), sender, None, batch=4, queue=100, clock_s=lambda: 0.0
    )
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

    def send(self, _record: SpoolRecord) -> Delivery:
        self.is_asked.set()
        self.may_fail.wait()
        return Delivery("failed", reason="too late")


def test_what_a_late_collector_did_not_take_is_on_disk_when_shutdown_returns(tmp_path: Path) -> None:
    sender = LateSender()
    processor = SpoolingSpanProcessor(
        RequestEncoder(Resource({})), sender, lambda: Spool(tmp_path, "owner"), batch=2, queue=100
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
    assert sum(record.items for record, _ in opened.pending()) == 5
    opened.close()
