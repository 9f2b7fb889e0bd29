"""The helper to copy sends what the table of service spans lists, and nothing else."""

import inspect
import runpy
import time
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.model.services import service_span_table
from tests.fixtures_sidecar import ROOT

TABLE = service_span_table()
HELPER: Mapping[str, Any] = runpy.run_path(str(ROOT / "examples" / "service-spans" / "voice_turns.py"))
EVENTS = {event.name for event in TABLE.event}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that a service's SDK exports."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    return exporter


def _only(sent: InMemorySpanExporter) -> ReadableSpan:
    (span,) = sent.get_finished_spans()
    return span


def test_it_knows_every_moment_of_the_table() -> None:
    assert {f"voice.{moment}" for moment in get_args(HELPER["Moment"])} == EVENTS
    assert {f"voice.{moment}" for moment in HELPER["_LAST"]} == {
        event.name for event in TABLE.event if event.which == "last"
    }


def test_every_attribute_is_one_of_the_table(sent: InMemorySpanExporter) -> None:
    names = [name for name in inspect.signature(HELPER["VoiceTurn"].set).parameters if name != "self"]
    with HELPER["VoiceTurn"]("call") as turn:
        turn.set(**dict.fromkeys(names, True))
    attributes = _only(sent).attributes or {}
    assert len(attributes) == len(names) + 1
    assert set(attributes) <= {attribute.name for attribute in TABLE.attribute}
    fields = {attribute.name: attribute.field for attribute in TABLE.attribute}
    assert {fields[name] for name in attributes} == {*names, "call_id"}


def test_of_many_marks_the_first_or_the_last_is_sent(sent: InMemorySpanExporter) -> None:
    before_ns = time.time_ns()
    with HELPER["VoiceTurn"]() as turn:
        for ago_s in (3.0, 2.0, 1.0):
            turn.mark("asr.partial", seconds_ago=ago_s)
            turn.mark("llm.last_token", seconds_ago=ago_s)
    span = _only(sent)
    assert span.name == TABLE.span[0].name
    at_ns = {event.name: event.timestamp for event in span.events}
    assert set(at_ns) == {"voice.asr.partial", "voice.llm.last_token"}
    between_ns = at_ns["voice.llm.last_token"] - at_ns["voice.asr.partial"]
    assert between_ns >= 2_000_000_000
    assert at_ns["voice.asr.partial"] >= before_ns - 3_000_000_000


def test_a_span_within_is_below_the_turn(sent: InMemorySpanExporter) -> None:
    from opentelemetry import trace

    with HELPER["VoiceTurn"]() as turn, trace.get_tracer("x").start_as_current_span("voice.llm"):
        pass
    below, _ = sent.get_finished_spans()
    assert below.parent is not None
    assert below.parent.span_id == turn.span.get_span_context().span_id


def test_what_is_raised_within_passes_and_the_turn_is_sent_without_its_text(sent: InMemorySpanExporter) -> None:
    def fail() -> None:
        with HELPER["VoiceTurn"]() as turn:
            turn.mark("asr.final")
            raise ValueError("the number of the caller is 555-0100")

    with pytest.raises(ValueError, match="555"):
        fail()
    span = _only(sent)
    assert (span.status.status_code.name, span.status.description) == ("ERROR", None)
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert "555" not in span.to_json()
    assert [event.name for event in span.events] == ["voice.asr.final"]


def test_without_an_sdk_it_does_nothing() -> None:
    with HELPER["VoiceTurn"]("call", cohort="a") as turn:
        turn.mark("asr.final")
    assert not turn.span.is_recording()
