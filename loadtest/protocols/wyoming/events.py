"""Wyoming events: their bytes, and what they say. Pure."""

from collections.abc import Mapping
from typing import Any

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


class WyomingEvent(msgspec.Struct, frozen=True, gc=False):
    """One event."""

    type: str
    data: Json
    payload: bytes


def event_header(kind: str, data: Mapping[str, Any], payload_bytes: int = 0) -> bytes:
    """Return what precedes the payload of an event. Members of the data whose value is None are left out."""
    members = {name: value for name, value in data.items() if value is not None}
    encoded = orjson.dumps(members) if members else b""
    header: dict[str, Any] = {"type": kind, "version": "1.10.2"}
    if encoded:
        header["data_length"] = len(encoded)
    if payload_bytes:
        header["payload_length"] = payload_bytes
    return orjson.dumps(header) + b"\n" + encoded


def parse_event(message: bytes) -> WyomingEvent:
    """Parse one whole event: its data is the line's own, and that which follows it. Raises MalformedError."""
    line, newline, rest = message.partition(b"\n")
    header = parse_object(line)
    data_bytes = optional_count(header, "data_length") or 0
    if not newline or len(rest) != data_bytes + (optional_count(header, "payload_length") or 0):
        raise MalformedError(f"not an event: {excerpt(message)}")
    data: dict[str, object] = dict(optional_object(header, "data") or {})
    if data_bytes:
        data |= parse_object(rest[:data_bytes])
    return WyomingEvent(message_type(header, "type", line), data, rest[data_bytes:])
