"""A dashboard and a report look at a store through its sidecar, with the token, from anywhere."""

import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from rich.console import Console
from streamlit.testing.v1 import AppTest

from dashboard.launch import APP
from dashboard.source import ENV_SLO, ENV_STORE
from loadtest.run.report import ReportFiles, report
from telemetry.model.errors import StoreError
from telemetry.model.semconv import SIDECAR_TOKEN_VARIABLE
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.reader import RemoteStore, StoreReader
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_request
from tests.fixtures_turns import client_turn, fill_store, synthetic_run
from tests.integration.sidecar.raw_clients import AskedSidecar

TOKEN = "a-token-for-this-test"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_store(tmp_path_factory.mktemp("queries") / "store", synthetic_run("run-1", turns=150))


@pytest.fixture(scope="module")
def sidecar(store: Path) -> Iterator[SidecarProcess]:
    with running_sidecar(store, token=TOKEN) as running:
        yield running


def post(sidecar: SidecarProcess, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    parts = urlsplit(sidecar.http)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", path, body, sent)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_sidecar_is_one_process_without_pandas(running: AskedSidecar) -> None:
    """pyarrow imports it with the first value that it converts; nothing in it uses it."""
    turn = client_turn(trace_id="e" * 32)
    body = turns_request([turn]).SerializeToString()
    assert post(running.sidecar, "/v1/traces", body, Content_Type="application/x-protobuf")[0] == 200
    with RemoteStore(running.sidecar.http, None) as there:
        assert there.turn(turn.trace_id, turn.turn_index)[0] == turn
    process = psutil.Process(running.sidecar.process.pid)
    loaded = {Path(memory_map.path).parts for memory_map in process.memory_maps()}
    assert process.children() == []
    assert any("pyarrow" in parts for parts in loaded)
    assert not any("pandas" in parts for parts in loaded)


def test_the_answers_are_those_of_the_folder(sidecar: SidecarProcess, store: Path) -> None:
    f = Filter(run_id="run-1", cohort="streaming")
    objectives = default_objectives()
    with StoreReader(store) as here, RemoteStore(sidecar.http, TOKEN) as there:
        assert there.state() == here.state()
        assert there.runs() == here.runs()
        assert there.summary(f) == here.summary(f)
        assert there.objective_counts(f, objectives) == here.objective_counts(f, objectives)
        (turn,) = here.slowest(f, limit=1)
        assert there.slowest(f, limit=1) == [turn]
        assert there.turn(turn.trace_id, turn.turn_index) == here.turn(turn.trace_id, turn.turn_index)
        assert there.spans(turn.trace_id) == here.spans(turn.trace_id)
        assert there.page(PageQuestion(f)).summary == here.page(PageQuestion(f)).summary


@pytest.mark.parametrize(("token", "why"), [("wrong", "the token is not its own"), (None, "it asks for a token")])
def test_query_without_token_is_refused(sidecar: SidecarProcess, token: str | None, why: str) -> None:
    with pytest.raises(StoreError) as caught:
        RemoteStore(sidecar.http, token).runs()
    assert why in str(caught.value)
    assert SIDECAR_TOKEN_VARIABLE in str(caught.value)
    assert token is None or token not in str(caught.value)


def test_hostile_requests_are_refused_and_the_next_is_answered(sidecar: SidecarProcess) -> None:
    assert post(sidecar, "/v1/query/summary", b"[" * 900_000)[0] == 400
    assert post(sidecar, "/v1/query/summary", b" " * ((1 << 20) + 1))[0] == 413
    assert post(sidecar, "/v1/query/summary", b"{}", Content_Type="text/plain")[0] == 415
    assert post(sidecar, "/v1/query/secrets", b"{}")[0] == 400
    assert post(sidecar, "/v1/query", b'[{"name": "secrets"}]')[0] == 400
    assert post(sidecar, "/v1/query", b" " * ((1 << 20) + 1))[0] == 413
    assert post(sidecar, "/v1/query", b'[{"name": "runs"}]', Authorization="Bearer x")[0] == 401
    assert post(sidecar, "/v1/query/../state", b"{}")[0] in (404, 405)
    assert post(sidecar, "/v1/query/runs", b"", Authorization="Bearer x")[0] == 401
    assert RemoteStore(sidecar.http, TOKEN).runs()[0].run_id == "run-1"


def test_more_questions_than_can_wait_are_refused_for_now(sidecar: SidecarProcess) -> None:
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(post, sidecar, "/v1/query/summary", b"{}") for _ in range(40)]
        codes = [request.result()[0] for request in asked]
    assert set(codes) <= {200, 503}
    assert codes.count(200) >= 8
    assert RemoteStore(sidecar.http, TOKEN).state() > 0


def test_the_page_is_drawn_over_the_network(sidecar: SidecarProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_STORE, sidecar.http)
    monkeypatch.setenv(SIDECAR_TOKEN_VARIABLE, TOKEN)
    monkeypatch.delenv(ENV_SLO, raising=False)
    seen = AppTest.from_file(str(APP), default_timeout=180).run()
    assert not seen.exception
    text = "".join(str(getattr(element, "body", "")) for element in seen.get("html"))
    assert "run-1" in text


def test_a_report_over_the_network_is_that_of_the_folder(
    sidecar: SidecarProcess, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SIDECAR_TOKEN_VARIABLE, TOKEN)
    console = Console(quiet=True)
    files = [tmp_path / "here.json", tmp_path / "there.json"]
    codes = [
        report(where, console, files=ReportFiles(json=file))
        for where, file in zip((store, sidecar.http), files, strict=True)
    ]
    assert codes[0] == codes[1]
    here, there = (file.read_text().replace(str(store), sidecar.http) for file in files)
    assert here == there


def test_server_that_is_no_sidecar_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def old() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nNot Found")

        threading.Thread(target=old, daemon=True).start()
        with pytest.raises(StoreError, match="of an older version, or something else"):
            RemoteStore(f"http://127.0.0.1:{port}", None).runs()
        # It accepts and never answers.
        with pytest.raises(StoreError, match="no answer within 0 s"):
            RemoteStore(f"http://127.0.0.1:{port}", None, timeout_s=0.2).runs()
    with pytest.raises(StoreError, match="no sidecar answers there"):
        RemoteStore(f"http://127.0.0.1:{port}", None).runs()


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://user:pass@host", "http://host:port", "folder"])
def test_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="is not the address of a sidecar"):
        RemoteStore(address, None)
