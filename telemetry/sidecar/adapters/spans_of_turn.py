"""The spans of one turn, and what is read from them for every framework."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from telemetry.model.contradictions import TOLERANCE_NS
from telemetry.model.semconv import Contradiction
from telemetry.model.services import service_run_id
from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.frameworks import Column, Framework, Read, Role, SpanRole

# OpenTelemetry's names for what a feature flag decided, the newest first, on a span or on an event of one.
_VARIANTS: Final = ("feature_flag.result.variant", "feature_flag.variant")
# OpenTelemetry's names for who called, and those of tools that take its spans. The key of a flag's evaluation comes
# last: it may be the call. Pipecat's `user_id` is left out: its transports give each call a new one.
_USERS: Final = (
    *("voice.turn.user_id", "user.id", "enduser.pseudo.id", "enduser.id", "user.hash"),
    *("gen_ai.user.id", "langfuse.user.id", "traceloop.association.properties.user_id"),
    "feature_flag.context.id",
)
_RUN_ID: Final = "voice.run_id"
_ERROR_CODES: Final = ("error.type", "exception.type")


class Part(NamedTuple):
    """A span and its role."""

    span: SpanRow
    role: SpanRole


@dataclass(kw_only=True)
class SpansOfTurn:
    """The spans of one turn, each list ordered by start.

    `own` are the spans of the turn itself, `user` that of the caller's turn if it is a sibling, `below` all descendants
    of these, `siblings` the stages under the call that arrived during this turn, `calls` the spans of the call that
    have arrived. `turn_index` is the turn's position in its call, from 0. `is_expected` says that the turn's own span
    has not arrived, and a placeholder represents it.
    """

    own: tuple[Part, ...]
    below: tuple[Part, ...] = ()
    siblings: tuple[Part, ...] = ()
    user: Part | None = None
    calls: tuple[Part, ...] = ()
    turn_index: int = 0
    has_later_turn: bool = False
    is_expected: bool = False
    latency_before_ns: int | None = None  # that the turn before states, where it is known

    @property
    def first(self) -> Part:
        """The span that gives the turn its ids: the turn's own, or that of a caller's turn without an answer."""
        return self.own[0] if self.own else self._user()

    @property
    def framework(self) -> Framework | None:
        """The framework; None for a custom service."""
        return self.first.role.framework

    @property
    def start_unix_ns(self) -> int:
        """The start of the first of the turn's own spans."""
        return min(part.span.start_unix_ns for part in self.outer())

    @property
    def end_unix_ns(self) -> int:
        """The end of the last of the turn's own spans."""
        return max(part.span.end_unix_ns for part in self.outer())

    def lasted_ns(self, part: Part) -> int:
        """Return the duration of a span that states a value; for one of the turn's own spans, that of all of them
        together."""
        if part in self.outer():
            return self.end_unix_ns - self.start_unix_ns
        return part.span.end_unix_ns - part.span.start_unix_ns

    @property
    def call_id(self) -> str:
        """The id of the call if the spans state it, else the trace id."""
        return values.name(self.value("call_id")) or self.first.span.trace_id

    def placed(self, turn_index: int, latency_before_ns: int | None) -> "SpansOfTurn":
        """The same spans with their position in the call."""
        return replace(self, turn_index=turn_index, latency_before_ns=latency_before_ns)

    @cached_property
    def _within(self) -> tuple[Part, ...]:
        return (*self.outer(), *self.below, *self.siblings)

    @cached_property
    def _frameworks(self) -> list[Framework]:
        known = {part.role.family: part.role.framework for part in self.everything()}
        return [framework for framework in known.values() if framework is not None]

    def outer(self) -> tuple[Part, ...]:
        """The spans of the turn itself, the caller's first."""
        return (self.user, *self.own) if self.user is not None else self.own

    def spans(self) -> Iterator[Part]:
        """The spans of the turn that have arrived, those closest to it first."""
        yield from () if self.is_expected else self.outer()
        yield from self.below
        yield from self.siblings

    def everything(self) -> Iterator[Part]:
        """All spans, those closest to the turn first."""
        yield from self.outer()
        yield from self.below
        yield from self.siblings
        yield from self.calls

    def outside(self, part: Part) -> Contradiction | None:
        """Return why a span below the turn cannot belong to it: it is before or after the turn's own spans."""
        if part not in self.below:
            return None
        # Where the clock was set back, a span ends before it begins.
        began_ns, ended_ns = sorted((self.start_unix_ns, self.end_unix_ns))
        if max(part.span.start_unix_ns, part.span.end_unix_ns) < began_ns - TOLERANCE_NS:
            return "before_turn"
        return "after_turn" if part.span.start_unix_ns > ended_ns + TOLERANCE_NS else None

    def of(self, role: Role) -> list[Part]:
        """The spans with one role, of the turn's own framework if it has any."""
        parts = [part for part in self._within if part.role.role == role]
        own = [part for part in parts if part.role.family == self.first.role.family]
        return own or parts

    def values(self, column: Column) -> Iterator[tuple[Part, Read, object]]:
        """The spans that state a column, how it is read, and the value: those of the first framework that states it,
        the turn's own framework before those that it calls."""
        for framework in self._frameworks:
            is_stated = False
            for read in framework.reads:
                for part in self._within if read.column == column else ():
                    matches = part.role.role == read.span and part.role.framework is framework
                    if matches and (value := values.stated(read, part.span)) is not None:
                        is_stated = True
                        yield part, read, value
            if is_stated:
                return

    def value(self, column: Column) -> object:
        """The first value stated for a column; None if no span states it."""
        return next((value for _, _, value in self.values(column)), None)

    def latencies(self, column: Column) -> list[tuple[Part, Read, int | None]]:
        """The durations in ns stated for a column; None for a number that cannot be a duration."""
        return [
            (part, read, ns)
            for part, read, value in self.values(column)
            if read.unit is not None
            and ((ns := values.latency_ns(value, read.unit)) is not None or values.is_no_duration(value, read.unit))
        ]

    def run_id(self) -> str:
        """The run that a span or the service's resource names, else the service and the day."""
        named = (values.name(attributes.get(_RUN_ID)) for attributes in self._attributes())
        span = self.first.span
        return next(filter(None, named), None) or service_run_id(span.service, self.start_unix_ns)

    def variant(self) -> str | None:
        """Return the variant that a feature flag selected for this turn, its call or its process."""
        return self._named(_VARIANTS)

    def user_id(self) -> str | None:
        """Return the caller's pseudonym, made by the sidecar, from the first known attribute that the spans have."""
        return next((user_id for name in _USERS if (user_id := self._named((name,))) is not None), None)

    def error_code(self, parts: list[Part]) -> str | None:
        """A short name of the error of the first span that has one."""
        for part in parts:
            events = [event.attributes for event in part.span.events]
            for attributes in (part.span.attributes, *events):
                for key in _ERROR_CODES:
                    if (code := values.name(attributes.get(key))) is not None:
                        return code.rpartition(".")[2]
        return None

    def _attributes(self) -> Iterator[Mapping[str, object]]:
        for part in self.everything():
            yield part.span.attributes
            for event in part.span.events:
                yield event.attributes
        yield self.first.span.resource_attributes

    def _named(self, names: tuple[str, ...]) -> str | None:
        """The first value under any of the names, from the spans closest to the turn first and from the resource
        last."""
        for attributes in self._attributes():
            for key in names:
                if (name := values.name(attributes.get(key))) is not None:
                    return name
        return None

    def _user(self) -> Part:
        if self.user is None:
            raise ValueError("a turn has a span of its own")
        return self.user


def failed(parts: list[Part]) -> list[Part]:
    """The spans that ended in an error."""
    return [part for part in parts if part.span.status_code == "Error"]
