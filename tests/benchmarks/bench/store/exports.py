"""OTLP requests of the mix that our callers send, ready to be sent again and again as new spans.

One turn with all its attributes, a span for each of its three stages, and a span of the call for every three turns; 64
spans in a request, as our exporter sends them.
"""

import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model import semconv
from telemetry.model.turn_spans import AttributeValue, turn_attributes
from telemetry.model.turns import Turn
from telemetry.store.schema import span_from_row, turn_from_row
from tests.benchmarks.bench.store.templates import LARGE_RUN, SECOND, TURNS_OF_A_CALL, make_templates

BATCH_SPANS: Final = 64
STAGES: Final = 3
_SPANS_OF_A_CALL: Final = TURNS_OF_A_CALL * (1 + STAGES) + 1
_CALLS: Final = BATCH_SPANS * 2
_TEMPLATE_CALLS: Final = 60
# The first half of every trace id of a request, which makes its spans new when it is replaced.
_PREFIX: Final = bytes.fromhex("f00dfeedf00dfeed")
_RUN: Final = "sent"


@dataclass(frozen=True, slots=True)
class Exports:
    """Bodies in protobuf; `attributes` is how many a turn has on average, `span_bytes` what a span takes."""

    bodies: tuple[bytes, ...]
    attributes: float
    span_bytes: float


def new_spans(body: bytes) -> bytes:
    """The same request with trace ids that were never sent before."""
    return body.replace(_PREFIX, secrets.token_bytes(len(_PREFIX)))


def make_exports(seed: int, now_unix_ns: int) -> Exports:
    """Requests whose turns began just before `now_unix_ns`."""
    calls = _answered_calls(seed)
    spans: list[Span] = []
    attributes = 0
    for number in range(_CALLS):
        begin = now_unix_ns - 30 * SECOND + number
        for span in _call(calls[number % len(calls)], number, begin):
            spans.append(span)
            attributes += len(span.attributes) if span.name == semconv.SPAN_TURN else 0
    bodies = [_body(spans[first : first + BATCH_SPANS]) for first in range(0, len(spans), BATCH_SPANS)]
    return Exports(
        bodies=tuple(bodies),
        attributes=attributes / (_CALLS * TURNS_OF_A_CALL),
        span_bytes=sum(map(len, bodies)) / len(spans),
    )


def one_turn(now_unix_ns: int) -> tuple[bytes, str]:
    """A request with one turn of the newest run of a generated store, begun now, and its trace id in hexadecimal."""
    trace_id = secrets.token_bytes(16)
    turn = _answered_calls(2)[0][0][0]
    turn = msgspec.structs.replace(turn, run_id=LARGE_RUN, call_id=trace_id.hex())
    span = _turn(turn, trace_id, secrets.token_bytes(8), now_unix_ns)
    return _body([span]), trace_id.hex()


@cache
def _answered_calls(seed: int) -> list[list[tuple[Turn, list[str]]]]:
    """Calls of which every turn has all stages: its turns, each with the names of its stages."""
    client = make_templates(seed, _TEMPLATE_CALLS).client
    turns: list[dict[str, Any]] = client.turns.to_pylist()
    spans: list[dict[str, Any]] = client.spans.to_pylist()
    found: list[list[tuple[Turn, list[str]]]] = []
    for first in range(0, len(turns), TURNS_OF_A_CALL):
        rows = range(first, first + TURNS_OF_A_CALL)
        if all(client.span_count[row] == 1 + STAGES for row in rows):
            found.append([(turn_from_row(turns[row]), _stages(client.first_span[row], spans)) for row in rows])
    return found


def _stages(first: int, spans: list[dict[str, Any]]) -> list[str]:
    return [span_from_row(row).name for row in spans[first + 1 : first + 1 + STAGES]]


def _call(turns: list[tuple[Turn, list[str]]], number: int, begin_ns: int) -> list[Span]:
    trace_id = _PREFIX + number.to_bytes(8, "big")
    ids = [number.to_bytes(4, "big") + place.to_bytes(4, "big") for place in range(1, _SPANS_OF_A_CALL + 1)]
    spans: list[Span] = []
    for turn, stages in turns:
        turn_id = ids[len(spans)]
        known = msgspec.structs.replace(turn, run_id=_RUN, call_id=f"call-{number}")
        spans.append(_turn(known, trace_id, turn_id, begin_ns))
        spans[-1].parent_span_id = ids[-1]
        for name in stages:
            own: dict[str, AttributeValue] = {
                f"{semconv.CALL_PREFIX}run_id": _RUN,
                f"{semconv.CALL_PREFIX}call_id": f"call-{number}",
                f"{semconv.CALL_PREFIX}source": "client",
                f"{semconv.TURN_PREFIX}turn_index": turn.turn_index,
            }
            spans.append(_span(name, trace_id, ids[len(spans)], begin_ns, own))
            spans[-1].parent_span_id = turn_id
    own = {semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION, f"{semconv.CALL_PREFIX}call_id": f"call-{number}"}
    return [*spans, _span(semconv.SPAN_CALL, trace_id, ids[-1], begin_ns, own)]


def _turn(turn: Turn, trace_id: bytes, span_id: bytes, begin_ns: int) -> Span:
    known = msgspec.structs.replace(turn, started_unix_ns=begin_ns, process_id="bench", sequence=None)
    return _span(semconv.SPAN_TURN, trace_id, span_id, begin_ns, turn_attributes(known))


def _span(name: str, trace_id: bytes, span_id: bytes, begin_ns: int, attributes: dict[str, AttributeValue]) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=begin_ns,
        end_time_unix_nano=begin_ns + SECOND,
        attributes=[KeyValue(key=key, value=_value(value)) for key, value in attributes.items()],
    )


def _value(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))


def _body(spans: list[Span]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=_value("voiceprobe")))
    scope = resource.scope_spans.add()
    scope.scope.name = semconv.SCOPE
    scope.spans.extend(spans)
    return request.SerializeToString()
