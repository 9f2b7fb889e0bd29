"""Instrumentation of a caller or a service: a call's trace, its turns, the run around it, the generator's health."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal, NamedTuple

import msgspec
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from telemetry.export.encoded_spans import EncodedSpan, SpanHead
from telemetry.export.sdk import Telemetry
from telemetry.model import semconv
from telemetry.model.generator_health import GAUGES, gauge_metric
from telemetry.model.metrics import METRICS, TIMESTAMPS
from telemetry.model.turn_spans import AttributeValue, carried, turn_attributes
from telemetry.model.turns import Turn

_MAX_UNIX_NS: Final = 2**64 - 1
_timestamps = attrgetter(*(f"{name}_perf_ns" for name in TIMESTAMPS))
_TURN_INDEX: Final = f"{semconv.TURN_PREFIX}turn_index"


class CallTrace:
    """The trace of one call: `voice.call`, with every turn a child.

    `started_unix_ns` is what the wall clock read when the monotonic clock read `started_perf_ns`. On the client the
    call is the root; a service passes the `traceparent` that it received and becomes its child (one that does not
    parse makes a root). `attributes` travel under `voice.call.`.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        run_id: str,
        call_id: str,
        source: semconv.Source,
        started_unix_ns: int,
        started_perf_ns: int,
        attributes: Mapping[str, AttributeValue],
        parent_traceparent: str | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._started_unix_ns, self._started_perf_ns = started_unix_ns, started_perf_ns
        self._identity: dict[str, AttributeValue] = {
            f"{semconv.CALL_PREFIX}run_id": carried(run_id),
            f"{semconv.CALL_PREFIX}call_id": carried(call_id),
            f"{semconv.CALL_PREFIX}source": source,
            semconv.GEN_AI_CONVERSATION_ID: carried(call_id),
        }
        parent = (
            TraceContextTextMapPropagator().extract({"traceparent": parent_traceparent}) if parent_traceparent else None
        )
        self._span: Span = telemetry.tracer.start_span(
            semconv.SPAN_CALL,
            context=parent,
            kind=SpanKind.CLIENT if source == "client" else SpanKind.SERVER,
            attributes={
                semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION,
                **self._identity,
                **_prefixed(semconv.CALL_PREFIX, attributes),
            },
            start_time=_as_span_time(started_unix_ns),
        )
        self._ended = False
        context = self._span.get_span_context()
        self._trace_id, self._span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        self.trace_id = self._trace_id.hex()
        self.traceparent = f"00-{self.trace_id}-{self._span_id.hex()}-01"

    def emit(self, turn: Turn) -> Turn:
        """Write the turn as a `voice.turn` span with its stages as children; returns it as it was written, with
        `trace_id`, `span_id`, `process_id` and `sequence`."""
        process_id, sequence = self._telemetry.identity.next_turn(turn.run_id)
        span_id = self._telemetry.new_span_id()
        turn = msgspec.structs.replace(
            turn, process_id=process_id, sequence=sequence, trace_id=self.trace_id, span_id=span_id.hex()
        )
        if self._span.get_span_context().is_valid:  # OpenTelemetry may be disabled
            self._telemetry.write(self._encoded(turn, span_id), 1)
        return turn

    def add_event(self, name: str, attributes: Mapping[str, AttributeValue], unix_ns: int) -> None:
        """Add an event to the call, under names that have no prefix of ours."""
        self._span.add_event(name, attributes, timestamp=_as_span_time(unix_ns))

    def _encoded(self, turn: Turn, span_id: bytes) -> list[EncodedSpan]:
        """The spans of a turn in the order in which they end."""
        encoded, to_unix_ns = self._telemetry.span_encoder.encoded, turn.started_unix_ns - turn.started_perf_ns
        spans: list[EncodedSpan] = []
        turn_index = carried(turn.turn_index)
        for stage in _stages(turn):
            head = SpanHead(
                stage.name,
                self._trace_id,
                self._telemetry.new_span_id(),
                span_id,
                _as_span_time(stage.started_perf_ns + to_unix_ns),
                _as_span_time(stage.ended_perf_ns + to_unix_ns),
                tuple((name, _as_span_time(at_perf_ns + to_unix_ns)) for name, at_perf_ns in stage.events),
            )
            attributes = {**self._identity, _TURN_INDEX: turn_index, **stage.attributes}
            spans.append(encoded(head, attributes))
        ended_perf_ns = max(at for at in (turn.started_perf_ns, *_timestamps(turn)) if at is not None)
        head = SpanHead(
            semconv.SPAN_TURN,
            self._trace_id,
            span_id,
            self._span_id,
            _as_span_time(turn.started_unix_ns),
            _as_span_time(ended_perf_ns + to_unix_ns),
        )
        spans.append(encoded(head, turn_attributes(turn)))
        return spans

    def end(self, ended_perf_ns: int, attributes: Mapping[str, AttributeValue]) -> None:
        """Close the call. Idempotent: either side may hang up first."""
        if self._ended:
            return
        self._ended = True
        self._span.set_attributes(_prefixed(semconv.CALL_PREFIX, attributes))
        lasted_ns = max(0, ended_perf_ns - self._started_perf_ns)
        self._span.end(_as_span_time(self._started_unix_ns + lasted_ns))


def announce_run(
    telemetry: Telemetry,
    run_id: str,
    phase: Literal["start", "end"],
    attributes: Mapping[str, AttributeValue],
    wall_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Emit the start or end of a run, with what the generator declares about itself, as a `voice.run` span.

    `attributes` travel under `voice.run.`, in addition to `voice.run.run_id`, `.phase` and `.process_id`.
    """
    now_ns = wall_ns()
    telemetry.tracer.start_span(
        semconv.SPAN_RUN,
        attributes={
            semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION,
            **_prefixed(semconv.RUN_PREFIX, attributes),
            f"{semconv.RUN_PREFIX}run_id": carried(run_id),
            f"{semconv.RUN_PREFIX}phase": phase,
            f"{semconv.RUN_PREFIX}process_id": telemetry.identity.process_id,
        },
        start_time=now_ns,
    ).end(now_ns)


class GeneratorGauges:
    """The generator's health as OTLP gauges. Create one per Telemetry and run; report about once a second.

    The exporter reads at its own interval: reports between two reads are merged (the worst stays the worst), and values
    not reported since the last read are not sent again.
    """

    def __init__(self, telemetry: Telemetry, run_id: str) -> None:
        self._telemetry, self._run_id = telemetry, run_id
        self._lock = threading.Lock()
        self._waiting: dict[str, int | float] = {}
        for gauge, figure in GAUGES.items():
            telemetry.meter.create_observable_gauge(
                gauge_metric(gauge), [self._reader(gauge)], unit=figure.otel_unit, description=figure.definition
            )

    def report(self, **values: int | float | None) -> None:
        """Record what a process measured since its last report, by the names of GAUGES; None was not measured, and
        leaves a gauge unchanged. Worst values are of the interval, counts since the process began. Raises KeyError for
        a name that is not in GAUGES."""
        with self._lock:
            for gauge, value in values.items():
                figure = GAUGES[gauge]
                if value is None:
                    continue
                before = self._waiting.get(gauge)
                self._waiting[gauge] = value if before is None else figure.merge(before, value)

    def _reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(options: CallbackOptions) -> Iterable[Observation]:
            del options
            with self._lock:
                value = self._waiting.pop(name, None)
            if value is None:
                return ()
            return (Observation(value, {"run_id": self._run_id, "process_id": self._telemetry.identity.process_id}),)

        return read


@dataclass(frozen=True, slots=True)
class PhaseStarts:
    """The begun calls of open arrivals that were due in one phase, in this process so far."""

    phase: str
    phase_kind: semconv.PhaseKind
    phase_begin_s: float  # after the start of the run: phases are listed in this order
    planned: int
    started: int
    late: int
    dropped: int


class StartGauges:
    """The starts of open arrivals as an OTLP gauge, read whenever the exporter collects."""

    def __init__(self, telemetry: Telemetry, run_id: str, starts: Callable[[], Iterable[PhaseStarts]]) -> None:
        self._telemetry, self._run_id, self._starts = telemetry, run_id, starts
        telemetry.meter.create_observable_gauge(semconv.METRIC_GENERATOR_STARTS, [self._read], unit="{call}")

    def _read(self, options: CallbackOptions) -> Iterable[Observation]:
        del options
        for start in self._starts():
            attributes = {
                "run_id": self._run_id,
                "process_id": self._telemetry.identity.process_id,
                "phase": start.phase,
                "phase_kind": start.phase_kind,
                "phase_begin_s": start.phase_begin_s,
            }
            for which in semconv.START_COUNTS:
                yield Observation(getattr(start, which), {**attributes, "which": which})


_NO_ATTRIBUTES: Final[Mapping[str, AttributeValue]] = {}


class _Stage(NamedTuple):
    name: str
    started_perf_ns: int
    ended_perf_ns: int
    events: tuple[tuple[str, int], ...] = ()
    attributes: Mapping[str, AttributeValue] = _NO_ATTRIBUTES


def _stages(turn: Turn) -> list[_Stage]:
    """The stages whose timestamps are known. A stage begins when the one that it waits for has ended."""
    stages: list[_Stage] = []
    final, spoken = turn.asr_final_perf_ns, _first_known(turn.speech_start_perf_ns, turn.speech_end_perf_ns)
    if final is not None and spoken is not None:
        partial = turn.asr_first_partial_perf_ns
        events = ((semconv.EVENT_ASR_PARTIAL, partial),) if partial is not None else ()
        stages.append(_Stage(semconv.SPAN_ASR, min(spoken, final), final, events))
    token = turn.llm_first_token_perf_ns
    if token is not None:
        attributes: dict[str, AttributeValue] = {semconv.GEN_AI_OPERATION_NAME: "chat"}
        if turn.model is not None:
            attributes[semconv.GEN_AI_REQUEST_MODEL] = carried(turn.model)
        ttft_ns = METRICS["llm_ttft"].value(turn)
        if ttft_ns is not None:
            attributes[semconv.GEN_AI_TIME_TO_FIRST_CHUNK_S] = ttft_ns / 1e9
        begin = _last_before(token, final, turn.speech_end_perf_ns)
        last = max(token, _first_known(turn.llm_last_token_perf_ns, token) or token)
        stages.append(_Stage(semconv.SPAN_LLM, begin, last, ((semconv.EVENT_LLM_FIRST_TOKEN, token),), attributes))
    chunk = turn.tts_first_chunk_perf_ns
    if chunk is not None:
        last = max(chunk, _first_known(turn.tts_last_chunk_perf_ns, chunk) or chunk)
        stages.append(_Stage(semconv.SPAN_TTS, _last_before(chunk, token), last))
    return stages


def _first_known(*points: int | None) -> int | None:
    return next((at for at in points if at is not None), None)


def _last_before(limit: int, *points: int | None) -> int:
    """The first of `points` that is known and not after `limit`, else `limit`."""
    return next((at for at in points if at is not None and at <= limit), limit)


def _as_span_time(unix_ns: int) -> int:
    # A span's times are unsigned 64-bit: nonsense from a clock must not cost the span, whose attributes are exact.
    return min(max(unix_ns, 0), _MAX_UNIX_NS)


def _prefixed(prefix: str, attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {name if name.startswith(prefix) else prefix + name: carried(value) for name, value in attributes.items()}
