"""Assembles turns from the spans of voice frameworks, which know nothing of our turns.

Pure: spans and the time are parameters. Spans come in any order, twice and late; a turn closes when its own span has
come and a grace period is over.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.service_runs import service_run_id

# Exporters send every 5 s by default, and what they could not send again somewhat later.
GRACE_NS: Final = 10_000_000_000
OPEN_SPANS_MAX: Final = 100_000

_PIPECAT_TURN: Final = ("pipecat.turn", "turn")


def is_foreign(scope_name: str, span_name: str) -> bool:
    """Whether an adapter may want the span: cheap, and true for more spans than those that become part of a turn."""
    return (scope_name, span_name) == _PIPECAT_TURN


class TurnAssembly:
    """The open turns of every service. `unmapped` counts "scope/span name" of spans that no adapter knows."""

    def __init__(self, *, grace_ns: int = GRACE_NS, open_spans_max: int = OPEN_SPANS_MAX) -> None:
        self._grace_ns = grace_ns
        self._open_spans_max = open_spans_max
        self._open: dict[tuple[str, str], tuple[int, SpanRow]] = {}
        self.unmapped: Counter[str] = Counter()

    def add(self, spans: Sequence[SpanRow], now_unix_ns: int) -> None:
        """Take spans that arrived at `now_unix_ns` of the receiver's wall clock."""
        for span in spans:
            if is_foreign(span.scope_name, span.name):
                self._open.setdefault((span.trace_id, span.span_id), (now_unix_ns, span))
            else:
                self.unmapped[f"{span.scope_name}/{span.name}"] += 1

    def due(self, now_unix_ns: int) -> list[Turn]:
        """Give the turns whose own span has come and whose grace period is over at `now_unix_ns`, each once."""
        ready = [key for key, (came_unix_ns, _) in self._open.items() if now_unix_ns - came_unix_ns >= self._grace_ns]
        return [_turn(self._open.pop(key)[1]) for key in ready]

    def flush(self) -> list[Turn]:
        """Give all turns whose own span has come, at shutdown or where no more spans will come."""
        spans = [span for _, span in self._open.values()]
        self._open.clear()
        return [_turn(span) for span in spans]


def _turn(span: SpanRow) -> Turn:
    number, latency_s = span.attributes.get("turn.number"), span.attributes.get("turn.user_bot_latency_seconds")
    answered = isinstance(latency_s, float)
    start_unix_ns = span.start_unix_ns
    return Turn(
        run_id=service_run_id(span.service, start_unix_ns),
        call_id=str(span.attributes.get("conversation.id", span.trace_id)),
        turn_index=number - 1 if isinstance(number, int) and number > 0 else 0,
        source="service",
        outcome="ok" if answered else "no_reply",
        trace_id=span.trace_id,
        span_id=span.span_id,
        started_unix_ns=start_unix_ns,
        started_perf_ns=start_unix_ns,
        speech_end_perf_ns=start_unix_ns if answered else None,
        first_audio_perf_ns=start_unix_ns + round(latency_s * 1e9) if isinstance(latency_s, float) else None,
    )
