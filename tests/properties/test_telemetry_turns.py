"""Any turn survives its span: as attributes, and on the wire as the SDK's own tracer and encoder make it."""

import typing
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, Tracer, set_span_in_context

from telemetry.export.encoded_spans import (
    EncodedSpan,
    SpanEncoder,
    SpanHead,
    encoded_by_sdk,
    encoded_resource,
    request_payload,
)
from telemetry.export.sdk import Telemetry
from telemetry.model import semconv
from telemetry.model.metrics import METRICS, TIMESTAMPS, timestamp
from telemetry.model.turn_spans import TurnDecodeError, carried, decode_turn, turn_attributes
from telemetry.model.turns import NonNegative, Turn
from tests.written_spans import call_of, emitting_turns, pb_spans, plain

_INTS = st.one_of(st.integers(), st.integers(-(2**63) - 3, -(2**63) + 3), st.integers(2**63 - 3, 2**63 + 3))
_HEX = "0123456789abcdef"


def _strategy(name: str, kind: object) -> st.SearchStrategy[object]:
    if kind == NonNegative:
        return st.integers(min_value=0)
    if name in ("trace_id", "span_id"):
        return st.text(_HEX, min_size=16, max_size=32)
    options = {int: _INTS, float: st.floats(allow_nan=False), bool: st.booleans(), str: st.text()}
    if kind in options:
        return options[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_strategy(name, arguments[0]), max_size=4).map(tuple)
    return st.one_of(*(st.none() if part is type(None) else _strategy(name, part) for part in arguments))


_HINTS = typing.get_type_hints(Turn, include_extras=True)
TURNS = st.fixed_dictionaries({name: _strategy(name, _HINTS[name]) for name in Turn.__struct_fields__}).map(
    lambda values: Turn(**values)
)
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example]
)


def as_json(value: object) -> object:
    """An attribute's value as OTLP's JSON has it: integers as text."""
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.slow
@SLOW
@given(TURNS, st.dictionaries(st.text(min_size=1).filter(lambda name: name not in Turn.__struct_fields__), st.text()))
def test_attributes_give_back_turn_and_newer_fields_are_counted(turn: Turn, newer: dict[str, str]) -> None:
    attributes = turn_attributes(turn)
    extra = {semconv.TURN_PREFIX + name: value for name, value in newer.items()}
    for sent in (
        attributes,
        {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()},
        {name: as_json(value) for name, value in attributes.items()},
        {**attributes, **extra},
    ):
        decoded = decode_turn(sent, turn.trace_id, turn.span_id)
        assert decoded.turn == turn
        assert set(decoded.unknown_fields) == (set(extra) & set(sent))


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers() | st.text())
)


@pytest.mark.slow
@SLOW
@given(TURNS, st.sampled_from(Turn.__struct_fields__), ANYTHING)
def test_any_value_anywhere_is_either_read_or_refused_by_name(turn: Turn, field: str, value: object) -> None:
    attributes = {**turn_attributes(turn), semconv.TURN_PREFIX + field: value}
    refused: TurnDecodeError | None = None
    decoded: Turn | None = None
    try:
        decoded = decode_turn(attributes, turn.trace_id, turn.span_id).turn
    except TurnDecodeError as error:
        refused = error
    if decoded is None:
        assert refused is not None
        assert refused.attribute == semconv.TURN_PREFIX + field
        assert refused.attribute in str(refused)
        return
    changed, original = msgspec.structs.asdict(decoded), msgspec.structs.asdict(turn)
    # repr, so that a NaN equals itself
    assert {name for name in original if repr(changed[name]) != repr(original[name])} <= {field}


@pytest.fixture(scope="module")
def emitting() -> Iterator[tuple[Telemetry, list[EncodedSpan]]]:
    with emitting_turns("test") as telemetry_and_written:
        yield telemetry_and_written


RESOURCE = Resource({"service.name": "property", "service.instance.id": "p1"}, "https://schema.example/1")
SPAN_ID = st.integers(1, 2**64 - 1)
UNIX_NS = st.integers(0, 2**64 - 1)
TEXT = st.text()  # without lone surrogates
VALUES = st.one_of(
    TEXT,
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.lists(TEXT).map(tuple),
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple),
)


class _Ids(IdGenerator):
    """Span ids that are known before."""

    def __init__(self, span_ids: list[int]) -> None:
        self._span_ids = iter(span_ids)

    def generate_span_id(self) -> int:
        return next(self._span_ids)

    def generate_trace_id(self) -> int:
        raise AssertionError("every span has a parent")


def tracer_into(memory: InMemorySpanExporter, span_ids: list[int]) -> Tracer:
    """The SDK's tracer."""
    provider = TracerProvider(
        resource=RESOURCE,
        id_generator=_Ids(span_ids),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_span_attributes=512, max_events=512),
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return provider.get_tracer(semconv.SCOPE)


def identity_of(turn: Turn) -> dict[str, object]:
    """Return the identity of the call that each stage names."""
    return {
        "voice.call.run_id": carried(turn.run_id),
        "voice.call.call_id": carried(turn.call_id),
        "voice.call.source": turn.source,
        "gen_ai.conversation.id": carried(turn.call_id),
        "voice.turn.turn_index": carried(turn.turn_index),
    }


def by_the_tracer(turn: Turn, trace_id: int, parent_id: int, span_ids: list[int]) -> list[ReadableSpan]:
    """The spans of an emitted turn as they are written with the SDK's tracer. Of `span_ids` the last is the turn's."""
    memory = InMemorySpanExporter()
    tracer = tracer_into(memory, [span_ids[-1], *span_ids[:-1]])

    def unix_ns(at_perf_ns: int) -> int:
        return min(max(turn.started_unix_ns + at_perf_ns - turn.started_perf_ns, 0), 2**64 - 1)

    call = SpanContext(trace_id, parent_id, False, TraceFlags(TraceFlags.SAMPLED))
    within_call = set_span_in_context(NonRecordingSpan(call))
    moments = [at for name in TIMESTAMPS if (at := timestamp(turn, name)) is not None]
    span = tracer.start_span(
        semconv.SPAN_TURN,
        context=within_call,
        attributes=turn_attributes(turn),
        start_time=unix_ns(turn.started_perf_ns),
    )

    def stage(name: str, began: int, ended: int, event: tuple[str, int | None], attributes: dict[str, object]) -> None:
        child = tracer.start_span(
            name,
            context=set_span_in_context(span),
            attributes={**identity_of(turn), **attributes},
            start_time=unix_ns(began),
        )
        if event[1] is not None:
            child.add_event(event[0], timestamp=unix_ns(event[1]))
        child.end(unix_ns(ended))

    final, token, chunk = turn.asr_final_perf_ns, turn.llm_first_token_perf_ns, turn.tts_first_chunk_perf_ns
    spoken = turn.speech_start_perf_ns if turn.speech_start_perf_ns is not None else turn.speech_end_perf_ns
    if final is not None and spoken is not None:
        heard = (semconv.EVENT_ASR_PARTIAL, turn.asr_first_partial_perf_ns)
        stage(semconv.SPAN_ASR, min(spoken, final), final, heard, {})
    if token is not None:
        attributes: dict[str, object] = {"gen_ai.operation.name": "chat"}
        if turn.model is not None:
            attributes["gen_ai.request.model"] = carried(turn.model)
        ttft_ns = METRICS["llm_ttft"].value(turn)
        if ttft_ns is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = ttft_ns / 1e9
        before = [at for at in (final, turn.speech_end_perf_ns) if at is not None and at <= token]
        last = max(token, token if turn.llm_last_token_perf_ns is None else turn.llm_last_token_perf_ns)
        first = (semconv.EVENT_LLM_FIRST_TOKEN, token)
        stage(semconv.SPAN_LLM, before[0] if before else token, last, first, attributes)
    if chunk is not None:
        last = max(chunk, chunk if turn.tts_last_chunk_perf_ns is None else turn.tts_last_chunk_perf_ns)
        began = token if token is not None and token <= chunk else chunk
        stage(semconv.SPAN_TTS, began, last, ("", None), {})
    span.end(unix_ns(max([turn.started_perf_ns, *moments])))
    return list(memory.get_finished_spans())


@pytest.mark.slow
@SLOW
@given(TURNS)
def test_a_turn_survives_the_wire_as_the_sdk_makes_it(emitting, turn: Turn) -> None:
    telemetry, written = emitting
    written.clear()
    call = call_of(telemetry, turn)
    emitted = call.emit(turn)
    (span,) = [span for span in pb_spans(written) if span.name == semconv.SPAN_TURN]
    attributes = {entry.key: plain(entry.value) for entry in span.attributes}
    decoded = decode_turn(attributes, span.trace_id.hex(), span.span_id.hex()).turn
    assert decoded == emitted
    assert decoded == msgspec.structs.replace(
        turn,
        trace_id=emitted.trace_id,
        span_id=emitted.span_id,
        process_id=telemetry.identity.process_id,
        sequence=emitted.sequence,
    )
    sent = request_payload(encoded_resource(RESOURCE), written)
    span_ids = [int.from_bytes(span.span_id, "big") for span in pb_spans(written)]
    assert f"{span_ids[-1]:016x}" == emitted.span_id
    reference = by_the_tracer(emitted, int(call.trace_id, 16), int(call.traceparent.split("-")[2], 16), span_ids)
    assert ExportTraceServiceRequest.FromString(sent) == encode_spans(reference)


@pytest.mark.slow
@SLOW
@given(st.lists(st.tuples(st.sampled_from("ab"), TEXT, UNIX_NS, UNIX_NS, st.dictionaries(TEXT, VALUES), SPAN_ID)))
def test_consecutive_spans_of_any_attributes_equal_those_of_sdk(spans) -> None:
    encoders, trace_id, parent_id = {name: SpanEncoder(name) for name in "ab"}, 2**127 + 1, 2**63 + 1
    encoded: list[EncodedSpan] = []
    reference: list[ReadableSpan] = []
    for scope, name, began, ended, attributes, span_id in (span for span in spans for _ in range(2)):
        events = ((name, began), (name, ended))[: began % 3]
        head = SpanHead(name, trace_id.to_bytes(16), span_id.to_bytes(8), parent_id.to_bytes(8), began, ended, events)
        encoded.append(encoders[scope].encoded(head, attributes))
        reference.append(_readable(scope, head, attributes))
    whole = encode_spans(reference) if reference else None
    for encoded_spans in (encoded, list(map(encoded_by_sdk, reference))):
        sent = ExportTraceServiceRequest.FromString(request_payload(encoded_resource(RESOURCE), encoded_spans))
        assert list(sent.resource_spans[0].scope_spans) == (list(whole.resource_spans[0].scope_spans) if whole else [])
        assert whole is None or sent == whole


def _readable(scope: str, head: SpanHead, attributes: dict[str, object]) -> ReadableSpan:
    def context(span_id: bytes) -> SpanContext:
        return SpanContext(int.from_bytes(head.trace_id), int.from_bytes(span_id), False, TraceFlags(1))

    return ReadableSpan(
        head.name,
        context=context(head.span_id),
        parent=context(head.parent_span_id),
        resource=RESOURCE,
        instrumentation_scope=InstrumentationScope(scope),
        attributes=attributes,
        events=[Event(name, timestamp=unix_ns) for name, unix_ns in head.events],
        start_time=head.began_unix_ns,
        end_time=head.ended_unix_ns,
    )


@pytest.mark.parametrize("chars", [0, 100, 2**14, 2**21])
def test_a_request_of_any_length_is_read_back(chars: int) -> None:
    head = SpanHead("long", b"t" * 16, b"s" * 8, b"p" * 8, 1, 2)
    spans = [SpanEncoder("scope").encoded(head, {"text": "x" * chars}) for _ in range(2)]
    assert [len(span.attributes[0].value.string_value) for span in pb_spans(spans)] == [chars, chars]
