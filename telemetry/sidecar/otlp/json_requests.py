"""Turns OTLP/JSON requests into the protobuf requests that they stand for, so that there is one way of decoding.

OTLP/JSON writes trace and span ids as hex, unlike other bytes fields in protobuf's JSON form. Protobuf's own JSON
parser, which would read the hex as base64, is therefore not used.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from telemetry.sidecar.otlp import json_values as values
from telemetry.sidecar.otlp.attributes import DEPTH_MAX, MESSAGES_MAX, OtlpDecodeError
from telemetry.sidecar.otlp.framing import ITEMS_MAX
from telemetry.sidecar.otlp.json_bodies import json_content

# An object takes up to 232 bytes in memory, a value in a list 8; a body of 20 MB of real attributes has fewer.
OBJECTS_MAX: Final = 500_000
VALUES_MAX: Final = 2_000_000
_HEX: Final = re.compile(r"([0-9a-f]{2})*")
_UINT32_MAX: Final = 2**32 - 1
_UINT64_MAX: Final = 2**64 - 1
_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
# An id that is not hex becomes bytes of a length that no id has, and is then refused as any other.
_NO_ID: Final = b"\0"
# An attribute of an event is the deepest one in its item, and has three messages around it.
_MESSAGES_MAX: Final = MESSAGES_MAX - 3


def traces_from_json(body: bytes) -> bytes:
    """Turn a trace export into protobuf. Raises OtlpDecodeError if it is invalid."""
    request = ExportTraceServiceRequest()
    for scope, span in _items(body, request.resource_spans, "spans"):
        _span(scope.spans.add(), span)
    return request.SerializeToString()


def metrics_from_json(body: bytes) -> bytes:
    """Turn a metrics export into protobuf; of the kinds that are not stored only the number of points is kept. Raises
    OtlpDecodeError if it is invalid."""
    request = ExportMetricsServiceRequest()
    for scope, metric in _items(body, request.resource_metrics, "metrics"):
        _metrics(scope.metrics.add, metric)
    return request.SerializeToString()


def _items(body: bytes, messages: Any, what: Literal["spans", "metrics"]) -> Iterator[tuple[Any, Any]]:
    """Every span or metric of a body with the message of its scope, which is added to `messages` with its resource."""
    of_resource, of_scope, count = f"resource{what.capitalize()}", f"scope{what.capitalize()}", 0
    for resource in values.objects(_parsed(body).get(of_resource), of_resource):
        added = messages.add()
        _resource(added.resource, resource)
        scopes = getattr(added, f"scope_{what}")
        for scope in values.objects(resource.get(of_scope), of_scope):
            message = scopes.add()
            _scope(message.scope, scope)
            for item in values.objects(scope.get(what), what):
                count += 1
                _check_count(count, what)
                yield message, item


def _parsed(body: bytes) -> dict[str, Any]:
    if body.count(b"{") + body.count(b"[") > OBJECTS_MAX or body.count(b",") > VALUES_MAX:
        raise OtlpDecodeError(
            f"the body has more than {OBJECTS_MAX} objects and arrays, or more than {VALUES_MAX} values; "
            "send smaller batches"
        )
    return values.mapping(json_content(body), "the body")


def _check_count(count: int, what: str) -> None:
    if count > ITEMS_MAX:
        raise OtlpDecodeError(f"the request holds more than {ITEMS_MAX} {what}; send smaller batches")


def _resource(message: Resource, owner: dict[str, Any]) -> None:
    _attributes(message.attributes, values.mapping(owner.get("resource"), "resource").get("attributes"))


def _scope(message: InstrumentationScope, owner: dict[str, Any]) -> None:
    scope = values.mapping(owner.get("scope"), "scope")
    message.name = values.text(scope.get("name"), "name")
    message.version = values.text(scope.get("version"), "version")


def _span(message: Span, span: dict[str, Any]) -> None:
    message.trace_id = _id(span.get("traceId"), "traceId")
    message.span_id = _id(span.get("spanId"), "spanId")
    message.parent_span_id = _id(span.get("parentSpanId"), "parentSpanId")
    message.trace_state = values.text(span.get("traceState"), "traceState")
    message.name = values.text(span.get("name"), "name")
    message.kind = _enum(span.get("kind"), "kind", Span.SpanKind)
    message.start_time_unix_nano = _moment(span.get("startTimeUnixNano"), "startTimeUnixNano")
    message.end_time_unix_nano = _moment(span.get("endTimeUnixNano"), "endTimeUnixNano")
    _attributes(message.attributes, span.get("attributes"))
    for event in values.objects(span.get("events"), "events"):
        added = message.events.add(
            name=values.text(event.get("name"), "name"),
            time_unix_nano=_moment(event.get("timeUnixNano"), "timeUnixNano"),
        )
        _attributes(added.attributes, event.get("attributes"))
    for link in values.objects(span.get("links"), "links"):
        linked = message.links.add(
            trace_id=_id(link.get("traceId"), "traceId"),
            span_id=_id(link.get("spanId"), "spanId"),
            trace_state=values.text(link.get("traceState"), "traceState"),
        )
        _attributes(linked.attributes, link.get("attributes"))
    status = values.mapping(span.get("status"), "status")
    message.status.message = values.text(status.get("message"), "message")
    message.status.code = _enum(status.get("code"), "code", Status.StatusCode)


def _id(value: object, what: str) -> bytes:
    text = values.text(value, what).lower()
    return bytes.fromhex(text) if _HEX.fullmatch(text) else _NO_ID


def _enum(value: object, what: str, names: Any) -> Any:
    """A number, as OTLP/JSON has it, or a name, as protobuf's JSON form has it; a name of a newer version is 0."""
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        return names.Value(value) if value in names.keys() else 0  # noqa: SIM118 - it is no mapping
    return 0 if value is None else values.integer(value, what, *_INT32)


def _moment(value: object, what: str) -> int:
    return 0 if value is None else values.integer(value, what, 0, _UINT64_MAX)


def _metrics(add: Callable[..., Metric], metric: dict[str, Any]) -> None:
    """Add a metric; one that states several kinds of points, which protobuf cannot, is as many."""
    name = values.text(metric.get("name"), "name")
    for key, kind in _POINT_KINDS.items():
        if key not in metric:
            continue
        points = getattr(add(name=name), kind).data_points
        for point in values.objects(values.mapping(metric[key], key).get("dataPoints"), "dataPoints"):
            added = points.add()
            if isinstance(added, NumberDataPoint):
                _point(added, point)


_POINT_KINDS: Final = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "summary": "summary",
}


def _point(message: NumberDataPoint, point: dict[str, Any]) -> None:
    message.flags = values.integer(point.get("flags", 0), "flags", 0, _UINT64_MAX) & _UINT32_MAX
    message.time_unix_nano = _moment(point.get("timeUnixNano"), "timeUnixNano")
    if point.get("asInt") is not None:
        message.as_int = values.integer(point["asInt"], "asInt", *_INT64)
    elif point.get("asDouble") is not None:
        message.as_double = values.number(point["asDouble"], "asDouble")
    _attributes(message.attributes, point.get("attributes"))


class _NestedTooDeeply(Exception):  # noqa: N818 - reads as what happened
    """An attribute's value cannot be written in protobuf."""


def _attributes(message: Any, pairs: object) -> None:
    for key, value in _pairs(pairs):
        added = message.add(key=key)
        try:
            _value(added.value, value, 0, 0)
        except _NestedTooDeeply:
            # It is left out with those that were sent in protobuf, and counted there.
            added.value.CopyFrom(_TOO_DEEP)


def _pairs(pairs: object) -> Iterator[tuple[str, object]]:
    for pair in values.objects(pairs, "attributes"):
        key = pair.get("key", "")
        if not isinstance(key, str):
            raise OtlpDecodeError("attributes: a key is not a string")
        yield key, pair.get("value")


def _value(message: AnyValue, value: object, depth: int, messages: int) -> None:
    """Set a value to the first kind that it states and that this version knows. It is in so many others, and in so many
    messages of its attribute. Raises _NestedTooDeeply."""
    if depth > DEPTH_MAX or messages > _MESSAGES_MAX:
        raise _NestedTooDeeply
    for kind, content in values.mapping(value, "an attribute's value").items():
        match kind:
            case "stringValue":
                message.string_value = values.text_of(content, kind)
            case "boolValue":
                message.bool_value = values.flag(content, kind)
            case "intValue":
                message.int_value = values.integer(content, kind, *_INT64)
            case "doubleValue":
                message.double_value = values.number(content, kind)
            case "bytesValue":
                message.bytes_value = _bytes(content)
            case "arrayValue":
                message.array_value.SetInParent()
                for item in values.items(values.mapping(content, kind).get("values"), kind):
                    _value(message.array_value.values.add(), item, depth + 1, messages + 2)
            case "kvlistValue":
                message.kvlist_value.SetInParent()
                for key, inner in _pairs(values.mapping(content, kind).get("values")):
                    _value(message.kvlist_value.values.add(key=key).value, inner, depth + 1, messages + 3)
            case _:
                continue  # a kind of value from a newer protocol version
        return


def _bytes(content: object) -> bytes:
    try:
        return base64.b64decode(values.text_of(content, "bytesValue"), validate=True)
    except binascii.Error as error:
        raise OtlpDecodeError("bytesValue: expected base64") from error


def _too_deep() -> AnyValue:
    value = AnyValue(int_value=0)
    for _ in range(DEPTH_MAX + 1):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    return value


_TOO_DEEP: Final = _too_deep()
