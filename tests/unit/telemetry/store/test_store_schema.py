"""A span comes back from Parquet as it went in, whatever its attributes hold; texts of a sender come back plain."""

import io
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from telemetry.model import semconv
from telemetry.model.turn_spans import SPAN_KINDS, STATUS_CODES, SpanEvent, SpanLink, SpanRow
from telemetry.store.schema import SCHEMAS, span_from_row, spans_table, with_turn
from tests.fixtures_turns import client_turn

PAINT = "\x1b]0;owned\x07\u202e\r\nforged"
SHOWN = "\\x1b]0;owned\\x07\\u202e"

_TEXTS = st.text("abc é\u4e2d🎤'\"", max_size=12)
_TIMES = st.integers(0, 2**63 - 1)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | _TEXTS
    | st.binary(max_size=6)
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3), max_leaves=6
)
_ATTRIBUTES = st.dictionaries(_TEXTS, _VALUES, max_size=4)
_SPANS = st.builds(
    SpanRow,
    trace_id=st.just("ab" * 16),
    span_id=st.just("cd" * 8),
    parent_span_id=st.none() | st.just("ef" * 8),
    name=_TEXTS,
    service=_TEXTS,
    start_unix_ns=_TIMES,
    end_unix_ns=_TIMES,
    attributes=_ATTRIBUTES,
    events=st.lists(st.builds(SpanEvent, _TEXTS, _TIMES, _ATTRIBUTES), max_size=2).map(tuple),
    links=st.lists(st.builds(SpanLink, st.just("ab" * 16), st.just("cd" * 8), _TEXTS, _ATTRIBUTES), max_size=2).map(
        tuple
    ),
    kind=st.sampled_from(SPAN_KINDS),
    status_code=st.sampled_from(STATUS_CODES),
    status_message=_TEXTS,
    trace_state=_TEXTS,
    scope_name=_TEXTS,
    scope_version=_TEXTS,
    resource_attributes=_ATTRIBUTES,
)


def _types(value: Any) -> Any:
    """The types of a value at every depth: 1, 1.0 and True are equal, and not the same."""
    if isinstance(value, list):
        return [_types(member) for member in value]
    if isinstance(value, dict):
        return {key: _types(member) for key, member in value.items()}
    return type(value)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(_SPANS, max_size=3))
def test_span_to_parquet_to_span(written: list[SpanRow]) -> None:
    file = io.BytesIO()
    pq.write_table(spans_table(written), file)
    table = pq.read_table(file)
    assert table.schema.names == SCHEMAS["spans"].names
    spans = [span_from_row(row) for row in table.to_pylist()]
    assert spans == written
    assert [_types(dict(span.attributes)) for span in spans] == [_types(dict(span.attributes)) for span in written]


def _span(**changes: Any) -> SpanRow:
    return SpanRow(**{**dict.fromkeys(("trace_id", "span_id", "name", "service"), "a"), "parent_span_id": None,
        "start_unix_ns": 1, "end_unix_ns": 2, "attributes": {}, **changes})  # fmt: skip


def _kept(span: SpanRow) -> SpanRow:
    (row,) = spans_table([span]).to_pylist()
    return span_from_row(row)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (float("nan"), "nan"),
        ([float("-inf"), float("nan")], "[-inf, nan]"),
        ([], "[]"),
        ({}, "{}"),
        ("", "''"),
        (b"", "b''"),
        ((1, 2), "[1, 2]"),
        (2**63, "'9223372036854775808'"),
        (object, "\"<class 'object'>\""),
    ],
    ids=str,
)
def test_values_without_a_plain_equality(value: object, kept: str) -> None:
    assert repr(_kept(_span(attributes={"a": value})).attributes["a"]) == kept


def test_texts_of_a_sender_are_stored_whole_and_read_plain() -> None:
    attributes = {PAINT: PAINT, "deep": {PAINT: [PAINT, {PAINT: PAINT}]}}
    plain = {f"{SHOWN}  forged": f"{SHOWN}\nforged"}
    nested = {**plain, "deep": {f"{SHOWN}  forged": [f"{SHOWN}\nforged", plain]}}
    sent = _span(
        name=PAINT,
        service=PAINT,
        trace_state=PAINT,
        scope_name=PAINT,
        scope_version=PAINT,
        status_message=PAINT,
        attributes=attributes,
        resource_attributes=attributes,
        events=(SpanEvent(PAINT, 1, attributes),),
        links=(SpanLink("ab" * 16, "cd" * 8, PAINT, attributes),),
    )
    (row,) = spans_table([sent]).to_pylist()
    assert row["span_name"] == row["status_message"] == row["span_attributes"][0]["key"] == PAINT
    line = f"{SHOWN}  forged"
    assert span_from_row(row) == _span(
        name=line,
        service=line,
        trace_state=line,
        scope_name=line,
        scope_version=line,
        status_message=f"{SHOWN}\nforged",
        attributes=nested,
        resource_attributes=nested,
        events=(SpanEvent(line, 1, nested),),
        links=(SpanLink("ab" * 16, "cd" * 8, line, nested),),
    )


def test_last_value_of_repeated_key_is_read() -> None:
    (row,) = spans_table([_span()]).to_pylist()
    pairs = [("a", 1), ("b", 2), ("a", 3)]
    doubled = KeyValueList(values=[KeyValue(key=key, value=AnyValue(int_value=value)) for key, value in pairs])
    values = [{"int_value": value} for _, value in pairs]
    values.append({"kvlist_value": doubled.SerializeToString()})
    row["span_attributes"] = [
        {"key": key, "value": value} for key, value in zip(["a", "b", "a", "nested"], values, strict=True)
    ]
    assert span_from_row(row).attributes == {"a": 3, "b": 2, "nested": {"a": 3, "b": 2}}


def test_nested_values_are_the_serialized_messages_of_otlp() -> None:
    (row,) = spans_table([_span(attributes={"list": [1, [True]], "map": {"k": b"\0"}})]).to_pylist()
    items, pairs = (pair["value"] for pair in row["span_attributes"])
    inner = AnyValue(array_value=ArrayValue(values=[AnyValue(bool_value=True)]))
    assert ArrayValue.FromString(items["array_value"]) == ArrayValue(values=[AnyValue(int_value=1), inner])
    expected = KeyValueList(values=[KeyValue(key="k", value=AnyValue(bytes_value=b"\0"))])
    assert KeyValueList.FromString(pairs["kvlist_value"]) == expected


def test_span_of_turn_is_read_with_attributes_held_by_turn() -> None:
    turn = client_turn(3, invalid_reasons=("late",))
    held = with_turn(_span(name=semconv.SPAN_TURN, attributes={"a": 1, "voice.turn.sequence": "3"}), turn)
    assert held.attributes["a"] == 1
    assert held.attributes["voice.turn.sequence"] == "3", "what its sender wrote, where that is stored"
    assert held.attributes["voice.turn.call_id"] == "call-3"
    assert held.attributes["voice.turn.invalid_reasons"] == ["late"]
    assert not [name for name in held.attributes if name.startswith("gen_ai.")]
    assert with_turn(_span(name="other"), turn) == _span(name="other")
    assert with_turn(_span(name=semconv.SPAN_TURN), None) == _span(name=semconv.SPAN_TURN)
