"""One value that no parser takes, among others that every parser does: the others are stored, and it is counted."""

import json
import sys
from collections.abc import Callable
from operator import attrgetter

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.ingest import Taken
from telemetry.sidecar.otlp.attributes import DEPTH_MAX
from telemetry.sidecar.otlp.readable import readable
from telemetry.sidecar.otlp.responses import success
from telemetry.store.schema import span_from_row
from tests.fixtures_sidecar import any_value, decode_traces, decoded_traces

from .protobuf_bytes import far, field, in_arrays, in_pairs

COUNT = "otel.dropped_attributes_count"
# A character cut in half, and bytes that no text has.
CUT, NO_TEXT = b"gr\xc3", b"\xff\xfe\xff"


def _request(*spans: bytes, resource: bytes = b"", scope: bytes = b"") -> bytes:
    items = b"".join(field(0x12, span) for span in spans)
    return field(0x0A, field(0x0A, resource) + field(0x12, field(0x0A, scope) + items))


def _span(number: int = 1, name: str = "x", **fields: object) -> bytes:
    ids = {"trace_id": b"\1" * 16, "span_id": number.to_bytes(8, "big")}
    fields = {**ids, "name": name, "start_time_unix_nano": 1, **fields}
    return Span(**fields).SerializeToString()  # type: ignore[arg-type]


def _pair(key: str, value: object) -> KeyValue:
    return KeyValue(key=key, value=value if isinstance(value, AnyValue) else any_value(value))


@pytest.mark.parametrize("depth", [33, 40, 49])
@pytest.mark.parametrize("nested", [in_arrays, in_pairs])
def test_a_deep_attribute_is_left_out_and_all_around_it_stored(depth: int, nested: Callable[[int], AnyValue]) -> None:
    deep = _pair("deep", in_arrays(depth))
    bad = _span(
        2,
        attributes=[_pair("a", 1), deep, _pair("fits", nested(20)), _pair("deep", in_arrays(34))],
        events=[{"name": "e", "attributes": [deep, _pair("b", "c")]}],
        links=[{"attributes": [deep]}],
    )
    decoded = decode_traces([_request(_span(1), bad, _span(3)), _request(_span(4))])
    spans = [span_from_row(row) for row in decoded.spans.to_pylist()]
    assert [int(span.span_id, 16) for span in spans] == [1, 2, 3, 4]
    assert [(request.fault, request.rejected, request.changed) for request in decoded.requests] == [
        (None, 0, 1),
        (None, 0, 0),
    ]
    assert decoded.requests[0].reasons == ["span 'x': 4 of its attributes left out: nested too deeply"]
    assert list(spans[1].attributes) == ["a", "fits", COUNT]
    assert spans[1].attributes[COUNT] == 2
    assert dict(spans[1].events[0].attributes) == {"b": "c", COUNT: 1}
    assert dict(spans[1].links[0].attributes) == {COUNT: 1}


def test_deeply_nested_value_is_left_out_on_both_paths() -> None:
    deep = field(0x4A, field(0x0A, b"deep") + field(0x12, far(2000)))
    with pytest.raises(DecodeError):
        Span.FromString(deep)
    decoded = decode_traces([_request(_span(1) + deep, resource=field(0x0A, deep[3:]))])
    (span,) = decoded.spans.to_pylist()
    assert span_from_row(span).attributes == {COUNT: 1}


def test_a_deep_attribute_of_a_resource_or_a_scope_harms_no_span() -> None:
    deep = field(0x0A, b"deep") + field(0x12, far(200))
    resource = field(0x0A, deep) + field(0x0A, _pair("service.name", "s").SerializeToString())
    scope = field(0x0A, b"scope") + field(0x1A, deep) + field(0x1A, b"\x0a\xff\x7f" + b"a" * 16_383)
    decoded = decode_traces([_request(_span(1), _span(2), resource=resource, scope=scope)])
    for row in decoded.spans.to_pylist():
        span = span_from_row(row)
        assert (span.service, span.scope_name) == ("s", "scope")
        assert dict(span.resource_attributes) == {"service.name": "s", COUNT: 1}
    assert decoded.requests[0].reasons == ["a resource or a scope: 1 of its attributes left out: nested too deeply"]


def _first_key(span: SpanRow) -> str:
    return next(iter(span.attributes))


def _first_event(span: SpanRow) -> str:
    return span.events[0].name


@pytest.mark.parametrize(
    ("tag", "read"),
    [
        (0x2A, attrgetter("name")),
        (0x1A, attrgetter("trace_state")),
        (0x4A, _first_key),
        (0x5A, _first_event),
        (0x7A, attrgetter("status_message")),
    ],
    ids=["name", "trace state", "key", "event", "status"],
)
@pytest.mark.parametrize(("text", "shown"), [(CUT, "gr\ufffd"), (NO_TEXT, "\ufffd" * 3)])
def test_bytes_that_are_no_text_are_replaced(tag: int, read: Callable[[SpanRow], str], text: bytes, shown: str) -> None:
    inner = {
        0x2A: text,
        0x1A: text,
        0x4A: field(0x0A, text),
        0x5A: field(0x12, text),
        0x7A: field(0x12, text),
    }
    begun = b"\x39" + (1).to_bytes(8, "little")
    span = b"\x0a\x10" + b"\1" * 16 + b"\x12\x08" + b"\2" * 8 + begun + field(tag, inner[tag])
    decoded = decode_traces([_request(span, _span(3))])
    assert read(span_from_row(decoded.spans.to_pylist()[0])) == shown
    assert (decoded.spans.num_rows, decoded.requests[0].changed) == (2, 1)
    assert "1 of its texts are not UTF-8: those bytes are replaced" in decoded.requests[0].reasons[0]


def test_bytes_that_are_no_text_are_replaced_within_values() -> None:
    body = bytearray(_request(_span(1, attributes=[_pair("a", ["good", "BAD"]), _pair("b", "BAD")])))
    decoded = decode_traces([bytes(body).replace(b"BAD", CUT)])
    assert span_from_row(decoded.spans.to_pylist()[0]).attributes == {"a": ["good", "gr\ufffd"], "b": "gr\ufffd"}


def test_a_sender_is_warned_and_loses_no_item() -> None:
    taken = Taken(0, ("span 'x': 1 of its attributes left out: nested too deeply",))
    for signal in ("traces", "metrics"):
        message = success(signal, taken)
        assert message.partial_success.error_message == taken.reasons[0]  # type: ignore[attr-defined]
    assert success("traces", Taken()).ByteSize() == 0


def test_metric_loses_point_rather_than_attribute_of_its_series() -> None:
    metric = Metric(name="m")
    for depth in (1, 40, 2):
        metric.histogram.data_points.add(count=depth).attributes.append(_pair("a", in_arrays(depth)))
    exemplar = metric.histogram.data_points[0].exemplars.add(as_int=1)
    exemplar.filtered_attributes.append(_pair("a", in_arrays(40)))
    readable_metric = readable(metric.SerializeToString(), Metric)
    assert readable_metric is not None
    kept = Metric.FromString(readable_metric.payload).histogram.data_points
    assert [(point.count, len(point.exemplars)) for point in kept] == [(1, 0), (2, 0)]
    assert dict(readable_metric.left_out) == {"exemplar": 1, "point": 1}


def test_json_is_read_without_its_malformed_parts() -> None:
    span = {"traceId": "1" * 32, "spanId": "2" * 16, "name": "HALF", "startTimeUnixNano": 1, "attributes": "ATTRIBUTES"}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    deep = b'{"arrayValue":{"values":[' * 5000 + b'{"intValue":1}' + b"]}}" * 5000
    pairs = b'[{"key":"deep","value":%s},{"key":"a","value":{"stringValue":"gr\xc3"}}]' % deep
    body = body.replace(b'"ATTRIBUTES"', pairs).replace(b"HALF", rb"\\ud83d \ud83d\ude00 \ud83d cut")
    decoded = decoded_traces(body, "json")
    (kept_span,) = decoded.spans
    assert kept_span.name == "\\ud83d \U0001f600 \ufffd cut"
    assert kept_span.attributes == {"a": "gr\ufffd", COUNT: 1}
    assert "left out" in decoded.reasons[0]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_span_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(_span(1, attributes=[_pair("a", [1, ["b"]]), _pair("c", in_arrays(5))], events=[{"name": "ä"}]))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    readable_span = readable(bytes(body), Span)
    try:
        whole = Span.FromString(bytes(body))
    except DecodeError:
        return
    assert readable_span is not None
    assert not readable_span.is_changed
    assert Span.FromString(readable_span.payload).SerializeToString() == whole.SerializeToString()


def test_worst_bodies_take_time_in_proportion_to_length() -> None:
    """Counted in calls, not in seconds: the fields that are looked at, and the depth to which one is."""

    def calls(span: bytes) -> int:
        count = 0

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            assert readable(span, Span) is not None
        finally:
            sys.setprofile(None)
        return count

    def hostile(times: int) -> bytes:
        wide = b"".join(field(0x0A, far(DEPTH_MAX - 2)) for _ in range(5)) + field(0x0A, far(DEPTH_MAX + 1))
        return field(0x4A, field(0x12, field(0x2A, wide))) * times

    assert calls(hostile(200)) < 11 * calls(hostile(20))
    assert calls(field(0x4A, field(0x12, far(20_000)))) < 500
