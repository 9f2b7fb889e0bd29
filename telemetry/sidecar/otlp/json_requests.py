"""Conversion of OTLP/JSON requests into equivalent protobuf requests, so that there is one decoder.

The messages of OTLP describe their own fields. Protobuf's own JSON parser is not used: it would read ids, which
OTLP/JSON writes as hex, as base64, and it refuses a whole body for one value.

Some invalid JSON is accepted, so that one text or value does not refuse the whole request. A text that was cut within a
character has bytes that are not UTF-8, or, from JavaScript, half of a surrogate pair: U+FFFD replaces these. Values
nested deeper than a parser accepts are cut off.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.sidecar.otlp.attributes import DEPTH_MAX, NestedTooDeeply, OtlpDecodeError
from telemetry.sidecar.otlp.opening import ITEMS_MAX
from telemetry.sidecar.otlp.readable import MESSAGES_MAX
from telemetry.sidecar.otlp.spans import UNREADABLE_ID

# An object takes up to 232 bytes in memory, a value in a list 8; a body of 20 MB of real attributes has fewer.
OBJECTS_MAX: Final = 500_000
VALUES_MAX: Final = 2_000_000
_UINT64_MAX: Final = 2**64 - 1
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")
_HEX: Final = re.compile(r"([0-9a-f]{2})*")
# An id that is not hex becomes bytes of a length that no id has, and is then refused as any other.
_NO_ID: Final = b"\0"
_EXPECTED: Final[dict[type, str]] = {str: "str", bool: "bool", list: "an array", dict: "an object"}
_INT64: Final = (-(2**63), 2**63 - 1)
_INT32: Final = (-(2**31), 2**31 - 1)
_INTEGERS: Final = {
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_SFIXED64: _INT64,
    FieldDescriptor.TYPE_UINT64: (0, _UINT64_MAX),
    FieldDescriptor.TYPE_FIXED64: (0, _UINT64_MAX),
}
_Kind = TypeVar("_Kind")
_POINT_KINDS: Final = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
# An attribute's value takes four brackets a level at most, and all around it seven.
_BRACKETS_MAX: Final = 4 * (DEPTH_MAX + 1) + 7
# A complete text, or a bracket. Every byte is scanned once, even if the last text has no end.
_TEXT_OR_BRACKET: Final = re.compile(rb'"(?>[^"\\]+|\\.)*+"?|[\[\]{}]', re.DOTALL)
_HALF_ESCAPE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def traces_from_json(body: bytes) -> bytes:
    """Turn a trace export into protobuf. Raises OtlpDecodeError if it is invalid."""
    request = ExportTraceServiceRequest()
    for scope, span, fault in _items(body, request.resource_spans, "spans"):
        _add_span(scope.spans.add(), span, fault)
    return request.SerializeToString()


def metrics_from_json(body: bytes) -> bytes:
    """Turn a metrics export into protobuf. Raises OtlpDecodeError if it is invalid."""
    request = ExportMetricsServiceRequest()
    for scope, item, fault in _items(body, request.resource_metrics, "metrics"):
        if fault is not None:
            raise fault
        metric = _checked(item, dict, "metrics")
        # A metric with several kinds of points, which protobuf does not allow, becomes several metrics.
        for kind in (point_kind for point_kind in _POINT_KINDS if point_kind in metric):
            others = [other for other in _POINT_KINDS if other != kind]
            added = scope.metrics.add()
            _fill(added, {name: value for name, value in metric.items() if name not in others} | {kind: metric[kind]})
    return request.SerializeToString()


def _items(body: bytes, messages: Any, what: str) -> Iterator[tuple[Any, Any, OtlpDecodeError | None]]:
    """Yield every span or metric of a body with the message of its scope, which is added to `messages` with its
    resource, and the fault of those."""
    resources_key, scopes_key, count = f"resource{what.capitalize()}", f"scope{what.capitalize()}", 0
    for resource in _objects(_parsed(body).get(resources_key), resources_key):
        added = messages.add()
        resource_fault = _fault(added, {name: value for name, value in resource.items() if name != scopes_key})
        for scope in _objects(resource.get(scopes_key), scopes_key):
            message = getattr(added, f"scope_{what}").add()
            fault = resource_fault or _fault(message, {name: value for name, value in scope.items() if name != what})
            for item in _array(scope.get(what), what):
                count += 1
                if count > ITEMS_MAX:
                    raise OtlpDecodeError(f"the request holds more than {ITEMS_MAX} {what}; send smaller batches")
                yield message, item, fault


def _parsed(body: bytes) -> dict[str, Any]:
    if body.count(b"{") + body.count(b"[") > OBJECTS_MAX or body.count(b",") > VALUES_MAX:
        raise OtlpDecodeError(
            f"the body has more than {OBJECTS_MAX} objects and arrays, or more than {VALUES_MAX} values; "
            "send smaller batches"
        )
    return _checked(_content(body), dict, "the body")


def _add_span(message: Span, span: Any, fault: OtlpDecodeError | None) -> None:
    """Write a span; an unreadable one is marked to be refused as such, so that its neighbors are accepted."""
    stated: dict[str, Any] = span if isinstance(span, dict) else {}
    if stated is not span or fault is not None or _fault(message, stated) is not None:
        name = stated.get("name")
        message.Clear()
        message.trace_id, message.name = UNREADABLE_ID, name if isinstance(name, str) else ""


def _fault(message: Any, stated: dict[str, Any]) -> OtlpDecodeError | None:
    """Write a message; return why it could not be read, if it could not: then it is empty."""
    try:
        _fill(message, stated)
    except OtlpDecodeError as error:
        message.Clear()
        return error
    return None


class _JsonField(NamedTuple):
    """A field of a message: the reader of its value, None for a message; and the oneof that it belongs to."""

    name: str
    is_repeated: bool
    read: Callable[[Any], Any] | None
    is_pair: bool
    oneof: str | None


@cache
def _fields(kind: Descriptor) -> dict[str, _JsonField]:
    """The fields of a message by their names in JSON."""
    return {
        field.json_name: _JsonField(
            field.name,
            field.is_repeated,
            None if field.message_type is not None else _reader(field),
            field.message_type is KeyValue.DESCRIPTOR and kind is not KeyValueList.DESCRIPTOR,
            field.containing_oneof.name if field.containing_oneof is not None else None,
        )
        for field in kind.fields
    }


def _fill(message: Any, stated: dict[str, Any], values: int = 0, messages: int = 0) -> None:
    """Write the content of an object into a message; unknown fields are left out, and of fields that exclude each other
    the first counts. Raises OtlpDecodeError, and NestedTooDeeply within an attribute."""
    kind = message.DESCRIPTOR
    values += kind is AnyValue.DESCRIPTOR
    if values > DEPTH_MAX + 1 or messages > MESSAGES_MAX:
        raise NestedTooDeeply
    known = _fields(kind)
    for name, content in stated.items():
        field = known.get(name)
        if content is None or field is None or (field.oneof is not None and message.WhichOneof(field.oneof)):
            continue
        if field.read is not None:
            if field.is_repeated:
                getattr(message, field.name).extend(map(field.read, _array(content, name)))
            else:
                setattr(message, field.name, field.read(content))
            continue
        inner = getattr(message, field.name)
        if not field.is_repeated:
            inner.SetInParent()
            _fill(inner, _checked(content, dict, name), values, messages + 1)
            continue
        for item in _objects(content, name):
            added = inner.add()
            try:
                _fill(added, item, values, messages + 1)
            except NestedTooDeeply:
                if not field.is_pair:
                    raise
                # It is left out with those that were sent in protobuf, and counted there.
                added.value.CopyFrom(_TOO_DEEP)


def _too_deep() -> AnyValue:
    value = AnyValue(int_value=0)
    for _ in range(DEPTH_MAX + 1):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    return value


_TOO_DEEP: Final = _too_deep()


def _reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    """Return the reader for the values of a field. Readers raise OtlpDecodeError."""
    name, kind = field.json_name, field.enum_type
    if kind is not None:
        return partial(_enum, what=name, kind=kind)
    if field.name.endswith("_unix_nano"):
        return _moment
    if field.type in _INTEGERS:
        least, most = _INTEGERS[field.type]
        return partial(_integer, what=name, least=least, most=most)
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return partial(_checked, kind=str, what=name)
        case FieldDescriptor.TYPE_BOOL:
            return partial(_checked, kind=bool, what=name)
        case FieldDescriptor.TYPE_DOUBLE:
            return partial(_number, what=name)
        case FieldDescriptor.TYPE_BYTES:
            return partial(_id if field.name.endswith("_id") else _octets, what=name)
        case _:  # flags
            return lambda value: _integer(value, name, 0, _UINT64_MAX) & 0xFFFFFFFF


def _id(value: object, what: str) -> bytes:
    """The octets of a trace or span id, which is hex."""
    text = _checked(value, str, what).lower()
    return bytes.fromhex(text) if _HEX.fullmatch(text) else _NO_ID


def _octets(value: object, what: str) -> bytes:
    try:
        return base64.b64decode(_checked(value, str, what), validate=True)
    except binascii.Error as error:
        raise OtlpDecodeError(f"{what}: expected base64") from error


def _enum(value: object, what: str, kind: EnumDescriptor) -> int:
    """A number, as in OTLP/JSON, or a name, as in protobuf's JSON form; the name of a newer version is 0."""
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        named = kind.values_by_name.get(value)
        return 0 if named is None else named.number
    return _integer(value, what, *_INT32)


def _moment(value: object) -> int:
    """Nanoseconds since 1970. An unreadable time becomes one that cannot be stored, so that only its item is
    refused."""
    try:
        return _integer(value, "", 0, _UINT64_MAX)
    except OtlpDecodeError:
        return _UINT64_MAX


def _integer(value: object, what: str, least: int, most: int) -> int:
    """An integer; proto3 writes those of 64 bits as decimal texts."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise OtlpDecodeError(f"{what}: expected an integer")
    if not least <= number <= most:
        raise OtlpDecodeError(f"{what}: {number} is out of range")
    return number


def _number(value: object, what: str) -> float:
    """A number; proto3 writes NaN and infinities as texts."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise OtlpDecodeError(f"{what}: expected a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise OtlpDecodeError(f"{what}: expected a number") from None


def _checked(value: Any, kind: type[_Kind], what: str) -> _Kind:
    if not isinstance(value, kind):
        raise OtlpDecodeError(f"{what}: expected {_EXPECTED[kind]}")
    return value


def _array(value: Any, what: str) -> list[Any]:
    """An array, empty if it is absent."""
    return [] if value is None else _checked(value, list, what)


def _objects(value: Any, what: str) -> list[dict[str, Any]]:
    """An array of objects, empty if it is absent."""
    return [_checked(item, dict, what) for item in _array(value, what)]


def _content(body: bytes) -> Any:
    """Parse a body of JSON. Raises OtlpDecodeError if it is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(_shallow(_in_unicode(body)))
    except orjson.JSONDecodeError as error:
        raise OtlpDecodeError(f"the body is not JSON ({error})") from error


def _in_unicode(body: bytes) -> bytes:
    return _HALF_ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], body.decode(errors="replace").encode())


def _shallow(body: bytes) -> bytes:
    """The JSON with `null` for every array and object that is nested too deeply."""
    pieces: list[bytes] = []
    depth = kept = 0
    for match in _TEXT_OR_BRACKET.finditer(body):
        bracket = match[0]
        if bracket in (b"{", b"["):
            if depth == _BRACKETS_MAX:
                pieces += body[kept : match.start()], b"null"
            depth += 1
        elif bracket in (b"}", b"]"):
            depth -= 1
            if depth == _BRACKETS_MAX:
                kept = match.end()
    if not pieces or depth > _BRACKETS_MAX:
        return body
    return b"".join((*pieces, body[kept:]))
