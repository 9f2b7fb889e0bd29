"""The exporter against real collectors of every mood, in plain, asyncio and gevent processes."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from telemetry.export.instrumentation import CallTrace, GeneratorGauges
from telemetry.export.sdk import SdkOptions, Telemetry, start
from telemetry.export.span_log import replay
from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.model.turns import Turn
from tests.fixtures_forwarding import UpstreamServer, answer, dead_url, take, take_partly
from tests.fixtures_turns import exchange
from tests.integration.waiting import wait_until


def named(upstream: UpstreamServer, name: str) -> list[str]:
    return [span.span_id.hex() for span in upstream.spans() if span.name == name]


def gauge(upstream: UpstreamServer, name: str) -> list[tuple[float, dict[str, str]]]:
    return [
        (point.as_double or point.as_int, {entry.key: entry.value.string_value for entry in point.attributes})
        for request in list(upstream.metrics)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.gauge.data_points
    ]


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Iterator[Callable[..., Telemetry]]:
    started: list[Telemetry] = []

    def begin(endpoint: str | None, spool_dir: Path | None = None, **options: object) -> Telemetry:
        telemetry = start(SdkOptions(endpoint, "tests", {"host.kind": "test"}, spool_dir, **options))
        started.append(telemetry)
        return telemetry

    yield begin
    for telemetry in started:
        telemetry.shutdown(5)


def turn(index: int = 0) -> Turn:
    """A turn of four spans: its own, and one for each stage."""
    return exchange(index, run_id="run")[0]


def a_call(telemetry: Telemetry, parent: str | None = None, source: semconv.Source = "client") -> CallTrace:
    return CallTrace(
        telemetry,
        run_id="run",
        call_id="call",
        source=source,
        started_unix_ns=1_700_000_000_000_000_000,
        started_perf_ns=1_000_000,
        attributes={"target": "ws://t"},
        parent_traceparent=parent,
    )


def test_a_live_collector_gets_everything_in_batches(upstream: UpstreamServer, running) -> None:
    telemetry = running(upstream.url, token="secret")
    call = a_call(telemetry)
    emitted = [call.emit(turn(index)) for index in range(150)]
    call.end(9_000_000, {"outcome": "ok"})
    assert telemetry.flush(120)
    assert len(upstream.span_ids()) == 150 * 4 + 1
    assert named(upstream, semconv.SPAN_TURN) == [entry.span_id for entry in emitted]
    assert [entry.sequence for entry in emitted] == list(range(150))
    stats = telemetry.export_stats()
    assert (stats.exported_spans, stats.spooled_spans, stats.dropped_spans, stats.waiting_spans) == (601, 0, 0, 0)
    assert stats.failure is None
    for request in upstream.traces:
        assert sum(len(scope.spans) for scope in request.resource_spans[0].scope_spans) <= 256
        assert len(request.resource_spans) == len(request.resource_spans[0].scope_spans) == 1
        resource = {e.key: e.value.string_value for e in request.resource_spans[0].resource.attributes}
        assert resource["service.name"] == "tests"
        assert resource["host.kind"] == "test"
        assert resource["service.instance.id"] == telemetry.identity.process_id
    assert set(upstream.paths) <= {"/v1/traces", "/v1/metrics"}
    assert upstream.headers[0]["authorization"] == "Bearer secret"
    assert upstream.headers[0]["content-type"] == "application/x-protobuf"


def test_spans_leave_by_themselves_without_a_flush(upstream: UpstreamServer, running) -> None:
    telemetry = running(upstream.url)
    a_call(telemetry).emit(turn())
    wait_until(lambda: len(upstream.span_ids()) == 4)


def test_generator_gauges_arrive_with_their_worst(upstream: UpstreamServer, running) -> None:
    telemetry = running(upstream.url)
    gauges = GeneratorGauges(telemetry, "run")
    gauges.report(cpu_ratio=0.25, loop_lag_worst_ns=9_000, frames_sent=10, clock_offset_drift_ns=-50)
    gauges.report(cpu_ratio=0.125, loop_lag_worst_ns=4_000, frames_sent=20, calls_in_flight=3)
    a_call(telemetry).emit(turn())
    assert telemetry.flush(120)
    wait_until(lambda: bool(gauge(upstream, semconv.METRIC_TURNS_EMITTED)))
    where = {"run_id": "run", "process_id": telemetry.identity.process_id}
    by_name = {
        gauge_metric("cpu_ratio"): 0.25,
        gauge_metric("loop_lag_worst_ns"): 9_000,
        gauge_metric("frames_sent"): 20,
        gauge_metric("calls_in_flight"): 3,
        gauge_metric("clock_offset_drift_ns"): -50,
    }
    for name, value in by_name.items():
        values = [value for value, attributes in gauge(upstream, name) if attributes == where]
        assert max(values, key=abs) == value, name
    assert (1, where) in gauge(upstream, semconv.METRIC_TURNS_EMITTED)
    assert gauge(upstream, gauge_metric("gc_pause_worst_ns")) == []  # never reported, never invented


def test_a_dead_collector_means_the_spool_and_one_sentence(
    running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    telemetry = running(dead_url(), tmp_path)
    call = a_call(telemetry)
    for index in range(100):
        call.emit(turn(index))
    assert telemetry.flush(120)
    stats = telemetry.export_stats()
    assert (stats.exported_spans, stats.spooled_spans, stats.dropped_spans) == (0, 400, 0)
    assert stats.failure is not None
    telemetry.shutdown(5)
    assert len([entry for entry in caplog.records if entry.levelno >= logging.WARNING]) == 1
    assert "takes no data" in caplog.text
    assert "Traceback" not in caplog.text
    spans: list[str] = []

    def sink(record) -> bool:
        if record.signal == "traces":
            for scope in ExportTraceServiceRequest.FromString(record.payload).resource_spans[0].scope_spans:
                spans.extend(span.span_id.hex() for span in scope.spans)
        return True

    assert replay(tmp_path, sink).spans == 400
    assert len(set(spans)) == 400


def test_a_collector_that_comes_back_gets_the_spool(running, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    url = dead_url()
    telemetry = running(url, tmp_path)
    call = a_call(telemetry)
    for index in range(40):
        call.emit(turn(index))
    assert telemetry.flush(120)
    assert telemetry.export_stats().spooled_spans == 160
    with closing(UpstreamServer(port=urlsplit(url).port or 0)) as back:
        call.emit(turn(40))
        wait_until(lambda: telemetry.export_stats().exported_spans == 164)
        assert len(back.span_ids()) == len(set(back.span_ids())) == 164
        stats = telemetry.export_stats()
        assert (stats.spooled_spans, stats.dropped_spans, stats.failure) == (0, 0, None)
        assert "takes data again" in caplog.text
        telemetry.shutdown(5)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [503, 500, 429, 401, 404])
def test_an_overloaded_or_unwilling_collector_loses_nothing(
    upstream: UpstreamServer, running, tmp_path: Path, status: int
) -> None:
    upstream.mood = answer(status)
    telemetry = running(upstream.url, tmp_path)
    a_call(telemetry).emit(turn())
    assert telemetry.flush(120)
    assert telemetry.export_stats().spooled_spans == 4
    assert telemetry.export_stats().failure == f"HTTP status {status}"
    upstream.mood = take
    assert telemetry.flush(120)
    wait_until(lambda: len(upstream.span_ids()) == 4)


def test_spans_refused_for_good_are_counted(
    upstream: UpstreamServer, running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.mood = answer(400)
    telemetry = running(upstream.url, tmp_path)
    a_call(telemetry).emit(turn())
    assert telemetry.flush(120)
    stats = telemetry.export_stats()
    assert (stats.rejected_spans, stats.spooled_spans, stats.exported_spans) == (4, 0, 0)
    assert "refused 4 spans for good: HTTP status 400" in caplog.text


def test_a_partial_success_is_counted(upstream: UpstreamServer, running, caplog: pytest.LogCaptureFixture) -> None:
    upstream.mood = lambda server, handler, body: (take_partly if handler.path == "/v1/traces" else take)(
        server, handler, body
    )
    telemetry = running(upstream.url)
    a_call(telemetry).emit(turn())
    assert telemetry.flush(120)
    stats = telemetry.export_stats()
    assert (stats.exported_spans, stats.rejected_spans) == (2, 2)
    assert "too old" in caplog.text


class Listener:
    """Accepts connections and handles each as configured, on its own thread."""

    def __init__(self, serve: Callable[[socket.socket, threading.Event], None]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._closing = threading.Event()
        self._serve = serve
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            connection, _ = self._socket.accept()
            thread = threading.Thread(target=self._one, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._serve(connection, self._closing)

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError), socket.create_connection(self._socket.getsockname()):
            pass
        self._accepting.join()
        self._socket.close()
        for thread in self._threads:
            thread.join()


def silent(connection: socket.socket, closing_now: threading.Event) -> None:
    closing_now.wait()


def dripping(connection: socket.socket, closing_now: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    while not closing_now.wait(0.2):
        connection.sendall(b"a")


def garbage(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(100)
    connection.sendall(b"\x00\xff\x16\x03 not http\r\n\r\n")


def hanging_up(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(10)


def wrong_body(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(100_000)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff")


def in_two_pieces(connection: socket.socket, closing_now: threading.Event) -> None:
    partial = ExportTracePartialSuccess(rejected_spans=1, error_message="late")
    body = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    connection.recv(100_000)
    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
    closing_now.wait(0.2)
    connection.sendall(body)


def test_an_answer_in_two_pieces_is_read_whole(running) -> None:
    with closing(Listener(in_two_pieces)) as peer:
        telemetry = running(peer.endpoint)
        a_call(telemetry).emit(turn())
        assert telemetry.flush(120)
        stats = telemetry.export_stats()
        assert (stats.exported_spans, stats.rejected_spans, stats.failure) == (3, 1, None)
        telemetry.shutdown(5)


@pytest.mark.parametrize("serve", [silent, dripping, garbage, hanging_up, wrong_body])
def test_a_broken_peer_costs_a_bounded_time_and_no_span(serve, running, tmp_path: Path) -> None:
    with closing(Listener(serve)) as peer:
        telemetry = running(peer.endpoint, tmp_path, timeout_s=0.5)
        a_call(telemetry).emit(turn())
        assert telemetry.flush(120)
        stats = telemetry.export_stats()
        assert (stats.spooled_spans, stats.dropped_spans, stats.exported_spans) == (4, 0, 0)
        assert stats.failure is not None
        telemetry.shutdown(5)


def test_a_flush_has_a_deadline(running) -> None:
    with closing(Listener(silent)) as peer:
        telemetry = running(peer.endpoint)
        a_call(telemetry).emit(turn())
        assert not telemetry.flush(0.05)
        telemetry.shutdown(0.1)


def test_a_full_queue_drops_and_counts(running) -> None:
    telemetry = running(dead_url(), batch=8, queue=20)
    call = a_call(telemetry)
    for index in range(25):
        call.emit(turn(index))
    telemetry.flush(10)
    stats = telemetry.export_stats()
    assert stats.exported_spans == 0
    assert stats.dropped_spans + stats.waiting_spans == 100
    assert 20 <= stats.waiting_spans <= 28
    telemetry.shutdown(5)
    stats = telemetry.export_stats()
    assert (stats.dropped_spans, stats.waiting_spans) == (100, 0)
    call.emit(turn(99))
    assert telemetry.export_stats().dropped_spans == 104


def test_spans_wait_in_memory_without_spool_until_collector_runs(running) -> None:
    url = dead_url()
    telemetry = running(url)
    a_call(telemetry).emit(turn())
    assert not telemetry.flush(10)
    assert telemetry.export_stats().waiting_spans == 4
    with closing(UpstreamServer(port=urlsplit(url).port or 0)) as back:
        wait_until(lambda: telemetry.export_stats().exported_spans == 4)
        assert len(back.span_ids()) == 4


def test_a_spool_that_cannot_be_written_is_refused_at_the_start(running, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no directory")
    with pytest.raises(FileExistsError):
        running(dead_url(), in_the_way)


def test_no_endpoint_means_the_spool_alone(running, tmp_path: Path) -> None:
    telemetry = running(None, tmp_path)
    a_call(telemetry).emit(turn())
    telemetry.shutdown(5)
    stats = telemetry.export_stats()
    assert (stats.spooled_spans, stats.failure) == (4, None)
    assert replay(tmp_path, lambda _: True).spans == 4


def test_neither_means_ids_and_nothing_else(running) -> None:
    telemetry = running(None)
    emitted = a_call(telemetry).emit(turn())
    assert len(emitted.span_id) == 16
    assert telemetry.flush(1)
    assert telemetry.export_stats().dropped_spans == 0


def test_a_service_joins_the_callers_trace(upstream: UpstreamServer, running) -> None:
    client, service = running(upstream.url), running(upstream.url)
    calling = a_call(client)
    answering = a_call(service, calling.traceparent, "service")
    heard, reported = calling.emit(turn()), answering.emit(turn())
    calling.end(9_000_000, {})
    answering.end(9_000_000, {})
    assert heard.trace_id == reported.trace_id == calling.trace_id == answering.trace_id
    assert heard.process_id != reported.process_id
    assert heard.sequence == reported.sequence == 0
    assert client.flush(120)
    assert service.flush(120)
    calls = [span for span in upstream.spans() if span.name == semconv.SPAN_CALL]
    root = next(span for span in calls if not span.parent_span_id)
    child = next(span for span in calls if span.parent_span_id)
    assert child.parent_span_id == root.span_id
    assert calling.traceparent == f"00-{root.trace_id.hex()}-{root.span_id.hex()}-01"


def test_asyncio_is_not_held_up(upstream: UpstreamServer, running) -> None:
    telemetry = running(upstream.url)

    async def talk() -> list[Turn]:
        call = a_call(telemetry)
        emitted = []
        for index in range(100):
            emitted.append(call.emit(turn(index)))
            await asyncio.sleep(0)
        call.end(9_000_000, {})
        assert await asyncio.to_thread(telemetry.flush, 120)
        return emitted

    emitted = asyncio.run(talk())
    assert named(upstream, semconv.SPAN_TURN) == [entry.span_id for entry in emitted]


GEVENT = """
from gevent import monkey
monkey.patch_all()
import gc, json, sys, time
from pathlib import Path
import gevent
from telemetry.export.instrumentation import CallTrace
from telemetry.export.sdk import SdkOptions, start
from telemetry.model.turns import Turn
endpoint, spool_dir, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
telemetry = start(SdkOptions(endpoint, "gevent", {}, Path(spool_dir), timeout_s=float(sys.argv[4])))
base = 1_000_000
points = {name + "_perf_ns": base + 10 * at for at, name in enumerate((
    "speech_start", "asr_first_partial", "speech_end", "asr_final", "llm_first_token", "llm_first_sentence",
    "tts_first_chunk", "first_audio", "llm_last_token", "tts_last_chunk", "reply_end"))}
one = Turn(run_id="run", call_id="call", turn_index=0, source="client", outcome="ok", started_unix_ns=10**18,
           started_perf_ns=base, llm_chunk_gaps_ns=tuple(range(30)), scenario="s", utterance_id="u", domain="d",
           length_class="short", protocol="p", target="t", cohort="A", route="cloud", cache_hit=False, **points)
call = CallTrace(telemetry, run_id="run", call_id="call", source="client", started_unix_ns=10**18,
                 started_perf_ns=base, attributes={})
stop = False
def worst_gap(during):
    gaps = []
    def tick():
        last = time.perf_counter()
        while not during["over"]:
            gevent.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last - 0.001)
            last = now
    return gevent.spawn(tick), gaps
gc.collect(); gc.freeze()
quiet = {"over": False}
ticking, idle = worst_gap(quiet)
gevent.sleep(1)
quiet["over"] = True; ticking.join()
busy = {"over": False}
ticking, gaps = worst_gap(busy)
def talk():
    for index in range(turns):
        call.emit(one)
        gevent.sleep(0.003)
gevent.spawn(talk).join()
deadline = time.monotonic() + 120
def handled():
    stats = telemetry.export_stats()
    return stats.exported_spans + stats.spooled_spans + stats.dropped_spans + stats.rejected_spans
while handled() < 4 * turns and time.monotonic() < deadline:
    gevent.sleep(0.01)
busy["over"] = True; ticking.join()
flushed = telemetry.flush(120)
stats = telemetry.export_stats()
telemetry.shutdown(10)
gaps.sort()
print(json.dumps(dict(flushed=flushed, exported=stats.exported_spans, spooled=stats.spooled_spans,
    dropped=stats.dropped_spans, idle_worst_ms=max(idle) * 1e3, worst_ms=gaps[-1] * 1e3,
    p99_ms=gaps[int(len(gaps) * .99)] * 1e3, ticks=len(gaps))))
"""


def in_gevent(endpoint: str, spool_dir: Path, turns: int = 500, timeout_s: float = 3.0) -> dict[str, float]:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", GEVENT, endpoint, str(spool_dir), str(turns), str(timeout_s)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    print(ended.stdout, ended.stderr)
    assert "Traceback" not in ended.stderr
    figures: dict[str, float] = json.loads(ended.stdout)
    return figures


def test_gevent_with_a_live_collector(upstream: UpstreamServer, tmp_path: Path) -> None:
    figures = in_gevent(upstream.url, tmp_path, timeout_s=60.0)  # a busy machine is not a dead collector
    assert figures["flushed"]
    assert (figures["exported"], figures["spooled"], figures["dropped"]) == (2000, 0, 0)
    assert len(upstream.span_ids()) == 2000


@pytest.mark.nightly
def test_gevent_with_a_dead_collector(tmp_path: Path) -> None:
    figures = in_gevent(dead_url(), tmp_path)
    assert figures["flushed"]
    assert (figures["exported"], figures["spooled"], figures["dropped"]) == (0, 2000, 0)
    assert replay(tmp_path, lambda _: True).spans == 2000


@pytest.mark.nightly
def test_gevent_with_a_silent_collector_goes_on_ticking(tmp_path: Path) -> None:
    with closing(Listener(silent)) as peer:
        figures = in_gevent(peer.endpoint, tmp_path, 200, 0.8)
    assert (figures["spooled"], figures["dropped"]) == (800, 0)
    # The peer holds each request for most of a second; had it held the loop, there would be a handful of ticks.
    assert figures["ticks"] > 100


def test_a_process_that_just_ends_still_delivers(upstream: UpstreamServer, tmp_path: Path) -> None:
    program = """
import sys
from telemetry.export.sdk import SdkOptions, start
telemetry = start(SdkOptions(sys.argv[1], "short"))
telemetry.tracer.start_span("voice.run").end()
"""
    subprocess.run([sys.executable, "-c", program, upstream.url], check=True, timeout=180)
    assert len(named(upstream, "voice.run")) == 1


def test_a_forked_worker_has_a_delivery_of_its_own(upstream: UpstreamServer, tmp_path: Path) -> None:
    program = """
import os, sys
from telemetry.export.sdk import SdkOptions, start
telemetry = start(SdkOptions(sys.argv[1], "parent"))
telemetry.tracer.start_span("before").end()
child = os.fork()
telemetry.tracer.start_span("child" if child == 0 else "parent").end()
assert telemetry.flush(120)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
telemetry.shutdown(5)
"""
    subprocess.run([sys.executable, "-c", program, upstream.url], check=True, timeout=180)
    for name in ("before", "child", "parent"):
        assert len(named(upstream, name)) == 1, name
