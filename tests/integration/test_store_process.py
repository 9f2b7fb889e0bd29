"""The store process of a real sidecar: killed, hung, flooded and left alone; what was acknowledged is stored, once."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from telemetry.sidecar.messages import StoreOptions
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.backlog import Overloaded
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.sidecar.otlp.suspects import ENDINGS_MAX
from telemetry.sidecar.store_link import HANGS_AFTER_S, StoreLink
from tests import asking
from tests.fixtures_sidecar import ROOT, SidecarProcess, running_sidecar, stored_trace_ids, trace_id_of, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.waiting import wait_until, wait_until_released, wait_until_visible

pytestmark = pytest.mark.slow

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}

# Ends or stops the store process when it decodes a body that says so. There is a full disk while there is a file
# `full`, nothing is committed while there is `uncommitted`, and no store process begins while there is `held`;
# it is killed when it would publish a commit and there is a file `kill`.
_SABOTAGE = """
import os, sys, time

def _act(body):
    if b"deadly" in body:
        os._exit(77)
    if b"endless" in body:
        time.sleep(3600)

_fdatasync = os.fdatasync

def _is_there(name):
    return os.path.exists(os.path.join(os.path.dirname(__file__), name))

def _full(file):
    if _is_there("full"):
        raise OSError(28, os.strerror(28))
    _fdatasync(file)

if "telemetry.sidecar.store_process" in " ".join(sys.orig_argv):
    while _is_there("held"):
        time.sleep(0.01)
    os.fdatasync = _full
    from telemetry.sidecar.store_process import commits, groups

    _commit = commits.Committer._commit

    def _commit_later(self, taken):
        while _is_there("uncommitted"):
            time.sleep(0.01)
        _commit(self, taken)

    commits.Committer._commit = _commit_later

    def _sabotaged(decode):
        def decode_bodies(bodies, redactor):
            for body in bodies:
                _act(body)
            return decode(bodies, redactor)
        return decode_bodies

    for form, decode in groups._DECODERS.items():
        groups._DECODERS[form] = _sabotaged(decode)

    from telemetry.store import manifest

    def _killed_once(publish):
        def publish_or_die(directory, found, **named):
            mark = os.path.join(os.path.dirname(__file__), "kill")
            if os.path.exists(mark) and found.segments:
                os.unlink(mark)
                os.kill(os.getpid(), 9)
            publish(directory, found, **named)
        return publish_or_die

    manifest.publish = _killed_once(manifest.publish)
"""


@pytest.fixture
def sabotage(tmp_path: Path) -> Path:
    """A folder that makes the store process obey certain bodies."""
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SABOTAGE)
    return folder


def _body(index: int, service: str = "voiceprobe", sender: int = 0) -> bytes:
    turn = client_turn(index, trace_id=f"{sender + 1:016x}{index + 1:016x}")
    return turns_request([turn], service).SerializeToString()


def _is_ready(sidecar: SidecarProcess) -> bool:
    return asking.get(f"{sidecar.http}/readyz").status_code == 200


def _state_if_ready(sidecar: SidecarProcess) -> dict[str, Any]:
    state = asking.get(f"{sidecar.http}/v1/state")
    return state.json() if state.status_code == 200 and _is_ready(sidecar) else {}


class _Senders:
    """Threads that send turns one request after another, each again until it is taken; they know what was."""

    def __init__(self, url: str, count: int) -> None:
        self.acknowledged: list[str] = []
        self.codes: list[int] = []
        self._url = url
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(sender,)) for sender in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self, sender: int) -> None:
        with httpx.Client(timeout=60) as client:
            for index in range(1_000_000):
                body, code = _body(index, sender=sender), 0
                while code != 200 and not self._enough.is_set():
                    code = client.post(f"{self._url}/v1/traces", content=body, headers=PROTOBUF).status_code
                    self.codes.append(code)
                    if code != 200:
                        time.sleep(0.02)
                if code == 200:
                    self.acknowledged.append(trace_id_of(index, sender))
                if self._enough.is_set():
                    return


@pytest.mark.slow
def test_a_sidecar_that_is_stopped_has_nothing_to_say(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running_sidecar(tmp_path, "--log-level", "warning") as sidecar:
        assert asking.post(f"{sidecar.http}/v1/traces", content=_body(1), headers=PROTOBUF).status_code == 200
        assert sidecar.terminate() == 0
    assert capfd.readouterr().err == ""
    assert stored_trace_ids(tmp_path) == [trace_id_of(1)]


def test_kill_9_of_the_store_process_under_load_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    chance = random.Random(1)
    with running_sidecar(tmp_path) as sidecar:
        senders = _Senders(sidecar.http, 4)
        for _ in range(4):
            enough = len(senders.acknowledged) + chance.randrange(20, 120)
            wait_until(lambda enough=enough: len(senders.acknowledged) >= enough)
            victim = sidecar.store_process
            victim.send_signal(signal.SIGKILL)
            wait_until(lambda victim=victim: not _runs(victim))
            health = asking.get(f"{sidecar.http}/healthz")
            assert health.status_code == 200
            wait_until(lambda: _is_ready(sidecar))
        senders.stop()
        assert set(senders.codes) <= {200, 503}
        # The front may notice the end of the last one only now.
        state = wait_until(lambda: _state_if_ready(sidecar))
        assert state["store_process_restarts"] == 4
        assert sidecar.terminate() == 0
    stored = stored_trace_ids(tmp_path)
    assert len(stored) == len(set(stored)), "a turn is there twice"
    assert set(senders.acknowledged) <= set(stored)


def _runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_while_the_store_process_starts_again_senders_are_sent_back_and_the_pages_say_so(
    tmp_path: Path, sabotage: Path
) -> None:
    store = tmp_path / "store"
    with running_sidecar(store, before=sabotage) as sidecar:
        url = sidecar.http
        assert asking.post(f"{url}/v1/traces", content=_body(1), headers=PROTOBUF).status_code == 200
        wait_until_visible(url)  # a commit that is cut off leaves a file for the quarantine, which is a fault
        (sabotage / "held").touch()  # its successor begins only when everything here was asked
        sidecar.store_process.send_signal(signal.SIGKILL)
        waits = wait_until(lambda: next((a for a in [asking.get(f"{url}/readyz")] if a.status_code == 503), None))
        assert "starting again" in waits.json()["reasons"][0]
        sent = asking.post(f"{url}/v1/traces", content=_body(2), headers=PROTOBUF)
        page = asking.get(f"{url}/v1/state")
        health = asking.get(f"{url}/healthz")
        assert (sent.status_code, page.status_code, health.status_code) == (503, 503, 200)
        assert 0 < int(sent.headers["retry-after"]) <= 2
        assert "starting again" in health.json()["faults"]["store_process"]
        (sabotage / "held").unlink()
        wait_until(lambda: _is_ready(sidecar))
        assert asking.get(f"{url}/healthz").json()["faults"] == {}
        assert asking.post(f"{url}/v1/traces", content=_body(2), headers=PROTOBUF).status_code == 200
        assert sidecar.terminate() == 0
    assert sorted(stored_trace_ids(store)) == [trace_id_of(1), trace_id_of(2)]


@pytest.mark.slow
def test_a_sidecar_is_stopped_while_its_store_process_starts_again(tmp_path: Path) -> None:
    with running_sidecar(tmp_path) as sidecar:
        assert asking.post(f"{sidecar.http}/v1/traces", content=_body(1), headers=PROTOBUF).status_code == 200
        store_process = sidecar.store_process
        store_process.terminate()  # as a service manager stops all processes of a service
        wait_until(lambda: not _runs(store_process))
        assert sidecar.terminate() == 0
    assert stored_trace_ids(tmp_path) == [trace_id_of(1)]


@pytest.mark.slow
def test_a_front_that_is_killed_leaves_a_store_with_everything_and_without_an_owner(tmp_path: Path) -> None:
    with running_sidecar(tmp_path) as sidecar:
        store_process = sidecar.store_process
        for index in range(5):
            assert asking.post(f"{sidecar.http}/v1/traces", content=_body(index), headers=PROTOBUF).status_code == 200
        sidecar.kill()
        wait_until(lambda: not _runs(store_process))
    wait_until_released(tmp_path)
    assert sorted(stored_trace_ids(tmp_path)) == [trace_id_of(index) for index in range(5)]
    assert list((tmp_path / "ingest").glob("*.log")) == [], "what is committed needs no log"


def test_what_both_processes_left_in_the_log_is_there_after_the_next_start(tmp_path: Path, sabotage: Path) -> None:
    store = tmp_path / "store"
    (sabotage / "uncommitted").touch()
    with running_sidecar(store, before=sabotage) as sidecar:
        store_process = sidecar.store_process
        for index in range(20):
            assert asking.post(f"{sidecar.http}/v1/traces", content=_body(index), headers=PROTOBUF).status_code == 200
        store_process.send_signal(signal.SIGKILL)
        sidecar.kill()
        wait_until(lambda: not _runs(store_process))
    assert stored_trace_ids(store) == [], "only the log has something to give"
    with running_sidecar(store):
        assert sorted(stored_trace_ids(store)) == [trace_id_of(index) for index in range(20)], "ready means visible"


def test_a_body_that_ends_the_store_process_is_refused_and_harms_nobody(tmp_path: Path, sabotage: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store, before=sabotage) as sidecar, httpx.Client(base_url=sidecar.http, timeout=60) as client:
        for _ in range(ENDINGS_MAX):
            assert client.post("/v1/traces", content=_body(1, "deadly"), headers=PROTOBUF).status_code == 503
            wait_until(lambda: _is_ready(sidecar))
        refused = client.post("/v1/traces", content=_body(1, "deadly"), headers=PROTOBUF)
        assert refused.status_code == 400
        assert b"not tried again" in refused.content
        assert client.post("/v1/traces", content=_body(2), headers=PROTOBUF).status_code == 200
        assert client.get("/v1/state").json()["store_process_restarts"] == ENDINGS_MAX
        assert sidecar.terminate() == 0
    assert stored_trace_ids(store) == [trace_id_of(2)]


@pytest.mark.slow
def test_kill_9_within_a_commit_leaves_nothing_to_be_mended(tmp_path: Path, sabotage: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store, before=sabotage) as sidecar, httpx.Client(base_url=sidecar.http, timeout=30) as client:
        (sabotage / "kill").touch()
        victim = sidecar.store_process
        assert client.post("/v1/traces", content=_body(1), headers=PROTOBUF).status_code == 200
        wait_until(lambda: not _runs(victim))
        wait_until(lambda: _is_ready(sidecar))
        assert not (sabotage / "kill").exists()
        wait_until_visible(sidecar.http)
        wait_until(lambda: client.get("/healthz").json()["faults"] == {})
        assert list((store / "quarantine").iterdir()) == []  # it was moved there, and then found to be in the store
        assert sidecar.terminate() == 0
    assert stored_trace_ids(store) == [trace_id_of(1)]


@pytest.mark.slow
def test_a_full_disk_refuses_senders_and_is_on_the_pages_until_there_is_room(tmp_path: Path, sabotage: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store, before=sabotage) as sidecar, httpx.Client(base_url=sidecar.http, timeout=60) as client:
        assert client.post("/v1/traces", content=_body(1), headers=PROTOBUF).status_code == 200
        (sabotage / "full").touch()
        refused = client.post("/v1/traces", content=_body(2), headers=PROTOBUF)
        assert (refused.status_code, b"the disk is full" in refused.content) == (503, True)
        assert 0 < int(refused.headers["retry-after"]) <= 2
        ready, health = client.get("/readyz"), client.get("/healthz")
        assert (ready.status_code, health.status_code) == (503, 200)
        assert "the disk is full" in ready.json()["reasons"][0]
        assert "the disk is full" in health.json()["faults"]["ingest_log"]
        (sabotage / "full").unlink()
        wait_until(lambda: _is_ready(sidecar))
        assert client.post("/v1/traces", content=_body(2), headers=PROTOBUF).status_code == 200
        assert client.get("/healthz").json()["faults"] == {}
        assert sidecar.terminate() == 0
    assert sorted(stored_trace_ids(store)) == [trace_id_of(1), trace_id_of(2)]


@contextmanager
def _sabotaged(sabotage: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{sabotage}:{ROOT}")
        yield


def test_a_body_that_hangs_the_store_process_does_so_a_few_times_only(
    tmp_path: Path, sabotage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        link = StoreLink(StoreOptions(str(tmp_path / "store")))
        ingest = Ingest(link.send)
        await link.start(ingest)
        try:
            for _ in range(ENDINGS_MAX):
                taking = asyncio.create_task(ingest.take("traces", "protobuf", _body(1, "endless")))
                while not ingest._begun:  # noqa: ASYNC110 - a slow start is no hanging
                    await asyncio.sleep(0.01)
                link._hangs_after_s = 0.2
                with pytest.raises(Overloaded, match="send it again"):
                    await taking
                link._hangs_after_s = HANGS_AFTER_S
                while link.faults:  # noqa: ASYNC110 - the link is asked as a page asks it
                    await asyncio.sleep(0.01)
            with pytest.raises(OtlpDecodeError, match="not tried again"):
                await ingest.take("traces", "protobuf", _body(1, "endless"))
            assert (await ingest.take("traces", "protobuf", _body(2))).rejected == 0
            assert link.restarts == ENDINGS_MAX
        finally:
            await link.stop()

    with _sabotaged(sabotage, monkeypatch):
        asyncio.run(test())
    assert stored_trace_ids(tmp_path / "store") == [trace_id_of(2)]
