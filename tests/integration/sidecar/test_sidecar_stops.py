"""A sidecar that is asked to stop: not ready at once, requests finished, and everything acknowledged is stored."""

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from telemetry.model.turns import Turn
from tests.fixtures_sidecar import (
    running_sidecar,
    stored_trace_ids,
    trace_id_of,
    turns_request,
)
from tests.fixtures_turns import client_turn
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}


class _Sender:
    """Sends turns one after another until the sidecar takes no more; `send` says whether one was acknowledged."""

    def __init__(self, number: int, send: Callable[[Turn], bool]) -> None:
        self.acknowledged: list[str] = []
        self._number, self._send = number, send
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        index = 0
        while self._send(client_turn(index, trace_id=trace_id_of(index, self._number))):
            self.acknowledged.append(trace_id_of(index, self._number))
            index += 1


def _over_http(client: httpx.Client, turn: Turn) -> bool:
    body = turns_request([turn]).SerializeToString()
    try:
        return client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    except httpx.TransportError:
        return False


def _over_grpc(channel: grpc.Channel, turn: Turn) -> bool:
    try:
        TraceServiceStub(channel).Export(turns_request([turn]), timeout=60)
    except grpc.RpcError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_rows_acknowledged_under_load_are_stored(tmp_path: Path, number: signal.Signals) -> None:
    with running_sidecar(tmp_path) as sidecar, ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=sidecar.http, timeout=60)) for _ in range(2)]
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [stack.enter_context(grpc.insecure_channel(sidecar.grpc, options)) for _ in range(2)]
        sends = [partial(_over_http, client) for client in clients]
        sends += [partial(_over_grpc, channel) for channel in channels]
        senders = [_Sender(place, send) for place, send in enumerate(sends, start=1)]
        for sender in senders:
            sender.thread.start()
        wait_until(lambda: all(len(sender.acknowledged) >= 5 for sender in senders))
        sidecar.process.send_signal(number)
        assert sidecar.process.wait(timeout=120) == 0
        for sender in senders:
            sender.thread.join(120)
            assert not sender.thread.is_alive()
    stored = stored_trace_ids(tmp_path)
    assert len(stored) == len(set(stored))
    assert {turn for sender in senders for turn in sender.acknowledged} <= set(stored)


def test_draining_sidecar_takes_requests_until_second_signal(tmp_path: Path) -> None:
    turn = client_turn(1)
    body = turns_request([turn]).SerializeToString()
    with running_sidecar(tmp_path, "--drain-time", "600") as sidecar, httpx.Client(timeout=60) as client:
        assert client.get(f"{sidecar.http}/readyz").status_code == 200
        sidecar.process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get(f"{sidecar.http}/readyz").status_code == 503)
        answer = client.get(f"{sidecar.http}/readyz").json()
        assert answer == {"ready": False, "reasons": ["the sidecar is stopping"]}
        assert client.get(f"{sidecar.http}/healthz").json()["alive"] is True
        assert client.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        assert sidecar.terminate() == 0
    assert stored_trace_ids(tmp_path) == [turn.trace_id]
