"""Opens export requests: they are cut into resources, scopes and items, and each item is opened separately, made
readable, and stripped of what may not be stored.

Two bytes on the wire can take sixty and more in memory once they are decoded. Here a request with too much content is
refused before anything is decoded, each item remains a slice of the body, and only one is decoded at a time. Trace and
metric requests have the same outer form: a request repeats resources (1), a resource has scopes (2), a scope has items
(2). Items that were left out, changed or refused are counted in the request's `DecodedRequest`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.foreign_text import one_line
from telemetry.model.turns import Turn
from telemetry.sidecar.otlp.attributes import DEPTH_MAX, NestedTooDeeply, OtlpDecodeError
from telemetry.sidecar.otlp.readable import Readable, readable
from telemetry.sidecar.signals import Signal
from telemetry.store.redaction import framework_of
from telemetry.store.schema import PointRow

ITEMS_MAX: Final = 50_000
ITEM_BYTES_MAX: Final = 2 << 20
# Every row of the store repeats its resource and its scope.
REPEATED_BYTES_MAX: Final = 64 << 20
_VARINT_BYTES_MAX: Final = 10
_BYTES: Final = 2


@dataclass(slots=True)
class Framed:
    """The serialized items (spans or metrics) of a request, and for each the index of its resource and of its scope."""

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
        """The request with the kept items, serialized. Scopes without items are left out."""
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
    """Cut a request of type `message` whose items are called `what`. Raises OtlpDecodeError if it is of another type,
    or has too much content."""
    request = Framed()
    repeated_bytes = 0
    cutter = _Cutter(what)
    try:
        resources, *others = cutter.children(body)
        request.is_whole = not any(others)
        for resource_items in resources:
            resource, scopes, schemas = cutter.children(resource_items)
            request.resources.append(b"".join(resource))
            request.resource_schemas.append(b"".join(schemas[-1:]))
            for scope_items in scopes:
                scope, items, schemas = cutter.children(scope_items)
                request.scopes.append(b"".join(scope))
                request.scope_schemas.append(b"".join(schemas[-1:]))
                request.resource_of_scope.append(len(request.resources) - 1)
                request.items += items
                request.resource_of += [len(request.resources) - 1] * len(items)
                request.scope_of += [len(request.scopes) - 1] * len(items)
                repeated_bytes += (len(request.resources[-1]) + len(request.scopes[-1])) * len(items)
    except (IndexError, ValueError) as error:
        raise OtlpDecodeError(f"the body is not a protobuf {message}") from error
    request.is_whole = request.is_whole and cutter.is_whole
    if repeated_bytes > REPEATED_BYTES_MAX:
        raise OtlpDecodeError(
            f"the resources and scopes of the {what} take {repeated_bytes >> 20} MiB where each of the {what} repeats "
            f"them; {REPEATED_BYTES_MAX >> 20} MiB are taken: send shorter resource attributes, or smaller batches"
        )
    return request


class _Cutter:
    """Cuts the messages of one request and counts their fields. `is_whole` is false once it has seen unknown fields."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._fields = 0
        self.is_whole = True

    def children(self, data: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """The contents of the fields 1, 2 and 3 of a message. Raises IndexError and ValueError if it is malformed, and
        OtlpDecodeError if the request has too many fields."""
        fields: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
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
            if kind == _BYTES and number <= len(fields):
                fields[number - 1].append(data[begin:at])
            else:
                self.is_whole = False
        return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a position, and the position after it. Raises IndexError and ValueError."""
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
    """Return the start and the end of the content of a field of this type. Raises IndexError and ValueError."""
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


TOO_DEEP: Final = f"an attribute of a point is nested more than {DEPTH_MAX} levels deep"
_MESSAGES: Final[dict[Signal, tuple[str, str, type[Span] | type[Metric]]]] = {
    "traces": ("ExportTraceServiceRequest", "spans", Span),
    "metrics": ("ExportMetricsServiceRequest", "metrics", Metric),
}
_REASONS_MAX: Final = 3
# A name is shown to identify the item.
SHOWN_CHARS: Final = 500
_Made = TypeVar("_Made")


class Cleaner(Protocol):
    """Removes from messages what may not be stored."""

    def clean(self, message: Message, framework: str) -> None:
        """Clean a span, a metric, a resource or a scope of a framework, in place."""
        ...


@dataclass(slots=True)
class DecodedRequest:
    """The rows to store of one request, and its result.

    `received` counts its items (spans, metric points), `rejected` those that are not stored, `changed` those that are
    stored incompletely, with the first few `reasons`. `fault` is a sentence if the body cannot be decoded: then nothing
    of it is stored. `names` counts foreign spans by scope and name, `unknown_turn_fields` unknown attributes of turns.
    """

    turns: list[Turn] = field(default_factory=list[Turn])
    spans: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    points: list[PointRow] = field(default_factory=list[PointRow])
    names: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])
    received: int = 0
    rejected: int = 0
    changed: int = 0
    reasons: list[str] = field(default_factory=list[str])
    fault: str | None = None

    def reject(self, reason: str, items: int = 1) -> None:
        """Count items that are not stored."""
        self.rejected += items
        self.give(reason)

    def give(self, reason: str) -> None:
        """Add a reason if it is among the first few."""
        if len(self.reasons) < _REASONS_MAX and reason not in self.reasons:
            self.reasons.append(reason)


class OpenedRequest:
    """A request in protobuf, cut into its items. Raises OtlpDecodeError if it is of another type, or has too much
    content."""

    def __init__(self, body: bytes, signal: Signal, cleaner: Cleaner | None = None) -> None:
        self._message, self._what, self._kind = _MESSAGES[signal]
        self._cleaner = cleaner
        self.cut = framed(body, self._message, self._what)
        self._changes: list[str] = []
        self.result = DecodedRequest()

    @property
    def count(self) -> int:
        """Number of items in the request."""
        return len(self.cut.items)

    def items(
        self,
        read_resource: Callable[[Resource], Any],
        read_scope: Callable[[InstrumentationScope], Any],
        take: Callable[[Any, Any, Any], _Made],
    ) -> Iterator[tuple[int, Any, Any, _Made]]:
        """Yield the index of each item, the results for its resource and its scope, and the result of `take` for the
        item and these. If `take` raises NestedTooDeeply, it is called again with the item stripped of what is nested
        too deeply. An item that is too large is refused. Resources and scopes without items are skipped."""

        def with_framework(message: InstrumentationScope) -> tuple[str, Any]:
            return framework_of(message.name), read_scope(message)

        cut = self.cut
        resource_place = scope_place = -1
        resource = scope = None
        framework = ""
        for place, (item, of, within) in enumerate(zip(cut.items, cut.resource_of, cut.scope_of, strict=True)):
            if max(len(item), len(cut.resources[of]), len(cut.scopes[within])) > ITEM_BYTES_MAX:
                self._refuse_large()
                continue
            if of != resource_place:
                resource = self._open(Resource, cut.resources[of], "", read_resource)
                resource_place = of
            if within != scope_place:
                framework, scope = self._open(InstrumentationScope, cut.scopes[within], "", with_framework)
                scope_place = within
            yield place, resource, scope, self._open(self._kind, item, framework, take, resource, scope)

    def finish(self) -> DecodedRequest:
        """Return the result of the request, after all its items."""
        for change in self._changes:
            self.result.give(change)
        return self.result

    def _refuse_large(self) -> None:
        limit = f"its resource or its scope is larger than {ITEM_BYTES_MAX >> 20} MiB"
        if self._kind is Metric:
            raise OtlpDecodeError(f"a metric, {limit}")
        self.result.reject(f"a span, {limit}")

    def _open(self, kind: type[Message], payload: bytes, framework: str, take: Callable[..., Any], *with_: Any) -> Any:
        """Return the result of `take` for a message, or for its readable part if it cannot be read as it is."""
        try:
            return take(self._cleaned(kind.FromString(payload), framework), *with_)
        except (DecodeError, NestedTooDeeply):
            changed = readable(payload, kind)
            try:
                message = self._cleaned(kind.FromString(changed.payload if changed is not None else payload), framework)
                made = take(message, *with_)
            except (DecodeError, NestedTooDeeply) as error:
                raise OtlpDecodeError(f"the body is not a protobuf {self._message}") from error
            if changed is not None:
                self._note(changed, message)
            return made

    def _cleaned(self, message: Message, framework: str) -> Message:
        if self._cleaner is not None:
            self._cleaner.clean(message, framework)
        return message

    def _note(self, changed: Readable, message: Any) -> None:
        what = "a resource or a scope"
        if isinstance(message, Span):
            what = f"span {message.name[:SHOWN_CHARS]!r}"
        elif isinstance(message, Metric):
            what = f"metric {one_line(message.name)!r}"
        if changed.points:
            self.result.received += changed.points
            self.result.reject(f"{what}: {TOO_DEEP}", changed.points)
            del changed.left_out["point"]
        if changed.is_changed:
            self.result.changed += 1
            if len(self._changes) < _REASONS_MAX:
                self._changes.append(f"{what}: {changed.sentence()}")
