"""Cuts an OTLP export request into its resources, scopes and items without decoding any of them.

What arrives with two bytes on the wire takes sixty and more in memory once it is decoded. Here a request that says too
much of it is refused before anything is decoded, and each item remains a slice of the body. Trace and metric requests
have the same outer form: a request repeats resources (1), a resource has scopes (2), a scope has items (2).
"""

from dataclasses import dataclass, field
from typing import Final

from telemetry.sidecar.otlp.attributes import OtlpDecodeError

ITEMS_MAX: Final = 50_000
ITEM_BYTES_MAX: Final = 2 << 20
# Every row of the store repeats its resource and its scope.
REPEATED_BYTES_MAX: Final = 64 << 20
_VARINT_BYTES_MAX: Final = 10
_BYTES: Final = 2


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

    def assembled(self, kept: list[bool]) -> bytes:
        """The request of the items that are kept, serialized. Scopes without items are left out."""
        items_of: dict[int, list[bytes]] = {}
        for place, item, is_kept in zip(self.scope_of, self.items, kept, strict=True):
            if is_kept:
                items_of.setdefault(place, []).append(_field(2, item))
        scopes_of: dict[int, list[bytes]] = {}
        for place, items in items_of.items():
            parts = (_field(1, self.scopes[place]), *items, _schema(self.scope_schemas[place]))
            scopes_of.setdefault(self.resource_of_scope[place], []).append(_field(2, b"".join(parts)))
        return b"".join(
            _field(1, b"".join((_field(1, self.resources[place]), *scopes, _schema(self.resource_schemas[place]))))
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


class _Cutter:
    """Cuts the messages of one request and counts their fields. `is_whole` says whether it has seen no others."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._fields = 0
        self.is_whole = True

    def children(self, data: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """The contents of the fields 1, 2 and 3 of a message. Raises IndexError and ValueError when it is malformed,
        and OtlpDecodeError when the request holds too many fields."""
        found: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        at, end = 0, len(data)
        while at < end:
            self._fields += 1
            if self._fields > ITEMS_MAX:
                raise OtlpDecodeError(
                    f"the request holds more than {ITEMS_MAX} {self._what}, resources and scopes together; "
                    "send smaller batches"
                )
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            begin, at = _extent(data, at, kind)
            if number == 0 or at > end:
                raise ValueError("a field has no number, or ends behind its message")
            if kind == _BYTES and number <= len(found):
                found[number - 1].append(data[begin:at])
            else:
                self.is_whole = False
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends. Raises IndexError and ValueError."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(1, _VARINT_BYTES_MAX):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number is longer than 64 bits")


def _extent(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return where the content of a field of this type begins and ends. Raises IndexError and ValueError."""
    match kind:
        case 0:
            return at, _varint(data, at)[1]
        case 1:
            return at, at + 8
        case 2:
            size, at = _varint(data, at)
            return at, at + size
        case 5:
            return at, at + 4
        case _:
            raise ValueError("a group, which OTLP does not have")


def _field(number: int, content: bytes) -> bytes:
    """A field that holds bytes, a text or a message."""
    size, head = len(content), bytearray((number << 3 | _BYTES,))
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + content


def _schema(url: bytes) -> bytes:
    return _field(3, url) if url else b""
