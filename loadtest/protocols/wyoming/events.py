"""Wyoming events: their bytes, and what they say. Pure."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from loadtest.protocols.foreign import message_type
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    excerpt,
    optional_count,
    optional_object,
    parse_object,
)

_NOTHING: Final[Mapping[str, Any]] = {}
_REMEMBERED_BYTES: Final = 512  # of the beginning of an event; longer ones are each parsed again


class WyomingEvent(msgspec.Struct, frozen=True, gc=False):
    """One event."""

    type: str
    data: Json
    payload: bytes


def event_bytes(kind: str, data: Mapping[str, Any] = _NOTHING, payload: bytes = b"") -> bytes:
    """Return the bytes of an event. Members of the data whose value is None are left out."""
    header = event_header(kind, data, len(payload))
    return header + payload


def event_header(kind: str, data: Mapping[str, Any], payload_bytes: int) -> bytes:
    """Return what precedes the payload of an event."""
    members = {name: value for name, value in data.items() if value is not None}
    encoded = orjson.dumps(members) if members else b""
    header: dict[str, Any] = {"type": kind, "version": "1.10.2"}
    if encoded:
        header["data_length"] = len(encoded)
    if payload_bytes:
        header["payload_length"] = payload_bytes
    return orjson.dumps(header) + b"\n" + encoded


def parse_event(message: bytes) -> WyomingEvent:
    """Parse one whole event. Raises MalformedError."""
    line, newline, rest = message.partition(b"\n")
    data_bytes, payload_bytes = (_known_lengths if len(line) <= _REMEMBERED_BYTES else _lengths)(line)
    if not newline or len(rest) != data_bytes + payload_bytes:
        raise MalformedError(f"not an event: {excerpt(message)}")
    is_short = len(line) + data_bytes <= _REMEMBERED_BYTES
    kind, data = (_known_content if is_short else _content)(line, rest[:data_bytes])
    return WyomingEvent(kind, data, rest[data_bytes:])


def _lengths(line: bytes) -> tuple[int, int]:
    """Return how many bytes of data and of payload follow a line. Raises MalformedError."""
    header = parse_object(line)
    return optional_count(header, "data_length") or 0, optional_count(header, "payload_length") or 0


def _content(line: bytes, encoded: bytes) -> tuple[str, Json]:
    """Return an event's type and its data: the line's own, and that which follows it. Raises MalformedError."""
    header = parse_object(line)
    data: dict[str, object] = dict(optional_object(header, "data") or {})
    if encoded:
        data |= parse_object(encoded)
    return message_type(header, "type", line), data


# All pieces of a reply's audio, of every call, begin alike.
_known_lengths: Final = lru_cache(maxsize=256)(_lengths)
_known_content: Final = lru_cache(maxsize=256)(_content)
