"""OTLP requests as voice frameworks with tracing send them, made up for tests."""

from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.fixtures_sidecar import any_value

S = 1_000_000_000
MORNING_UNIX_NS = 1_794_355_200 * S  # 2026-11-11 00:00 UTC


@dataclass(frozen=True)
class PipecatTurn:
    """One turn of a Pipecat bot: `call` and `index` name it, a latency of None means that nothing was answered."""

    call: int
    index: int
    latency_s: float | None = 0.5
    began_unix_ns: int = MORNING_UNIX_NS
    trace_id: str = ""
    conversation: str = ""

    @property
    def trace(self) -> str:
        return self.trace_id or f"{0xB07:016x}{self.call + 1:016x}"

    @property
    def span(self) -> str:
        return f"{self.call + 1:08x}{self.index + 1:08x}"

    @property
    def start_unix_ns(self) -> int:
        return self.began_unix_ns + (self.call * 100 + self.index * 10) * S

    def spans(self) -> list[Span]:
        """Its service spans, then its own one, in the order in which a bot exports them."""
        own = self._span("turn", self.span, 4 * S)
        own.attributes.append(KeyValue(key="turn.number", value=any_value(self.index + 1)))
        if self.latency_s is not None:
            own.attributes.append(KeyValue(key="turn.user_bot_latency_seconds", value=any_value(self.latency_s)))
        own.attributes.append(KeyValue(key="turn.was_interrupted", value=any_value(False)))
        stages = []
        for place, name in enumerate(("stt", "llm", "tts")):
            stage = self._span(name, f"{0xA0 + place:02x}{self.span[2:]}", S)
            stage.parent_span_id = bytes.fromhex(self.span)
            stage.attributes.append(KeyValue(key="metrics.ttfb", value=any_value(0.1)))
            stages.append(stage)
        return [*stages, own]

    def _span(self, name: str, span_id: str, lasted_ns: int) -> Span:
        conversation = self.conversation or f"conversation-{self.call}"
        return Span(
            trace_id=bytes.fromhex(self.trace),
            span_id=bytes.fromhex(span_id),
            name=name,
            start_time_unix_nano=self.start_unix_ns,
            end_time_unix_nano=self.start_unix_ns + lasted_ns,
            attributes=[KeyValue(key="conversation.id", value=any_value(conversation))],
        )


def pipecat_request(spans: Iterable[Span], service: str = "bot") -> bytes:
    """An export of a Pipecat bot's spans."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=any_value(service)))
    scopes = {name: resource.scope_spans.add() for name in ("pipecat.turn", "pipecat")}
    for name, scope in scopes.items():
        scope.scope.name = name
    for span in spans:
        scopes["pipecat.turn" if span.name in ("turn", "conversation") else "pipecat"].spans.append(span)
    return request.SerializeToString()
