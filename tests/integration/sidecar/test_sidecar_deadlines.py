"""Connections that stall, trickle, flood or hold back what they announced: none stays, and none hinders the others."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from telemetry.sidecar.otlp.receive_slots import SLOTS
from tests import asking
from tests.benchmarks.peak_memory import peak_rss_bytes_of
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar.raw_clients import (
    GRPC_OPENED,
    GRPC_PREFACE,
    GrpcSender,
    connections,
    grpc_call,
    http2_frame,
    http_request,
    is_open,
    open_descriptors,
    send_evenly,
    wait_until_closed,
)
from tests.integration.waiting import wait_until
from tests.nightly import nightly_after

SHORT = ("--header-timeout", "1", "--body-timeout", "1.5", "--idle-timeout", "1")
BODY_BYTES = 19 << 20
REQUEST = turns_request([client_turn()])


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with running_sidecar(tmp_path_factory.mktemp("deadlines"), *SHORT) as running:
        yield running


def stores_over_http(sidecar: SidecarProcess) -> bool:
    """Send as exporters do: again after a 503, and where this process itself paused for longer than the deadlines."""
    wait_until(lambda: _is_posted(sidecar))
    return True


def _is_posted(sidecar: SidecarProcess) -> bool:
    headers = {"content-type": "application/x-protobuf"}
    try:
        answer = asking.post(f"{sidecar.http}/v1/traces", content=REQUEST.SerializeToString(), headers=headers)
    except httpx.RemoteProtocolError:
        return False
    assert answer.status_code in (200, 408, 503), answer.text
    return answer.status_code == 200


def stores_over_grpc(sidecar: SidecarProcess) -> bool:
    """Export as OTLP senders do: what is refused with a delay for the next attempt is sent again; nothing else is."""
    with grpc.insecure_channel(sidecar.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        wait_until(lambda: _is_exported(TraceServiceStub(channel)))
    return True


def _is_exported(service: TraceServiceStub) -> bool:
    try:
        service.Export(REQUEST, timeout=60, wait_for_ready=True)
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ())
        if error.code() is not grpc.StatusCode.UNAVAILABLE or "grpc-status-details-bin" not in details:
            raise
        return False
    return True


HTTP_STALLS = {
    "nothing is sent": (b"", b""),
    "a header trickles": (b"POST /v1/traces HTTP/1.1\r\nx: ", b"a"),
    "a header stops": (b"POST /v1/traces HTTP/1.1\r\nx: ", b""),
    "a body trickles": (http_request(content_length="1000000"), b"a"),
    "a body stops": (http_request(b"half", content_length="1000000"), b""),
    "a chunked body trickles": (
        b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        b"1\r\na\r\n",
    ),
    "the body of a refused request trickles": (http_request(content_length="1000", content_type="text/plain"), b"a"),
    "the body of an unknown path trickles": (
        b"POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n",
        b"a",
    ),
    "no second request comes": (b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n", b""),
    "a second header trickles": (b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /healthz HTTP/1.1\r\nx: ", b"a"),
    "100-continue is not followed": (http_request(content_length="1000", expect="100-continue"), b""),
}


@pytest.mark.parametrize("stall", nightly_after(2, HTTP_STALLS))
def test_no_slow_loris_stays(sidecar: SidecarProcess, stall: str) -> None:
    first, trickle = HTTP_STALLS[stall]
    with connections(sidecar.http, 200, first) as opened:
        assert stores_over_http(sidecar)
        print(f"{stall}: 200 of 200 closed after {wait_until_closed(opened, lambda: trickle):.1f} s")
        assert stores_over_http(sidecar)


CALL = GRPC_OPENED + grpc_call()
GRPC_STALLS = {
    "nothing is sent": b"",
    "half a preface": GRPC_PREFACE[:9],
    "a preface without settings": GRPC_PREFACE,
    "no call": GRPC_OPENED,
    "half a header": GRPC_OPENED + grpc_call()[:30],
    "a header without its end": GRPC_OPENED + http2_frame(1, 0, 1, b"\x83"),
    "a call without a message": CALL,
    "half a message": CALL + http2_frame(0, 0, 1, b"\0\0\1\0\0" + bytes(1000)),
    "no gRPC": b"GET / HTTP/1.1\r\n",
}


@pytest.mark.parametrize("stall", nightly_after(2, GRPC_STALLS))
def test_no_half_open_grpc_connection_stays(sidecar: SidecarProcess, stall: str) -> None:
    with connections(sidecar.grpc, 300, GRPC_STALLS[stall]) as opened:
        assert stores_over_grpc(sidecar)
        assert stores_over_http(sidecar)
        print(f"{stall}: 300 of 300 closed after {wait_until_closed(opened):.1f} s")
        assert stores_over_grpc(sidecar)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SidecarProcess, int]]:
    """A sidecar of few connections, and the descriptors that it has without any."""
    with running_sidecar(tmp_path_factory.mktemp("few"), "--max-connections", "20") as sidecar:
        yield sidecar, open_descriptors(sidecar.process.pid)


@pytest.mark.parametrize("receiver", ["http", "grpc"])
def test_idle_connections_above_limit_block_no_request(few: tuple[SidecarProcess, int], receiver: str) -> None:
    sidecar, before = few
    with connections(getattr(sidecar, receiver), 200) as opened:
        wait_until(lambda: sum(is_open(connection) for connection in opened) <= 20)
        assert stores_over_http(sidecar)
        assert open_descriptors(sidecar.process.pid) <= before + 25
        if receiver == "http":
            assert stores_over_grpc(sidecar)
    assert stores_over_grpc(sidecar)


def test_requests_above_connection_limit_are_answered_503(few: tuple[SidecarProcess, int]) -> None:
    sidecar, before = few
    wait_until(lambda: open_descriptors(sidecar.process.pid) < before + 15, what="an end of the connections before")
    with connections(sidecar.http, 20, http_request(content_length="1000", expect="100-continue")) as opened:
        for connection in opened:
            connection.setblocking(True)
            assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # its body is waited for
        with connections(sidecar.http, 1) as (refused,):
            refused.setblocking(True)
            refused.settimeout(60)
            answer = refused.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        assert stores_over_grpc(sidecar)
    assert stores_over_http(sidecar)


@pytest.mark.nightly
def test_a_small_limit_of_descriptors_is_never_reached(tmp_path: Path) -> None:
    with running_sidecar(tmp_path, descriptors=300) as sidecar:
        with connections(sidecar.http, 400) as of_http, connections(sidecar.grpc, 400) as of_grpc:
            wait_until(lambda: sum(map(is_open, of_http)) <= 75 and sum(map(is_open, of_grpc)) <= 75)
            assert open_descriptors(sidecar.process.pid) < 250
            assert stores_over_http(sidecar)
        assert stores_over_grpc(sidecar)


@pytest.mark.nightly
def test_half_sent_http_bodies_are_bounded_in_memory(tmp_path: Path) -> None:
    # Nobody runs out of time here, however slow the machine is: all that may be held back is held back.
    with running_sidecar(tmp_path, "--body-timeout", "90") as sidecar:
        assert stores_over_http(sidecar)
        before = peak_rss_bytes_of(sidecar.process.pid)
        with connections(sidecar.http, 100, http_request(content_length=str(BODY_BYTES))) as opened:
            accepted = send_evenly(opened, bytes(BODY_BYTES - 1), at_least=(128 << 20) + 1)
            grown = peak_rss_bytes_of(sidecar.process.pid) - before
            print(f"{accepted >> 20} MiB accepted on 100 connections: {grown >> 20} MiB of memory")
            assert accepted > 128 << 20
            assert grown < 256 << 20
        assert stores_over_http(sidecar)
        state = asking.get(f"{sidecar.http}/v1/state").json()
        assert state["refused_requests"] > 0


@pytest.mark.nightly
def test_half_sent_grpc_messages_are_bounded_in_memory(tmp_path: Path) -> None:
    # Nobody runs out of time here, however slow the machine is: all that may be held back is held back.
    with running_sidecar(tmp_path, "--body-timeout", "90") as sidecar:
        assert stores_over_grpc(sidecar)
        before = peak_rss_bytes_of(sidecar.process.pid)
        with connections(sidecar.grpc, 100) as opened:
            senders = [GrpcSender(connection, BODY_BYTES) for connection in opened[:SLOTS]]
            wait_until(lambda: _have_sent_all_but_the_end(senders))
            senders += [GrpcSender(connection, BODY_BYTES) for connection in opened[SLOTS:]]
            for _ in range(20):
                while sum(sender.step(BODY_BYTES - 1 - sender.accepted) for sender in senders):
                    pass
            grown = peak_rss_bytes_of(sidecar.process.pid) - before
            accepted = sum(sender.accepted for sender in senders)
            print(f"{accepted >> 20} MiB accepted on 100 connections: {grown >> 20} MiB of memory")
            assert accepted >= SLOTS * (BODY_BYTES - 1)
            assert grown < 256 << 20
            assert stores_over_grpc(sidecar)


def _have_sent_all_but_the_end(senders: list[GrpcSender]) -> bool:
    while sum(sender.step(BODY_BYTES - 1 - sender.accepted) for sender in senders):
        pass
    assert not any(sender.closed for sender in senders)
    return all(sender.accepted == BODY_BYTES - 1 for sender in senders)
