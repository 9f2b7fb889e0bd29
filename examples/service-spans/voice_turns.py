"""Reports voice turns with the OpenTelemetry API alone; copy this file into a service.

    with VoiceTurn(call_id="call-1", cohort="canary") as turn:
        turn.mark("speech.end", seconds_ago=0.2)
        turn.mark("llm.first_token")
        turn.set(route="cache", cache_tier="edge", cache_hit=True)

Where a turn does not begin and end in one place, keep the object and call `end`. Nothing here raises or blocks; without
an OpenTelemetry SDK it does nothing.
"""

import time
from types import TracebackType
from typing import Literal

from opentelemetry import trace

Moment = Literal[
    "speech.start",
    "speech.end",
    "endpoint",
    "asr.partial",
    "asr.final",
    "llm.first_token",
    "llm.first_sentence",
    "llm.last_token",
    "tts.first_chunk",
    "tts.last_chunk",
    "audio.start",
    "audio.end",
    "hangup",
]
# Of these the last one counts, of all others the first.
_LAST = frozenset({"llm.last_token", "tts.last_chunk", "audio.end"})


class VoiceTurn:
    """One turn: a span `voice.turn` whose events are moments. Spans that begin within `with` are below it."""

    def __init__(self, call_id: str | None = None, *, cohort: str | None = None) -> None:
        self.span = trace.get_tracer("voice_turns").start_span("voice.turn")
        self._marked: dict[str, int] = {}
        self._use = trace.use_span(self.span, record_exception=False, set_status_on_exception=False)
        if call_id is not None:
            self.span.set_attribute("gen_ai.conversation.id", call_id)
        self.set(cohort=cohort)

    def mark(self, moment: Moment, *, seconds_ago: float = 0.0) -> None:
        """State that something happens now, or happened so long ago. It may be called for every token: one event is
        sent, so that an SDK's limit of events on a span is never reached."""
        at_ns = time.time_ns() - round(seconds_ago * 1e9)
        if moment in _LAST or moment not in self._marked:
            self._marked[moment] = at_ns

    def set(
        self,
        *,
        cohort: str | None = None,
        route: Literal["local", "cache", "cloud", "rule"] | None = None,
        cache_tier: Literal["device", "edge", "central", "prefix"] | None = None,
        cache_hit: bool | None = None,
        fallback: Literal["rule", "cached", "partial", "model"] | None = None,
        model: str | None = None,
        intent: str | None = None,
        outcome: Literal["ok", "no_reply", "timeout", "abandoned", "interrupted", "error"] | None = None,
        run_id: str | None = None,
    ) -> None:
        """State what is known of the turn."""
        stated = {
            "voice.turn.cohort": cohort,
            "voice.turn.route": route,
            "voice.turn.cache_tier": cache_tier,
            "voice.turn.cache_hit": cache_hit,
            "voice.turn.fallback": fallback,
            "voice.turn.intent": intent,
            "voice.turn.outcome": outcome,
            "gen_ai.request.model": model,
            "voice.run_id": run_id,
        }
        self.span.set_attributes({name: value for name, value in stated.items() if value is not None})

    def end(self) -> None:
        """Send the turn; what is stated afterwards is ignored."""
        for moment, at_ns in self._marked.items():
            self.span.add_event(f"voice.{moment}", timestamp=at_ns)
        self._marked = {}
        self.span.end()

    def __enter__(self) -> "VoiceTurn":
        """Make the span the current one."""
        self._use.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Send the turn, with the status and the type of an error if one was raised, but not its text."""
        self._use.__exit__(kind, error, where)
        if kind is not None:
            self.span.set_status(trace.StatusCode.ERROR)
            self.span.set_attribute("error.type", kind.__name__)
        self.end()
