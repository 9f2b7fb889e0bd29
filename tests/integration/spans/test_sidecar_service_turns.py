"""Turns of somebody else's service through a real sidecar: each once, in any order, sent twice, and after kill -9."""

import random
import threading
from pathlib import Path

import httpx
import pytest

from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_frameworks import PipecatTurn, pipecat_request
from tests.fixtures_sidecar import running_sidecar
from tests.integration.waiting import wait_until

REPORTED_SERIES = "voice_service_turn_voice_to_voice_seconds_count"
PROTOBUF = {"content-type": "application/x-protobuf"}


def stored(store: Path) -> list[tuple[str, str]]:
    with StoreReader(store) as reader:
        return [(turn.trace_id, turn.span_id) for turn in reader.turns(limit=100_000, source="service")]


def page(sidecar_url: str) -> str:
    return asking.get(f"{sidecar_url}/metrics").text


def test_spans_in_any_order_and_sent_twice_become_each_turn_once(tmp_path: Path) -> None:
    turns = [PipecatTurn(call, index) for call in range(10) for index in range(3)]
    spans = [span for turn in turns for span in turn.spans()] * 2
    random.Random(7).shuffle(spans)
    with running_sidecar(tmp_path) as sidecar:
        for first in range(0, len(spans), 17):
            body = pipecat_request(spans[first : first + 17])
            assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        state = asking.get(f"{sidecar.http}/v1/state").json()
        assert (state["stored_spans"], state["duplicates"]) == (len(spans) // 2, len(spans) // 2)
        shown = f'{REPORTED_SERIES}{{service_name="bot"}} {len(turns)}'
        wait_until(lambda: shown in page(sidecar.http))
        assert sidecar.terminate() == 0
    assert sorted(stored(tmp_path)) == sorted((turn.trace, turn.span) for turn in turns)


class _Service:
    """Sends its turns, a request for each span, until the sidecar is gone; knows which were acknowledged whole."""

    def __init__(self, url: str, call: int, first: int) -> None:
        self.acknowledged: list[tuple[str, str]] = []
        self.unsure: list[tuple[str, str]] = []
        self.next = first
        self.enough = threading.Event()
        self._url, self._call = url, call
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while self._send(client, PipecatTurn(self._call, self.next)):
                self.next += 1
                if len(self.acknowledged) >= 5:
                    self.enough.set()
        self.next += 1
        self.enough.set()

    def _send(self, client: httpx.Client, turn: PipecatTurn) -> bool:
        for span in turn.spans():
            try:
                answer = client.post(f"{self._url}/v1/traces", content=pipecat_request([span]), headers=PROTOBUF)
            except httpx.TransportError:
                answer = None
            if answer is None:  # the sidecar is gone
                self.unsure.append((turn.trace, turn.span))
                return False
            assert answer.status_code == 200
        self.acknowledged.append((turn.trace, turn.span))
        return True


@pytest.mark.nightly
def test_kill_9_loses_no_turn_and_doubles_none(tmp_path: Path) -> None:
    acknowledged: list[tuple[str, str]] = []
    sent: set[tuple[str, str]] = set()
    first = 0
    for _ in range(3):
        with running_sidecar(tmp_path) as sidecar:
            services = [_Service(sidecar.http, call, first) for call in range(4)]
            for service in services:
                service.thread.start()
            for service in services:
                assert service.enough.wait(60)
            # While every service has a request under way, and its turns are open or just derived.
            sidecar.kill()
            for service in services:
                service.thread.join(60)
                acknowledged += service.acknowledged
                sent |= {*service.acknowledged, *service.unsure}
            first = max(service.next for service in services)
    with running_sidecar(tmp_path) as sidecar:
        assert sidecar.terminate() == 0
    keys = stored(tmp_path)
    assert len(keys) == len(set(keys)), "a turn is there twice"
    assert set(acknowledged) <= set(keys), "a turn is lost"
    assert set(keys) <= sent
