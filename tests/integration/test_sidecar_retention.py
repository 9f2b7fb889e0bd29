"""A sidecar keeps its store to a size, and says what it removed."""

from pathlib import Path
from statistics import fmean

import pytest

from telemetry.store.check import check
from telemetry.store.manifest import load
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.mark.slow
def test_the_oldest_turns_go_when_the_store_is_too_large(tmp_path: Path) -> None:
    with running_sidecar(tmp_path, "--keep-gib", "0.001") as sidecar:
        sent = 0

        def send_more() -> bool:
            nonlocal sent
            turns = [client_turn(sent + index, call_id=f"call-{sent + index}" * 20) for index in range(400)]
            body = turns_request(turns).SerializeToString()
            assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
            sent += len(turns)
            return "turns" in load(tmp_path).removed

        wait_until(send_more)
        assert sidecar.terminate() == 0
    removed = load(tmp_path).removed
    with StoreReader(tmp_path) as reader:
        kept = sorted(turn.sequence for turn in reader.turns(limit=10**6))
        assert reader.faults == ()
    gone = sorted(set(range(sent)) - set(kept))
    assert len(kept) == len(set(kept))
    assert len(gone) == removed["turns"].rows
    # Whole segments go, the one whose newest turn was stored first: a turn that was merged with later ones may outlive
    # some that came after it.
    assert fmean(gone) < fmean(kept)
    assert kept[-1] == sent - 1
    assert removed["turns"].until_unix_ns == client_turn(gone[-1]).started_unix_ns
    assert check(tmp_path).removed == removed
