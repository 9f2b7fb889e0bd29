"""Turns that the sidecar acknowledged are in the store after kill -9 and on a full disk, each once."""

import json
import random
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from telemetry.store.database import OWNER_NAME
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import disk_that_takes_nothing, running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar import kills
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}
SERVING, NOT_SERVING, UNKNOWN = b"\x08\1", b"\x08\2", b"\x08\3"


@contextmanager
def logged(log: Path) -> Generator[int]:
    """Where messages go that arrive in a file through a pipe: a disk that takes nothing would take no log, either."""
    kept = subprocess.Popen(["tee", str(log)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert kept.stdin is not None
    with kept:
        yield kept.stdin.fileno()
        kept.stdin.close()
        kept.wait(60)


def events(log: Path) -> list[str]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(line["process"] == "sidecar" and line["message"] for line in lines)
    return [line["event"] for line in lines if "event" in line]


def test_a_full_disk_is_in_pages_health_and_log_until_it_is_over(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    headers = {"authorization": "Bearer s3cret", **PROTOBUF}
    bodies = [turns_request([client_turn(index)]).SerializeToString() for index in range(2)]
    with (
        logged(log) as stderr,
        running_sidecar(store, token="s3cret", stderr=stderr) as sidecar,
        httpx.Client(base_url=sidecar.http, timeout=60, headers=headers) as client,
        grpc.insecure_channel(sidecar.grpc) as channel,
    ):
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        assert client.post("/v1/traces", content=bodies[0]).status_code == 200
        answers, unknown = watch(b"", timeout=300), watch(b"\x0a\1x", timeout=300)
        assert (check(b"", timeout=60), next(answers), next(unknown)) == (SERVING, SERVING, UNKNOWN)
        with pytest.raises(grpc.RpcError) as refused:
            check(b"\x0a\1x", timeout=60)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        with disk_that_takes_nothing(sidecar):
            answer = client.post("/v1/traces", content=bodies[1])
            assert (answer.status_code, b"nothing of this batch could be stored" in answer.content) == (503, True)
            assert 0 < int(answer.headers["retry-after"]) <= 2
            ready, health = client.get("/readyz"), client.get("/healthz")
            assert (ready.status_code, health.status_code) == (503, 200)
            assert "could be stored" in ready.json()["reasons"][0]
            assert "could be stored" in health.json()["faults"]["commit"]
            assert (next(answers), check(b"", timeout=60)) == (NOT_SERVING, NOT_SERVING)
            assert client.post("/v1/traces", content=b"\xff").status_code == 400
            assert len(StoreReader(store).turns()) == 1, "what is stored can be asked for"
        assert next(answers) == SERVING
        wait_until(lambda: client.get("/readyz").status_code == 200 and "fault_ended" in events(log))
        assert client.get("/healthz").json()["faults"] == {}
        assert client.post("/v1/traces", content=bodies[1]).status_code == 200
        json_headers = {"content-type": "application/json"}
        assert client.post("/v1/query/no-such%0Aquestion", json={}, headers=json_headers).status_code in (400, 404)
        assert sidecar.terminate() == 0
        assert list(answers) == [NOT_SERVING], "the call ends with the sidecar, and says so"
    assert len(StoreReader(store).turns()) == 2
    assert events(log) == ["ready", "fault_began", "fault_ended", "stopping", "stopped"]
    assert "s3cret" not in log.read_text()


def test_acknowledged_rows_survive_repeated_kills_exactly_once(tmp_path: Path) -> None:
    ledger = kills.kill_again_and_again(tmp_path, times=10)
    assert ledger.sent_again > 0
    assert len(ledger.acknowledged) >= 5
    assert kills.faults(tmp_path, ledger) == []


def test_a_lost_span_would_be_found_after_a_kill(tmp_path: Path) -> None:
    ledger = kills.Ledger(random.Random(1))
    part = ledger.next_part(only_waiting=False)
    assert part is not None
    lost, kept = part[0], part[1:]
    with running_sidecar(tmp_path) as sidecar:
        answer = asking.post(f"{sidecar.http}/v1/traces", content=kills.body_of(kept), headers=PROTOBUF)
        assert answer.status_code == 200
        ledger.answered(part, acknowledged=True)
        sidecar.kill()
    # Nobody owns the store now, the file that says where its owner was is still there, and it can be read.
    assert (tmp_path / OWNER_NAME).exists()
    assert len(StoreReader(tmp_path).turns()) == sum(span.is_turn for span in kept)
    assert kills.faults(tmp_path, ledger) == sorted(
        f"{kind} {lost.key} was acknowledged and is lost" for kind in ("span", "turn")
    )
