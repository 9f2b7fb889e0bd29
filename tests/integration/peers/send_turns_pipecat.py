"""Reports turns as Pipecat's own tracing makes them: `send_turns_pipecat.py TURNS ADDRESS`, in the environment of the
peer.

TURNS is a file with a JSON object a line, in the order of the calls. The observers are Pipecat's; what a pipeline would
tell them is driven by this program, on a clock that it sets, so that hours of conversations take a second. Stages that
Pipecat's services trace are given to Pipecat's own functions for their attributes.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import opentelemetry.sdk.trace as sdk
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pipecat.observers.turn_tracking_observer import TurnTrackingObserver
from pipecat.observers.user_bot_latency_observer import UserBotLatencyObserver
from pipecat.utils.tracing.service_attributes import (
    add_llm_span_attributes,
    add_stt_span_attributes,
    add_tts_span_attributes,
)
from pipecat.utils.tracing.tracing_context import TracingContext
from pipecat.utils.tracing.turn_trace_observer import TurnTraceObserver

S = 1_000_000_000


class Clock:
    """The clock of the spans."""

    def __init__(self) -> None:
        self.unix_ns = 0

    def time_ns(self) -> int:
        return self.unix_ns


class Assigned(SpanProcessor):
    """Copies what the service's flag decided, and who called, onto each span of the call."""

    def __init__(self) -> None:
        self.turn: dict[str, Any] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        del parent_context
        span.set_attribute("feature_flag.result.variant", self.turn["cohort"])
        if self.turn["user"] is not None:
            span.set_attribute("enduser.id", self.turn["user"])


class Calls:
    """Plays calls through Pipecat's observers."""

    def __init__(self, clock: Clock, assigned: Assigned) -> None:
        self._clock = clock
        self._assigned = assigned

    async def play(self, turns: Sequence[dict[str, Any]]) -> None:
        context = TracingContext()
        tracker, latencies = TurnTrackingObserver(), UserBotLatencyObserver()
        observer = TurnTraceObserver(tracker, latencies, conversation_id=turns[0]["call"], tracing_context=context)
        for number, turn in enumerate(turns, 1):
            self._assigned.turn = turn
            self._clock.unix_ns = turn["began_unix_ns"]
            await self._tell(tracker, "on_turn_started", number)
            self._stages(context, turn)
            if turn["heard_ns"] is not None:
                await self._tell(latencies, "on_latency_measured", turn["heard_ns"] / 1e9)
            self._clock.unix_ns = turn["began_unix_ns"] + 30 * S
            if turn["outcome"] == "abandoned":
                break  # the turn goes on until the call ends
            await self._tell(tracker, "on_turn_ended", number, 30.0, False)
            self._clock.unix_ns += 5 * S  # a turn with which its call ends is one that the caller abandoned
        observer.end_conversation_tracing()

    def _stages(self, context: TracingContext, turn: dict[str, Any]) -> None:
        tracer, within = trace.get_tracer("pipecat"), context.get_turn_context()
        with tracer.start_as_current_span("stt", context=within) as span:
            add_stt_span_attributes(span, "Recognizer", "small", ttfb=0.2)
            self._clock.unix_ns += S
        with tracer.start_as_current_span("llm", context=within) as span:
            ttfb = None if turn["first_token_ns"] is None else turn["first_token_ns"] / 1e9
            add_llm_span_attributes(span, "Model", "small", ttfb=ttfb)
            if turn["outcome"] == "error":
                span.set_status(trace.Status(trace.StatusCode.ERROR))
            self._clock.unix_ns += 10 * S
        if turn["outcome"] == "ok":
            with tracer.start_as_current_span("tts", context=within) as span:
                add_tts_span_attributes(span, "Synthesizer", "small", "voice", "", ttfb=None)
                self._clock.unix_ns += 10 * S

    async def _tell(self, observer: Any, event: str, *arguments: object) -> None:
        for handler in observer._event_handlers[event].handlers:
            await handler(observer, *arguments)


async def main(turns: Sequence[dict[str, Any]], address: str) -> None:
    clock, assigned = Clock(), Assigned()
    sdk.time_ns = clock.time_ns
    provider = TracerProvider(resource=Resource({"service.name": "front-desk"}), shutdown_on_exit=False)
    provider.add_span_processor(assigned)
    exporter = OTLPSpanExporter(f"{address}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1_000_000))
    trace.set_tracer_provider(provider)
    for _, of_call in itertools.groupby(turns, lambda turn: turn["call"]):
        await Calls(clock, assigned).play(list(of_call))
    if not provider.force_flush(120_000):
        sys.exit("not every span was exported")
    provider.shutdown()


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    asyncio.run(main([json.loads(line) for line in lines], sys.argv[2]))
