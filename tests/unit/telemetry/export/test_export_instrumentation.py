"""Calls, turns and stages as spans: names, parents, times."""

import logging
from collections.abc import Iterator

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from telemetry.export.encoded_spans import encoded_by_sdk
from telemetry.export.instrumentation import CallTrace, announce_run
from telemetry.export.sdk import SdkOptions, Telemetry, start
from telemetry.model import semconv
from telemetry.model.errors import ConfigError
from telemetry.model.turns import Turn
from tests.written_spans import WrittenSpans, pb_spans

UNIX, PERF = 1_700_000_000_000_000_000, 50_000
TURN = Turn(
    run_id="run",
    call_id="call",
    turn_index=1,
    source="client",
    outcome="ok",
    started_unix_ns=UNIX + 1_000,
    started_perf_ns=PERF + 1_000,
    speech_start_perf_ns=PERF + 2_000,
    speech_end_perf_ns=PERF + 3_000,
    asr_first_partial_perf_ns=PERF + 2_500,
    asr_final_perf_ns=PERF + 4_000,
    llm_first_token_perf_ns=PERF + 5_000,
    llm_last_token_perf_ns=PERF + 7_000,
    tts_first_chunk_perf_ns=PERF + 6_000,
    tts_last_chunk_perf_ns=PERF + 8_000,
    first_audio_perf_ns=PERF + 6_500,
    reply_end_perf_ns=PERF + 9_000,
    transcript_pii="my name is",
    model="tiny",
)


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    running = start(SdkOptions(None, "test"))
    yield running
    running.shutdown(1)


@pytest.fixture
def written(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> WrittenSpans:
    return WrittenSpans(telemetry, monkeypatch)


def open_call(telemetry: Telemetry, **changes: object) -> CallTrace:
    arguments = {
        "run_id": "run",
        "call_id": "call",
        "source": "client",
        "started_unix_ns": UNIX,
        "started_perf_ns": PERF,
        "attributes": {"target": "ws://t", "voice.call.scenario": "s"},
        **changes,
    }
    return CallTrace(telemetry, **arguments)


def by_name(memory: WrittenSpans) -> dict[str, ReadableSpan]:
    spans = memory.get_finished_spans()
    assert len({span.name for span in spans}) == len(spans)
    return {span.name: span for span in spans}


def test_a_call_holds_its_turn_and_the_turn_its_stages(telemetry: Telemetry, written: WrittenSpans) -> None:
    call = open_call(telemetry)
    emitted = call.emit(TURN)
    call.end(PERF + 20_000, {"outcome": "ok"})
    spans = by_name(written)
    assert set(spans) == {"voice.call", "voice.turn", "voice.asr", "voice.llm", "voice.tts"}
    assert spans["voice.call"].parent is None
    assert spans["voice.turn"].parent.span_id == spans["voice.call"].context.span_id
    for stage in ("voice.asr", "voice.llm", "voice.tts"):
        assert spans[stage].parent.span_id == spans["voice.turn"].context.span_id
        assert spans[stage].attributes["voice.turn.turn_index"] == 1
    times = {name: (span.start_time - UNIX, span.end_time - UNIX) for name, span in spans.items()}
    assert times == {
        "voice.call": (0, 20_000),
        "voice.turn": (1_000, 9_000),
        "voice.asr": (2_000, 4_000),
        "voice.llm": (4_000, 7_000),
        "voice.tts": (5_000, 8_000),
    }
    assert [(event.name, event.timestamp - UNIX) for event in spans["voice.asr"].events] == [
        (semconv.EVENT_ASR_PARTIAL, 2_500)
    ]
    assert [(event.name, event.timestamp - UNIX) for event in spans["voice.llm"].events] == [
        (semconv.EVENT_LLM_FIRST_TOKEN, 5_000)
    ]
    assert spans["voice.llm"].attributes["gen_ai.request.model"] == "tiny"
    attributes = spans["voice.call"].attributes
    assert attributes["voice.call.target"] == "ws://t"
    assert attributes["voice.call.scenario"] == "s"
    assert attributes["voice.call.outcome"] == "ok"
    assert attributes["voice.call.run_id"] == "run"
    changed = {"trace_id", "span_id", "process_id", "sequence"}
    before, after = msgspec.structs.asdict(TURN), msgspec.structs.asdict(emitted)
    assert {name for name in before if before[name] != after[name]} == changed
    assert emitted.trace_id == call.trace_id
    assert emitted.span_id == f"{spans['voice.turn'].context.span_id:016x}"


def test_the_callers_words_are_on_the_turn_alone(telemetry: Telemetry, written: WrittenSpans) -> None:
    open_call(telemetry).emit(TURN)
    reported = [span.name for span in written.get_finished_spans() if "my name is" in str(dict(span.attributes))]
    assert reported == ["voice.turn"]


@pytest.mark.parametrize(
    ("missing", "gone"),
    [
        (("asr_final",), {"voice.asr"}),
        (("speech_start", "speech_end"), {"voice.asr"}),
        (("llm_first_token",), {"voice.llm"}),
        (("tts_first_chunk",), {"voice.tts"}),
    ],
)
def test_a_stage_without_its_points_is_not_invented(
    telemetry: Telemetry, written: WrittenSpans, missing: tuple[str, ...], gone: set[str]
) -> None:
    open_call(telemetry).emit(msgspec.structs.replace(TURN, **{f"{name}_perf_ns": None for name in missing}))
    assert {"voice.asr", "voice.llm", "voice.tts"} - set(by_name(written)) == gone


def test_no_span_ends_before_it_begins(telemetry: Telemetry, written: WrittenSpans) -> None:
    # The agent talks over the caller: everything of the reply came before the caller's speech.
    early = {
        name: PERF - 5_000 + index
        for index, name in enumerate(
            ("asr_final_perf_ns", "llm_first_token_perf_ns", "llm_last_token_perf_ns", "tts_first_chunk_perf_ns")
        )
    }
    open_call(telemetry).emit(msgspec.structs.replace(TURN, **early))
    for span in written.get_finished_spans():
        assert span.start_time <= span.end_time


def test_a_turn_without_points_lasts_no_time(telemetry: Telemetry, written: WrittenSpans) -> None:
    bare = {name: None for name in Turn.__struct_fields__ if name.endswith("_perf_ns") and name != "started_perf_ns"}
    open_call(telemetry).emit(msgspec.structs.replace(TURN, outcome="no_reply", **bare))
    span = by_name(written)["voice.turn"]
    assert span.start_time == span.end_time == UNIX + 1_000


def test_ending_twice_is_ending_once(
    telemetry: Telemetry, written: WrittenSpans, caplog: pytest.LogCaptureFixture
) -> None:
    call = open_call(telemetry)
    call.end(PERF + 10, {"outcome": "ok"})
    call.end(PERF + 20, {"outcome": "error"})
    assert by_name(written)["voice.call"].end_time == UNIX + 10
    assert by_name(written)["voice.call"].attributes["voice.call.outcome"] == "ok"
    assert caplog.text == ""


def test_a_service_is_the_child_of_its_caller(telemetry: Telemetry, written: WrittenSpans) -> None:
    parent = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-00"  # not sampled over there
    call = open_call(telemetry, source="service", parent_traceparent=parent)
    call.end(PERF, {})
    span = by_name(written)["voice.call"]
    assert call.trace_id == "ab" * 16
    assert span.parent.span_id == int("cd" * 8, 16)
    assert span.parent.is_remote


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-" + "cd" * 8 + "-01", "00-ab-cd-01"])
def test_a_parent_that_does_not_parse_makes_a_root(telemetry: Telemetry, written: WrittenSpans, header: str) -> None:
    call = open_call(telemetry, parent_traceparent=header)
    call.end(PERF, {})
    assert by_name(written)["voice.call"].parent is None
    assert int(call.trace_id, 16) != 0


def test_seeding_random_does_not_repeat_ids(telemetry: Telemetry) -> None:
    import random

    traces = set()
    for _ in range(3):
        random.seed(7)
        traces.add(open_call(telemetry).trace_id)
    assert len(traces) == 3


def test_a_run_announces_itself(telemetry: Telemetry, written: WrittenSpans) -> None:
    announce_run(telemetry, "run", "start", {"users": 8}, wall_ns=lambda: UNIX)
    span = by_name(written)["voice.run"]
    assert (span.start_time, span.end_time) == (UNIX, UNIX)
    assert dict(span.attributes) == {
        "voice.schema_version": 3,
        "voice.run.users": 8,
        "voice.run.run_id": "run",
        "voice.run.phase": "start",
        "voice.run.process_id": telemetry.identity.process_id,
    }


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://host:4317", "http://", "http://host:port", ""])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="is no URL like"):
        start(SdkOptions(endpoint, "test"))


def test_limits_from_the_environment_do_not_cut_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "2")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    telemetry = start(SdkOptions(None, "test"))
    memory = WrittenSpans(telemetry, monkeypatch)
    open_call(telemetry).emit(TURN)
    span = by_name(memory)["voice.turn"]
    assert span.dropped_attributes == 0
    assert span.attributes["voice.turn.transcript_pii"] == "my name is"
    telemetry.shutdown(1)


def test_a_disabled_sdk_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    caplog.set_level(logging.WARNING)
    telemetry = start(SdkOptions(None, "test"))
    assert "OTEL_SDK_DISABLED is set" in caplog.text
    open_call(telemetry).emit(TURN)
    telemetry.shutdown(1)


def test_what_otlp_cannot_carry_travels_changed_and_without_noise(
    telemetry: Telemetry, written: WrittenSpans, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {
        "text": "a\ud800",
        "wide": 2**70,
        "texts": ("\udfff",),
        "ints": (1, 2**64),
        "flag": True,
        "ratio": 0.5,
        "none": (),
    }
    announce_run(telemetry, "run\ud800", "end", odd)
    (span,) = pb_spans(map(encoded_by_sdk, written.get_finished_spans()))
    assert len(span.attributes) == len(odd) + 4
    found = dict(by_name(written)["voice.run"].attributes)
    assert found["voice.run.run_id"] == "run\ufffd"
    assert found["voice.run.text"] == "a\ufffd"
    assert found["voice.run.wide"] == str(2**70)
    assert found["voice.run.texts"] == ("\ufffd",)
    assert found["voice.run.ints"] == ("1", str(2**64))
    assert (found["voice.run.flag"], found["voice.run.ratio"], found["voice.run.none"]) == (True, 0.5, ())
    assert caplog.text == ""
