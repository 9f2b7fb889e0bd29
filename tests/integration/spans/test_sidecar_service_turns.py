"""Turns of somebody else's service through a real sidecar: each once, in any order and sent twice."""

import random
from pathlib import Path

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
