"""Redaction of requests: nothing remains that may not be stored; a request without such parts keeps its bytes."""

from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from telemetry.model.personal_data import Names, is_pseudonym
from telemetry.sidecar.otlp.attributes import OtlpDecodeError, from_protobuf
from telemetry.sidecar.privacy import PrivacyRules, Redactor
from tests.fixtures_sidecar import any_value

CARD = "4111111111111111"
PHONE = "+491701234567"
REDACTOR = Redactor(PrivacyRules(key=b"k" * 32))
KEEPING = Redactor(PrivacyRules(key=b"k" * 32, keep_text=True, names=Names(["Anna"])))


def pairs(**values: object) -> list[KeyValue]:
    return [KeyValue(key=key.replace("__", "."), value=of_any(value)) for key, value in values.items()]


def of_any(value: Any) -> AnyValue:
    """A value at any depth."""
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(**value)))
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(of_any, value)))
    return AnyValue(bytes_value=value) if isinstance(value, bytes) else any_value(value)


def request(**values: object) -> ExportTraceServiceRequest:
    """A request of one span with these attributes; `__` becomes a dot."""
    made = ExportTraceServiceRequest()
    of_resource = made.resource_spans.add()
    of_resource.resource.attributes.extend(pairs(service__name="bot"))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = "pipecat.turn"
    span = of_scope.spans.add(name="llm", trace_id=b"t" * 16, span_id=b"s" * 8, start_time_unix_nano=1)
    span.attributes.extend(pairs(**values))
    return made


def redacted(made: ExportTraceServiceRequest, redactor: Redactor = REDACTOR) -> Any:
    """The only span of a request, without what may not be stored."""
    body = redactor.redact_request(made.SerializeToString(), "traces")
    assert redactor.redact_request(body, "traces") == body
    return ExportTraceServiceRequest.FromString(body)


def kept(**values: object) -> dict[str, object]:
    """Return the remaining attributes of a span."""
    return kept_by(REDACTOR, **values)


def kept_by(redactor: Redactor, **values: object) -> dict[str, object]:
    """Return the attributes of a span that this redactor leaves."""
    cleaned = redacted(request(**values), redactor)
    return from_protobuf(cleaned.resource_spans[0].scope_spans[0].spans[0].attributes)


def test_unchanged_request_is_the_same_object() -> None:
    body = request(gen_ai__request__model="gpt", language="en", n=3).SerializeToString()
    assert REDACTOR.redact_request(body, "traces") is body


@pytest.mark.parametrize(
    "name",
    [
        *("text_output", "tool__arguments", "tool__result", "session__instructions"),
        *("gen_ai__retrieval__query__text", "traceloop__entity__input", "anything"),
    ],
)
@pytest.mark.parametrize("value", [CARD, [CARD], {"a": 1}, CARD.encode(), [1, {"deep": CARD}]], ids=repr)
def test_text_is_left_out(name: str, value: object) -> None:
    assert kept(**{name: value, "n": 3}) == {"n": 3}


def test_ids_of_persons_are_pseudonyms() -> None:
    first = kept(user__id=PHONE, user_id=491701234567, gen_ai__conversation__id=PHONE, session__id="call-7")
    assert first["session.id"] == "call-7"
    values = {str(first[name]) for name in ("user.id", "user_id", "gen_ai.conversation.id")}
    assert len(values) == 1
    assert is_pseudonym(values.pop())
    assert kept(conversation__id=f"sip_{PHONE}")["conversation.id"] != first["user.id"]
    assert kept(enduser__id="anna", user__id=[PHONE]) == {"enduser.id": kept(user__id="anna")["user.id"]}


def test_labels_are_without_personal_data_at_any_depth() -> None:
    attributes = kept(
        tool_choice=f"call {PHONE}",
        modalities=["audio", CARD],
        language={CARD: [{"a": CARD}]},
        output_modality=CARD.encode(),
        turn__type=int(CARD),
        response__id=float(CARD),
        tools__names=[int(CARD), 1],
        n=int(CARD),
        f=float(CARD),
        many=[int(CARD), 1],
    )
    card = "[redacted:card]"
    assert attributes == {
        "tool_choice": "call [redacted:phone]",
        "modalities": ["audio", card],
        "language": {card: [{"a": card}]},
        "output_modality": card,
        "turn.type": card,
        "response.id": card,
        "tools.names": [card, 1],
    }
    assert CARD not in str(kept_by(REDACTOR, **{CARD: 1}))
    assert kept(from_number=491701234567, card__number=4, discard=5) == {"discard": 5}


def test_everything_around_the_attributes_is_cleaned() -> None:
    made = request()
    of_resource = made.resource_spans[0]
    of_resource.resource.attributes.extend(pairs(note="text", host__name=f"h-{PHONE}"))
    of_resource.schema_url = f"https://a/{PHONE}"
    of_scope = of_resource.scope_spans[0]
    of_scope.scope.version = CARD
    of_scope.scope.attributes.extend(pairs(note="text", n=1))
    span = of_scope.spans[0]
    span.name, span.trace_state, span.status.message = f"call {PHONE}", f"a={PHONE}", "my card is lost"
    span.status.code = Status.STATUS_CODE_ERROR
    span.flags = 257
    event = span.events.add(name=CARD, time_unix_nano=4)
    event.attributes.extend(pairs(exception__message=CARD, exception__type="E"))
    span.links.add(trace_id=b"u" * 16, trace_state=f"a={PHONE}").attributes.extend(pairs(note=CARD))
    cleaned = redacted(made)
    text = str(cleaned)
    assert PHONE[1:] not in text
    assert CARD not in text
    assert "note" not in text
    assert "lost" not in text
    of_resource = cleaned.resource_spans[0]
    assert of_resource.schema_url == "https://a/[redacted:phone]"
    span = of_resource.scope_spans[0].spans[0]
    assert (span.flags, int(span.status.code), span.events[0].time_unix_nano) == (257, 2, 4)
    assert from_protobuf(span.events[0].attributes) == {"exception.type": "E"}


def test_fields_unknown_to_otlp_are_left_out() -> None:
    span = request(n=1).resource_spans[0].scope_spans[0].spans[0]
    hidden = b"\xfa\x3f" + bytes([len(CARD)]) + CARD.encode()  # field 127, of bytes
    for place in ("request", "resource", "scope", "span"):
        made = request(n=1)
        body = made.SerializeToString()
        if place == "request":
            body += hidden
        else:
            of_resource = made.resource_spans[0]
            holder = {
                "resource": of_resource.resource,
                "scope": of_resource.scope_spans[0].scope,
                "span": of_resource.scope_spans[0].spans[0],
            }[place]
            holder.MergeFromString(hidden)
            body = made.SerializeToString()
        assert CARD.encode() in body
        cleaned = REDACTOR.redact_request(body, "traces")
        assert CARD.encode() not in cleaned
        assert ExportTraceServiceRequest.FromString(cleaned).resource_spans[0].scope_spans[0].spans[0] == span


def test_our_own_names_and_figures_are_never_touched() -> None:
    made = request(voice__turn__call_id=PHONE, voice__turn__started_perf_ns=int(CARD), run_id=CARD)
    made.resource_spans[0].scope_spans[0].scope.name = "voiceprobe"
    body = made.SerializeToString()
    assert REDACTOR.redact_request(body, "traces") is body


def test_a_reason_is_kept_without_what_it_quotes() -> None:
    attributes = kept(voice__turn__outcome_reason="not understood: my card is four one one one one one one one one")
    assert attributes == {"voice.turn.outcome_reason": "not understood: my card is [redacted:digits]"}


def test_texts_that_are_kept_are_without_personal_data() -> None:
    attributes = kept_by(KEEPING, text_output="Anna's card is four one one one one one one one", input=["call", PHONE])
    assert attributes == {
        "text_output": "[redacted:name]'s card is [redacted:digits]",
        "input": ["call", "[redacted:phone]"],
    }


def test_metrics_are_cleaned_with_their_exemplars() -> None:
    made = ExportMetricsServiceRequest()
    metric = made.resource_metrics.add().scope_metrics.add().metrics.add(name="m", description=f"of {PHONE}")
    point = metric.gauge.data_points.add(as_int=3, time_unix_nano=5)
    point.attributes.extend(pairs(note=CARD, http__route=f"/call/{PHONE}", n=1))
    point.exemplars.add(as_int=4).filtered_attributes.extend(pairs(note=CARD, user__id=PHONE))
    body = REDACTOR.redact_request(made.SerializeToString(), "metrics")
    metric = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics[0]
    assert metric.description == "of [redacted:phone]"
    assert from_protobuf(metric.gauge.data_points[0].attributes) == {"http.route": "/call/[redacted:phone]", "n": 1}
    (pair,) = metric.gauge.data_points[0].exemplars[0].filtered_attributes
    assert is_pseudonym(pair.value.string_value)
    assert REDACTOR.redact_request(body, "metrics") is body


def test_unparsable_parts_are_redacted() -> None:
    made = request(note=CARD, n=1)
    deep = made.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="deep").value
    for _ in range(60):
        deep = deep.array_value.values.add()
    deep.string_value = CARD
    broken = KeyValue(key="language", value=AnyValue(string_value="a")).SerializeToString().replace(b"a", b"\xff", 1)
    body = made.SerializeToString()
    assert CARD.encode() not in REDACTOR.redact_request(body, "traces")
    with pytest.raises(OtlpDecodeError):
        REDACTOR.redact_request(b"\x0a\x05" + broken, "traces")


def test_broken_text_that_is_left_out_is_not_written() -> None:
    made = ExportTraceServiceRequest()
    of_resource = made.resource_spans.add()
    of_resource.resource.attributes.extend(pairs(note=f"{CARD} BAD"))
    of_resource.scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, start_time_unix_nano=1)
    body = made.SerializeToString().replace(b"BAD", b"\xff\xff\xff")
    cleaned = REDACTOR.redact_request(body, "traces")
    assert CARD.encode() not in cleaned
    assert not ExportTraceServiceRequest.FromString(cleaned).resource_spans[0].resource.attributes
