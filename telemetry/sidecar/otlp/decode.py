"""Decodes OTLP export requests (protobuf or JSON) into turns, spans and metric points. Pure: bytes in, values out.

OTLP/JSON writes trace and span ids as hex, unlike other bytes fields in protobuf's JSON form. Protobuf's own JSON
parser, which would read the hex as base64, is therefore not used; both encodings are read into the same `_Span`.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line, several_lines
from telemetry.model.spans import SpanEvent, SpanRow
from telemetry.model.turn_spans import TurnDecodeError, decode_turn
from telemetry.model.turn_texts import with_plain_texts
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp import attributes as values
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.store.schema import Batch, PointRow, fits

Encoding = Literal["protobuf", "json"]

KNOWN_SPANS: Final = frozenset(
    {
        semconv.SPAN_RUN,
        semconv.SPAN_CALL,
        semconv.SPAN_TURN,
        semconv.SPAN_ASR,
        semconv.SPAN_LLM,
        semconv.SPAN_TTS,
    }
)
# The turn attributes that the row of a turn's span keeps; all of the turn's fields are in the turns table.
_KEPT_ON_TURN_SPAN: Final = frozenset(semconv.TURN_PREFIX + name for name in ("turn_index", "source", "outcome"))
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_UINT64_MAX: Final = 2**64 - 1
_INT64_MAX: Final = 2**63 - 1
_REASONS_MAX: Final = 3
_TEXT_MAX: Final = 2**16


@dataclass(slots=True)
class Decoded:
    """One decoded request: what to store, how many items were rejected, and the first few reasons.

    `unmapped` counts spans with unknown names, `unknown_turn_fields` unknown attributes of turns.
    """

    turns: list[Turn] = field(default_factory=list[Turn])
    spans: list[SpanRow] = field(default_factory=list[SpanRow])
    points: list[PointRow] = field(default_factory=list[PointRow])
    received: int = 0
    rejected: int = 0
    reasons: list[str] = field(default_factory=list[str])
    unmapped: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])

    @property
    def batch(self) -> Batch:
        """The rows to store."""
        return Batch(self.turns, self.spans, self.points)

    def reject(self, reason: str, items: int = 1) -> None:
        """Reject items of the request; the rest is stored."""
        self.rejected += items
        if len(self.reasons) < _REASONS_MAX and reason not in self.reasons:
            self.reasons.append(reason)


@dataclass(slots=True)
class _Span:
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    service: str
    start_unix_ns: int
    end_unix_ns: int
    attributes: dict[str, object]
    events: tuple[tuple[str, int], ...]


def decode_traces(body: bytes, encoding: Encoding) -> Decoded:
    """Decode the body of a trace export. Raises OtlpDecodeError if it is invalid."""
    if encoding == "json":
        return _traces(_spans_from_json(_json_object(body)))
    request = ExportTraceServiceRequest()
    _parse(request, body)
    return traces_from_protobuf(request)


def traces_from_protobuf(request: ExportTraceServiceRequest) -> Decoded:
    """Decode a trace export that has already been parsed (gRPC)."""
    return _traces(_spans_from_protobuf(request))


def decode_metrics(body: bytes, encoding: Encoding) -> Decoded:
    """Decode the body of a metrics export. Raises OtlpDecodeError if it is invalid."""
    if encoding == "json":
        return _metrics_from_json(_json_object(body))
    request = ExportMetricsServiceRequest()
    _parse(request, body)
    return metrics_from_protobuf(request)


def metrics_from_protobuf(request: ExportMetricsServiceRequest) -> Decoded:
    """Decode a metrics export that has already been parsed (gRPC)."""
    decoded = Decoded()
    for resource in request.resource_metrics:
        service = _service(values.from_protobuf(resource.resource.attributes))
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                _metric_from_protobuf(metric, service, decoded)
    return decoded


def _parse(request: ExportTraceServiceRequest | ExportMetricsServiceRequest, body: bytes) -> None:
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise OtlpDecodeError(f"the body is not a protobuf {type(request).__name__}") from error


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        content: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise OtlpDecodeError(f"the body is not JSON ({error})") from error
    return values.mapping(content, "the body")


def _service(resource: dict[str, object]) -> str:
    name = resource.get("service.name")
    return one_line(name) if isinstance(name, str) else ""


def _spans_from_protobuf(request: ExportTraceServiceRequest) -> Iterator[_Span]:
    for resource in request.resource_spans:
        service = _service(values.from_protobuf(resource.resource.attributes))
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_span_id=span.parent_span_id.hex(),
                    name=span.name,
                    service=service,
                    start_unix_ns=span.start_time_unix_nano,
                    end_unix_ns=span.end_time_unix_nano,
                    attributes=values.from_protobuf(span.attributes),
                    events=tuple((event.name, event.time_unix_nano) for event in span.events),
                )


def _spans_from_json(request: dict[str, Any]) -> Iterator[_Span]:
    for resource in values.objects(request.get("resourceSpans"), "resourceSpans"):
        service = _service(values.from_json(values.mapping(resource.get("resource"), "resource").get("attributes")))
        for scope in values.objects(resource.get("scopeSpans"), "scopeSpans"):
            for span in values.objects(scope.get("spans"), "spans"):
                yield _Span(
                    trace_id=values.text(span.get("traceId"), "traceId").lower(),
                    span_id=values.text(span.get("spanId"), "spanId").lower(),
                    parent_span_id=values.text(span.get("parentSpanId"), "parentSpanId").lower(),
                    name=values.text(span.get("name"), "name"),
                    service=service,
                    start_unix_ns=_moment(span.get("startTimeUnixNano"), "startTimeUnixNano"),
                    end_unix_ns=_moment(span.get("endTimeUnixNano"), "endTimeUnixNano"),
                    attributes=values.from_json(span.get("attributes")),
                    events=tuple(
                        (values.text(event.get("name"), "name"), _moment(event.get("timeUnixNano"), "timeUnixNano"))
                        for event in values.objects(span.get("events"), "events")
                    ),
                )


def _moment(value: object, what: str) -> int:
    return 0 if value is None else values.integer(value, what, 0, _UINT64_MAX)


def _traces(spans: Iterator[_Span]) -> Decoded:
    decoded = Decoded()
    for span in spans:
        decoded.received += 1
        fault = _span_fault(span)
        if fault is not None:
            decoded.reject(fault)
        elif span.name != semconv.SPAN_TURN:
            if span.name not in KNOWN_SPANS:
                decoded.unmapped[one_line(span.name)] += 1
            decoded.spans.append(_row(span, span.attributes))
        else:
            _take_turn(span, decoded)
    return decoded


def _take_turn(span: _Span, decoded: Decoded) -> None:
    try:
        found = decode_turn(span.attributes, span.trace_id, span.span_id)
    except TurnDecodeError as error:
        decoded.reject(f"span {span.span_id}: {error}")
        return
    if not fits(found.turn):
        decoded.reject(f"span {span.span_id}: an integer of the turn is too large to store (62 bits)")
        return
    decoded.unknown_turn_fields.update(map(one_line, found.unknown_fields))
    decoded.turns.append(with_plain_texts(found.turn))
    kept = {
        name: value
        for name, value in span.attributes.items()
        if not name.startswith(semconv.TURN_PREFIX) or name in _KEPT_ON_TURN_SPAN
    }
    decoded.spans.append(_row(span, kept))


def _plain(value: object) -> object:
    """Remove control characters from a sender's value, at any depth."""
    if isinstance(value, str):
        return several_lines(value, _TEXT_MAX)
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return _plain_attributes(cast("dict[str, object]", value))
    return value


def _plain_attributes(attributes: dict[str, object]) -> dict[str, object]:
    return {one_line(name): _plain(value) for name, value in attributes.items()}


def _row(span: _Span, attributes: dict[str, object]) -> SpanRow:
    return SpanRow(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id or None,
        name=one_line(span.name),
        service=span.service,
        start_unix_ns=span.start_unix_ns,
        end_unix_ns=span.end_unix_ns,
        attributes=_plain_attributes(attributes),
        events=tuple(SpanEvent(one_line(name), moment) for name, moment in span.events),
    )


def _span_fault(span: _Span) -> str | None:
    for what, identity, digits in (("trace", span.trace_id, 32), ("span", span.span_id, 16)):
        if not _is_hex(identity, digits) or not identity.strip("0"):
            return f"span {span.name!r}: its {what} id is not {digits} hex digits, or is all zeros"
    if span.parent_span_id and not _is_hex(span.parent_span_id, 16):
        return f"span {span.name!r}: its parent span id is not 16 hex digits"
    if max(span.start_unix_ns, span.end_unix_ns, *(moment for _, moment in span.events)) > _INT64_MAX:
        return f"span {span.name!r}: a time is too large to store (63 bits)"
    return None


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and all(character in "0123456789abcdef" for character in text)


def _metric_from_protobuf(metric: Metric, service: str, decoded: Decoded) -> None:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    points = getattr(metric, kind).data_points
    decoded.received += len(points)
    if kind == "gauge":
        numbers = metric.gauge.data_points
    elif kind == "sum":
        numbers = metric.sum.data_points
    else:
        _reject_kind(metric.name, kind, len(points), decoded)
        return
    for point in numbers:
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        has_value = point.WhichOneof("value") is not None and not point.flags & _NO_VALUE
        _take_point(
            PointRow(metric.name, point.time_unix_nano, float(value), values.from_protobuf(point.attributes), service),
            decoded,
            has_value=has_value,
        )


def _metrics_from_json(request: dict[str, Any]) -> Decoded:
    decoded = Decoded()
    for resource in values.objects(request.get("resourceMetrics"), "resourceMetrics"):
        service = _service(values.from_json(values.mapping(resource.get("resource"), "resource").get("attributes")))
        for scope in values.objects(resource.get("scopeMetrics"), "scopeMetrics"):
            for metric in values.objects(scope.get("metrics"), "metrics"):
                _metric_from_json(metric, service, decoded)
    return decoded


def _metric_from_json(metric: dict[str, Any], service: str, decoded: Decoded) -> None:
    name = values.text(metric.get("name"), "name")
    for kind in ("gauge", "sum", "histogram", "exponentialHistogram", "summary"):
        if kind not in metric:
            continue
        points = values.objects(values.mapping(metric[kind], kind).get("dataPoints"), "dataPoints")
        decoded.received += len(points)
        if kind not in ("gauge", "sum"):
            _reject_kind(name, kind, len(points), decoded)
            continue
        for point in points:
            flags = values.integer(point.get("flags", 0), "flags", 0, _UINT64_MAX)
            if point.get("asInt") is not None:
                value = float(values.integer(point["asInt"], "asInt", -_INT64_MAX - 1, _INT64_MAX))
            else:
                value = values.number(point.get("asDouble", 0.0), "asDouble")
            row = PointRow(
                name,
                _moment(point.get("timeUnixNano"), "timeUnixNano"),
                value,
                values.from_json(point.get("attributes")),
                service,
            )
            stated = point.get("asInt") is not None or point.get("asDouble") is not None
            _take_point(row, decoded, has_value=stated and not flags & _NO_VALUE)


def _take_point(point: PointRow, decoded: Decoded, *, has_value: bool) -> None:
    if not has_value:
        return  # the sender reports that there was nothing to measure
    if point.unix_ns > _INT64_MAX:
        decoded.reject(f"metric {point.name!r}: a time is too large to store (63 bits)")
    elif not math.isfinite(point.value):
        decoded.reject(f"metric {point.name!r}: {point.value} is not a finite number")
    else:
        plain = replace(point, name=one_line(point.name), attributes=_plain_attributes(point.attributes))
        decoded.points.append(plain)


def _reject_kind(name: str, kind: str, points: int, decoded: Decoded) -> None:
    decoded.reject(f"metric {name!r}: {kind} points are not stored, only gauges and sums", points)
