"""The messages of OTLP as ptars reads them into Arrow columns: own descriptors, equal on the wire to the official ones.

They differ in one point: `array_value` and `kvlist_value` of an attribute's value are bytes here, so that no type
contains itself. What nothing in the store uses of spans, events and links (flags, counts of dropped items) stands
behind the rest: with it, the size of a span tells whether it holds anything else (`span_sizes`).
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from ptars import HandlerPool

_PACKAGE: Final = "voiceprobe.otlp"
_TYPES: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
}
# Each field as "number name type", with a trailing "*" where it repeats.
_ANY_VALUE: Final = (
    "1 string_value string",
    "2 bool_value bool",
    "3 int_value int64",
    "4 double_value double",
    "5 array_value bytes",
    "6 kvlist_value bytes",
    "7 bytes_value bytes",
)
_MESSAGES: Final[dict[str, Sequence[str]]] = {
    "AnyValue": _ANY_VALUE,
    "KeyValue": ("1 key string", "2 value AnyValue"),
    "ArrayValue": ("1 values AnyValue*",),
    "KeyValueList": ("1 values KeyValue*",),
    "Resource": ("1 attributes KeyValue*",),
    "InstrumentationScope": ("1 name string", "2 version string"),
    "Event": ("1 time_unix_nano fixed64", "2 name string", "3 attributes KeyValue*", "4 dropped uint32"),
    "Link": (
        "1 trace_id bytes",
        "2 span_id bytes",
        "3 trace_state string",
        "4 attributes KeyValue*",
        "5 dropped uint32",
        "6 flags fixed32",
    ),
    "Status": ("2 message string", "3 code int32"),
    "Span": (
        "1 trace_id bytes",
        "2 span_id bytes",
        "3 trace_state string",
        "4 parent_span_id bytes",
        "5 name string",
        "6 kind int32",
        "7 start_time_unix_nano fixed64",
        "8 end_time_unix_nano fixed64",
        "9 attributes KeyValue*",
        "11 events Event*",
        "13 links Link*",
        "15 status Status",
        "10 dropped_attributes uint32",
        "12 dropped_events uint32",
        "14 dropped_links uint32",
        "16 flags fixed32",
    ),
}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="voiceprobe/otlp.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for line in fields:
            number, field_name, kind = line.split()
            repeated = kind.endswith("*")
            kind = kind.removesuffix("*")
            field = message.field.add(name=field_name, number=int(number))
            field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            if fields is _ANY_VALUE:
                field.oneof_index = 0
        if fields is _ANY_VALUE:
            message.oneof_decl.add(name="value")
    return file


_pool: Final = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_file().SerializeToString())
_handlers: Final = HandlerPool([_pool.FindFileByName("voiceprobe/otlp.proto")])


def reader(message: str) -> Any:
    """What reads serialized messages of this name into a record batch (`list_to_record_batch`), one row each."""
    return _handlers.get_for_message(_pool.FindMessageTypeByName(f"{_PACKAGE}.{message}"))
