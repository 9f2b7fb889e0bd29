"""Telemetry that frameworks would report of utterances: spans and metrics with the texts in every place where they put
them.

The reference assistant reports no texts, so that a sidecar that stores whatever it gets would pass without these.
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

SERVICE: Final = "voiceprobe-audit"
# Numbers and addresses of nobody, as a caller would say them.
CARD: Final = "4111 1111 1111 1111"
PHONE: Final = "+49 30 901820"
EMAIL: Final = "erika.mustermann@example.org"
VALUES: Final = {"card number": CARD, "telephone number": PHONE, "e-mail address": EMAIL}
# By scope: under which names each framework reports what was said.
_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "pipecat.turn": (
        *("transcript", "input", "output", "text", "text_output", "tool.arguments", "tool.result"),
        *("session.instructions", "settings.system_instruction"),
    ),
    "livekit-agents": (
        *("lk.user_transcript", "lk.chat_ctx", "lk.response.text", "lk.function_tool.arguments"),
        *("lk.function_tool.output", "lk.pii.user_transcript"),
    ),
    "openinference.instrumentation.pipecat": ("input.value", "output.value", "llm.input_messages.0.message.content"),
    "opentelemetry.instrumentation.openai.v1": (
        *("gen_ai.prompt.0.content", "gen_ai.completion.0.content", "traceloop.entity.input"),
        *("traceloop.entity.output", "gen_ai.retrieval.query.text", "gen_ai.input.messages"),
    ),
    "my.service": ("note", "voice.asr.transcript", "exception.message", "db.query.text"),
}
# By what they are for: labels that telephone numbers and addresses get into.
_IDS: Final = ("user_id", "user.id", "enduser.id", "session.id", "gen_ai.conversation.id", "conversation.id")
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class SentTelemetry:
    """The numbers of spans and metrics that were sent."""

    spans: int
    metrics: int


def send(url: str, utterances: Sequence[tuple[str, str]]) -> SentTelemetry:
    """Send a sidecar what frameworks would report of utterances (names and texts), in protobuf and in JSON.

    Raises httpx.HTTPError when it does not take it.
    """
    spans = metrics = 0
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as client:
        for name, text in utterances:
            traces = _traces(text)
            headers = {"content-type": "application/x-protobuf"}
            client.post("/v1/traces", content=traces.SerializeToString(), headers=headers).raise_for_status()
            client.post("/v1/traces", json=_traces_json(name, text)).raise_for_status()
            points = _metrics(text)
            client.post("/v1/metrics", content=points.SerializeToString(), headers=headers).raise_for_status()
            spans += sum(len(scope.spans) for resource in traces.resource_spans for scope in resource.scope_spans) + 1
            metrics += 1
    return SentTelemetry(spans, metrics)


def _traces(text: str) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(
        _pairs({"service.name": SERVICE, "note": text, "host.name": f"pbx-{PHONE}"})
    )
    for scope, names in _TEXTS.items():
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name = scope
        scope_spans.scope.attributes.extend(_pairs({"note": text}))
        scope_spans.spans.append(_span(text, names))
    return request


def _span(text: str, names: Sequence[str]) -> Span:
    now_unix_ns = time.time_ns()
    span = Span(name=f"call {PHONE}", trace_id=secrets.token_bytes(16), span_id=secrets.token_bytes(8))
    span.start_time_unix_nano, span.end_time_unix_nano = now_unix_ns - 10**9, now_unix_ns
    quoted = f"{text} {CARD} {EMAIL}"
    span.attributes.extend(_pairs(dict.fromkeys(names, quoted) | dict.fromkeys(_IDS, PHONE)))
    span.attributes.extend(_pairs({"gen_ai.request.model": f"gpt {CARD}", "card": int(CARD.replace(" ", ""))}))
    span.trace_state = f"caller={EMAIL}"
    span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=quoted))
    event = span.events.add(name=f"dialed {PHONE}", time_unix_nano=now_unix_ns)
    event.attributes.extend(_pairs({"exception.message": quoted, "gen_ai.user.message": quoted}))
    link = span.links.add(trace_id=span.trace_id, span_id=span.span_id)
    link.attributes.extend(_pairs({"note": quoted}))
    return span


def _traces_json(name: str, text: str) -> dict[str, Any]:
    span = {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": "llm",
        "startTimeUnixNano": str(time.time_ns()),
        "endTimeUnixNano": str(time.time_ns()),
        "attributes": [{"key": "input", "value": {"stringValue": json.dumps({"id": name, "content": text})}}],
    }
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "pipecat"}, "spans": [span]}]}]}


def _metrics(text: str) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="audit.calls", unit="1")
    metric.description = f"calls of {PHONE}"
    point = metric.gauge.data_points.add(as_int=1, time_unix_nano=time.time_ns())
    point.attributes.extend(_pairs({"transcript": text, "http.route": f"/calls/{PHONE}", "user.id": EMAIL}))
    exemplar = point.exemplars.add(as_int=1, time_unix_nano=time.time_ns())
    exemplar.filtered_attributes.extend(_pairs({"transcript": text, "user.id": PHONE}))
    return request


def _pairs(values: Mapping[str, str | int]) -> Iterator[KeyValue]:
    for key, value in values.items():
        yield KeyValue(
            key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        )
