"""Decodes OTLP export requests, and builds the store's tables for several of them. Pure: bytes in, tables out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model import semconv
from telemetry.model.contradictions import timestamp_contradictions, without_contradictions
from telemetry.model.foreign_text import one_line
from telemetry.model.services import WHOLE_TURN_ATTRIBUTES
from telemetry.model.turn_spans import CARRIED, TurnDecodeError, decode_turn
from telemetry.model.turns import Turn, with_plain_texts
from telemetry.sidecar.adapters.frameworks import is_foreign
from telemetry.sidecar.otlp.attributes import ARRAY, OtlpDecodeError, from_protobuf, stored_pairs
from telemetry.sidecar.otlp.opening import SHOWN_CHARS, Cleaner, DecodedRequest, OpenedRequest
from telemetry.sidecar.otlp.points import read_points
from telemetry.sidecar.otlp.spans import (
    REQUEST_PARTS_MAX,
    TOO_MANY_PARTS,
    Origin,
    Scope,
    SpanRow,
    examined,
    span_row,
    spans_table,
)
from telemetry.sidecar.signals import Signal
from telemetry.store.schema import (
    INTEGER_LIMIT,
    SCHEMAS,
    TURN_FIELDS,
    ArrowTable,
    fits,
    points_table,
    without_rows,
)

KNOWN_SPANS: Final = frozenset(
    {
        semconv.SPAN_RUN,
        semconv.SPAN_CALL,
        semconv.SPAN_TURN,
        semconv.SPAN_ASR,
        semconv.SPAN_LLM,
        semconv.SPAN_TTS,
    }
)


def _sent_as(column: Any) -> tuple[str, str]:
    """The fields of an attribute's value that hold a turn's field of this type, and each of its items."""
    if pa.types.is_list(column):
        return ARRAY, _sent_as(column.value_type)[0]
    kinds = ((pa.bool_(), "bool_value"), (pa.int64(), "int_value"), (pa.float64(), "double_value"))
    return next((name for kind, name in kinds if column == kind), "string_value"), ""


# Of each attribute of a turn its field, as what it is sent, and the value of it that is not.
_FIELDS: Final = {
    semconv.TURN_PREFIX + turn_field.name: (
        turn_field.name,
        *_sent_as(TURN_FIELDS[turn_field.name]),
        turn_field.default,
    )
    for turn_field in msgspec.structs.fields(Turn)
    if turn_field.name in CARRIED
}
# Making a table of so many columns takes longer than decoding a small request.
_EMPTY: Final = {name: without_rows(schema) for name, schema in SCHEMAS.items()}


@dataclass(slots=True)
class DecodedTables:
    """The rows to store of several requests together.

    `unmapped` counts spans that are neither ours nor of a known framework by "scope/span name", `unknown_turn_fields`
    unknown attributes of turns.
    """

    requests: Sequence[DecodedRequest]
    turns: list[Turn] = field(default_factory=list[Turn])
    spans: ArrowTable = field(default_factory=lambda: _EMPTY["spans"])
    points: ArrowTable = field(default_factory=lambda: _EMPTY["points"])
    unmapped: Counter[str] = field(default_factory=Counter[str])
    unknown_turn_fields: Counter[str] = field(default_factory=Counter[str])


def read_request(body: bytes, signal: Signal, cleaner: Cleaner | None = None) -> DecodedRequest:
    """Decode the body of an export in protobuf, without what the cleaner removes."""
    try:
        return _read_traces(body, cleaner) if signal == "traces" else read_points(body, cleaner)
    except OtlpDecodeError as error:
        return DecodedRequest(fault=str(error))


def tables_of(requests: Sequence[DecodedRequest]) -> DecodedTables:
    """Build the tables of decoded requests."""
    tables = DecodedTables(requests, turns=[turn for request in requests for turn in request.turns])
    if spans := [row for request in requests for row in request.spans]:
        tables.spans = spans_table(spans)
    if points := [point for request in requests for point in request.points]:
        tables.points = points_table(points)
    for request in requests:
        tables.unknown_turn_fields += request.unknown_turn_fields
        for (scope, span), count in request.names.items():
            scope_name, span_name = one_line(scope), one_line(span)
            if not is_foreign(scope_name, span_name):
                tables.unmapped[f"{scope_name}/{span_name}"] += count
    return tables


def _read_traces(body: bytes, cleaner: Cleaner | None) -> DecodedRequest:
    request = OpenedRequest(body, "traces", cleaner)
    result, parts = request.result, 0
    for _, _, scope, taken in request.items(Origin, Scope.of, _taken):
        parts += taken.parts
        if parts > REQUEST_PARTS_MAX:
            raise OtlpDecodeError(TOO_MANY_PARTS)
        if taken.row is None:
            result.reject(taken.fault)
            continue
        result.spans.append(taken.row)
        if taken.turn is not None:
            result.turns.append(taken.turn)
            result.unknown_turn_fields.update(taken.unknown_fields)
        elif taken.name not in KNOWN_SPANS:
            result.names[scope.name, taken.name] += 1
    result.received = request.count
    return request.finish()


class _Taken(NamedTuple):
    """The row of a span, or why it has none."""

    name: str
    parts: int
    fault: str = ""
    row: SpanRow | None = None
    turn: Turn | None = None
    unknown_fields: Iterable[str] = ()


def _taken(span: Span, origin: Origin, scope: Scope) -> _Taken:
    name = span.name
    parts, fault = examined(span, origin, scope)
    if fault is not None:
        return _Taken(name, parts, f"span {name[:SHOWN_CHARS]!r}: {fault}")
    turn: Turn | None = None
    left: Sequence[KeyValue] = span.attributes
    unknown_fields: Iterable[str] = ()
    # A service's own turn span, which has none of these, is assembled with the spans below it.
    if name == semconv.SPAN_TURN and not WHOLE_TURN_ATTRIBUTES.isdisjoint(pair.key for pair in span.attributes):
        try:
            turn, left, unknown_fields = _turn_of(span)
        except (TurnDecodeError, _RefusedTurn) as refused:
            return _Taken(name, parts, f"span {span.span_id.hex()}: {refused}")
    return _Taken(name, parts, "", span_row(span, origin, scope, stored_pairs(left)), turn, unknown_fields)


class _RefusedTurn(Exception):  # noqa: N818 - reads as what happened
    """Raised for a turn that cannot be stored; the message says why."""


def _turn_of(span: Span) -> tuple[Turn, Sequence[KeyValue], Iterable[str]]:
    """The turn of a span, the attributes that the turn's row does not hold exactly, and the names of unknown fields.
    Raises TurnDecodeError and _RefusedTurn."""
    values, left = _as_sent(span.attributes)
    if values is not None:
        try:
            ids = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
            sent = msgspec.convert(values | ids, Turn)
            turn = with_plain_texts(without_contradictions(sent, timestamp_contradictions(sent)))
            if turn is sent:
                unknown = [one_line(pair.key) for pair in left if pair.key.startswith(semconv.TURN_PREFIX)]
                return turn, left, [name for name in unknown if name not in _FIELDS]
        except msgspec.ValidationError:
            pass  # it is decoded below, which says by name what is wrong
    decoded = decode_turn(from_protobuf(span.attributes), span.trace_id.hex(), span.span_id.hex())
    if not fits(decoded.turn):
        raise _RefusedTurn("an integer of the turn is too large to store (62 bits)")
    turn = with_plain_texts(without_contradictions(decoded.turn, timestamp_contradictions(decoded.turn)))
    return turn, span.attributes, map(one_line, decoded.unknown_fields)


def _as_sent(pairs: Sequence[KeyValue]) -> tuple[dict[str, Any] | None, list[KeyValue]]:
    """The fields of a turn whose attributes are as our own exporter writes them, and the other attributes; no fields if
    one is written differently or twice: then the span keeps all of them."""
    values: dict[str, Any] = {}
    integers: list[int] = [0]
    left: list[KeyValue] = []
    for pair in pairs:
        field = _FIELDS.get(pair.key)
        if field is None:
            left.append(pair)
            continue
        name, kind, item_kind, default = field
        value = pair.value
        content: Any = getattr(value, kind)
        if kind == ARRAY:
            items = content.values
            content = tuple([getattr(item, item_kind) for item in items])
            if not all(item.WhichOneof("value") == item_kind for item in items):
                return None, left
        # One that is not empty or 0 is certainly set.
        if (not content and value.WhichOneof("value") != kind) or name in values:
            return None, left
        if kind == "int_value":
            integers.append(content)
        elif item_kind == "int_value":
            integers.extend(content)
        values[name] = content
        if content == default:  # which is not written when the turn is exported again
            left.append(pair)
    return (values if max(map(abs, integers)) < INTEGER_LIMIT else None), left
