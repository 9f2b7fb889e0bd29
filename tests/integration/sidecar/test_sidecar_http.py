"""A real sidecar over HTTP: every documented answer, both encodings, and what it shows."""

import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from typer.testing import CliRunner

from telemetry.sidecar.app import app
from tests import asking
from tests.fixtures_sidecar import running_sidecar, turns_json, turns_request
from tests.fixtures_turns import client_turn, exchange
from tests.integration.sidecar.raw_clients import AskedSidecar

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def _turns(run_id: str, count: int = 3) -> list[object]:
    return [turn for index in range(count) for turn in exchange(index, run_id=run_id)]


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_turns_are_stored_before_they_are_acknowledged(running: AskedSidecar, encoding: str, packing: str) -> None:
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


UNKNOWN_ENCODINGS = ("br", "gzip, br", "gzip, gzip, gzip, gzip", "none")


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-type": "text/plain"}, *({**PROTOBUF, "content-encoding": name} for name in UNKNOWN_ENCODINGS)],
)
def test_an_unknown_encoding_is_415(running: AskedSidecar, headers: dict[str, str]) -> None:
    answer = running.client.post("/v1/traces", content=b"", headers=headers)
    assert answer.status_code == 415
    message = Status.FromString(answer.content).message if headers.get("content-encoding") else answer.json()["message"]
    assert ("zstd" if headers.get("content-encoding") else "send") in message


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics"])
def test_undecodable_body_is_400_with_status_in_its_encoding(running: AskedSidecar, path: str) -> None:
    answer = running.client.post(path, content=b"\xff\xff\xff", headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/x-protobuf")
    status = Status.FromString(answer.content)
    assert (status.code, "a protobuf" in status.message) == (3, True)
    answer = running.client.post(path, content=b"{", headers=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert answer.json()["code"] == 3
    for body in (b"[]", b'{"resourceSpans": 3, "resourceMetrics": 3}'):
        assert running.client.post(path, content=body, headers=JSON).status_code == 400


def test_too_much_is_413_also_when_it_is_only_so_unpacked(running: AskedSidecar) -> None:
    before = running.state("bad_requests") + 2
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
    assert running.state("bad_requests") > before


def test_an_undecodable_turn_is_refused_alone_and_reported(running: AskedSidecar) -> None:
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


def test_a_batch_sent_twice_is_stored_once(running: AskedSidecar) -> None:
    body = turns_request([client_turn(7, run_id="twice", trace_id="a" * 32)]).SerializeToString()
    before = running.state("duplicates")
    for _ in range(3):
        assert running.client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
    with running.reader() as reader:
        assert sum(turn.run_id == "twice" for turn in reader.turns(limit=10_000)) == 1
    assert running.state("duplicates") == before + 4  # the turn and its span, twice


def test_state_counts_what_came_and_names_foreign_spans(running: AskedSidecar) -> None:
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


def test_health(running: AskedSidecar) -> None:
    answer = running.client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"alive": True, "faults": {}})
    answer = running.client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": []})


def test_a_token_guards_everything_but_health(tmp_path: Path) -> None:
    request, right = turns_request([client_turn()]), {"authorization": "Bearer s3cret"}
    with running_sidecar(tmp_path, "--host", "0.0.0.0", token="s3cret") as sidecar:
        url = sidecar.http.replace("0.0.0.0", "127.0.0.1")
        body = request.SerializeToString()
        assert [asking.get(f"{url}{page}").status_code for page in ("/healthz", "/readyz")] == [200, 200]
        for headers in (
            PROTOBUF,
            {**PROTOBUF, "authorization": "Bearer wrong"},
            {**PROTOBUF, "authorization": "Basic s"},
        ):
            answer = asking.post(f"{url}/v1/traces", content=body, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert [asking.get(f"{url}{page}").status_code for page in ("/metrics", "/v1/state")] == [401, 401]
        assert asking.post(f"{url}/v1/traces", content=body, headers={**PROTOBUF, **right}).status_code == 200
        assert asking.get(f"{url}/v1/state", headers=right).json()["stored_turns"] == 1
        with grpc.insecure_channel(sidecar.grpc.replace("0.0.0.0", "127.0.0.1")) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                TraceServiceStub(channel).Export(request, timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert TraceServiceStub(channel).Export(request, timeout=60, metadata=tuple(right.items())).ByteSize() == 0


def test_settings_that_cannot_be_used_are_sentences(running: AskedSidecar, tmp_path: Path) -> None:
    """In this process: the command ends before it serves, as in test_sidecar_hosts.py, where it has its own process."""
    (tmp_path / "file").write_text("no directory")
    unused = str(tmp_path / "unused")
    for arguments, *sentences in (
        (("--store", str(tmp_path / "file")), "cannot be used as a store"),
        (("--store", str(running.store)), f"the store is in use by process {running.sidecar.process.pid}"),
        (("--store", unused, "--slo", str(tmp_path / "missing.yaml")), "missing.yaml"),
        (
            ("--store", unused, "--log-format", "xml", "--http-port", "x"),
            "--http-port is 'x'; give a whole number from 0 to 65535",
            "--log-format is 'xml'; give auto or json or text",
        ),
    ):
        done = CliRunner().invoke(app, ["--http-port", "0", "--grpc-port", "0", *arguments])
        assert (done.exit_code, done.stdout) == (2, "")
        lines = done.stderr.splitlines()
        assert len(lines) == 2 * len(sentences) - 1, "a line that says where, if there are several"
        for line, sentence in zip(lines[-len(sentences) :], sentences, strict=True):
            assert sentence in line


def test_help_gives_an_example() -> None:
    assert "Example:" in CliRunner().invoke(app, ["--help"]).stdout
