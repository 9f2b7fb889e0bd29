"""A real sidecar over HTTP: every documented answer, both encodings, and what it shows."""

import contextlib
import gzip
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, sidecar_command, turns_json, turns_request
from tests.fixtures_turns import client_turn, exchange

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


@dataclass
class Running:
    sidecar: SidecarProcess
    store: Path
    client: httpx.Client

    def reader(self) -> StoreReader:
        """A reader that sees everything that was acknowledged."""
        return StoreReader(self.store)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("sidecar") / "store"
    with running_sidecar(store) as sidecar, httpx.Client(base_url=sidecar.http, timeout=120) as client:
        yield Running(sidecar, store, client)


def _turns(run_id: str, count: int = 3) -> list[object]:
    return [turn for index in range(count) for turn in exchange(index, run_id=run_id)]


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_turns_are_stored_before_they_are_acknowledged(running: Running, encoding: str, packing: str) -> None:
    turns = _turns(f"{encoding}-{packing}")
    body = turns_request(turns).SerializeToString() if encoding == "protobuf" else turns_json(turns)
    headers = dict(PROTOBUF if encoding == "protobuf" else JSON)
    if packing == "gzip":
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    answer = running.client.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == headers["content-type"]
    assert answer.content == (b"" if encoding == "protobuf" else b"{}")
    with running.reader() as reader:
        stored = [t for t in reader.turns(limit=10_000) if t.run_id == f"{encoding}-{packing}"]
        assert sorted(stored, key=lambda t: t.span_id) == sorted(turns, key=lambda t: t.span_id)
        assert [span.name for span in reader.spans(turns[0].trace_id)] == ["voice.turn"] * 6


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {**PROTOBUF, "content-encoding": "br"}])
def test_an_unknown_encoding_is_415(running: Running, headers: dict[str, str]) -> None:
    answer = running.client.post("/v1/traces", content=b"", headers=headers)
    assert answer.status_code == 415
    assert "send" in answer.text


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics"])
def test_undecodable_body_is_400_with_status_in_its_encoding(running: Running, path: str) -> None:
    answer = running.client.post(path, content=b"\xff\xff\xff", headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/x-protobuf")
    status = Status.FromString(answer.content)
    assert (status.code, "a protobuf" in status.message) == (3, True)
    answer = running.client.post(path, content=b"{", headers=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert answer.json()["code"] == 3
    for body in (b"[]", b'{"resourceSpans": 3, "resourceMetrics": 3}'):
        assert running.client.post(path, content=body, headers=JSON).status_code == 400


def test_too_much_is_413_also_when_it_is_only_so_unpacked(running: Running) -> None:
    before = running.client.get("/v1/state").json()["bad_requests"] + 2
    too_much = b"\0" * ((20 << 20) + 1)
    answer = running.client.post("/v1/traces", content=too_much, headers=PROTOBUF)
    assert (answer.status_code, Status.FromString(answer.content).code) == (413, 8)
    bomb = gzip.compress(b"\0" * (200 << 20), compresslevel=1)
    assert len(bomb) < 2 << 20
    answer = running.client.post("/v1/traces", content=bomb, headers={**JSON, "content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (413, 8)

    def unsized() -> Iterator[bytes]:
        for _ in range(21):
            yield b"\0" * (1 << 20)

    # The answer may come before everything was sent, and the end of the connection with it.
    with contextlib.suppress(httpx.WriteError, httpx.RemoteProtocolError):
        assert running.client.post("/v1/traces", content=unsized(), headers=PROTOBUF).status_code == 413
    assert running.client.get("/v1/state").json()["bad_requests"] > before


def test_an_undecodable_turn_is_refused_alone_and_reported(running: Running) -> None:
    request = turns_request(_turns("partial", 2))
    bad = request.resource_spans[0].scope_spans[0].spans[1]
    for pair in bad.attributes:
        if pair.key == "voice.turn.outcome":
            pair.value.string_value = "splendid"
    answer = running.client.post("/v1/traces", content=request.SerializeToString(), headers=PROTOBUF)
    output = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, output.rejected_spans) == (200, 1)
    assert "voice.turn.outcome" in output.error_message
    with running.reader() as reader:
        stored = [t.span_id for t in reader.turns(limit=10_000) if t.run_id == "partial"]
    assert len(stored) == 3
    assert bad.span_id.hex() not in stored


def test_a_batch_sent_twice_is_stored_once(running: Running) -> None:
    body = turns_request([client_turn(7, run_id="twice", trace_id="a" * 32)]).SerializeToString()
    before = running.client.get("/v1/state").json()["duplicates"]
    for _ in range(3):
        assert running.client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    with running.reader() as reader:
        assert sum(turn.run_id == "twice" for turn in reader.turns(limit=10_000)) == 1
    assert running.client.get("/v1/state").json()["duplicates"] == before + 4  # the turn and its span, twice


def test_state_counts_what_came_and_names_foreign_spans(running: Running) -> None:
    request = turns_request([client_turn(1, run_id="foreign", trace_id="d" * 32)])
    request.resource_spans[0].scope_spans[0].spans[0].name = "agent_turn"
    before = running.client.get("/v1/state").json()
    running.client.post("/v1/traces", content=request.SerializeToString(), headers=PROTOBUF)
    state = running.client.get("/v1/state").json()
    assert (
        state["unmapped_spans"]["voiceprobe/agent_turn"] == before["unmapped_spans"].get("voiceprobe/agent_turn", 0) + 1
    )
    shown = 'voice_service_unmapped_spans_total{span="voiceprobe/agent_turn"} '
    assert shown in running.client.get("/metrics").text
    assert state["received"] == before["received"] + 1
    assert state["stored_spans"] == before["stored_spans"] + 1
    assert state["last_receive_unix_ns"] > 0


def test_health(running: Running) -> None:
    answer = running.client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"alive": True, "faults": {}})
    answer = running.client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": []})


def test_a_token_guards_everything_but_health(tmp_path: Path) -> None:
    with running_sidecar(tmp_path, "--host", "0.0.0.0", token="s3cret") as sidecar:
        url = sidecar.http.replace("0.0.0.0", "127.0.0.1")
        body = turns_request([client_turn()]).SerializeToString()
        assert [asking.get(f"{url}{page}").status_code for page in ("/healthz", "/readyz")] == [200, 200]
        for headers in (
            PROTOBUF,
            {**PROTOBUF, "authorization": "Bearer wrong"},
            {**PROTOBUF, "authorization": "Basic s"},
        ):
            answer = asking.post(f"{url}/v1/traces", content=body, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert [asking.get(f"{url}{page}").status_code for page in ("/metrics", "/v1/state")] == [401, 401]
        right = {"authorization": "Bearer s3cret"}
        assert asking.post(f"{url}/v1/traces", content=body, headers={**PROTOBUF, **right}).status_code == 200
        assert asking.get(f"{url}/v1/state", headers=right).json()["stored_turns"] == 1


def _refused(store: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(sidecar_command(store, *arguments), capture_output=True, text=True, timeout=180, check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_invalid_settings_are_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    code, output = _refused(tmp_path / "a", "--host", "0.0.0.0")
    assert (code, "add a token with --token-file" in output) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, output = _refused(tmp_path / "b", "--http-port", port, "--grpc-port", "0")
        assert (code, f"127.0.0.1:{port}" in output) == (2, True)
        code, output = _refused(tmp_path / "c", "--http-port", "0", "--grpc-port", port)
        assert (code, f"127.0.0.1:{port}" in output) == (2, True)
    (tmp_path / "file").write_text("no directory")
    code, output = _refused(tmp_path / "file", "--http-port", "0", "--grpc-port", "0")
    assert (code, "cannot be used as a store" in output) == (2, True)
    code, output = _refused(tmp_path / "d", "--slo", str(tmp_path / "missing.yaml"))
    assert (code, "missing.yaml" in output) == (2, True)


@pytest.mark.nightly
def test_a_second_sidecar_on_the_same_store_is_refused(running: Running) -> None:
    code, output = _refused(running.store, "--http-port", "0", "--grpc-port", "0")
    assert (code, f"the store is in use by process {running.sidecar.process.pid}" in output) == (2, True)


def test_help_gives_an_example() -> None:
    done = subprocess.run(
        [*sidecar_command(Path("x"))[:3], "--help"], capture_output=True, text=True, timeout=180, check=True
    )
    assert "Example:" in done.stdout
