"""Decodes OTLP export requests, and makes the tables of the store of several. Pure: bytes in, tables out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model import semconv
from telemetry.model.contradictions import of_timestamps, without_contradictions
from telemetry.model.foreign_text import one_line
from telemetry.model.services import WHOLE_TURN_ATTRIBUTES
from telemetry.model.turn_spans import CARRIED, TurnDecodeError, decode_turn
from telemetry.model.turns import Turn, with_plain_texts
from telemetry.sidecar.adapters.span_roles import is_foreign
from telemetry.sidecar.otlp.attributes import OtlpDecodeError, StoredPairs, from_stored, stored_pairs
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
# Of each attribute of a turn its field, and the value of it that is not sent.
_FIELDS: Final = {
    semconv.TURN_PREFIX + each.name: (each.name, each.default)
    for each in msgspec.structs.fields(Turn)
    if each.name in CARRIED
}
# Making a table of so many columns takes longer than decoding a small request.
_EMPTY: Final = {name: without_rows(schema) for name, schema in SCHEMAS.items()}


@dataclass(slots=True)
class DecodedTables:
    """What is to be stored of several requests together.

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
    """Decode the body of an export in protobuf, without what the cleaner takes out of it."""
    try:
        return _read_traces(body, cleaner) if signal == "traces" else read_points(body, cleaner)
    except OtlpDecodeError as error:
        return DecodedRequest(fault=str(error))


def tables_of(requests: Sequence[DecodedRequest]) -> DecodedTables:
    """The tables of decoded requests."""
    found = DecodedTables(requests, turns=[turn for request in requests for turn in request.turns])
    if spans := [row for request in requests for row in request.spans]:
        found.spans = spans_table(spans)
    if points := [point for request in requests for point in request.points]:
        found.points = points_table(points)
    for request in requests:
        found.unknown_turn_fields += request.unknown_turn_fields
        for (scope, span), count in request.names.items():
            scope_name, span_name = one_line(scope), one_line(span)
            if not is_foreign(scope_name, span_name):
                found.unmapped[f"{scope_name}/{span_name}"] += count
    return found


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
    """What is stored of a span; without a row, why it is not."""

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
    attributes = stored_pairs(span.attributes)
    turn: Turn | None = None
    unknown_fields: Iterable[str] = ()
    if name == semconv.SPAN_TURN:
        try:
            if (found := _turn_of(attributes, span.trace_id.hex(), span.span_id.hex())) is not None:
                turn, attributes, unknown_fields = found
        except _RefusedTurn as refused:
            return _Taken(name, parts, str(refused))
    return _Taken(name, parts, "", span_row(span, origin, scope, attributes), turn, unknown_fields)


class _RefusedTurn(Exception):  # noqa: N818 - reads as what happened
    """A span holds no turn that can be stored; the message says why."""


def _turn_of(pairs: StoredPairs, trace_id: str, span_id: str) -> tuple[Turn, StoredPairs, Iterable[str]] | None:
    """The turn of a span with these attributes, those of them that the row of the turn does not hold exactly, and the
    names of unknown fields; None for a service's own span, which is assembled with those below it.

    Raises _RefusedTurn.
    """
    attributes = from_stored(pairs)
    if WHOLE_TURN_ATTRIBUTES.isdisjoint(attributes):
        return None
    try:
        decoded = decode_turn(attributes, trace_id, span_id)
    except TurnDecodeError as error:
        raise _RefusedTurn(f"span {span_id}: {error}") from None
    sent = decoded.turn
    turn = with_plain_texts(without_contradictions(sent, of_timestamps(sent)))
    held = _held(attributes, turn) if len(attributes) == len(pairs) // 3 else None
    if held is None and not fits(sent):
        raise _RefusedTurn(f"span {span_id}: an integer of the turn is too large to store (62 bits)")
    return turn, _without(pairs, held) if held else pairs, map(one_line, decoded.unknown_fields)


def _without(pairs: StoredPairs, held: set[str]) -> StoredPairs:
    return [
        part for place, key in enumerate(pairs[::3]) if key not in held for part in pairs[3 * place : 3 * place + 3]
    ]


def _held(attributes: dict[str, object], turn: Turn) -> set[str] | None:
    """The attributes that come back from the turn as they are; None where one of them is not exactly its field. Such a
    span keeps all of them."""
    found: set[str] = set()
    values = msgspec.structs.asdict(turn)
    for key, value in attributes.items():
        if (field := _FIELDS.get(key)) is None:
            continue
        name, default = field
        of_turn = values[name]
        # Most values are the very objects that were decoded.
        if not (of_turn is value and type(value) is not int) and not _is_exact(value, of_turn):
            return None
        if of_turn != default:
            found.add(key)
    return found


def _is_exact(value: Any, of_turn: Any) -> bool:
    kind = type(value)
    if kind is int:
        return value == of_turn and type(of_turn) is int and -INTEGER_LIMIT < value < INTEGER_LIMIT
    if kind is list:
        return type(of_turn) is tuple and len(value) == len(of_turn) and all(map(_is_exact, value, of_turn))
    return type(of_turn) is kind and of_turn == value
