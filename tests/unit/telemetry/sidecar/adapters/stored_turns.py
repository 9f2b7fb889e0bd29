"""A store of spans and turns in memory, to which the assembly's changes are applied as a sidecar applies them."""

from collections.abc import Sequence

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import TurnAssembly, TurnChange


class StoredTurns:
    """The turns that are stored, by their ids; every change must be of what is stored."""

    def __init__(self, assembly: TurnAssembly | None = None) -> None:
        self.assembly = assembly or TurnAssembly()
        self.by_id: dict[tuple[str, str], Turn] = {}
        self._spans: dict[str, dict[str, SpanRow]] = {}

    def add(self, spans: Sequence[SpanRow], now_ns: int) -> list[TurnChange]:
        """Store spans and what comes of them; what changed. The store knows a span that comes twice."""
        new = [
            known
            for known in spans
            if self._spans.setdefault(known.trace_id, {}).setdefault(known.span_id, known) is known
        ]
        for trace_id in self.assembly.forgotten(span.trace_id for span in new):
            turns = [turn for turn in self.by_id.values() if turn.trace_id == trace_id]
            self.assembly.take_up([*self._spans[trace_id].values()], turns, now_ns)
        self.assembly.add(new, now_ns)
        return self.look(now_ns)

    def look(self, now_ns: int, *, is_last: bool = False) -> list[TurnChange]:
        """Store what is due; what changed."""
        changes = self.assembly.changes(now_ns, is_last=is_last)
        for stored, _ in changes:
            if stored is not None:
                assert self.by_id.pop((stored.trace_id, stored.span_id)) == stored
        for _, turn in changes:
            if turn is not None:
                assert (turn.trace_id, turn.span_id) not in self.by_id
                self.by_id[turn.trace_id, turn.span_id] = turn
        self.assembly.stored(now_ns)
        return changes

    @property
    def turns(self) -> list[Turn]:
        """The stored turns, by their beginning."""
        return sorted(self.by_id.values(), key=lambda turn: (turn.started_unix_ns, turn.span_id))


def turns_of(spans: Sequence[SpanRow], now_ns: int | None = None) -> list[Turn]:
    """The turns of spans, once nothing more will come."""
    stored = StoredTurns()
    now_ns = max(span.end_unix_ns for span in spans) if now_ns is None else now_ns
    stored.assembly.add(spans, now_ns)
    stored.look(now_ns, is_last=True)
    assert not stored.assembly.faults
    return stored.turns
