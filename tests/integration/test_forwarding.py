"""Everything that a sidecar acknowledges goes on to its destinations, whatever those do."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from telemetry.sidecar.forwarding.folders import FOLDER
from tests import asking
from tests.fixtures_forwarding import (
    UpstreamServer,
    dead_url,
    forwarding_sidecar,
    span_id,
    spans_request,
)
from tests.fixtures_sidecar import SidecarProcess
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.slow

PROTOBUF = {"content-type": "application/x-protobuf"}
SECRET_TEXT = "my card is 4111 1111 1111 1111"


@pytest.fixture
def upstream() -> Iterator[UpstreamServer]:
    with closing(UpstreamServer()) as server:
        yield server


def send(sidecar: SidecarProcess, body: bytes) -> None:
    answer = asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 200


def state(sidecar: SidecarProcess, name: str = "up") -> dict[str, Any]:
    return asking.get(f"{sidecar.http}/v1/state").json()["forwarding"][name]


def up(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "up", "url": url, "text": "redact", **more}


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.slow
def test_all_that_is_acknowledged_arrives(tmp_path: Path, upstream: UpstreamServer) -> None:
    with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar:
        for number in range(0, 100, 5):
            send(sidecar, spans_request(number, 5))
        wait_until(lambda: len(upstream.span_ids()) == 100)
        found = wait_until(lambda: (each := state(sidecar))["backlog_bytes"] == 0 and each)
        assert found["forwarded_requests"] == 20
        assert found["failure"] is None
        metrics = asking.get(f"{sidecar.http}/metrics").text
        assert 'voice_forward_requests_total{destination="up"} 20\n' in metrics
        assert 'voice_forward_up{destination="up"} 1\n' in metrics
        assert sidecar.terminate() == 0
    assert sorted(upstream.span_ids()) == [span_id(number) for number in range(100)]
    assert set(upstream.paths) == {"/v1/traces"}
    assert upstream.headers[0]["content-encoding"] == "gzip"
    assert list((tmp_path / "ingest").glob("*.log")) == []


@pytest.mark.slow
def test_the_end_sends_what_waits(tmp_path: Path, upstream: UpstreamServer) -> None:
    with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar:
        for number in range(50):
            send(sidecar, spans_request(number))
        assert sidecar.terminate() == 0
    assert sorted(upstream.span_ids()) == [span_id(number) for number in range(50)]


@pytest.mark.slow
def test_what_a_dead_destination_missed_comes_later(tmp_path: Path) -> None:
    url = dead_url()
    with forwarding_sidecar(tmp_path, [up(url)]) as sidecar:
        for number in range(20):
            send(sidecar, spans_request(number))
        found = wait_until(lambda: (each := state(sidecar))["failure"] and each)
        assert found["backlog_bytes"] > 0
        assert "Connection refused" in found["failure"]
        wait_until(lambda: "forward:up" in asking.get(f"{sidecar.http}/healthz").json()["faults"])
        assert asking.get(f"{sidecar.http}/readyz").status_code == 200
        assert 'voice_forward_up{destination="up"} 0\n' in asking.get(f"{sidecar.http}/metrics").text
        assert sidecar.terminate() == 0
    with closing(UpstreamServer(port=int(url.rpartition(":")[2]))) as back, forwarding_sidecar(tmp_path, [up(url)]):
        wait_until(lambda: len(back.span_ids()) >= 20)
        assert sorted(back.span_ids()) == [span_id(number) for number in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["store", "forwarder", "front"])
def test_kill_9_anywhere_loses_nothing_that_was_acknowledged(
    tmp_path: Path, upstream: UpstreamServer, victims: str
) -> None:
    acknowledged: list[str] = []
    number = 0
    for _ in range(3):
        with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar, httpx.Client(timeout=60) as client:
            for count in range(40):
                if count == 20:
                    kill(sidecar, victims)
                try:
                    answer = client.post(f"{sidecar.http}/v1/traces", content=spans_request(number), headers=PROTOBUF)
                except httpx.TransportError:
                    break
                finally:
                    number += 1
                if answer.status_code == 200:
                    acknowledged.append(span_id(number - 1))
            sidecar.kill()
    assert len(acknowledged) >= 60
    with forwarding_sidecar(tmp_path, [up(upstream.url)]):
        wait_until(lambda: set(upstream.span_ids()) >= set(acknowledged))


def kill(sidecar: SidecarProcess, which: str) -> None:
    if which == "front":
        sidecar.process.kill()
    elif which == "store":
        sidecar.store_process.kill()
    else:
        for process in wait_until(sidecar.store_process.children):
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_texts_never_reach_a_destination_that_redacts(tmp_path: Path, upstream: UpstreamServer, stored: bool) -> None:
    with forwarding_sidecar(tmp_path, [up(upstream.url)], keep_transcripts=stored) as sidecar:
        attributes = {"text_output": SECRET_TEXT, "gen_ai.request.model": "m", "count": 3}
        send(sidecar, spans_request(1, attributes=attributes))
        wait_until(upstream.span_ids)
        assert sidecar.terminate() == 0
    assert SECRET_TEXT.encode() not in b"".join(upstream.read)
    (span,) = upstream.spans()
    assert {entry.key for entry in span.attributes} == {"gen_ai.request.model", "count"}


@pytest.mark.slow
@pytest.mark.parametrize("queue", ["key_env", "in_memory"])
def test_kept_texts_arrive_and_stand_in_no_file(
    tmp_path: Path, upstream: UpstreamServer, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    monkeypatch.setenv("TEST_FORWARD_KEY", "ab" * 32)
    url = dead_url()
    kept = {"text": "keep", queue: "TEST_FORWARD_KEY" if queue == "key_env" else True}
    store, log = tmp_path / "store", tmp_path / "log"
    with forwarding_sidecar(store, [up(url, **kept)], log=log) as sidecar:
        send(sidecar, spans_request(1, attributes={"text_output": SECRET_TEXT}))
        wait_until(lambda: state(sidecar)["failure"] and state(sidecar)["backlog_bytes"])
        assert SECRET_TEXT.encode() not in all_bytes(store / FOLDER)
        with closing(UpstreamServer(port=int(url.rpartition(":")[2]))) as back:
            wait_until(back.span_ids)
            assert back.spans()[0].attributes[0].value.string_value == SECRET_TEXT
        assert sidecar.terminate() == 0
    assert SECRET_TEXT.encode() not in all_bytes(store)
    assert SECRET_TEXT not in log.read_text()


@pytest.mark.slow
def test_an_encrypted_queue_survives_and_wants_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FORWARD_KEY", "ab" * 32)
    url = dead_url()
    table = up(url, text="keep", key_env="TEST_FORWARD_KEY")
    store, log = tmp_path / "store", tmp_path / "log"
    with forwarding_sidecar(store, [table]) as sidecar:
        send(sidecar, spans_request(1, attributes={"text_output": SECRET_TEXT}))
        sidecar.kill()
    monkeypatch.setenv("TEST_FORWARD_KEY", "cd" * 32)
    with pytest.raises(AssertionError, match="ended with 2"), forwarding_sidecar(store, [table], log=log):
        pass
    assert "was encrypted with another key; give that key to the destination up" in log.read_text()
    monkeypatch.setenv("TEST_FORWARD_KEY", "ab" * 32)
    with closing(UpstreamServer(port=int(url.rpartition(":")[2]))) as back, forwarding_sidecar(store, [table]):
        wait_until(back.span_ids)
        assert back.spans()[0].attributes[0].value.string_value == SECRET_TEXT


@pytest.mark.slow
def test_secrets_stand_in_no_process_s_arguments_and_no_log(
    tmp_path: Path, upstream: UpstreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_AUTHORIZATION", "Bearer hush-hush")
    log = tmp_path / "log"
    table = up(upstream.url, headers_env={"authorization": "TEST_AUTHORIZATION"})
    with forwarding_sidecar(tmp_path / "store", [table], log=log) as sidecar:
        send(sidecar, spans_request(1))
        wait_until(upstream.span_ids)
        children = wait_until(sidecar.store_process.children)
        for pid in (sidecar.process.pid, sidecar.store_process.pid, *(child.pid for child in children)):
            assert b"hush" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert "hush" not in asking.get(f"{sidecar.http}/v1/state").text
        assert os.getpriority(os.PRIO_PROCESS, children[0].pid) >= 10
        assert sidecar.terminate() == 0
    assert upstream.headers[0]["authorization"] == "Bearer hush-hush"
    assert "hush" not in log.read_text()
    assert b"hush" not in all_bytes(tmp_path / "store")


@pytest.mark.slow
def test_a_new_destination_gets_what_comes_from_then_on(tmp_path: Path, upstream: UpstreamServer) -> None:
    with forwarding_sidecar(tmp_path, [up(dead_url())]) as sidecar:
        send(sidecar, spans_request(1))
        assert sidecar.terminate() == 0
    tables = [up(dead_url()), {**up(upstream.url), "name": "second"}]
    with forwarding_sidecar(tmp_path, tables) as sidecar:
        send(sidecar, spans_request(2))
        wait_until(upstream.span_ids)
        assert upstream.span_ids() == [span_id(2)]
        assert wait_until(lambda: state(sidecar)["backlog_bytes"])
