"""The sidecar over TLS, with the clients that people have: curl, openssl, the real exporters; and with hostile ones."""

import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from typer.testing import CliRunner

from loadtest.errors import UsageError
from loadtest.run import processes
from loadtest.run.sidecars import Sidecar, named_sidecar, start_sidecar
from telemetry.export.encoded_spans import EncodedRequest
from telemetry.export.otlp_http import OtlpHttpExporter
from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.sidecar.app import app
from telemetry.store.reader import RemoteStore, StoreReader
from tests.fixtures_sidecar import ROOT, SidecarProcess, running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.certificates import Authority, Signed, authority
from tests.integration.prometheus.prometheus_process import running_prometheus
from tests.integration.sidecar.raw_clients import address, connections, is_open, wait_until_closed
from tests.integration.sidecar.test_sidecar_grpc import export_turn
from tests.integration.waiting import wait_until
from tests.nightly import nightly_after
from tests.programs import needed

PROTOBUF = {"content-type": "application/x-protobuf"}
BODY = turns_request([client_turn()]).SerializeToString()


class Peers:
    """A server's certificate and a client's, each of an authority of its own, and a client's that nobody trusts."""

    def __init__(self, folder: Path) -> None:
        self.ca: Authority = authority(folder / "servers", "servers")
        self.server: Signed = self.ca.sign("localhost")
        self.client_ca: Authority = authority(folder / "clients", "clients")
        self.client: Signed = self.client_ca.sign("sender")
        self.stranger: Signed = self.ca.sign("stranger")

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--tls-cert", str(self.server.cert), "--tls-key", str(self.server.key))

    @property
    def mutual(self) -> tuple[str, ...]:
        return (*self.flags, "--tls-client-ca", str(self.client_ca.cert))


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return Peers(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def sidecar(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    short = ("--header-timeout", "1", "--body-timeout", "1.5", "--idle-timeout", "2", "--max-connections", "300")
    with running_sidecar(tmp_path_factory.mktemp("tls"), *peers.flags, *short, token="s3cret") as running:
        yield running


def _port(where: str) -> str:
    return where.rpartition(":")[2]


def _client(sidecar: SidecarProcess, peers: Peers, certificate: Signed | None = None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(peers.ca.cert))
    if certificate is not None:
        context.load_cert_chain(certificate.cert, certificate.key)
    return httpx.Client(base_url=f"https://localhost:{_port(sidecar.http)}", verify=context, timeout=60)


def test_ready_line_says_https_and_plain_request_gets_no_answer(sidecar: SidecarProcess) -> None:
    assert sidecar.http.startswith("https://127.0.0.1:")
    with pytest.raises(httpx.TransportError):
        httpx.get(sidecar.http.replace("https", "http") + "/healthz", timeout=60)


def test_curl_speaks_http_1_over_tls_with_the_token(sidecar: SidecarProcess, peers: Peers) -> None:
    def curl(*arguments: str) -> str:
        url = f"https://localhost:{_port(sidecar.http)}{arguments[0]}"
        command = [needed("curl"), "-sS", "--max-time", "60", "--cacert", str(peers.ca.cert), url, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    status = ("-o", os.devnull, "-w", "%{http_code} %{http_version} %{ssl_verify_result}")
    assert curl("/readyz", *status) == "200 1.1 0"
    assert curl("/metrics", *status) == "401 1.1 0"
    bearer = ("-H", "authorization: Bearer s3cret")
    assert "voice_" in curl("/metrics", *bearer)


@pytest.mark.parametrize(("version", "accepted"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
@pytest.mark.parametrize("receiver", ["http", "grpc"])
def test_both_ports_take_tls_1_2_and_newer_only(
    sidecar: SidecarProcess, peers: Peers, receiver: str, version: str, accepted: bool
) -> None:
    where = f"127.0.0.1:{_port(getattr(sidecar, receiver))}"
    # At its own security level openssl would not even offer the old version.
    offered = ["-cipher", "DEFAULT@SECLEVEL=0", "-alpn", "h2,http/1.1", "-servername", "localhost"]
    command = [needed("openssl"), "s_client", "-connect", where, version, *offered, "-CAfile", str(peers.ca.cert)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert (b"Verify return code: 0 (ok)" in done.stdout and b"Cipher is (NONE)" not in done.stdout) is accepted
    if accepted:
        protocol = b"http/1.1" if receiver == "http" else b"h2"
        assert b"ALPN protocol: " + protocol in done.stdout


def test_real_exporters_work_over_tls_with_client_certificates(
    tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # requests, in the exporter over HTTP, prefers these to the file that the exporter is given.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with running_sidecar(tmp_path, *peers.mutual, "--host", "0.0.0.0") as sidecar:
        credentials = grpc.ssl_channel_credentials(
            peers.ca.cert.read_bytes(), peers.client.key.read_bytes(), peers.client.cert.read_bytes()
        )
        endpoint = f"https://localhost:{_port(sidecar.grpc)}"
        export_turn(GrpcSpanExporter(endpoint=endpoint, credentials=credentials), 1)
        http = HttpSpanExporter(
            f"https://localhost:{_port(sidecar.http)}/v1/traces",
            certificate_file=str(peers.ca.cert),
            client_certificate_file=str(peers.client.cert),
            client_key_file=str(peers.client.key),
        )
        export_turn(http, 2)
        assert sidecar.terminate() == 0
    with StoreReader(tmp_path) as store:
        assert [turn.sequence for turn in store.turns(limit=10)] == [1, 2]


def test_only_health_is_served_without_client_certificate(tmp_path: Path, peers: Peers) -> None:
    with running_sidecar(tmp_path, *peers.mutual, token="s3cret") as sidecar:
        right = {"authorization": "Bearer s3cret"}
        with _client(sidecar, peers) as without:
            assert [without.get(page).status_code for page in ("/healthz", "/readyz")] == [200, 200]
            answers = [without.get(page, headers=right) for page in ("/metrics", "/v1/state")]
            answers.append(without.post("/v1/traces", content=BODY, headers={**PROTOBUF, **right}))
            answers.append(without.post("/v1/query/runs", json={}, headers=right))
            assert [answer.status_code for answer in answers] == [403] * 4
            assert all("a client certificate is required" in answer.text for answer in answers)
        with _client(sidecar, peers, peers.client) as known:
            assert known.get("/v1/state").status_code == 401, "a certificate does not replace the token"
            assert known.get("/v1/state", headers=right).status_code == 200
            assert known.post("/v1/traces", content=BODY, headers={**PROTOBUF, **right}).status_code == 200
        with _client(sidecar, peers, peers.stranger) as stranger, pytest.raises(httpx.TransportError):
            stranger.get("/healthz")
        target = f"localhost:{_port(sidecar.grpc)}"
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(peers.ca.cert.read_bytes())) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                TraceServiceStub(channel).Export(turns_request([client_turn(2)]), timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def _hello() -> bytes:
    """Return the first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


STALLS = {"nothing is sent": b"", "half a hello": b"\x16\x03\x01\x02\x00\x01", "a hello": _hello(), "no TLS": b"GET / "}


@pytest.mark.parametrize("receiver", ["http", "grpc"])
@pytest.mark.parametrize("stall", nightly_after(1, STALLS))
def test_no_handshake_that_stalls_stays(sidecar: SidecarProcess, peers: Peers, receiver: str, stall: str) -> None:
    with connections(getattr(sidecar, receiver), 200, STALLS[stall]) as opened:
        with _client(sidecar, peers) as client:
            assert client.get("/readyz").status_code == 200
        print(f"{stall}: 200 of 200 closed after {wait_until_closed(opened):.1f} s")


@pytest.mark.nightly
def test_handshakes_count_as_connections(tmp_path: Path, peers: Peers) -> None:
    # None ends by its deadline here.
    limits = ("--max-connections", "20", "--header-timeout", "600")
    with (
        running_sidecar(tmp_path, *peers.flags, *limits) as sidecar,
        connections(sidecar.http, 100, STALLS["a hello"]) as opened,
        _client(sidecar, peers) as client,
    ):
        wait_until(lambda: sum(map(is_open, opened)) <= 20)
        assert client.get("/readyz").status_code == 200


def test_a_header_that_trickles_over_tls_is_not_waited_for(sidecar: SidecarProcess, peers: Peers) -> None:
    context = ssl.create_default_context(cafile=str(peers.ca.cert))
    with (
        socket.create_connection(address(sidecar.http), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        secured.sendall(b"POST /v1/traces HTTP/1.1\r\nx: ")
        assert secured.recv(100) == b""


def test_a_large_body_arrives_over_tls(sidecar: SidecarProcess, peers: Peers) -> None:
    turns = [client_turn(number) for number in range(7000)]
    body = turns_request(turns).SerializeToString()
    assert len(body) > 4 << 20
    with _client(sidecar, peers) as client:
        headers = {**PROTOBUF, "authorization": "Bearer s3cret"}
        # Where this process itself paused for longer than the deadlines, it sends again as exporters do.
        wait_until(lambda: client.post("/v1/traces", content=body, headers=headers).status_code == 200)


def test_files_that_cannot_be_used_are_a_sentence_each(tmp_path: Path, peers: Peers) -> None:
    encrypted = peers.ca.sign("encrypted", passphrase="open-sesame")
    open_key = tmp_path / "open.key"
    open_key.write_bytes(peers.server.key.read_bytes())
    open_key.chmod(0o644)
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("nothing")
    for cert, key, client_ca, sentences in (
        (peers.server.cert, open_key, None, [f"tls_key: {open_key} is open to other users (mode 0644)"]),
        (peers.server.cert, peers.client.key, None, ["does not belong to the certificate"]),
        (encrypted.cert, encrypted.key, None, ["is encrypted; give a key without a passphrase"]),
        (no_pem, peers.server.key, no_pem, ["give a certificate and its key", "give the certificates of CAs"]),
        (tmp_path / "none", peers.server.key, tmp_path / "no", ["no such file", "no such file"]),
    ):
        flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
        flags += [] if client_ca is None else ["--tls-client-ca", str(client_ca)]
        # In this process: the command ends before it serves, as in test_sidecar_http.py, where it has its own process.
        done = CliRunner().invoke(app, ["--store", str(tmp_path / "store"), *flags])
        assert (done.exit_code, done.stdout) == (2, "")
        lines = done.stderr.splitlines()[-len(sentences) :]
        for line, sentence in zip(lines, sentences, strict=True):
            assert sentence in line, done.stderr


@pytest.mark.nightly
def test_prometheus_scrapes_over_tls_with_token_as_documented(tmp_path: Path, peers: Peers) -> None:
    page = (ROOT / "docs" / "how-to" / "production.md").read_text()
    (job,) = yaml.safe_load(page.partition('title="prometheus.yml"\n')[2].partition("```")[0])["scrape_configs"]
    (target,) = job["static_configs"]
    assert target["targets"][0].endswith(":4318")
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    job["authorization"]["credentials_file"] = str(token)
    job["tls_config"]["ca_file"] = str(peers.ca.cert)
    with running_sidecar(tmp_path / "store", *peers.flags, "--token-file", str(token)) as sidecar:
        address_of = f"localhost:{_port(sidecar.http)}"
        with running_prometheus(tmp_path, [address_of], job=job) as prometheus:
            (up,) = prometheus.until(lambda: prometheus.query("up == 1"), "a scrape")
            assert up["metric"]["instance"] == address_of


def test_our_own_senders_and_readers_come_in_over_tls(
    tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_sidecar(tmp_path, *peers.mutual, token="s3cret") as sidecar:
        url = f"https://localhost:{_port(sidecar.http)}"
        monkeypatch.setenv(semconv.SIDECAR_CA_VARIABLE, str(peers.ca.cert))
        record = EncodedRequest("traces", 1, BODY)
        assert OtlpHttpExporter(url, "s3cret").send(record).outcome == "failed"
        with pytest.raises(UsageError, match="refuses: a client certificate is required; set VOICEPROBE_SIDECAR_TOKEN"):
            named_sidecar(url)
        monkeypatch.setenv(semconv.SIDECAR_CLIENT_CERT_VARIABLE, str(peers.client.cert))
        monkeypatch.setenv(semconv.SIDECAR_CLIENT_KEY_VARIABLE, str(peers.client.key))
        with pytest.raises(UsageError, match="refuses: a valid bearer token is required"):
            named_sidecar(url)
        monkeypatch.setenv(semconv.SIDECAR_TOKEN_VARIABLE, "s3cret")
        assert OtlpHttpExporter(url, "s3cret").send(record).outcome == "taken"
        assert named_sidecar(url) == Sidecar(url, tmp_path)
        remote = RemoteStore(url, "s3cret")
        wait_until(lambda: len(remote.turns()) == 1)
        monkeypatch.setenv(semconv.SIDECAR_CA_VARIABLE, str(peers.client_ca.cert))
        with pytest.raises(StoreError, match="no secure connection"):
            RemoteStore(url, "s3cret").runs()
        with pytest.raises(UsageError, match=r"no secure connection to the sidecar .*unable to get local issuer"):
            named_sidecar(url)
    assert named_sidecar(url) is None, "one that is not there is waited for"


def test_a_sidecar_of_a_run_takes_no_settings_of_another_one(
    tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"TLS_CERT": str(peers.server.cert), "HTTP_PORT": "no port", "CONFIG": "none.toml", "NO_SUCH": "x"}
    for name, value in settings.items():
        monkeypatch.setenv(f"{semconv.SIDECAR_VARIABLE_PREFIX}{name}", value)
    child, own = start_sidecar(tmp_path / "store", tmp_path / "logs", slo=None)
    with processes.ending(child):
        assert own.url.startswith("http://127.0.0.1:")
