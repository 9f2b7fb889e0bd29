"""Logs and store agree, keep nothing that was sent as a secret, and keep our own turns."""

import os
import random
import uuid
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from telemetry.model import semconv
from telemetry.model.personal_data import identifies_person, label_without_personal_data
from telemetry.model.turn_spans import turn_attributes
from telemetry.sidecar.otlp.tables import DecodedTables
from telemetry.sidecar.privacy import PrivacyRules, Redactor
from telemetry.store.redaction import table_without_text
from tests.fixtures_sidecar import any_value, decode_traces, turns_request
from tests.fixtures_turns import exchange, stage_spans

KEY = b"k" * 32
SECRETS = ["4111111111111111", "+491701234567", "anna.keller@example.com"]
RULES = {"left out": PrivacyRules(KEY), "kept": PrivacyRules(KEY, keep_text=True)}
SCOPES = ["voiceprobe", "pipecat.turn", "", SECRETS[1]]
NAMES = [
    *(
        "gen_ai.request.model",
        "language",
        "voice.turn.outcome_reason",
        "user.id",
        "gen_ai.conversation.id",
        "text_output",
    ),
    *("tool.arguments", "http.route", "finish", "voice.turn.model", "lk.llm_metrics", "session.id", "card"),
    "run_id",
]
TEXTS = st.sampled_from(
    [*SECRETS, *(f"call {secret}, please" for secret in SECRETS), "", "ok", "gpt-4o", "a\u00e4\u20ac"]
)
VALUES = st.recursive(
    st.one_of(
        TEXTS.map(lambda text: AnyValue(string_value=text)),
        TEXTS.map(lambda text: AnyValue(bytes_value=text.encode())),
        st.sampled_from([0, 3, -1, 2**63 - 1, 4111111111111111, 1763881234567890123]).map(
            lambda number: AnyValue(int_value=number)
        ),
        st.sampled_from([0.0, 1.5, 4111111111111111.0, -2.0]).map(lambda number: AnyValue(double_value=number)),
        st.booleans().map(lambda flag: AnyValue(bool_value=flag)),
        st.just(AnyValue()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: AnyValue(array_value=ArrayValue(values=items))),
        st.lists(st.tuples(st.sampled_from(["a", SECRETS[0]]), inner), max_size=2).map(
            lambda pairs: AnyValue(
                kvlist_value=KeyValueList(values=[KeyValue(key=key, value=value) for key, value in pairs])
            )
        ),
    ),
    max_leaves=4,
)
PAIRS = st.lists(
    st.tuples(st.sampled_from([*NAMES, SECRETS[1]]), VALUES).map(lambda pair: KeyValue(key=pair[0], value=pair[1])),
    max_size=4,
)


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    """A request with secrets in places of all kinds."""
    made = ExportTraceServiceRequest()
    of_resource = made.resource_spans.add(schema_url=draw(TEXTS))
    of_resource.resource.attributes.extend(draw(PAIRS))
    for scope in draw(
        st.lists(st.sampled_from(["voiceprobe", "pipecat.turn", "", SECRETS[1]]), min_size=1, max_size=2)
    ):
        of_scope = of_resource.scope_spans.add(schema_url=draw(TEXTS))
        of_scope.scope.name = scope
        for number in range(draw(st.integers(1, 3))):
            span = of_scope.spans.add(name=draw(TEXTS), trace_state=draw(TEXTS), flags=draw(st.sampled_from([0, 257])))
            span.trace_id, span.span_id = b"t" * 16, bytes([number + 1]) * 8
            span.start_time_unix_nano = span.end_time_unix_nano = 5
            span.status.message = draw(TEXTS)
            span.attributes.extend(draw(PAIRS))
            if draw(st.booleans()):
                event = span.events.add(name=draw(TEXTS), time_unix_nano=3)
                event.attributes.extend(draw(PAIRS))
            if draw(st.booleans()):
                link = span.links.add(trace_id=b"u" * 16, span_id=b"v" * 8, trace_state=draw(TEXTS))
                link.attributes.extend(draw(PAIRS))
    return made


def stored(tables: DecodedTables) -> list[object]:
    """The rows of a group."""
    return [*tables.spans.to_pylist(), *tables.turns]


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@settings(deadline=None, max_examples=50)
@given(made=st.lists(requests(), min_size=1, max_size=3))
def test_forwarded_requests_and_stored_rows_agree(rules: PrivacyRules, made: list[ExportTraceServiceRequest]) -> None:
    bodies = [request.SerializeToString() for request in made]
    redactor = Redactor(rules)
    tables = decode_traces(bodies, redactor)
    logged = [redactor.redact_request(body, "traces") for body in bodies]
    assert [redactor.redact_request(body, "traces") for body in logged] == logged, "nothing is changed twice"
    assert stored(tables) == stored(decode_traces(logged))
    if not rules.keep_text:
        assert table_without_text("spans", tables.spans).equals(tables.spans), "the writer has nothing more to take out"
    # What our own callers name is theirs.
    is_own = any(
        of_scope.scope.name == "voiceprobe" for request in made for of_scope in request.resource_spans[0].scope_spans
    )
    for secret in () if is_own else SECRETS:
        assert not any(secret.encode() in body for body in logged)
        assert secret not in str(stored(tables))


SPANS_PER_REQUEST = 64


def turn_mix(turns: int) -> list[bytes]:
    """1 turn of our callers (52 to 66 attributes) and its 3 stages with 1 attribute and 2 events each."""
    spans: list[tuple[str, str, str, dict[str, object]]] = []
    for index in range(turns):
        turn = exchange(index)[0]
        spans.append((semconv.SPAN_TURN, turn.trace_id, turn.span_id, dict(turn_attributes(turn))))
        spans += [(stage.name, turn.trace_id, stage.span_id, dict(stage.attributes)) for stage in stage_spans(turn)]
    return _requests(spans)


def small_spans(count: int) -> list[bytes]:
    """Spans of a framework: 8 attributes, 2 events."""
    pairs = {**{f"gen_ai.usage.n{i}": i for i in range(5)}, "gen_ai.request.model": "m", "ok": True, "s": 0.5}
    return _requests([("llm_request", f"{i + 1:032x}", f"{i + 1:016x}", dict(pairs)) for i in range(count)])


def _requests(spans: Sequence[tuple[str, str, str, dict[str, object]]]) -> list[bytes]:
    bodies: list[bytes] = []
    for first in range(0, len(spans), SPANS_PER_REQUEST):
        request = ExportTraceServiceRequest()
        of_resource = request.resource_spans.add()
        for key in ("service.name", "service.version", "host.name"):
            of_resource.resource.attributes.append(KeyValue(key=key, value=any_value(key)))
        of_scope = of_resource.scope_spans.add()
        for number, (name, trace_id, span_id, pairs) in enumerate(spans[first : first + SPANS_PER_REQUEST]):
            span = of_scope.spans.add(name=name, start_time_unix_nano=number, end_time_unix_nano=number + 5)
            span.trace_id, span.span_id = bytes.fromhex(trace_id), bytes.fromhex(span_id)
            span.attributes.extend(KeyValue(key=key, value=any_value(value)) for key, value in pairs.items())
            if name != semconv.SPAN_TURN:
                span.events.add(name="first", time_unix_nano=number)
                span.events.add(name="second", time_unix_nano=number)
        bodies.append(request.SerializeToString())
    return bodies


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_our_own_spans_are_logged_as_they_came(rules: PrivacyRules) -> None:
    turns = [turn for index in range(300) for turn in exchange(index)]
    bodies = [turns_request(turns).SerializeToString(), *turn_mix(100), *small_spans(100)]
    redactor = Redactor(rules)
    assert all(redactor.redact_request(body, "traces") is body for body in bodies)


def test_turn_with_ids_of_digits_is_logged_unchanged() -> None:
    digits = {"run_id": "4111111111111111", "call_id": "4111111111111111", "process_id": "1-4111111111111111"}
    (turn, *_) = exchange(0)
    turn = msgspec.structs.replace(turn, **digits)
    body = turns_request([turn]).SerializeToString()
    redactor = Redactor(RULES["left out"])
    # But for the conversation's id, which is anybody's.
    assert len(redactor.redact_request(body, "traces")) != len(body)
    (stored_turn,) = decode_traces([body], redactor).turns
    assert {name: getattr(stored_turn, name) for name in digits} == digits


@example(seed=1)
@given(seed=st.integers(0, 2**32))
def test_ids_versions_and_times_are_left_alone(seed: int) -> None:
    drawn = random.Random(seed)
    octets = drawn.randbytes(16)
    values = [
        octets.hex(),
        f"{octets[:8].hex()}a",
        str(uuid.UUID(bytes=octets, version=4)),
        f"{os.getpid()}-{octets[:8].hex()}f",
        str(1_763_881_234_567_890_123 + seed),
        f"gpt-4o-2024-{drawn.randint(10, 12)}-06",
        f"1.{seed}.{drawn.randint(0, 99)}",
        f"2026-11-23T07:02:00.{seed:09}Z",
        f"resp_{octets.hex()}",
    ]
    assert [label_without_personal_data(value) for value in values] == values
    assert [value for value in values[1:] if identifies_person(value)] == []
