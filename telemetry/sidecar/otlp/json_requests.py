"""Turns OTLP/JSON requests into the protobuf requests that they stand for, so that there is one way of decoding.

OTLP/JSON writes trace and span ids as hex, unlike other bytes fields in protobuf's JSON form. Protobuf's own JSON
parser, which would read the hex as base64, is therefore not used.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from telemetry.sidecar.otlp import json_items as items
from telemetry.sidecar.otlp import json_values as values
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.framing import ITEMS_MAX
from telemetry.sidecar.otlp.json_bodies import json_content
from telemetry.sidecar.otlp.json_points import add_metric
from telemetry.sidecar.otlp.span_columns import UNREADABLE_ID

# An object takes up to 232 bytes in memory, a value in a list 8; a body of 20 MB of real attributes has fewer.
OBJECTS_MAX: Final = 500_000
VALUES_MAX: Final = 2_000_000


def traces_from_json(body: bytes) -> bytes:
    """Turn a trace export into protobuf. Raises OtlpDecodeError if it is invalid."""
    request = ExportTraceServiceRequest()
    for scope, span, fault in _items(body, request.resource_spans, "spans"):
        _readable_span(scope.spans.add(), span, fault)
    return request.SerializeToString()


def metrics_from_json(body: bytes) -> bytes:
    """Turn a metrics export into protobuf. Raises OtlpDecodeError if it is invalid."""
    request = ExportMetricsServiceRequest()
    for scope, metric, fault in _items(body, request.resource_metrics, "metrics"):
        if fault is not None:
            raise fault
        add_metric(scope.metrics.add, values.mapping(metric, "metrics"))
    return request.SerializeToString()


def _items(
    body: bytes, messages: Any, what: Literal["spans", "metrics"]
) -> Iterator[tuple[Any, Any, OtlpDecodeError | None]]:
    """Every span or metric of a body with the message of its scope, which is added to `messages` with its resource, and
    what is wrong with those."""
    of_resource, of_scope, count = f"resource{what.capitalize()}", f"scope{what.capitalize()}", 0
    for resource in values.objects(_parsed(body).get(of_resource), of_resource):
        added = messages.add()
        of_both = _fault(_resource, added.resource, resource)
        scopes = getattr(added, f"scope_{what}")
        for scope in values.objects(resource.get(of_scope), of_scope):
            message = scopes.add()
            fault = of_both or _fault(_scope, message.scope, scope)
            for item in values.items(scope.get(what), what):
                count += 1
                _check_count(count, what)
                yield message, item, fault


def _fault(
    write: Callable[[Any, dict[str, Any]], None], message: Any, stated: dict[str, Any]
) -> OtlpDecodeError | None:
    """Write a message; why it could not be read, if it could not: then it is empty."""
    try:
        write(message, stated)
    except OtlpDecodeError as error:
        message.Clear()
        return error
    return None


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
    items.attributes(message.attributes, values.mapping(owner.get("resource"), "resource").get("attributes"))


def _scope(message: InstrumentationScope, owner: dict[str, Any]) -> None:
    scope = values.mapping(owner.get("scope"), "scope")
    message.name = values.text(scope.get("name"), "name")
    message.version = values.text(scope.get("version"), "version")


def _readable_span(message: Span, span: Any, fault: OtlpDecodeError | None) -> None:
    """Write a span; one that cannot be read becomes one that is refused as such, so that its neighbors are taken."""
    stated: dict[str, Any] = span if isinstance(span, dict) else {}
    if stated is span:
        fault = fault or _fault(_span, message, stated)
    if fault is not None or stated is not span:
        name = stated.get("name")
        message.Clear()
        message.trace_id, message.name = UNREADABLE_ID, name if isinstance(name, str) else ""


def _span(message: Span, span: dict[str, Any]) -> None:
    message.trace_id = items.id_octets(span.get("traceId"), "traceId")
    message.span_id = items.id_octets(span.get("spanId"), "spanId")
    message.parent_span_id = items.id_octets(span.get("parentSpanId"), "parentSpanId")
    message.trace_state = values.text(span.get("traceState"), "traceState")
    message.name = values.text(span.get("name"), "name")
    message.kind = items.enum(span.get("kind"), "kind", Span.SpanKind)
    message.start_time_unix_nano = items.moment(span.get("startTimeUnixNano"), "startTimeUnixNano")
    message.end_time_unix_nano = items.moment(span.get("endTimeUnixNano"), "endTimeUnixNano")
    items.attributes(message.attributes, span.get("attributes"))
    for event in values.objects(span.get("events"), "events"):
        added = message.events.add(
            name=values.text(event.get("name"), "name"),
            time_unix_nano=items.moment(event.get("timeUnixNano"), "timeUnixNano"),
        )
        items.attributes(added.attributes, event.get("attributes"))
    for link in values.objects(span.get("links"), "links"):
        linked = message.links.add(
            trace_id=items.id_octets(link.get("traceId"), "traceId"),
            span_id=items.id_octets(link.get("spanId"), "spanId"),
            trace_state=values.text(link.get("traceState"), "traceState"),
        )
        items.attributes(linked.attributes, link.get("attributes"))
    status = values.mapping(span.get("status"), "status")
    message.status.message = values.text(status.get("message"), "message")
    message.status.code = items.enum(status.get("code"), "code", Status.StatusCode)
