"""Messages in protobuf, declared as tables: only what is needed of each; fields that are not declared are ignored."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from loadtest.protocols.json_fields import MalformedError

_Kind = descriptor_pb2.FieldDescriptorProto
NUMBER: Final = _Kind.TYPE_INT32
COUNT: Final = _Kind.TYPE_UINT32
LONG: Final = _Kind.TYPE_UINT64
STRING: Final = _Kind.TYPE_STRING
BYTES: Final = _Kind.TYPE_BYTES
FLAG: Final = _Kind.TYPE_BOOL
DOUBLE: Final = _Kind.TYPE_DOUBLE
# Fields by name, each with its number and a scalar type or the name of a message.
Fields = Mapping[str, tuple[int, Any]]
_CHOSEN: Final = "chosen"


def message_class(
    root: str, messages: Mapping[str, Fields], choices: Mapping[str, Fields], repeated: frozenset[str] = frozenset()
) -> Any:
    """Create the class of the message `root`, in a pool of its own: other packages register the same names.

    A message of `choices` holds one of its fields that are messages, and all others besides.
    """
    file = descriptor_pb2.FileDescriptorProto(name="messages.proto", package="wire", syntax="proto3")
    for name, fields in {**messages, **choices}.items():
        message = file.message_type.add(name=name)
        if name in choices:
            message.oneof_decl.add(name=_CHOSEN)
        for field, (number, kind) in fields.items():
            label = _Kind.LABEL_REPEATED if field in repeated else _Kind.LABEL_OPTIONAL
            if not isinstance(kind, str):
                message.field.add(name=field, number=number, type=kind, label=label)
                continue
            inner = {"type": _Kind.TYPE_MESSAGE, "type_name": f".wire.{kind}", "label": label}
            declared = message.field.add(name=field, number=number, **inner)
            if name in choices:
                declared.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"wire.{root}"))


def decoded(kind: Any, data: bytes, what: str) -> tuple[str | None, Any]:
    """Return the name of what a message holds and its fields; the name is None for what is not known.

    Raises MalformedError for bytes that are no such message; `what` names it.
    """
    try:
        return chosen(kind.FromString(data))
    except DecodeError:
        raise MalformedError(f"not {what} in protobuf: {len(data)} bytes beginning {data[:16].hex()}") from None


def chosen(message: Any) -> tuple[str | None, Any]:
    """Return which of several a message holds, and its fields; the name is None where it holds none that is known."""
    name = message.WhichOneof(_CHOSEN)
    return name, None if name is None else getattr(message, name)
