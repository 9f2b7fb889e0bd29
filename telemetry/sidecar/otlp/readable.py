"""Makes serialized items readable that parsers would refuse for a small part: a value nested too deeply, or invalid
UTF-8.

In a span, an event, a link or a resource, an attribute that is nested too deeply is left out, and counted in the
attribute `otel.dropped_attributes_count`, as OpenTelemetry names it. In a metric, the point is left out: without one of
its attributes it would be a point of another series. In texts U+FFFD replaces bytes that are not UTF-8. Such an item is
parsed with OTLP's own messages in which texts and nested values are bytes, which no parser refuses.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from telemetry.sidecar.otlp.attributes import ARRAY, DEPTH_MAX, KVLIST, NestedTooDeeply

DROPPED_ATTRIBUTES: Final = "otel.dropped_attributes_count"
# Protobuf's parsers and serializers end at 100 messages within one another, those around an attribute included.
MESSAGES_MAX: Final = 90
# Those around an attribute's value: an item, an event of it, and the attribute.
_AROUND_VALUE: Final = 3
_NESTED: Final = {
    ARRAY: common_pb2.ArrayValue.DESCRIPTOR.full_name,
    KVLIST: common_pb2.KeyValueList.DESCRIPTOR.full_name,
}
_ATTRIBUTE, _POINT, _EXEMPLAR = "attribute", "point", "exemplar"
# These are left out as a whole if one of their attributes is.
_PARTS: Final = {
    metrics_pb2.Exemplar.DESCRIPTOR.full_name: _EXEMPLAR,
    metrics_pb2.NumberDataPoint.DESCRIPTOR.full_name: _POINT,
    metrics_pb2.HistogramDataPoint.DESCRIPTOR.full_name: _POINT,
    metrics_pb2.ExponentialHistogramDataPoint.DESCRIPTOR.full_name: _POINT,
    metrics_pb2.SummaryDataPoint.DESCRIPTOR.full_name: _POINT,
}
_PAIR: Final = common_pb2.KeyValue.DESCRIPTOR.full_name
_VALUE: Final = common_pb2.AnyValue.DESCRIPTOR.full_name


def _pool_of_bytes() -> descriptor_pool.DescriptorPool:
    """OTLP's messages with bytes in place of texts, arrays and lists of pairs."""
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, trace_pb2, metrics_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for descriptor in _fields(file.message_type):
            if (
                descriptor.type == FieldDescriptorProto.TYPE_STRING
                or descriptor.type_name.removeprefix(".") in _NESTED.values()
            ):
                descriptor.type = FieldDescriptorProto.TYPE_BYTES
                descriptor.ClearField("type_name")
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _fields(messages: Iterable[DescriptorProto]) -> Iterator[FieldDescriptorProto]:
    for message in messages:
        yield from message.field
        yield from _fields(message.nested_type)


_pool: Final = _pool_of_bytes()
_official: Final = descriptor_pool.Default()


@dataclass(slots=True)
class Readable:
    """A readable message, the number of its parts that were left out, and the number of texts in which bytes were
    replaced."""

    payload: bytes = b""
    left_out: Counter[str] = field(default_factory=Counter[str])
    replaced: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether anything differs from what was sent."""
        return self.replaced > 0 or self.left_out.total() > 0

    def sentence(self) -> str:
        """Return what was changed, to follow the name of the item."""
        parts = [f"{count} of its {part}s left out: nested too deeply" for part, count in self.left_out.items()]
        parts += [f"{self.replaced} of its texts are not UTF-8: those bytes are replaced"] if self.replaced else []
        return "; ".join(parts)

    @property
    def points(self) -> int:
        """The number of a metric's points that were left out."""
        return self.left_out[_POINT]


def readable(payload: bytes, kind: type[Message]) -> Readable | None:
    """A message of this kind without the parts that parsers refuse; None if it is not such a message at all."""
    result = Readable()
    try:
        message = _parsed(kind.DESCRIPTOR.full_name, payload)
        _mend(message, result)
    except (DecodeError, NestedTooDeeply):
        return None
    result.payload = message.SerializeToString()
    return result


def _parsed(name: str, payload: bytes) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(name)).FromString(payload)


def _mend(message: Any, result: Readable) -> None:
    """Repair a message and everything in it, in place. Raises DecodeError and NestedTooDeeply."""
    dropped = 0
    for descriptor, content in message.ListFields():
        if descriptor.message_type is None:
            _mend_text(message, descriptor, content, result)
        elif descriptor.message_type.full_name == _VALUE:
            _mend_value(content, result, 0, _AROUND_VALUE)
        elif descriptor.is_repeated:
            dropped += _mend_items(content, _part(message, descriptor.message_type.full_name), result)
        else:
            _mend(content, result)
    if dropped and "attributes" in message.DESCRIPTOR.fields_by_name:
        message.attributes.add(key=DROPPED_ATTRIBUTES.encode()).value.int_value = dropped


def _mend_items(items: Any, part: str | None, result: Readable) -> int:
    """Repair the messages of a repeated field, without those that are too deep; return the number of attributes among
    those."""
    dropped = 0
    for place in range(len(items) - 1, -1, -1):
        replaced = result.replaced
        try:
            _mend(items[place], result)
        except NestedTooDeeply:
            if part is None:
                raise
            del items[place]
            result.replaced = replaced
            result.left_out[part] += 1
            dropped += part == _ATTRIBUTE
    return dropped


def _part(owner: Any, name: str) -> str | None:
    """Return the name of messages of this type in counts of left-out parts; None if the owner is left out with them."""
    return _ATTRIBUTE if name == _PAIR and owner.DESCRIPTOR.full_name not in _PARTS else _PARTS.get(name)


def _mend_value(value: Any, result: Readable, depth: int, messages: int) -> None:
    if depth > DEPTH_MAX or messages > MESSAGES_MAX:
        raise NestedTooDeeply
    for descriptor, content in value.ListFields():
        if descriptor.name == ARRAY or descriptor.name == KVLIST:
            replaced = result.replaced
            inner = _parsed(_NESTED[descriptor.name], content)
            for item in inner.values:
                if descriptor.name == ARRAY:
                    _mend_value(item, result, depth + 1, messages + 2)
                    continue
                for pair_field, part in item.ListFields():
                    if pair_field.message_type is None:
                        _mend_text(item, pair_field, part, result)
                    else:
                        _mend_value(part, result, depth + 1, messages + 3)
            if result.replaced != replaced:
                setattr(value, descriptor.name, inner.SerializeToString())
        else:
            _mend_text(value, descriptor, content, result)


def _mend_text(message: Any, descriptor: FieldDescriptor, content: Any, result: Readable) -> None:
    if _official.FindFieldByName(descriptor.full_name).type != FieldDescriptor.TYPE_STRING:
        return
    texts: list[bytes] = list(content) if descriptor.is_repeated else [content]
    whole = [text.decode(errors="replace").encode() for text in texts]
    if whole != texts:
        result.replaced += sum(a != b for a, b in zip(whole, texts, strict=True))
        if descriptor.is_repeated:
            content[:] = whole
        else:
            setattr(message, descriptor.name, whole[0])
