"""Opens export requests: their items one at a time, readable, and without what may not be stored.

Only one item is in memory at a time, so that a body of nothing but short fields takes little. What of a request was
left out, changed or refused is counted in its `DecodedRequest`.
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
from telemetry.sidecar.otlp.framing import ITEM_BYTES_MAX, framed
from telemetry.sidecar.otlp.readable import Readable, readable
from telemetry.sidecar.signals import Signal
from telemetry.store.redaction import framework_of
from telemetry.store.schema import PointRow

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


@dataclass(slots=True)
class DecodedRequest:
    """The rows to store of one request, and its result.

    `received` counts its items (spans, metric points), `rejected` those that are not stored, `changed` those that are
    stored without something of them, all for the first few `reasons`. `fault` is a sentence when the body cannot be
    decoded: then nothing of it is stored. `names` counts spans that are not ours by scope and name,
    `unknown_turn_fields` unknown attributes of turns.
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
        """Add a reason where it is among the first few."""
        if len(self.reasons) < _REASONS_MAX and reason not in self.reasons:
            self.reasons.append(reason)


class OpenedRequest:
    """A request in protobuf, cut into its items. Raises OtlpDecodeError when it is not one, or holds more than can be
    taken."""

    def __init__(self, body: bytes, signal: Signal, cleaner: Cleaner | None = None) -> None:
        self._message, self._what, self._kind = _MESSAGES[signal]
        self._cleaner = cleaner
        self.cut = framed(body, self._message, self._what)
        self._changes: list[str] = []
        self.result = DecodedRequest()

    @property
    def count(self) -> int:
        """How many items the request has."""
        return len(self.cut.items)

    def items(
        self,
        of_resource: Callable[[Resource], Any],
        of_scope: Callable[[InstrumentationScope], Any],
        take: Callable[[Any, Any, Any], _Made],
    ) -> Iterator[tuple[int, Any, Any, _Made]]:
        """Of each item its place, what is made of its resource and of its scope, and what `take` makes of itself with
        these. It may raise NestedTooDeeply, and is then given the item without what is nested too deeply. An item that
        is too large is refused. Resources and scopes without items are not looked at."""

        def with_framework(message: InstrumentationScope) -> tuple[str, Any]:
            return framework_of(message.name), of_scope(message)

        cut = self.cut
        resource_place = scope_place = -1
        resource = scope = None
        framework = ""
        for place, (item, of, within) in enumerate(zip(cut.items, cut.resource_of, cut.scope_of, strict=True)):
            if max(len(item), len(cut.resources[of]), len(cut.scopes[within])) > ITEM_BYTES_MAX:
                self._refuse_large()
                continue
            if of != resource_place:
                resource = self._open(Resource, cut.resources[of], "", of_resource)
                resource_place = of
            if within != scope_place:
                framework, scope = self._open(InstrumentationScope, cut.scopes[within], "", with_framework)
                scope_place = within
            yield place, resource, scope, self._open(self._kind, item, framework, take, resource, scope)

    def finish(self) -> DecodedRequest:
        """Return what became of the request, after all its items."""
        for change in self._changes:
            self.result.give(change)
        return self.result

    def _refuse_large(self) -> None:
        limit = f"its resource or its scope is larger than {ITEM_BYTES_MAX >> 20} MiB"
        if self._kind is Metric:
            raise OtlpDecodeError(f"a metric, {limit}")
        self.result.reject(f"a span, {limit}")

    def _open(self, kind: type[Message], payload: bytes, framework: str, take: Callable[..., Any], *with_: Any) -> Any:
        """Return what is made of a message: where it cannot be read as it is, of what can be read of it."""
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
