"""Faults of a destination are counted, named, and delay neither ingestion nor another destination.

Forwarding itself is tried here, in this process, with real HTTP receivers; its place in a sidecar in `test_forwarding`.
"""

import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType

import pytest

from telemetry.sidecar.faults import FaultBoard
from telemetry.sidecar.forwarding import forwarder, sending
from telemetry.sidecar.forwarding.bounded_queue import DestinationState, Received
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.forwarder import LOSING_S, Forwarding
from telemetry.sidecar.signals import Signal
from tests.fixtures_forwarding import (
    BlackHole,
    UpstreamServer,
    answer,
    dead_url,
    endless_body,
    span_id,
    spans_request,
    take,
)
from tests.integration.waiting import wait_until

SECRET_TEXT = "my card is 4111 1111 1111 1111"


def up(url: str, **more: object) -> Destination:
    return replace(Destination("up", url, "redact"), **more)


def received(
    first_span: int, count: int = 1, attributes: Mapping[str, object] = MappingProxyType({}), signal: Signal = "traces"
) -> Received:
    body = spans_request(first_span, count, attributes)
    return Received(signal, body, count)


@dataclass
class Tried:
    """Forwarding under way, the faults that it names, and a clock of its ages and faults that tests set forward."""

    forwarding: Forwarding
    board: FaultBoard
    ahead_s: list[float] = field(default_factory=lambda: [0.0])

    @property
    def faults(self) -> dict[str, str]:
        return {fault.name: fault.sentence for fault in self.board.all()}

    def state(self, name: str = "up") -> DestinationState:
        return next(state for state in self.forwarding.reports() if state.name == name)

    def fault(self, name: str = "up") -> str:
        self.forwarding.refresh()
        return self.faults.get(f"forward:{name}", "")


@contextmanager
def forwarding_to(store: Path, *destinations: Destination) -> Generator[Tried]:
    faults = FaultBoard()
    ahead_s = [0.0]
    forwarding = Forwarding(store, destinations, faults, clock_s=lambda: time.monotonic() + ahead_s[0], names=None)
    forwarding.start()
    try:
        yield Tried(forwarding, faults, ahead_s)
    finally:
        forwarding.stop()


def test_a_destination_in_trouble_delays_no_other(tmp_path: Path, upstream: UpstreamServer) -> None:
    with closing(BlackHole()) as hole, closing(UpstreamServer(endless_body)) as endless:
        destinations = [
            up(hole.url, name="hole", timeout_s=0.5),
            up("http://name.invalid", name="nameless"),
            up(dead_url(), name="dead"),
            up(endless.url, name="endless"),
            up(upstream.url),
        ]
        with forwarding_to(tmp_path, *destinations) as tried:
            for number in range(30):
                tried.forwarding.add([received(number)])
            wait_until(lambda: len(upstream.span_ids()) == 30)
            wait_until(lambda: tried.state("endless").forwarded_requests == 30)
            wait_until(lambda: "no answer within 0.5 s" in tried.fault("hole"))
            wait_until(lambda: "Connection refused" in tried.fault("dead"))
            wait_until(lambda: tried.fault("nameless"))
            assert tried.state("hole").backlog_items == 30
            assert tried.fault() == ""


def test_refused_request_is_counted_with_reason_and_delays_none(tmp_path: Path, upstream: UpstreamServer) -> None:
    def picky(server: UpstreamServer, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        (answer(400) if b"gpt-refused" in body else take)(server, handler, body)

    upstream.mood = picky
    with forwarding_to(tmp_path, up(upstream.url)) as tried:
        for number in range(20):
            refused = {"gen_ai.request.model": "gpt-refused"} if number in (3, 11) else {}
            tried.forwarding.add([received(number, 1, refused)])
        wait_until(lambda: tried.state().forwarded_requests == 18)
        assert tried.state().refused_requests == {"HTTP status 400": 2}
        assert tried.fault() == (
            "forwarding to up loses telemetry: 2 spans and metric points since the start, 2 requests refused (HTTP "
            "status 400); the last answer: HTTP status 400"
        )
        tried.ahead_s[0] += LOSING_S
        assert tried.fault() == "", "the loss is over"
    assert sorted(upstream.span_ids()) == [span_id(number) for number in range(20) if number not in (3, 11)]


def test_signal_refused_by_destination_does_not_delay_the_other(tmp_path: Path, upstream: UpstreamServer) -> None:
    def traces_only(server: UpstreamServer, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        (take if handler.path.endswith("/v1/traces") else answer(404))(server, handler, body)

    upstream.mood = traces_only
    with forwarding_to(tmp_path, up(upstream.url, text="keep")) as tried:
        tried.forwarding.add([received(1, signal="metrics")])
        wait_until(lambda: tried.fault().startswith("forwarding metrics to up fails (HTTP status 404)"))
        for number in range(10):
            tried.forwarding.add([received(number)])
        wait_until(lambda: len(upstream.span_ids()) == 10)
        assert tried.state().backlog_requests == 1


def test_flood_to_stalled_destination_is_bounded_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stalled = threading.Event()

    def stall(server: UpstreamServer, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        assert stalled.wait(60)
        take(server, handler, body)

    with (
        closing(UpstreamServer(stall)) as slow,
        forwarding_to(tmp_path, up(slow.url, text="keep", queue_bytes=4 << 20)) as tried,
    ):
        pad = "x" * (1 << 20)
        bodies = [spans_request(number, 1, {"voice.pad": pad}) for number in range(80)]
        for body in bodies:
            tried.forwarding.add([Received("traces", body, 1)])  # returns although nothing is taken
            assert tried.state().backlog_bytes <= (4 << 20) + len(body)
        fault = tried.fault()
        dropped = tried.state().dropped_requests["size"]
        assert dropped >= 80 - 5
        assert (
            f"loses telemetry: {dropped} spans and metric points since the start, {dropped} requests dropped" in fault
        )
        assert "forwarding to up loses telemetry" in caplog.text
        stalled.set()
        wait_until(lambda: tried.state().backlog_requests == 0)
        state = tried.state()
        assert state.forwarded_requests + state.dropped_requests["size"] == 80
        assert state.lost_items == state.dropped_requests["size"]
    assert slow.span_ids()[-1] == span_id(79), "the oldest were dropped, not the newest"


def test_old_requests_are_dropped_while_destination_is_dead(tmp_path: Path) -> None:
    with forwarding_to(tmp_path, up(dead_url(), max_age_s=600.0)) as tried:
        tried.forwarding.add([received(1)])
        wait_until(lambda: "Connection refused" in tried.fault())
        tried.ahead_s[0] += 599.0
        assert "0 MiB wait for 599 s" in tried.fault()
        tried.ahead_s[0] += 2.0
        assert "1 span or metric point since the start, 1 request dropped (age)" in tried.fault()


@pytest.mark.parametrize("url", ["dead", "hole", "refusing"])
def test_stop_is_in_time_and_remaining_requests_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(sending, "DRAIN_S", 0.5)
    with closing(BlackHole()) as hole, closing(UpstreamServer(answer(503, retry_after="60"))) as refusing:
        urls = {"dead": dead_url(), "hole": hole.url, "refusing": refusing.url}
        with forwarding_to(tmp_path, up(urls[url])) as tried:
            for number in range(5):
                tried.forwarding.add([received(number, 3)])
        assert tried.state().dropped_requests == {"stop": 5}
        assert tried.state().lost_items == 15
    assert (
        "forwarding to up: lost at the end of the sidecar: 5 requests with 15 spans and metric points (" in caplog.text
    )
    assert threading.active_count() < 50
    assert not [thread for thread in threading.enumerate() if thread.name == "forwarding"]


def test_texts_are_taken_out_before_a_request_is_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[bytes] = []

    def add(_queue: object, _signal: Signal, body: bytes, _items: int) -> None:
        queued.append(body)

    monkeypatch.setattr(forwarder.BoundedQueue, "add", add)
    with forwarding_to(tmp_path, up(dead_url()), up(dead_url(), name="kept", text="keep")) as tried:
        text = received(1, 1, {"text_output": SECRET_TEXT, "gen_ai.request.model": "small"})
        tried.forwarding.add([text])
    redacted, kept = queued
    assert kept == text.body
    assert SECRET_TEXT.encode() in kept
    assert SECRET_TEXT.encode() not in redacted
    assert b"small" in redacted


def test_request_that_cannot_be_redacted_is_counted_not_sent(
    tmp_path: Path, upstream: UpstreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    with forwarding_to(tmp_path, up(upstream.url)) as tried:
        tried.forwarding.add([Received("traces", SECRET_TEXT.encode(), 4)])
        assert tried.state().dropped_requests == {"redaction": 1}
        assert tried.state().lost_items == 4
    assert upstream.read == []
    assert SECRET_TEXT not in caplog.text


def test_silent_name_server_does_not_delay_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, silent = threading.Event(), threading.Event()

    def getaddrinfo(*_: object, **__: object) -> Sequence[object]:
        asked.set()
        silent.wait(60)
        return []

    monkeypatch.setattr(sending, "DRAIN_S", 0.2)
    with forwarding_to(tmp_path, up("http://silent.invalid")) as tried:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        tried.forwarding.add([received(1)])
        assert asked.wait(60)
    senders = [thread for thread in threading.enumerate() if thread.name == "forwarding traces to up"]
    assert senders
    assert all(thread.daemon for thread in senders)
    silent.set()
