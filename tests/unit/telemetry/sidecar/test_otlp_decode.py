"""OTLP requests in each encoding, valid and invalid."""

import json

import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from telemetry.model.addresses import is_loopback
from telemetry.model.turn_spans import turn_attributes
from telemetry.model.turns import with_plain_texts
from telemetry.sidecar.otlp.access import is_authorized
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.points import POINTS_MAX
from telemetry.store.schema import with_turn
from tests.fixtures_sidecar import decoded_metrics, decoded_traces, turns_json, turns_request
from tests.fixtures_turns import client_turn, synthetic_run


def _span(**changes: object) -> bytes:
    span = {
        "traceId": "5B8EFFF798038103D269B633813FC60C",
        "spanId": "EEE19B7EC3C1B174",
        "name": "agent_turn",
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": 1544712661000000000,
        "attributes": [],
        **changes,
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def test_both_encodings_decode_to_the_same() -> None:
    turns = synthetic_run(turns=10).turns
    by_json = decoded_traces(turns_json(turns), "json")
    by_protobuf = decoded_traces(turns_request(turns).SerializeToString())
    assert by_json.turns == by_protobuf.turns == turns
    assert by_json.spans == by_protobuf.spans
    assert (by_json.received, by_json.rejected) == (20, 0)
    (first, *_), (turn, *_) = by_json.spans, by_json.turns
    names = [name for name in first.attributes if name.startswith("voice.turn.")]
    assert names == [], "the turn's fields are in the turns table"
    assert set(with_turn(first, turn).attributes) == set(turn_attributes(turns[0]))


def test_json_ids_are_hex() -> None:
    (span,) = decoded_traces(_span(parentSpanId="EEE19B7EC3C1B173"), "json").spans
    assert (span.trace_id, span.span_id) == ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174")
    assert span.parent_span_id == "eee19b7ec3c1b173"
    assert (span.start_unix_ns, span.end_unix_ns) == (1544712660000000000, 1544712661000000000)


@pytest.mark.parametrize(
    "changes",
    [
        {"traceId": "W47/95gDgQPSabYzgT/GDA=="},  # base64, as in protobuf's JSON form
        {"traceId": ""},
        {"traceId": "0" * 32},
        {"spanId": "EEE19B7EC3C1B1"},
        {"spanId": "EEE19B7EC3C1B17G"},
        {"parentSpanId": "abc"},
        {"endTimeUnixNano": str(2**63)},
        {"events": [{"name": "x", "timeUnixNano": str(2**64 - 1)}]},
        {"name": "voice.turn", "attributes": [{"key": "voice.schema_version", "value": {"intValue": "3"}}]},
        {"startTimeUnixNano": "yesterday"},
        {"startTimeUnixNano": True},
        {"startTimeUnixNano": str(2**64)},
        {"startTimeUnixNano": -1},
        {"startTimeUnixNano": 1.5},
        {"startTimeUnixNano": 0},
        {"startTimeUnixNano": "0"},
        {"startTimeUnixNano": None},
        {"endTimeUnixNano": "tomorrow"},
        {"events": [{"name": "x", "timeUnixNano": "now"}]},
        {"name": 3},
        {"kind": []},
        {"status": 7},
        {"events": {}},
        {"attributes": [{"key": 3}]},
        {"attributes": [{"key": "a", "value": {"intValue": "1.5"}}]},
        {"attributes": [{"key": "a", "value": {"intValue": str(2**63)}}]},
        {"attributes": [{"key": "a", "value": {"boolValue": "yes"}}]},
        {"attributes": [{"key": "a", "value": {"doubleValue": "many"}}]},
        {"attributes": [{"key": "a", "value": {"bytesValue": "?"}}]},
        {"attributes": [{"key": "a", "value": {"arrayValue": {"values": 3}}}]},
    ],
)
def test_an_invalid_span_is_rejected_with_the_reason(changes: dict[str, object]) -> None:
    decoded = decoded_traces(_span(**changes), "json")
    assert (decoded.received, decoded.rejected, len(decoded.reasons)) == (1, 1, 1)
    assert decoded.rows == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"startTimeUnixNano": "yesterday"},
            "span 'agent_turn': a time of it cannot be read, or is too large to store",
        ),
        ({"startTimeUnixNano": 0}, "span 'agent_turn': its start time is missing or 0"),
        (
            {"attributes": 3},
            "span 'agent_turn': a field of it, of its resource or its scope has another type than OTLP/JSON gives it",
        ),
        ({"name": []}, "span '': a field of it, of its resource or its scope has another type than OTLP/JSON gives it"),
    ],
)
def test_unreadable_span_refuses_none_of_its_neighbors(changes: dict[str, object], sentence: str) -> None:
    request = json.loads(_span())
    (scope,) = request["resourceSpans"][0]["scopeSpans"]
    good = scope["spans"][0]
    scope["spans"] = [
        {**good, "spanId": "1" * 16},
        {**good, "spanId": "2" * 16, **changes},
        {**good, "spanId": "3" * 16},
    ]
    decoded = decoded_traces(json.dumps(request).encode(), "json")
    assert [span.span_id for span in decoded.spans] == ["1" * 16, "3" * 16]
    assert (decoded.received, decoded.rejected) == (3, 1)
    assert decoded.reasons[0].startswith(sentence)


@pytest.mark.parametrize(
    "faulty",
    [
        {"resource": {"attributes": [{"key": 3}]}, "scopeSpans": [{"spans": [{"name": "n"}]}]},
        {"resource": 3, "scopeSpans": [{"spans": [{"name": "n"}]}]},
        {"scopeSpans": [{"scope": {"name": 3}, "spans": [{"name": "n"}]}]},
        {"scopeSpans": [{"spans": [3]}]},
        {"scopeSpans": [{"spans": [None]}]},
    ],
)
def test_unreadable_resource_or_scope_refuses_its_own_spans(faulty: dict[str, object]) -> None:
    request = json.loads(_span())
    request["resourceSpans"].append(faulty)
    decoded = decoded_traces(json.dumps(request).encode(), "json")
    assert (decoded.received, decoded.rejected, len(decoded.spans)) == (2, 1, 1)


def test_a_start_of_0_is_not_filed_under_1970_in_protobuf_either() -> None:
    request = turns_request(synthetic_run(turns=2).turns)
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[0].start_time_unix_nano = 0
    decoded = decoded_traces(request.SerializeToString())
    assert (decoded.received, decoded.rejected) == (4, 1)
    assert decoded.reasons[0].endswith("its start time is missing or 0")
    assert all(span.start_unix_ns > 0 for span in decoded.spans)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null x",
        b"[]",
        b'{"resourceSpans": {}}',
        b'{"resourceSpans": [3]}',
    ],
)
def test_invalid_otlp_json_is_rejected(body: bytes) -> None:
    with pytest.raises(OtlpDecodeError):
        decoded_traces(body, "json")


def test_every_kind_of_attribute_is_decoded() -> None:
    values = {
        "text": {"stringValue": "a"},
        "bool": {"boolValue": False},
        "int": {"intValue": "-9223372036854775808"},
        "double": {"doubleValue": "Infinity"},
        "bytes": {"bytesValue": "AAE="},
        "list": {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "b"}]}},
        "map": {"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": True}}]}},
        "nothing": {},
        "newer": {"somethingValue": 3},
    }
    body = _span(attributes=[{"key": key, "value": value} for key, value in values.items()])
    (span,) = decoded_traces(body, "json").spans
    assert span.attributes == {
        "text": "a",
        "bool": False,
        "int": -(2**63),
        "double": float("inf"),
        "bytes": b"\x00\x01",
        "list": [1, "b"],
        "map": {"k": True},
        "nothing": None,
        "newer": None,
    }


def test_both_encodings_carry_a_span_whole() -> None:
    pairs = [{"key": "k", "value": {"doubleValue": "NaN"}}, {"key": "l", "value": {"arrayValue": {"values": [{}]}}}]
    whole = {
        "kind": 3,
        "traceState": "a=b",
        "status": {"code": "STATUS_CODE_ERROR", "message": "why"},
        "events": [{"name": "e", "timeUnixNano": "7", "attributes": pairs}],
        "links": [{"traceId": "ab" * 16, "spanId": "CD" * 8, "traceState": "t", "attributes": pairs}],
    }
    (span,) = decoded_traces(_span(**whole), "json").spans
    assert (span.kind, span.trace_state, span.status_code, span.status_message) == ("Client", "a=b", "Error", "why")
    (event,), (link,) = span.events, span.links
    assert (event.name, event.unix_ns, repr(dict(event.attributes))) == ("e", 7, "{'k': nan, 'l': [None]}")
    assert (link.trace_id, link.span_id, link.trace_state) == ("ab" * 16, "cd" * 8, "t")
    assert repr(link.attributes) == repr(event.attributes)
    (odd,) = decoded_traces(_span(kind="SPAN_KIND_NEWER", status={"code": 7}), "json").spans
    assert (odd.kind, odd.status_code) == ("Unspecified", "Unset")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"[" * 600_000, "more than 500000 objects"),
        (b"[" + b"0," * 3_000_000, "more than 2000000 values"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [' + b"{}," * 60_000 + b"{}]}]}]}", "more than 50000 spans"),
    ],
)
def test_json_that_would_take_much_memory_is_refused(body: bytes, sentence: str) -> None:
    with pytest.raises(OtlpDecodeError, match=sentence):
        decoded_traces(body, "json")


@pytest.mark.parametrize("kind", ["arrayValue", "kvlistValue"])
@pytest.mark.parametrize(("depth", "taken"), [(20, True), (33, False), (150, False)])
def test_both_encodings_have_one_limit_of_nesting(kind: str, depth: int, *, taken: bool) -> None:
    value: dict[str, object] = {"intValue": 1}
    for _ in range(depth):
        item = value if kind == "arrayValue" else {"key": "k", "value": value}
        value = {kind: {"values": [item]}}
    body = _span(attributes=[{"key": "a", "value": value}])
    decoded = decoded_traces(body, "json")
    assert [list(span.attributes) for span in decoded.spans] == [["a" if taken else "otel.dropped_attributes_count"]]
    assert decoded.reasons == ([] if taken else ["span 'agent_turn': 1 of its attributes left out: nested too deeply"])


def test_numbers_that_are_not_finite_or_not_there() -> None:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="g").gauge.data_points.add(as_double=1.5, time_unix_nano=7)
    metrics.add(name="s").sum.data_points.add(as_int=3, time_unix_nano=8)
    metrics.add(name="nan").gauge.data_points.add(as_double=float("nan"))
    metrics.add(name="late").gauge.data_points.add(as_int=1, time_unix_nano=2**64 - 1)
    metrics.add(name="none").gauge.data_points.add(flags=1, as_double=0.0)
    metrics.add(name="unset").gauge.data_points.add()
    metrics.add(name="empty")
    decoded = decoded_metrics(request.SerializeToString())
    assert [(p.name, p.value, p.unix_ns) for p in decoded.points] == [("g", 1.5, 7), ("s", 3.0, 8), ("none", None, 0)]
    assert (decoded.received, decoded.rejected) == (6, 2)
    assert decoded.reasons == [
        "metric 'nan': nan is not a finite number",
        "metric 'late': a time is too large to store (63 bits)",
    ]


@pytest.mark.slow
def test_metrics_that_would_take_much_memory_are_refused() -> None:
    request = ExportMetricsServiceRequest()
    points = request.resource_metrics.add().scope_metrics.add().metrics.add(name="g").gauge.data_points
    for _ in range(POINTS_MAX // 10):
        points.add()
    (metric,) = request.resource_metrics[0].scope_metrics[0].metrics
    request.resource_metrics[0].scope_metrics[0].metrics.extend([metric] * 10)
    with pytest.raises(OtlpDecodeError, match=f"more than {POINTS_MAX} points"):
        decoded_metrics(request.SerializeToString())
    with pytest.raises(OtlpDecodeError, match="more than 50000 metrics"):
        decoded_metrics(b"\x0a\0" * 60_000)
    with pytest.raises(OtlpDecodeError, match="not a protobuf ExportMetricsServiceRequest"):
        decoded_metrics(b"\x0a\x04\x12\x02\x12\x01")


def test_only_matching_token_is_authorized() -> None:
    assert [is_loopback(h) for h in ("127.0.0.1", "127.8.0.1", "::1", "localhost")] == [True] * 4
    assert [is_loopback(h) for h in ("0.0.0.0", "::", "10.0.0.1", "example.org", "")] == [False] * 5
    assert is_authorized(None, None)
    assert is_authorized("bearer s3cret", "s3cret")
    assert not any(is_authorized(h, "s3cret") for h in (None, "", "s3cret", "Bearer", "Bearer s3cre", "Bearer é"))


def test_control_characters_in_texts_of_a_service_are_removed() -> None:
    paint = "\x1b]0;owned\x07\u202e\r\nforged"
    inner = {"kvlistValue": {"values": [{"key": paint, "value": {"arrayValue": {"values": [{"stringValue": paint}]}}}]}}
    attributes = [{"key": paint, "value": {"stringValue": paint}}, {"key": "deep", "value": inner}]
    decoded = decoded_traces(_span(name=paint, attributes=attributes, events=[{"name": paint}]), "json")
    (span,) = decoded.spans
    escaped = "\\x1b]0;owned\\x07\\u202e"
    assert span.name == f"{escaped}  forged"
    assert span.attributes == {
        f"{escaped}  forged": f"{escaped}\nforged",
        "deep": {f"{escaped}  forged": [f"{escaped}\nforged"]},
    }
    assert span.events[0].name == f"{escaped}  forged"
    assert set(decoded.unmapped) == {f"/{span.name}"}


def test_control_characters_in_texts_of_a_turn_are_removed() -> None:
    paint = "\x1b[2J\n"
    turn = msgspec.structs.replace(
        client_turn(0), outcome_reason=paint * 500, cohort=paint, withheld_reasons=(paint, "plain")
    )
    (decoded,) = decoded_traces(turns_json([turn]), "json").turns
    assert decoded.cohort == "\\x1b[2J "
    assert decoded.withheld_reasons == ("\\x1b[2J ", "plain")
    assert decoded.outcome_reason is not None
    assert len(decoded.outcome_reason) == 500
    assert decoded == with_plain_texts(decoded)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_a_turn_of_a_client_is_stored_without_what_cannot_be(encoding: str) -> None:
    """Among turns that are as they should be: talk-over is one of those."""
    turns = [
        client_turn(0, voice_to_voice_ms=-900.0),
        client_turn(1, asr_final_perf_ns=-2_000_000_000),
        client_turn(2, connect_ns=-5, llm_chunk_gaps_ns=(3, -1)),
        client_turn(3, llm_first_token_perf_ns=3_200_000_000, llm_last_token_perf_ns=3_100_000_000, llm_tokens=9),
    ]
    body = turns_json(turns) if encoding == "json" else turns_request(turns).SerializeToString()
    kept, *changed = decoded_traces(body, encoding).turns
    assert kept == turns[0]
    assert [dict(zip(turn.contradicted_metrics, turn.contradicted_causes, strict=True)) for turn in changed] == [
        {"asr_final_latency": "before_turn"},
        {"connect": "negative", "itl": "out_of_order"},
        {"tokens_per_s_wall": "out_of_order"},
    ]
    assert [turn.outcome for turn in changed] == ["ok", "ok", "ok"]
