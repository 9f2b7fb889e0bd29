"""Spans that a Telemetry without a collector writes: those of the SDK's tracer and those of turns."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from telemetry.export.encoded_spans import EncodedSpan, encoded_resource, request_payload
from telemetry.export.instrumentation import CallTrace
from telemetry.export.sdk import SdkOptions, Telemetry, start
from telemetry.model.turns import Turn


@contextmanager
def emitting_turns(service: str) -> Iterator[tuple[Telemetry, list[EncodedSpan]]]:
    """A real set-up without a collector, and where the spans of its turns go."""
    telemetry, written = start(SdkOptions(None, service)), list[EncodedSpan]()
    telemetry.write = lambda spans, turns: written.extend(spans)
    try:
        yield telemetry, written
    finally:
        telemetry.shutdown(1)


def call_of(telemetry: Telemetry, turn: Turn) -> CallTrace:
    """The call that a turn says it is of."""
    return CallTrace(
        telemetry,
        run_id=turn.run_id,
        call_id=turn.call_id,
        source=turn.source,
        started_unix_ns=turn.started_unix_ns,
        started_perf_ns=turn.started_perf_ns,
        attributes={},
    )


class WrittenSpans:
    """The spans that `telemetry` ends from now on."""

    def __init__(self, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
        self._memory = InMemorySpanExporter()
        self.of_turns: list[EncodedSpan] = []
        telemetry._traces.add_span_processor(SimpleSpanProcessor(self._memory))
        monkeypatch.setattr(telemetry, "write", self._take)

    def _take(self, spans: Iterable[EncodedSpan], turns: int) -> None:
        assert turns == 1
        self.of_turns += spans

    def clear(self) -> None:
        """Forget them."""
        self._memory.clear()
        self.of_turns.clear()

    def get_finished_spans(self) -> list[ReadableSpan]:
        """All of them: first those of turns."""
        return [*map(_readable, pb_spans(self.of_turns)), *self._memory.get_finished_spans()]


def pb_spans(spans: Iterable[EncodedSpan]) -> list[trace_pb2.Span]:
    """The spans of one scope, as a receiver decodes them."""
    payload = request_payload(encoded_resource(Resource({})), spans)
    if not payload:
        return []
    (of_process,) = ExportTraceServiceRequest.FromString(payload).resource_spans
    return [span for scope in of_process.scope_spans for span in scope.spans]


def plain(value: AnyValue) -> object:
    """The value as Python has it, arrays as tuples."""
    which = value.WhichOneof("value")
    if which == "array_value":
        return tuple(plain(item) for item in value.array_value.values)
    return None if which is None else getattr(value, which)


def _readable(span: trace_pb2.Span) -> ReadableSpan:
    trace_id = int.from_bytes(span.trace_id, "big")

    def context(span_id: bytes) -> SpanContext:
        return SpanContext(trace_id, int.from_bytes(span_id, "big"), False, TraceFlags(TraceFlags.SAMPLED))

    return ReadableSpan(
        span.name,
        context=context(span.span_id),
        parent=context(span.parent_span_id),
        kind=SpanKind(span.kind - 1),
        attributes={entry.key: plain(entry.value) for entry in span.attributes},
        events=[Event(event.name, timestamp=event.time_unix_nano) for event in span.events],
        start_time=span.start_time_unix_nano,
        end_time=span.end_time_unix_nano,
    )
