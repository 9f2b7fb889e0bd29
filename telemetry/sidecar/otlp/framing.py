"""Cuts an OTLP export request into its resources, scopes and items without decoding any of them.

What arrives with two bytes on the wire takes sixty and more in memory once it is decoded. Here a request that says too
much of it is refused before anything is decoded, and each item remains a slice of the body. Trace and metric requests
have the same outer form: a request repeats resources (1), a resource has scopes (2), a scope has items (2).
"""

from dataclasses import dataclass, field
from typing import Final

from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.wire_format import after, field_of_bytes, varint

ITEMS_MAX: Final = 50_000
ITEM_BYTES_MAX: Final = 2 << 20
# Every row of the store repeats its resource and its scope.
REPEATED_BYTES_MAX: Final = 64 << 20


@dataclass(slots=True)
class Framed:
    """The items (spans or metrics) of a request, serialized, and for each the place of its resource and its scope."""

    items: list[bytes] = field(default_factory=list[bytes])
    resource_of: list[int] = field(default_factory=list[int])
    scope_of: list[int] = field(default_factory=list[int])
    resources: list[bytes] = field(default_factory=list[bytes])
    scopes: list[bytes] = field(default_factory=list[bytes])
    resource_of_scope: list[int] = field(default_factory=list[int])
    resource_schemas: list[bytes] = field(default_factory=list[bytes])
    scope_schemas: list[bytes] = field(default_factory=list[bytes])
    # Whether the request has no fields around its items but those that are here.
    is_whole: bool = True

    def assembled(self) -> bytes:
        """The request of these parts, serialized. Scopes without items are left out."""
        items_of: dict[int, list[bytes]] = {}
        for place, item in zip(self.scope_of, self.items, strict=True):
            items_of.setdefault(place, []).append(field_of_bytes(2, item))
        scopes_of: dict[int, list[bytes]] = {}
        for place, items in items_of.items():
            parts = (field_of_bytes(1, self.scopes[place]), *items, _schema(self.scope_schemas[place]))
            scopes_of.setdefault(self.resource_of_scope[place], []).append(field_of_bytes(2, b"".join(parts)))
        return b"".join(
            field_of_bytes(
                1,
                b"".join((field_of_bytes(1, self.resources[place]), *scopes, _schema(self.resource_schemas[place]))),
            )
            for place, scopes in scopes_of.items()
        )


def framed(body: bytes, message: str, what: str) -> Framed:
    """Cut a request of type `message` whose items are called `what`. Raises OtlpDecodeError when it is not one, or when
    it holds more than can be taken."""
    found = Framed()
    repeated_bytes = 0
    cutter = _Cutter(what)
    try:
        resources, *others = cutter.children(body)
        found.is_whole = not any(others)
        for resource_items in resources:
            resource, scopes, schemas = cutter.children(resource_items)
            found.resources.append(b"".join(resource))
            found.resource_schemas.append(b"".join(schemas[-1:]))
            for scope_items in scopes:
                scope, items, schemas = cutter.children(scope_items)
                found.scopes.append(b"".join(scope))
                found.scope_schemas.append(b"".join(schemas[-1:]))
                found.resource_of_scope.append(len(found.resources) - 1)
                found.items += items
                found.resource_of += [len(found.resources) - 1] * len(items)
                found.scope_of += [len(found.scopes) - 1] * len(items)
                repeated_bytes += (len(found.resources[-1]) + len(found.scopes[-1])) * len(items)
    except (IndexError, ValueError) as error:
        raise OtlpDecodeError(f"the body is not a protobuf {message}") from error
    found.is_whole = found.is_whole and cutter.is_whole
    if repeated_bytes > REPEATED_BYTES_MAX:
        raise OtlpDecodeError(
            f"the resources and scopes of the {what} take {repeated_bytes >> 20} MiB where each of the {what} repeats "
            f"them; {REPEATED_BYTES_MAX >> 20} MiB are taken: send shorter resource attributes, or smaller batches"
        )
    return found


def _schema(url: bytes) -> bytes:
    return field_of_bytes(3, url) if url else b""


class _Cutter:
    """Cuts the messages of one request and counts their fields. `is_whole` says whether it has seen no others."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._fields = 0
        self.is_whole = True

    def children(self, data: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """The contents of the fields 1, 2 and 3 of a message. Raises IndexError and ValueError when it is malformed,
        and OtlpDecodeError when the request holds too many fields."""
        first: list[bytes] = []
        second: list[bytes] = []
        third: list[bytes] = []
        at, end, fields = 0, len(data), self._fields
        while at < end:
            fields += 1
            if fields > ITEMS_MAX:
                raise OtlpDecodeError(
                    f"the request holds more than {ITEMS_MAX} {self._what}, resources and scopes together; "
                    "send smaller batches"
                )
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = varint(data, at - 1)
            if tag < 8:
                raise ValueError("a field has no number")
            if tag & 7 != 2:
                self.is_whole = False
                at = after(data, at, tag)
                continue
            size = data[at]
            at += 1
            if size >= 0x80:
                size, at = varint(data, at - 1)
            stop = at + size
            if stop > end:
                raise ValueError("a field ends behind its message")
            if tag == 0x12:
                second.append(data[at:stop])
            elif tag == 0x0A:
                first.append(data[at:stop])
            elif tag == 0x1A:
                third.append(data[at:stop])
            else:
                self.is_whole = False
            at = stop
        self._fields = fields
        return first, second, third
