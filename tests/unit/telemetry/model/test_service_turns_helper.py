"""Spans of services of one's own: the table, the vocabulary, the helper to copy, and the run that they belong to."""

import inspect
import runpy
import time
from collections.abc import Mapping
from datetime import date
from typing import Any, get_args

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry.model import semconv
from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.services import ServiceDay, ServiceSpanTable, service_day, service_run_id, service_span_table
from telemetry.model.turns import Turn
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


def test_helper_knows_every_moment_of_the_table() -> None:
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


def test_first_or_last_of_many_marks_is_sent(sent: InMemorySpanExporter) -> None:
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


def test_exception_in_turn_propagates_and_span_omits_its_text(sent: InMemorySpanExporter) -> None:
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


LAST_MOMENT_UNIX_NS = 1_794_355_199_999_999_999  # 2026-11-10 23:59:59.999999999 UTC


def test_a_run_is_a_service_and_a_day_in_utc() -> None:
    assert service_run_id("bot", LAST_MOMENT_UNIX_NS) == "service:bot:2026-11-10"
    assert service_run_id("bot", LAST_MOMENT_UNIX_NS + 1) == "service:bot:2026-11-11"


@pytest.mark.parametrize("service", ["bot", "a:b", "two\nlines", "service:bot:2026-11-10"])
def test_the_service_and_the_day_come_back(service: str) -> None:
    assert service_day(service_run_id(service, LAST_MOMENT_UNIX_NS)) == ServiceDay(service, date(2026, 11, 10))


def test_service_without_name_gets_opentelemetry_default() -> None:
    assert service_run_id("", LAST_MOMENT_UNIX_NS) == "service:unknown_service:2026-11-10"


@pytest.mark.parametrize("run_id", ["", "night", "service:bot", "service::2026-11-10", "service:bot:2026-13-10"])
def test_other_run_ids_are_of_no_service(run_id: str) -> None:
    assert service_day(run_id) is None


FIELDS = {field.name: field for field in msgspec.structs.fields(Turn)}


def test_every_row_becomes_a_field_of_a_turn() -> None:
    assert {row.field for row in (*TABLE.event, *TABLE.attribute)} <= set(FIELDS)
    assert {row.field.removesuffix("_perf_ns") for row in TABLE.event} == set(TIMESTAMPS), "each timestamp has one"


def test_names_are_unique_and_only_a_cohort_and_a_user_have_two() -> None:
    names = [row.name for row in (*TABLE.span, *TABLE.event, *TABLE.attribute)]
    assert len(names) == len(set(names))
    fields = [row.field for row in (*TABLE.event, *TABLE.attribute)]
    assert sorted(field for field in set(fields) if fields.count(field) > 1) == ["cohort", "user_id"]


def test_names_are_those_of_the_vocabulary_where_it_has_one() -> None:
    names = {row.name for row in (*TABLE.event, *TABLE.attribute)}
    assert {semconv.EVENT_ASR_PARTIAL, semconv.EVENT_LLM_FIRST_TOKEN} <= names
    assert {semconv.GEN_AI_CONVERSATION_ID, semconv.GEN_AI_REQUEST_MODEL, semconv.ERROR_TYPE} <= names
    assert [span.name for span in TABLE.span] == [
        semconv.SPAN_TURN,
        semconv.SPAN_ASR,
        semconv.SPAN_LLM,
        semconv.SPAN_TTS,
    ]
    for attribute in TABLE.attribute:
        if attribute.name.startswith(semconv.TURN_PREFIX):
            assert attribute.name == semconv.TURN_PREFIX + attribute.field


def test_a_row_with_a_misspelled_key_is_refused() -> None:
    row = {"name": "voice.x", "fields": "cohort", "field": "cohort", "meaning": "m"}
    with pytest.raises(msgspec.ValidationError, match="fields"):
        msgspec.convert({"span": [], "event": [], "attribute": [row]}, ServiceSpanTable)
