"""Opens export requests: their items one at a time, readable, and without what may not be stored.

Only one item is in memory at a time, so that a body of nothing but short fields takes little. What of a request was
left out, changed or refused is counted in its `DecodedRequest`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model.foreign_text import one_line
from telemetry.sidecar.otlp.attributes import DEPTH_MAX, NestedTooDeeply, OtlpDecodeError
from telemetry.sidecar.otlp.framing import ITEM_BYTES_MAX, framed
from telemetry.sidecar.otlp.readable import Readable, readable
from telemetry.sidecar.signals import Signal
from telemetry.store.redaction import framework_of

TOO_DEEP: Final = f"an attribute of a point is nested more than {DEPTH_MAX} levels deep"
_MESSAGES: Final[dict[Signal, tuple[str, str, type[Span] | type[Metric]]]] = {
    "traces": ("ExportTraceServiceRequest", "spans", Span),
    "metrics": ("ExportMetricsServiceRequest", "metrics", Metric),
}
_REASONS_MAX: Final = 3
# A name is shown to tell which item is meant.
SHOWN_CHARS: Final = 500
_Made = TypeVar("_Made")


class Cleaner(Protocol):
    """Takes out of messages what may not be stored."""

    def clean(self, message: Message, framework: str) -> None:
        """Take it out of a span, a metric, a resource or a scope of a framework, in place."""
        ...

    def clean_schema(self, url: bytes) -> bytes:
        """The URL of a schema without it."""
        ...


@dataclass(slots=True)
class DecodedRequest:
    """What became of one request of a group.

    `received` counts its items (spans, metric points), `rejected` those that are not stored, `changed` those that are
    stored without something of them, all for the first few `reasons`. `fault` is a sentence when the body cannot be
    decoded: then nothing of it is in the tables. `body` is what may be written of it.
    """

    body: bytes
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
        """Add a reason where it is among the first few."""
        if len(self.reasons) < _REASONS_MAX and reason not in self.reasons:
            self.reasons.append(reason)


class OpenedRequest:
    """A request in protobuf. Raises OtlpDecodeError when it is not one, or holds more than can be taken."""

    def __init__(self, body: bytes, signal: Signal, cleaner: Cleaner | None = None) -> None:
        self._message, self._what, self._kind = _MESSAGES[signal]
        self._body = body
        self._cleaner = cleaner
        self._cut = cut = framed(body, self._message, self._what)
        self._kept = [True] * len(cut.items)
        # Resources and scopes without items are not looked at: what they say is not written where anything is cleaned.
        self._is_changed = not cut.is_whole or any(
            part and place not in used
            for parts, used in ((cut.resources, {*cut.resource_of}), (cut.scopes, {*cut.scope_of}))
            for place, part in enumerate(parts)
        )
        self._changes: list[str] = []
        self.result = DecodedRequest(body)

    @property
    def count(self) -> int:
        """How many items the request has."""
        return len(self._kept)

    def items(
        self, of_resource: Callable[[Resource], Any], of_scope: Callable[[InstrumentationScope], Any]
    ) -> Iterator[tuple[Any, Any, Callable[[Callable[[Any], _Made]], _Made]]]:
        """Of each item what is made of its resource and of its scope, and how something is made of itself: with a
        function that may raise NestedTooDeeply, and is then given the item without what is nested too deeply."""
        cut = self._cut
        resource_place = scope_place = -1
        resource = scope = None
        framework = ""

        for place, (item, of, within) in enumerate(zip(cut.items, cut.resource_of, cut.scope_of, strict=True)):
            if max(len(item), len(cut.resources[of]), len(cut.scopes[within])) > ITEM_BYTES_MAX:
                self._refuse_large(place)
                continue
            if of != resource_place:
                resource, cut.resources[of] = self._open(Resource, cut.resources[of], "", of_resource)
                resource_place = of
            if within != scope_place:
                (framework, scope), cut.scopes[within] = self._open(
                    InstrumentationScope,
                    cut.scopes[within],
                    "",
                    lambda scope: (framework_of(scope.name), of_scope(scope)),
                )
                scope_place = within
            yield resource, scope, partial(self._make, place, framework)

    def _make(self, place: int, framework: str, take: Callable[[Any], _Made]) -> _Made:
        made, self._cut.items[place] = self._open(self._kind, self._cut.items[place], framework, take)
        return made

    def finish(self) -> DecodedRequest:
        """What became of the request, after all its items."""
        for change in self._changes:
            self.result.give(change)
        if self._cleaner is not None:
            for schemas in (self._cut.resource_schemas, self._cut.scope_schemas):
                cleaned = [*map(self._cleaner.clean_schema, schemas)]
                self._is_changed = self._is_changed or cleaned != schemas
                schemas[:] = cleaned
            self.result.body = self._cut.assembled(self._kept) if self._is_changed else self._body
        return self.result

    def _refuse_large(self, place: int) -> None:
        limit = f"its resource or its scope is larger than {ITEM_BYTES_MAX >> 20} MiB"
        if self._kind is Metric:
            raise OtlpDecodeError(f"a metric, {limit}")
        self.result.reject(f"a span, {limit}")
        self._kept[place] = False
        self._is_changed = True

    def _open(
        self, kind: type[Message], payload: bytes, framework: str, take: Callable[[Any], _Made]
    ) -> tuple[_Made, bytes]:
        """What is made of a message, and what may be written of it: the same object where nothing is changed."""
        try:
            message = kind.FromString(payload)
            made = self._made(message, framework, take)
            is_as_sent = True
        except (DecodeError, NestedTooDeeply):
            changed = readable(payload, kind)
            try:
                message = kind.FromString(changed.payload if changed is not None else payload)
                made = self._made(message, framework, take)
            except (DecodeError, NestedTooDeeply) as error:
                raise OtlpDecodeError(f"the body is not a protobuf {self._message}") from error
            if changed is not None:
                self._note(changed, message)
            is_as_sent = False
        if self._cleaner is None:
            return made, payload
        message.DiscardUnknownFields()
        written = message.SerializeToString()
        # Some senders put the fields in an order of their own: then it is as long, and says the same.
        if is_as_sent and (
            written == payload or (len(written) == len(payload) and kind.FromString(payload) == message)
        ):
            return made, payload
        self._is_changed = True
        return made, written

    def _made(self, message: Message, framework: str, take: Callable[[Any], _Made]) -> _Made:
        if self._cleaner is not None:
            self._cleaner.clean(message, framework)
        return take(message)

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
