"""A sidecar that is asked to stop: not ready at once, requests finished, and everything acknowledged is stored."""

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from telemetry.model.turns import Turn
from tests.fixtures_sidecar import (
    SidecarProcess,
    disk_that_takes_nothing,
    running_sidecar,
    sidecar_command,
    stored_trace_ids,
    trace_id_of,
    turns_request,
)
from tests.fixtures_turns import client_turn
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}


class _Sender:
    """Sends turns over one connection, one request after another, until the sidecar takes no more."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        index = 0
        while self.send(client_turn(index, trace_id=trace_id_of(index, self.number))):
            self.acknowledged.append(trace_id_of(index, self.number))
            index += 1

    def send(self, turn: Turn) -> bool:
        """Whether it was acknowledged."""
        raise NotImplementedError


class _HttpSender(_Sender):
    def __init__(self, number: int, url: str) -> None:
        super().__init__(number)
        self._client = httpx.Client(base_url=url, timeout=60)

    def send(self, turn: Turn) -> bool:
        body = turns_request([turn]).SerializeToString()
        try:
            return self._client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        except httpx.TransportError:
            self._client.close()
            return False


class _GrpcSender(_Sender):
    def __init__(self, number: int, target: str) -> None:
        super().__init__(number)
        self._channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])

    def send(self, turn: Turn) -> bool:
        try:
            TraceServiceStub(self._channel).Export(turns_request([turn]), timeout=60)
        except grpc.RpcError:
            self._channel.close()
            return False
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_rows_acknowledged_under_load_are_stored(tmp_path: Path, number: signal.Signals) -> None:
    with running_sidecar(tmp_path) as sidecar:
        senders: list[_Sender] = [_HttpSender(1, sidecar.http), _HttpSender(2, sidecar.http)]
        senders += [_GrpcSender(3, sidecar.grpc), _GrpcSender(4, sidecar.grpc)]
        for sender in senders:
            sender.start()
        wait_until(lambda: all(len(sender.acknowledged) >= 5 for sender in senders))
        sidecar.process.send_signal(number)
        assert sidecar.process.wait(timeout=120) == 0
        for sender in senders:
            sender.join()
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


def _events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def _has_ended(sidecar: SidecarProcess, log: Path) -> bool:
    assert sidecar.process.poll() is None
    return any(line.get("event") == "fault_ended" for line in _events(log))


def test_its_life_is_a_log_of_events(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # Through a pipe: a disk that takes nothing would take no log, either.
    kept = subprocess.Popen(["tee", str(log)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert kept.stdin is not None
    with (
        kept,
        running_sidecar(tmp_path / "store", token="s3cret", stderr=kept.stdin.fileno()) as sidecar,
    ):
        headers = {"authorization": "Bearer s3cret"}
        with disk_that_takes_nothing(sidecar):
            body = turns_request([client_turn(1)]).SerializeToString()
            sent = httpx.post(f"{sidecar.http}/v1/traces", content=body, headers=headers | PROTOBUF, timeout=60)
            assert sent.status_code == 503
        wait_until(lambda: _has_ended(sidecar, log))
        question = httpx.post(f"{sidecar.http}/v1/query/no-such%0Aquestion", json={}, headers=headers, timeout=60)
        assert question.status_code in (400, 404)
        assert sidecar.terminate() == 0
        kept.stdin.close()
        kept.wait(60)
    lines = _events(log)
    assert [line["event"] for line in lines if "event" in line] == [
        *("ready", "fault_began", "fault_ended", "stopping", "stopped")
    ]
    assert all(line["process"] == "sidecar" and line["message"] for line in lines)
    assert "s3cret" not in log.read_text()


def test_invalid_command_line_is_answered_in_plain_sentences(tmp_path: Path) -> None:
    done = subprocess.run(
        sidecar_command(tmp_path, "--log-format", "xml", "--http-port", "x"),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [
        "--http-port is 'x'; give a whole number from 0 to 65535",
        "--log-format is 'xml'; give auto or json or text",
    ]
