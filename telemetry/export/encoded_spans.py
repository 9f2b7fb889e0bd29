"""Spans in OTLP's protobuf encoding: each is encoded separately when it ends, and a request is assembled from their
bytes.

So no batch is ever encoded at once, which would block the rest of the process, and a queue holds bytes, not objects.
The library makes the messages; only the tag and the length of a message inside another one are written by hand.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, SpanFlags
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from telemetry.model.turn_spans import AttributeValue

Signal = Literal["traces", "metrics"]

_LENGTH_DELIMITED: Final = 2  # a type of field on the wire
# Turns differ in what is known of them: there are some dozens of kinds, and a form takes some kilobytes.
_MAX_FORMS: Final = 128
# A message frees no text before it is freed itself, also of those that another one has replaced.
_MAX_BYTES_FILLED_IN: Final = 64 * 1024


class EncodedSpan(NamedTuple):
    """One span: a ScopeSpans message that names its scope and has no spans, and the span as a field of it."""

    scope: bytes
    field: bytes


class EncodedRequest(NamedTuple):
    """One serialized export request; `items` is its number of spans (or metric points), of which `turns` are turns, as
    far as that is known."""

    signal: Signal
    items: int
    payload: bytes
    turns: int = 0


class SpanHead(NamedTuple):
    """A span without its attributes; its parent was written by the same process. Times are of the wall clock, as
    unsigned 64-bit numbers."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    began_unix_ns: int
    ended_unix_ns: int
    events: tuple[tuple[str, int], ...] = ()  # names and moments


def scope_named(name: str) -> bytes:
    """The ScopeSpans message of an instrumentation scope that has only a name, without spans."""
    return ScopeSpans(scope=InstrumentationScope(name=name)).SerializeToString(deterministic=True)


def encoded_by_sdk(span: ReadableSpan) -> EncodedSpan:
    """A span of the SDK, encoded by the SDK's encoder."""
    (scope_spans,) = encode_spans([span]).resource_spans[0].scope_spans
    field = ScopeSpans(spans=scope_spans.spans).SerializeToString()
    scope_spans.ClearField("spans")
    return EncodedSpan(scope_spans.SerializeToString(deterministic=True), field)


class SpanEncoder:
    """Encodes spans of one scope without an SDK object for each: a message with the same attributes is reused.
    Thread-safe, also for greenlets."""

    def __init__(self, scope: str) -> None:
        self._scope = scope_named(scope)
        self._forms: dict[tuple[str, ...], _Form] = {}

    def encoded(self, head: SpanHead, attributes: Mapping[str, AttributeValue]) -> EncodedSpan:
        """A span with attributes whose values OTLP can carry (`telemetry.model.turn_spans.carried`).

        Raises TypeError and ValueError for a value that it cannot.
        """
        kind = (head.name, *attributes)
        # Out of the others' reach while it is filled in. One that cannot be filled in to the end is not put back.
        form = self._forms.pop(kind, None) or _Form(head.name, attributes)
        field = form.filled_in(head, attributes)
        if form.bytes_filled_in < _MAX_BYTES_FILLED_IN:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            self._forms[kind] = form
        return EncodedSpan(self._scope, field)


class _Form:
    """A span with a fixed name and fixed names of attributes."""

    def __init__(self, name: str, attributes: Iterable[str]) -> None:
        self.bytes_filled_in = 0
        self._message = ScopeSpans()
        self._span = self._message.spans.add(
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            flags=SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,  # and it is not remote
        )
        self._span.status.SetInParent()  # there, and unset
        self._values = [self._span.attributes.add(key=key).value for key in attributes]

    def filled_in(self, head: SpanHead, attributes: Mapping[str, AttributeValue]) -> bytes:
        """The span as a field of a ScopeSpans message."""
        span = self._span
        span.trace_id, span.span_id, span.parent_span_id = head.trace_id, head.span_id, head.parent_span_id
        span.start_time_unix_nano, span.end_time_unix_nano = head.began_unix_ns, head.ended_unix_ns
        span.ClearField("events")
        for name, unix_ns in head.events:
            span.events.add(name=name, time_unix_nano=unix_ns)
        for target, value in zip(self._values, attributes.values(), strict=True):
            if type(value) is int:  # the common ones by the shortest way
                target.int_value = value
            elif type(value) is str:
                target.string_value = value
            else:
                _put(target, value)
        field = self._message.SerializeToString()
        self.bytes_filled_in += len(field)
        return field


def _put(target: AnyValue, value: AttributeValue) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value
    else:
        # As dicts: half the time of a message for each.
        items = [{"string_value": item} if isinstance(item, str) else {"int_value": item} for item in value]
        array: Any = {"values": items}
        target.CopyFrom(AnyValue(array_value=array))


def encoded_resource(resource: Resource) -> bytes:
    """The ResourceSpans message of a resource, without spans."""
    nothing = ReadableSpan("", context=SpanContext(1, 1, False), resource=resource, start_time=0, end_time=0)
    (resource_spans,) = encode_spans([nothing]).resource_spans
    resource_spans.ClearField("scope_spans")
    return resource_spans.SerializeToString()


def request_payload(resource: bytes, spans: Iterable[EncodedSpan]) -> bytes:
    """An ExportTraceServiceRequest of spans of an encoded resource, in their order within each scope."""
    by_scope: dict[bytes, list[bytes]] = {}
    for scope, field in spans:
        by_scope.setdefault(scope, [scope]).append(field)
    scopes = (_field(ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, b"".join(parts)) for parts in by_scope.values())
    return _field(ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER, b"".join((resource, *scopes)))


def _field(number: int, message: bytes) -> bytes:
    """A message as a field of another one: https://protobuf.dev/programming-guides/encoding."""
    head = bytearray((number << 3 | _LENGTH_DELIMITED,))
    length = len(message)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return b"".join((head, message))
