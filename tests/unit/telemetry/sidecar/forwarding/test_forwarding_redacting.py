"""No text reaches a destination that redacts, in whatever place of a request it stands."""

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from telemetry.sidecar.forwarding.redacting import redact_request

TEXT = "call me on 555 0199"


def texts() -> list[KeyValue]:
    """Text in every kind of value, numbers, and a label."""
    text = AnyValue(string_value=TEXT)
    return [
        KeyValue(key="text_output", value=text),
        KeyValue(key="raw", value=AnyValue(bytes_value=TEXT.encode())),
        KeyValue(key="many", value=AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), text]))),
        KeyValue(
            key="pairs",
            value=AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=TEXT, value=AnyValue(int_value=1))])),
        ),
        KeyValue(key="count", value=AnyValue(int_value=3)),
        KeyValue(key="numbers", value=AnyValue(array_value=ArrayValue(values=[AnyValue(double_value=1.5)]))),
        KeyValue(key="gen_ai.request.model", value=AnyValue(string_value="model-1")),
    ]


KEPT = ["count", "numbers", "gen_ai.request.model"]


def traces() -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.extend(texts())
    scope = resource.scope_spans.add()
    scope.scope.attributes.extend(texts())
    span = scope.spans.add(name="llm", trace_id=b"1" * 16)
    span.attributes.extend(texts())
    span.events.add(name="first token").attributes.extend(texts())
    span.links.add(span_id=b"2" * 8).attributes.extend(texts())
    span.status.message = TEXT
    span.status.code = Status.STATUS_CODE_ERROR
    return request


def metrics() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(texts())
    scope = resource.scope_metrics.add()
    scope.scope.attributes.extend(texts())
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        metric = scope.metrics.add(name=kind)
        metric.metadata.extend(texts())
        point = getattr(metric, kind).data_points.add()
        point.attributes.extend(texts())
        if kind != "summary":
            point.exemplars.add(as_double=1.0).filtered_attributes.extend(texts())
    return request


def test_no_text_of_traces_is_left() -> None:
    redacted = redact_request(traces().SerializeToString(), "traces")
    assert b"555" not in redacted
    span = ExportTraceServiceRequest.FromString(redacted).resource_spans[0].scope_spans[0].spans[0]
    assert [entry.key for entry in span.attributes] == KEPT
    assert [entry.key for entry in span.events[0].attributes] == KEPT
    assert [entry.key for entry in span.links[0].attributes] == KEPT
    assert (span.name, span.trace_id, span.status.code, span.events[0].name) == ("llm", b"1" * 16, 2, "first token")


def test_no_text_of_metrics_is_left() -> None:
    redacted = redact_request(metrics().SerializeToString(), "metrics")
    assert b"555" not in redacted
    found = ExportMetricsServiceRequest.FromString(redacted).resource_metrics[0].scope_metrics[0].metrics
    assert [metric.WhichOneof("data") for metric in found] == [metric.name for metric in found]
    assert [entry.key for entry in found[2].histogram.data_points[0].exemplars[0].filtered_attributes] == KEPT


def test_what_has_no_text_stays_as_it_is() -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(name="llm")
    assert redact_request(request.SerializeToString(), "traces") == request.SerializeToString()


def test_fields_that_nobody_knows_are_left_out() -> None:
    unknown = bytes([(100 << 3 | 2) & 0x7F | 0x80, 100 << 3 >> 7, len(TEXT)]) + TEXT.encode()
    assert ExportTraceServiceRequest.FromString(unknown).SerializeToString() == unknown
    assert redact_request(unknown, "traces") == b""


def test_what_cannot_be_read_is_not_sent() -> None:
    with pytest.raises(DecodeError):
        redact_request(b"\xff\xff", "traces")
