"""Turns of which more comes late, and spans that cannot be read, through a real sidecar and other exporters."""

import json
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import running_sidecar
from tests.integration.waiting import wait_until

S = 1_000_000_000
BEGAN_UNIX_NS = 1_794_355_200 * S


def pipecat_spans() -> tuple[list[ReadableSpan], list[ReadableSpan]]:
    """The span of a turn that does not state its latency, and its stages, made by OpenTelemetry's SDK."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "bot"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    turn = provider.get_tracer("pipecat.turn").start_span(
        "turn", start_time=BEGAN_UNIX_NS, attributes={"turn.number": 2, "conversation.id": "c"}
    )
    within = trace.set_span_in_context(turn)
    for place, name in enumerate(("stt", "llm", "tts")):
        began_ns = BEGAN_UNIX_NS + place * S
        stage = provider.get_tracer("pipecat").start_span(
            name, context=within, start_time=began_ns, attributes={"metrics.ttfb": 0.1}
        )
        stage.end(began_ns + S)
    turn.end(BEGAN_UNIX_NS + 4 * S)
    spans = kept.get_finished_spans()
    return [span for span in spans if span.name == "turn"], [span for span in spans if span.name != "turn"]


def turns(url: str) -> dict[str, float]:
    """The lines of /metrics about the turns of services."""
    lines = [line for line in asking.get(f"{url}/metrics").text.splitlines() if line.startswith("voice_service_turns")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def stored(store: Path) -> list[Turn]:
    with StoreReader(store) as reader:
        return reader.turns(source="service")


@pytest.mark.nightly
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_stages_that_come_after_their_turn_was_stored_change_it(tmp_path: Path, transport: str) -> None:
    own, stages = pipecat_spans()
    with running_sidecar(tmp_path) as sidecar:
        exporter: SpanExporter = (
            HttpExporter(endpoint=f"{sidecar.http}/v1/traces")
            if transport == "http"
            else GrpcExporter(endpoint=sidecar.grpc, insecure=True)
        )
        assert exporter.export(own) is SpanExportResult.SUCCESS
        counted = 'voice_service_turns_total{outcome="no_reply",service_name="bot"}'
        wait_until(lambda: turns(sidecar.http).get(counted) == 1.0)
        assert exporter.export(stages) is SpanExportResult.SUCCESS
        revised = 'voice_service_turns_revised_total{outcome="ok",service_name="bot"}'
        wait_until(lambda: turns(sidecar.http).get(revised) == 1.0)
        assert turns(sidecar.http) == {counted: 1.0, revised: 1.0}
        assert "voice_telemetry_framework_spans_late_total 3" in asking.get(f"{sidecar.http}/metrics").text
        (turn,) = stored(tmp_path)
        assert (turn.outcome, turn.late_spans, turn.first_audio_perf_ns) == ("ok", 3, None)
        assert sidecar.terminate() == 0
    with running_sidecar(tmp_path) as sidecar:
        assert sidecar.terminate() == 0
    assert stored(tmp_path) == [turn]


def test_a_start_that_cannot_be_read_refuses_its_span_alone(tmp_path: Path) -> None:
    def span(number: int, start: object) -> dict[str, object]:
        return {
            "traceId": "ab" * 16,
            "spanId": f"{number:016x}",
            "name": "voice.turn",
            "startTimeUnixNano": start,
            "endTimeUnixNano": str(BEGAN_UNIX_NS + S),
        }

    spans = [span(1, str(BEGAN_UNIX_NS)), span(2, "2026-11-27T22:00:00Z"), span(3, 0), span(4, BEGAN_UNIX_NS)]
    scope = {"scope": {"name": "mine\0"}, "spans": spans}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]})
    with running_sidecar(tmp_path) as sidecar:
        answer = asking.post(
            f"{sidecar.http}/v1/traces", content=body.encode(), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 200
        assert int(answer.json()["partialSuccess"]["rejectedSpans"]) == 2
        assert sidecar.terminate() == 0
    assert sorted(turn.span_id for turn in stored(tmp_path)) == [f"{number:016x}" for number in (1, 4)]
