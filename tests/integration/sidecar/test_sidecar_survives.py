"""Turns that the sidecar acknowledged are in the store after kill -9, each once."""

import threading
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

from telemetry.model import semconv
from telemetry.model.turn_spans import turn_attributes
from telemetry.store.database import OWNER_NAME
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import disk_that_takes_nothing, running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar import kills
from tests.integration.waiting import wait_until
from tests.nightly import nightly_after

PROTOBUF = {"content-type": "application/x-protobuf"}


class _Stream:
    """Sends turns one request after another until the sidecar is gone; knows what was acknowledged."""

    def __init__(self, url: str, sender: int, first: int) -> None:
        self.acknowledged: list[str] = []
        self.unsure: list[str] = []
        self.next = first
        self._url, self._sender = url, sender
        self.enough = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while True:
                turn = client_turn(self.next, trace_id=f"{self._sender:016x}{self.next + 1:016x}")
                self.next += 1
                body = turns_request([turn]).SerializeToString()
                try:
                    answer = client.post(f"{self._url}/v1/traces", content=body, headers=PROTOBUF)
                except httpx.TransportError:
                    self.unsure.append(turn.trace_id)
                    self.enough.set()
                    return
                assert answer.status_code == 200
                self.acknowledged.append(turn.trace_id)
                if len(self.acknowledged) >= 8:
                    self.enough.set()


@pytest.mark.nightly
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    sent: set[str] = set()
    first = 0
    for _ in range(4):
        with running_sidecar(tmp_path) as sidecar:
            streams = [_Stream(sidecar.http, sender, first) for sender in (1, 2, 3, 4)]
            for stream in streams:
                stream.thread.start()
            for stream in streams:
                assert stream.enough.wait(60)
            # While every sender has a request under way.
            sidecar.kill()
            for stream in streams:
                stream.thread.join(60)
                acknowledged += stream.acknowledged
                sent |= {*stream.acknowledged, *stream.unsure}
            first = max(stream.next for stream in streams)
        # Nobody owns the store now; the file that says where its owner was is still there.
        assert (tmp_path / OWNER_NAME).exists()
        stored = [turn.trace_id for turn in StoreReader(tmp_path).turns(limit=10_000)]
        assert len(stored) == len(set(stored)), "a turn is there twice"
        assert set(acknowledged) <= set(stored)
        assert set(stored) <= sent


def test_a_disk_that_takes_nothing_is_on_the_pages_until_it_does(tmp_path: Path) -> None:
    with running_sidecar(tmp_path) as sidecar, httpx.Client(base_url=sidecar.http, timeout=60) as client:
        bodies = [turns_request([client_turn(index)]).SerializeToString() for index in range(3)]
        assert client.post("/v1/traces", content=bodies[0], headers=PROTOBUF).status_code == 200
        with disk_that_takes_nothing(sidecar):
            refused = client.post("/v1/traces", content=bodies[1], headers=PROTOBUF)
            assert (refused.status_code, b"nothing of this batch could be stored" in refused.content) == (503, True)
            assert 0 < int(refused.headers["retry-after"]) <= 2
            ready, health = client.get("/readyz"), client.get("/healthz")
            assert (ready.status_code, health.status_code) == (503, 200)
            assert "could be stored" in ready.json()["reasons"][0]
            assert "could be stored" in health.json()["faults"]["commit"]
            assert client.post("/v1/traces", content=b"\xff", headers=PROTOBUF).status_code == 400
            assert len(StoreReader(tmp_path).turns()) == 1, "what is stored can be asked for"
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/healthz").json()["faults"] == {}
        assert client.post("/v1/traces", content=bodies[1], headers=PROTOBUF).status_code == 200
        assert sidecar.terminate() == 0
    assert len(StoreReader(tmp_path).turns()) == 2


def test_rows_retried_after_restart_are_stored_once(tmp_path: Path) -> None:
    body = turns_request([client_turn(1), client_turn(2)]).SerializeToString()
    with running_sidecar(tmp_path) as sidecar:
        asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF)
        sidecar.kill()
    with running_sidecar(tmp_path) as sidecar:
        answer = asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF)
        assert answer.status_code == 200
        assert asking.get(f"{sidecar.http}/v1/state").json()["duplicates"] == 4
    with StoreReader(tmp_path) as reader:
        assert len(reader.turns()) == 2


@pytest.mark.parametrize("ending", nightly_after(1, ["terminate", "kill"]))
def test_a_real_exporter_s_stream_survives(tmp_path: Path, ending: str) -> None:
    class Recording(OTLPSpanExporter):
        def export(self, spans):
            result = super().export(spans)
            if result is SpanExportResult.SUCCESS:
                acknowledged.extend(f"{span.context.span_id:016x}" for span in spans)
            return result

    acknowledged: list[str] = []
    with running_sidecar(tmp_path) as sidecar:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(Recording(f"{sidecar.http}/v1/traces", timeout=60)))
        tracer = provider.get_tracer(semconv.SCOPE)
        for index in range(20):
            tracer.start_span(semconv.SPAN_TURN, attributes=turn_attributes(client_turn(index))).end()
        getattr(sidecar, ending)()
        provider.shutdown()
    with StoreReader(tmp_path) as reader:
        assert sorted(turn.span_id for turn in reader.turns()) == sorted(acknowledged)
    assert len(acknowledged) == 20


def test_acknowledged_rows_survive_repeated_kills_exactly_once(tmp_path: Path) -> None:
    ledger = kills.kill_again_and_again(tmp_path, times=10)
    assert ledger.sent_again > 0
    assert len(ledger.acknowledged) >= 5
    assert kills.faults(tmp_path, ledger) == []


def test_a_lost_and_a_doubled_span_would_be_found(tmp_path: Path) -> None:
    ledger = kills.kill_again_and_again(tmp_path, times=0)
    with running_sidecar(tmp_path) as sidecar:
        part = ledger.next_part(only_waiting=False)
        assert part is not None
        lost, kept = part[0], part[1:]
        answer = asking.post(f"{sidecar.http}/v1/traces", content=kills.body_of(kept), headers=PROTOBUF)
        assert answer.status_code == 200
        ledger.answered(part, acknowledged=True)
        assert sidecar.terminate() == 0
    assert kills.faults(tmp_path, ledger) == sorted(
        f"{kind} {lost.key} was acknowledged and is lost" for kind in ("span", "turn")
    )
