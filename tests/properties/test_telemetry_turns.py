"""Any turn survives its span: as attributes, and through the OTLP protobuf encoding."""

import typing
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.export.encoded_spans import EncodedSpan
from telemetry.export.sdk import Telemetry
from telemetry.model import semconv
from telemetry.model.turn_spans import TurnDecodeError, decode_turn, turn_attributes
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


@SLOW
@given(TURNS)
def test_attributes_give_back_the_turn(turn: Turn) -> None:
    attributes = turn_attributes(turn)
    assert decode_turn(attributes, turn.trace_id, turn.span_id).turn == turn
    as_lists = {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()}
    assert decode_turn(as_lists, turn.trace_id, turn.span_id).turn == turn


@SLOW
@given(TURNS)
def test_integers_as_json_text_give_back_the_turn(turn: Turn) -> None:
    def as_json(value: object) -> object:
        if isinstance(value, tuple):
            return [as_json(item) for item in value]
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    attributes = {name: as_json(value) for name, value in turn_attributes(turn).items()}
    assert decode_turn(attributes, turn.trace_id, turn.span_id).turn == turn


@SLOW
@given(TURNS, st.dictionaries(st.text(min_size=1).filter(lambda name: name not in Turn.__struct_fields__), st.text()))
def test_fields_of_a_newer_schema_are_counted_and_left_out(turn: Turn, newer: dict[str, str]) -> None:
    extra = {semconv.TURN_PREFIX + name: value for name, value in newer.items()}
    decoded = decode_turn({**turn_attributes(turn), **extra}, turn.trace_id, turn.span_id)
    assert decoded.turn == turn
    assert set(decoded.unknown_fields) == set(extra)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers() | st.text())
)


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


@pytest.mark.slow
@SLOW
@given(TURNS)
def test_a_turn_survives_the_wire(emitting, turn: Turn) -> None:
    telemetry, written = emitting
    written.clear()
    call = call_of(telemetry, turn)
    emitted = call.emit(turn)
    spans = pb_spans(written)
    assert len(spans) == len(written)
    (span,) = [span for span in spans if span.name == semconv.SPAN_TURN]
    attributes = {entry.key: plain(entry.value) for entry in span.attributes}
    decoded = decode_turn(attributes, span.trace_id.hex(), span.span_id.hex()).turn
    assert decoded == emitted
    expected = msgspec.structs.replace(
        turn,
        trace_id=emitted.trace_id,
        span_id=emitted.span_id,
        process_id=telemetry.identity.process_id,
        sequence=emitted.sequence,
    )
    assert decoded == expected
