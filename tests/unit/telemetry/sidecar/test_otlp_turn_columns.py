"""The turns of a group are those that `decode_turn` reads span by span, whatever the spans hold."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList

from telemetry.model import semconv
from telemetry.model.contradictions import timestamp_contradictions, without_contradictions
from telemetry.model.foreign_text import one_line, several_lines
from telemetry.model.services import WHOLE_TURN_ATTRIBUTES
from telemetry.model.turn_spans import CARRIED, TurnDecodeError, decode_turn, turn_attributes
from telemetry.model.turns import Turn, with_plain_texts
from telemetry.sidecar.otlp import attributes as values
from telemetry.sidecar.otlp.tables import DecodedTables
from telemetry.store.schema import fits, span_from_row, with_turn
from tests.fixtures_sidecar import any_value, decode_traces
from tests.fixtures_turns import client_turn, exchange
from tests.strategies_turns import turns

Pairs = list[tuple[str, AnyValue]]

_PREFIX = semconv.TURN_PREFIX
_KEYS = st.sampled_from([*(_PREFIX + name for name in CARRIED), _PREFIX + "mood", _PREFIX, "voice.turnx", "", "my.own"])
_TEXTS = st.sampled_from(
    [
        "",
        "3",
        "-4",
        "3.5",
        "true",
        "false",
        "ok",
        "client",
        "é 中",
        "two\nlines",
        "\x1b[2J",
        "x" * 501,
        "1" * 30,
        "cold",
    ]
)
_SCALARS = (
    st.booleans()
    | st.sampled_from([0, 1, -1, 2**62, -(2**62), 2**62 - 1, 1 - 2**62, 2**63 - 1, -(2**63)])
    | st.sampled_from([0.0, 3.0, -0.5, 2.0**53, 2.0**60, float("nan"), float("inf")])
    | _TEXTS
)
_VALUES: st.SearchStrategy[AnyValue] = st.one_of(
    _SCALARS.map(any_value),
    st.lists(_SCALARS, max_size=3).map(any_value),
    st.just(AnyValue()),
    st.just(AnyValue(bytes_value=b"7")),
    st.just(AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a")]))),
    st.just(any_value([[1], []])),
)


@st.composite
def _changed(draw: st.DrawFn) -> Pairs:
    """The attributes of a turn with some of them gone, others added, repeated or replaced, in any order."""
    turn = draw(turns() | st.sampled_from([client_turn(0), exchange(1)[0], exchange(2)[1]]))
    pairs = [(key, any_value(value)) for key, value in turn_attributes(turn).items()]
    for _ in range(draw(st.integers(0, 2))):
        pairs.pop(draw(st.integers(0, len(pairs) - 1)))
    pairs += draw(st.lists(st.tuples(_KEYS, _VALUES), max_size=3))
    return draw(st.permutations(pairs)) if draw(st.booleans()) else pairs


def _request(spans: Sequence[Pairs]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number, pairs in enumerate(spans):
        span = scope.spans.add(
            name=semconv.SPAN_TURN, start_time_unix_nano=1, trace_id=b"\1" * 16, span_id=(number + 1).to_bytes(8, "big")
        )
        for key, value in pairs:
            span.attributes.add(key=key).value.CopyFrom(value)
    return request


def _by_rows(request: ExportTraceServiceRequest) -> tuple[list[Turn], list[str], Counter[str]]:
    """The turns, the reasons and the unknown fields of a request, a span at a time."""
    kept: list[Turn] = []
    reasons: list[str] = []
    unknown: Counter[str] = Counter()
    for span in request.resource_spans[0].scope_spans[0].spans:
        attributes = values.from_protobuf(span.attributes)
        if WHOLE_TURN_ATTRIBUTES.isdisjoint(attributes):
            continue
        try:
            decoded = decode_turn(attributes, span.trace_id.hex(), span.span_id.hex())
        except TurnDecodeError as error:
            reasons.append(f"span {span.span_id.hex()}: {error}")
            continue
        if not fits(decoded.turn):
            reasons.append(f"span {span.span_id.hex()}: an integer of the turn is too large to store (62 bits)")
            continue
        unknown.update(map(one_line, decoded.unknown_fields))
        kept.append(with_plain_texts(without_contradictions(decoded.turn, timestamp_contradictions(decoded.turn))))
    return kept, reasons, unknown


def _given_back(tables: DecodedTables) -> list[dict[str, object]]:
    """The attributes of each span with those that the row of its turn holds, without what was found out about it."""
    turns_of = {turn.span_id: turn for turn in tables.turns}
    spans = [span_from_row(row) for row in tables.spans.to_pylist()]
    merged = [
        dict((with_turn(span, turns_of[span.span_id]) if span.span_id in turns_of else span).attributes)
        for span in spans
    ]
    found_out = {f"{semconv.TURN_PREFIX}contradicted_{suffix}" for suffix in ("metrics", "causes")}
    return [{name: value for name, value in attributes.items() if name not in found_out} for attributes in merged]


def _check(spans: Sequence[Pairs]) -> DecodedTables:
    """Decode spans; their turns are those that `decode_turn` reads, and span and turn together give every attribute
    back."""
    request = _request(spans)
    kept, reasons, unknown = _by_rows(request)
    decoded = decode_traces([request.SerializeToString()])
    assert [repr(turn) for turn in decoded.turns] == [repr(turn) for turn in kept]
    (result,) = decoded.requests
    assert (result.received, result.rejected, result.fault) == (len(spans), len(reasons), None)
    assert result.reasons == list(dict.fromkeys(reasons))[:3]
    assert decoded.unknown_turn_fields == unknown
    numbers = [int(span_id, 16) - 1 for span_id in decoded.spans["span_id"].to_pylist()]
    sent = [{key: value for key, value in spans[number] if "contradicted_" not in key} for number in numbers]
    expected = [{one_line(key): _read(value) for key, value in attributes.items()} for attributes in sent]
    assert [repr(sorted(attributes.items())) for attributes in _given_back(decoded)] == [
        repr(sorted(attributes.items())) for attributes in expected
    ]
    return decoded


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(_changed(), max_size=4))
def test_tables_hold_what_decode_turn_reads_of_each_span(spans: list[Pairs]) -> None:
    _check(spans)


def _read(value: AnyValue) -> object:
    """A value as the store gives it back: texts with control characters written out."""
    shown_value = values.value_from_protobuf(value)
    return [_shown(item) for item in shown_value] if isinstance(shown_value, list) else _shown(shown_value)


def _shown(value: object) -> object:
    return several_lines(value, 2**16) if isinstance(value, str) else value


def test_fields_of_turn_row_are_not_stored_twice() -> None:
    sent = [side for index in range(20) for side in exchange(index, transcript_pii="tschüß 中文 " * 100)]
    decoded = decode_traces([_request([_pairs(turn) for turn in sent]).SerializeToString()])
    expected = [
        msgspec.structs.replace(turn, trace_id="01" * 16, span_id=f"{number + 1:016x}")
        for number, turn in enumerate(sent)
    ]
    assert decoded.turns == expected
    kept = {pair["key"] for row in decoded.spans.to_pylist() for pair in row["span_attributes"]}
    assert not [key for key in kept if key.startswith(_PREFIX)]


def _pairs(turn: Turn) -> Pairs:
    return [(key, any_value(value)) for key, value in turn_attributes(turn).items()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence", "12"),
        ("sequence", 12.0),
        ("cache_hit", "true"),
        ("snr_asked_db", 3),
        ("snr_asked_db", "3.5"),
        ("llm_chunk_gaps_ns", [1.0, "2"]),
        ("turn_index", "0"),
        ("model", "two\nlines"),
        ("withheld_reasons", ["a\x1bb"]),
        ("invalid_reasons", []),
        ("process_id", ""),
        ("llm_chunk_gaps_ns", [2**62]),
        ("turn_index", -1),
        ("outcome", "better"),
    ],
)
def test_values_of_other_encoders_are_read(name: str, value: object) -> None:
    base = [pair for pair in _pairs(exchange(1)[0]) if pair[0] != _PREFIX + name]
    spans = [base, [*base, (_PREFIX + name, any_value(value))], base]
    _check(spans)


def test_last_value_of_repeated_field_counts_and_both_are_kept() -> None:
    pairs = [*_pairs(client_turn(0)), (_PREFIX + "sequence", any_value(7)), (_PREFIX + "mood", any_value("a"))]
    tables = _check([[*pairs, (_PREFIX + "mood", any_value("b"))]])
    assert tables.unknown_turn_fields == {_PREFIX + "mood": 1}
    kept = [pair["key"] for pair in tables.spans.to_pylist()[0]["span_attributes"]]
    assert (kept.count(_PREFIX + "sequence"), kept.count(_PREFIX + "mood")) == (2, 2)


def test_turn_in_words_of_service_is_kept_as_span() -> None:
    own: Pairs = [("voice.turn.cohort", any_value("canary")), ("gen_ai.conversation.id", any_value("c"))]
    whole = _pairs(client_turn(0))
    broken = [pair for pair in whole if pair[0] not in ("voice.turn.started_perf_ns", "voice.turn.outcome")]
    tables = _check([own, whole, [], broken])
    assert tables.requests[0].rejected == 1, "a span of our own encoder that lacks a field"
    assert [turn.span_id for turn in tables.turns] == [f"{2:016x}"]
    assert tables.spans["span_id"].to_pylist() == [f"{number:016x}" for number in (1, 2, 3)]
