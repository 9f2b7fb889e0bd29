"""The protobuf frames of Pipecat's WebSocket transport: one `Frame` in each binary message.

Source: pipecat 1.14.0, src/pipecat/frames/frames.proto. Fields and frames that it does not define are ignored.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from loadtest.protocols.json_fields import MalformedError

_PACKAGE: Final = "pipecat"
_STRING: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_UINT32: Final = descriptor_pb2.FieldDescriptorProto.TYPE_UINT32
_UINT64: Final = descriptor_pb2.FieldDescriptorProto.TYPE_UINT64
# The members of the oneof `Frame.frame` in the order of their numbers, and their fields in the order of theirs.
_FRAMES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "text": ("TextFrame", {"id": _UINT64, "name": _STRING, "text": _STRING}),
    "audio": (
        "AudioRawFrame",
        {"id": _UINT64, "name": _STRING, "audio": _BYTES, "sample_rate": _UINT32, "num_channels": _UINT32},
    ),
    "transcription": (
        "TranscriptionFrame",
        {"id": _UINT64, "name": _STRING, "text": _STRING, "user_id": _STRING, "timestamp": _STRING},
    ),
    "message": ("MessageFrame", {"data": _STRING}),
    "interruption": ("InterruptionFrame", {"id": _UINT64, "name": _STRING}),
}


def _frame_class() -> Any:
    """Create the class of `Frame`, in a pool of its own: another package may have registered the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="frames.proto", package=_PACKAGE, syntax="proto3")
    frame = file.message_type.add(name="Frame")
    frame.oneof_decl.add(name="frame")
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    for number, (member, (type_name, fields)) in enumerate(_FRAMES.items(), start=1):
        message = file.message_type.add(name=type_name)
        for field_number, (name, kind) in enumerate(fields.items(), start=1):
            message.field.add(name=name, number=field_number, type=kind, label=optional)
        inner = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        full_name = f".{_PACKAGE}.{type_name}"
        frame.field.add(name=member, number=number, type=inner, type_name=full_name, label=optional, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Frame"))


_Frame: Final = _frame_class()


def audio_frame(pcm: bytes, rate_hz: int) -> bytes:
    """Encode mono 16-bit little-endian samples."""
    frame = _Frame()
    frame.audio.audio = pcm
    frame.audio.sample_rate = rate_hz
    frame.audio.num_channels = 1
    return frame.SerializeToString()


def message_frame(data: str) -> bytes:
    """Encode a JSON text."""
    frame = _Frame()
    frame.message.data = data
    return frame.SerializeToString()


def decode(data: bytes) -> tuple[str | None, Any]:
    """Return the name of the frame's kind and its fields; the name is None for a kind that is not known.

    Raises MalformedError for bytes that are not a Frame.
    """
    try:
        frame = _Frame.FromString(data)
    except DecodeError:
        raise MalformedError(
            f"not a Pipecat frame in protobuf: {len(data)} bytes beginning {data[:16].hex()}"
        ) from None
    kind = frame.WhichOneof("frame")
    return kind, None if kind is None else getattr(frame, kind)
