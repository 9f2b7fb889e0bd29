"""Calls, turns and stages as spans, their sequences, and requests from queued spans: in order, each span once."""

import errno
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from telemetry.export.encoded_spans import (
    EncodedRequest,
    EncodedSpan,
    SpanEncoder,
    SpanHead,
    encoded_by_sdk,
    encoded_resource,
)
from telemetry.export.instrumentation import CallTrace, announce_run
from telemetry.export.otlp_http import Delivery
from telemetry.export.sdk import ProcessIdentity, SdkOptions, Telemetry, start
from telemetry.export.span_log import LogFile, SpanLog, replay, spans_record
from telemetry.export.span_processor import SpoolingSpanProcessor
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


def test_values_that_otlp_cannot_carry_are_changed_without_noise(
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
    attributes = dict(by_name(written)["voice.run"].attributes)
    assert attributes["voice.run.run_id"] == "run\ufffd"
    assert attributes["voice.run.text"] == "a\ufffd"
    assert attributes["voice.run.wide"] == str(2**70)
    assert attributes["voice.run.texts"] == ("\ufffd",)
    assert attributes["voice.run.ints"] == ("1", str(2**64))
    assert (attributes["voice.run.flag"], attributes["voice.run.ratio"], attributes["voice.run.none"]) == (
        True,
        0.5,
        (),
    )
    assert caplog.text == ""


def test_sequences_have_no_gaps_across_threads() -> None:
    identity = ProcessIdentity()
    given: list[int] = []

    def emit(run_id: str) -> None:
        given.extend(identity.next_turn(run_id)[1] for _ in range(500))

    threads = [threading.Thread(target=emit, args=(run_id,)) for run_id in ("a", "a", "b", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(2000))
    assert identity.emitted_by_run() == {"a": 1000, "b": 1000}


def test_two_incarnations_differ() -> None:
    assert ProcessIdentity().process_id != ProcessIdentity().process_id


def test_a_forked_child_is_another_process() -> None:
    identity = ProcessIdentity()
    identity.next_turn("run")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        process_id, sequence = identity.next_turn("run")
        os.write(writing, f"{process_id} {sequence} {identity.emitted_by_run()['run']}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    process_id, sequence, emitted = os.read(reading, 1000).decode().split()
    os.close(reading)
    os.close(writing)
    assert process_id != identity.process_id
    assert (sequence, emitted) == ("0", "1")
    assert identity.next_turn("run")[1] == 1


MIB = 2**20
RESOURCE = encoded_resource(Resource({}))


class TakingSender:
    """Takes everything, and keeps it."""

    def __init__(self) -> None:
        self.records: list[EncodedRequest] = []

    def send(self, record: EncodedRequest) -> Delivery:
        self.records.append(record)
        return Delivery("taken")


def spans_of(*lengths: int) -> list[EncodedSpan]:
    """Spans with names from "0" on, and texts of so many octets."""
    encoder = SpanEncoder("scope")
    return [
        encoder.encoded(SpanHead(str(number), b"t" * 16, b"s" * 8, b"p" * 8, 1, 2), {"text": "x" * length})
        for number, length in enumerate(lengths)
    ]


def names_in(record: EncodedRequest) -> list[str]:
    (of_process,) = ExportTraceServiceRequest.FromString(record.payload).resource_spans
    (of_scope,) = of_process.scope_spans
    assert record.items == len(of_scope.spans)
    return [span.name for span in of_scope.spans]


@pytest.mark.parametrize(
    ("lengths", "requests"),
    [
        ((1, 1, 1), [["0", "1", "2"]]),
        ((1,) * 5, [["0", "1", "2", "3"], ["4"]]),
        ((MIB, 1, 1), [["0"], ["1", "2"]]),
        ((1, 3 * MIB, 1), [["0", "1"], ["2"]]),
        ((MIB // 2, MIB // 2, MIB // 2), [["0", "1"], ["2"]]),
        ((MIB // 2, MIB // 2 - 400, 1, 1, 1), [["0", "1", "2", "3"], ["4"]]),
    ],
)
def test_a_request_is_full_by_spans_or_by_bytes(lengths: tuple[int, ...], requests: list[list[str]]) -> None:
    sender = TakingSender()
    processor = SpoolingSpanProcessor(RESOURCE, sender, None, batch=4, queue=100, clock_s=lambda: 0.0)
    processor.offer_spans(spans_of(*lengths))
    assert processor.force_flush()
    processor.shutdown()
    assert [names_in(record) for record in sender.records] == requests
    stats = processor.stats()
    assert (stats.exported_spans, stats.dropped_spans, stats.waiting_spans) == (len(lengths), 0, 0)


class LateSender:
    """Fails, long after the end was asked for."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.may_fail = threading.Event()

    def send(self, _record: EncodedRequest) -> Delivery:
        self.is_asked.set()
        self.may_fail.wait()
        return Delivery("failed", reason="too late")


def test_spans_refused_by_late_collector_are_on_disk_at_shutdown(tmp_path: Path) -> None:
    sender = LateSender()
    processor = SpoolingSpanProcessor(
        RESOURCE, sender, lambda: SpanLog(tmp_path, "owner", RESOURCE), batch=2, queue=100
    )
    processor.offer_spans(spans_of(1, 1, 1, 1, 1))
    sender.is_asked.wait()
    # Longer than a shutdown waits that has no disk to wait for.
    threading.Timer(1.0, sender.may_fail.set).start()
    processor.shutdown(timeout_s=0.01)
    stats = processor.stats()
    assert (stats.dropped_spans, stats.drop_reason, stats.exported_spans) == (0, None, 0)
    (log,) = tmp_path.glob("*.wal")
    opened = LogFile.open(log)
    assert sum(record.items for record, _ in opened.records()) == 5
    opened.close()


def test_live_collector_gets_everything_once_on_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sender, log = TakingSender(), SpanLog(tmp_path, "owner", RESOURCE)
    processor = SpoolingSpanProcessor(RESOURCE, sender, lambda: log, batch=2, queue=3)
    real = os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        if len(data) > 8:  # all but the offset of what was delivered
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, offset)

    spans = spans_of(*(1,) * 9)
    processor.offer_spans(spans[:3], turns=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        for span in spans[3:6]:
            processor.offer_spans([span])
        assert processor.force_flush()
    processor.offer_spans(spans[6:])
    processor.shutdown()
    assert sorted(name for record in sender.records for name in names_in(record)) == [str(n) for n in range(9)]
    assert caplog.text.count("the spool takes no more: [Errno 28] No space left on device") == 1
    stats = processor.stats()
    assert (stats.exported_spans, stats.dropped_spans, stats.waiting_spans) == (9, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_full_spool_fills_the_memory_and_the_rest_is_counted(tmp_path: Path) -> None:
    class Deaf:
        def send(self, _request: EncodedRequest) -> Delivery:
            return Delivery("failed", reason="deaf")

    spans = spans_of(*(1,) * 9)
    room = 4 * spans_record(spans[:1], 0).size_bytes
    processor = SpoolingSpanProcessor(
        RESOURCE, Deaf(), lambda: SpanLog(tmp_path, "owner", RESOURCE, max_bytes=room), queue=3
    )
    for span in spans:
        processor.offer_spans([span])
    assert not processor.force_flush()  # what is in memory alone is neither sent nor spooled
    stats = processor.stats()
    assert (stats.spooled_spans, stats.waiting_spans, stats.dropped_spans) == (4, 3, 2)
    assert stats.drop_reason == "the spool is full"
    processor.shutdown(0.1)
    stats = processor.stats()
    assert (stats.spooled_spans, stats.waiting_spans, stats.dropped_spans) == (4, 0, 5)
    assert replay(tmp_path, lambda _: True).spans == 4
