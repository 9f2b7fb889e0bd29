"""A sidecar keeps its store to a size, and says what it removed."""

import random
from pathlib import Path

import pytest

from telemetry.store.check import check
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.nightly

PROTOBUF = {"content-type": "application/x-protobuf"}


def test_the_oldest_turns_go_when_the_store_is_too_large(tmp_path: Path) -> None:
    noise = random.Random(1)
    with running_sidecar(tmp_path, "--keep-gib", "0.005") as sidecar:
        sent = 0

        def send_more() -> bool:
            nonlocal sent
            numbers = range(sent, sent + 1_000)
            turns = [client_turn(number, call_id=noise.randbytes(2_000).hex()) for number in numbers]
            body = turns_request(turns).SerializeToString()
            assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
            sent += len(turns)
            known = asking.post(f"{sidecar.http}/v1/query/turns", json={"limit": 1}).json()
            return known[0]["sequence"] > 0

        wait_until(send_more)
        assert sidecar.terminate() == 0
    removed = check(tmp_path).removed["turns"]
    with StoreReader(tmp_path) as reader:
        kept = sorted(turn.sequence for turn in reader.turns(limit=10**6))
    assert kept == [*range(sent - len(kept), sent)], "the oldest went, and none between"
    assert kept
    assert removed.rows == sent - len(kept) > 0
    assert removed.until_unix_ns == client_turn(kept[0] - 1).started_unix_ns
    assert removed.run_ids == ("run-1",)
