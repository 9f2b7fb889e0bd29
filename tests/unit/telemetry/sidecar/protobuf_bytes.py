"""Protobuf messages as bytes, for bodies that Google's serializer does not write."""

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList


def field(tag: int, content: bytes) -> bytes:
    """A field that holds bytes, a text or a message; `tag` is its number and wire type."""
    size, varint = len(content), bytearray([tag])
    while size > 127:
        varint.append(size & 127 | 128)
        size >>= 7
    return bytes([*varint, size]) + content


def in_arrays(depth: int) -> AnyValue:
    """A value nested in arrays."""
    value = AnyValue(int_value=1)
    for _ in range(depth):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    return value


def in_pairs(depth: int) -> AnyValue:
    """A value nested in lists of pairs."""
    value = AnyValue(int_value=1)
    for _ in range(depth):
        value = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=value)]))
    return value


def far(levels: int) -> bytes:
    """An AnyValue nested in arrays further than Google's serializer goes."""
    value = b"\x18\1"
    for _ in range(levels):
        value = field(0x2A, field(0x0A, value))
    return value
