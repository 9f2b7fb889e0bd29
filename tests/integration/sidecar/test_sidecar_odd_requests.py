"""Requests that are legal but rare, or wrong in ways that cost time, against a real sidecar."""

import gzip
import os
import re
import socket
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pyarrow as pa
import pytest
from google.protobuf.json_format import Parse
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tests import asking
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_json, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar.raw_clients import (
    GRPC_OPENED,
    TRACES,
    address,
    connections,
    grpc_call,
    http_request,
    send_evenly,
)
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}


@dataclass
class Running:
    sidecar: SidecarProcess
    client: httpx.Client

    def ask(self, octets: bytes, answers: int = 1) -> list[tuple[int, bytes]]:
        """Send octets on a connection of their own; the statuses and bodies of the answers."""
        with socket.create_connection(address(self.sidecar.http), timeout=60) as connection:
            connection.sendall(octets)
            received = b""
            while len(complete := _answers(received)) < answers:
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                received += piece
        return complete

    def stored(self) -> int:
        return self.client.get("/v1/state").json()["received"]


def _answers(received: bytes) -> list[tuple[int, bytes]]:
    answers: list[tuple[int, bytes]] = []
    while (start := re.match(rb"HTTP/1\.1 (\d+) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n", received)) is not None:
        length = re.search(rb"(?i)content-length: (\d+)", start[2])
        end = start.end() + (int(length[1]) if length else 0)
        if len(received) < end:
            break
        answers.append((int(start[1]), received[start.end() : end]))
        received = received[end:]
    return answers


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("odd") / "store"
    with running_sidecar(store) as sidecar, httpx.Client(base_url=sidecar.http, timeout=120) as client:
        yield Running(sidecar, client)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _body(sequence: int = 1) -> bytes:
    return turns_request([client_turn(sequence)]).SerializeToString()


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def _chunked_request(chunks: bytes) -> bytes:
    fields = b"host: a\r\ncontent-type: application/x-protobuf\r\ntransfer-encoding: chunked\r\n\r\n"
    return b"POST /v1/traces HTTP/1.1\r\n" + fields + chunks


def _with_arrow(codec: str, body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(_body())),
        ("GZIP", gzip.compress(_body())),
        ("zlib", zlib.compress(_body())),
        ("deflate", zlib.compress(_body())),
        ("zstd", _with_arrow("zstd", _body())),
        ("lz4", _with_arrow("lz4", _body())),
        ("snappy", pa.Codec("snappy").compress(_body(), asbytes=True)),
        ("identity", _body()),
        ("gzip, Identity", gzip.compress(_body())),
        ("gzip, zstd", _with_arrow("zstd", gzip.compress(_body()))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_compression_is_taken(running: Running, encoding: str, packed: bytes) -> None:
    before = running.stored()
    answer = running.client.post("/v1/traces", content=packed, headers={**PROTOBUF, "content-encoding": encoding})
    assert (answer.status_code, answer.content) == (200, b"")
    assert running.stored() == before + 1
    damaged = running.client.post("/v1/traces", content=packed[:-3], headers={**PROTOBUF, "content-encoding": encoding})
    assert damaged.status_code == 400


@pytest.mark.parametrize("encoding", ["br", "gzip, br", "gzip, gzip, gzip, gzip", "none"])
def test_other_compressions_are_415(running: Running, encoding: str) -> None:
    answer = running.client.post("/v1/traces", content=b"", headers={**PROTOBUF, "content-encoding": encoding})
    assert answer.status_code == 415
    assert "zstd" in Status.FromString(answer.content).message


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/traces/", "//v1/traces"])
def test_a_slash_at_the_end_of_the_address_does_not_matter(running: Running, path: str) -> None:
    before = running.stored()
    answer = running.ask(http_request(_body()).replace(b"/v1/traces", path.encode()))
    assert [status for status, _ in answer] == [200]
    assert running.stored() == before + 1


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/logs/", "//v1/logs", "/v1development/profiles"])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
def test_a_signal_that_is_not_taken_is_404_with_a_sentence(running: Running, path: str, kind: str) -> None:
    request = http_request(b"\x0a\0", content_type=kind).replace(b"/v1/traces", path.encode())
    ((status, body), (second, _)) = running.ask(request + http_request(_body()), 2)
    answer = Status.FromString(body) if "proto" in kind else Parse(body, Status())
    assert (status, answer.code, second) == (404, 5, 200)
    assert answer.message.startswith("this sidecar takes traces and metrics, no ")
    assert running.client.get("/v1/logs").status_code == 404


def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    before = running.stored()
    requests = [
        http_request(_body()),
        http_request(b"\xff"),
        http_request(_body(2)),
        b"HEAD /v1/traces HTTP/1.1\r\nhost: a\r\n\r\n",
    ]
    assert [status for status, _ in running.ask(b"".join(requests), 3)][:3] == [200, 400, 200]
    many = running.ask(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n" * 500, 500)
    assert [status for status, _ in many] == [200] * 500
    assert running.stored() == before + 2


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_405(running: Running, method: str) -> None:
    answer = running.client.request(method, "/v1/traces")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_body_is_asked_for_only_when_it_is_wanted(running: Running) -> None:
    body = _body()
    with socket.create_connection(address(running.sidecar.http), timeout=60) as connection:
        connection.sendall(http_request(expect="100-continue", content_length=str(len(body))))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    for field in ({"content_type": "text/plain"}, {"content_length": str(21 << 20)}):
        ((status, _),) = running.ask(http_request(**{"content_length": "10", "expect": "100-continue", **field}))
        assert status in (413, 415)


def test_small_chunks_are_taken_and_floods_of_them_are_not(running: Running) -> None:
    body = _body()
    for size in (1, 7, 1000):
        assert running.ask(_chunked_request(_chunked(body, size))) == [(200, b"")]
    assert running.ask(_chunked_request(_chunked(bytes(5_000), 1))) == [(400, b"")], "of the parser, not of the decoder"
    ((status, _),) = running.ask(_chunked_request(_chunked(bytes(100_000), 1)))
    assert status == 400
    before = _cpu_s(running.sidecar.process.pid)
    flood = _chunked_request(_chunked(bytes(1 << 20), 1) * 20)
    with connections(running.sidecar.http, 1) as opened:
        accepted = send_evenly(opened, flood)
    print(
        f"{accepted:,} of {len(flood):,} bytes accepted in {_cpu_s(running.sidecar.process.pid) - before:.2f} s of CPU"
    )
    assert accepted < len(flood)


START = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n"


@pytest.mark.parametrize(
    "flood",
    [
        START + b"".join(b"x-%d: 1\r\n" % number for number in range(1000)) + b"\r\n",
        START + b"x: " + b"a" * 100_000 + b"\r\n\r\n",
        START + b"x:\r\n" * 10_000 + b"\r\n",
        START + b"x: 1\r\n " + b"folded\r\n " * 3000 + b"\r\n\r\n",
        _chunked_request(b"0\r\n" + b"x:\r\n" * 100_000 + b"\r\n"),
    ],
    ids=["many fields", "a long field", "many empty fields", "a folded field", "many trailers"],
)
def test_flood_of_fields_is_400_and_delays_no_request(running: Running, flood: bytes) -> None:
    before = _cpu_s(running.sidecar.process.pid)
    with connections(running.sidecar.http, 50) as opened:
        send_evenly(opened, flood)
        assert running.client.get("/healthz").status_code == 200
    print(f"50 floods of {len(flood):,} bytes: {_cpu_s(running.sidecar.process.pid) - before:.2f} s of CPU")
    with socket.create_connection(address(running.sidecar.http), timeout=60) as connection:
        # The answer may be lost when it comes before everything was sent.
        try:
            connection.sendall(flood)
            answer = connection.recv(1000)
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/" + "a" * 10_000, 404),
        ("/" + "a" * 50_000, 400),
        ("/%00%ff%zz", 404),
        ("/v1/traces?" + "q" * 9000, 405),
        ("*", 404),
    ],
    ids=["long", "too long", "escapes", "query", "star"],
)
def test_strange_targets_are_refused(running: Running, target: str, status: int) -> None:
    ((code, _),) = running.ask(f"GET {target} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    assert code == status


@pytest.mark.parametrize(
    "octets", [b"\0\1\2\3\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\0\1\0" + bytes(600)]
)
def test_request_that_is_not_http_is_400(running: Running, octets: bytes) -> None:
    assert running.ask(octets, 2)[-1][0] == 400


def test_a_websocket_is_not_opened(running: Running) -> None:
    fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    fields += "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
    ((status, _),) = running.ask(f"GET /healthz HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n".encode())
    assert status == 200


@pytest.mark.nightly
def test_a_reader_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    with running_sidecar(tmp_path) as sidecar:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(address(sidecar.http))
            connection.setblocking(False)
            request = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n"

            def is_cut() -> bool:
                try:
                    connection.send(request * 100)
                except BlockingIOError:
                    return False
                except ConnectionError:
                    return True
                return False

            wait_until(is_cut)
        assert asking.get(f"{sidecar.http}/healthz").status_code == 200


def _export(channel: grpc.Channel, message: bytes, **options: object) -> grpc.StatusCode:
    call = channel.unary_unary(TRACES)
    try:
        call(message, timeout=60, **options)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_grpc_answers_as_the_collector_does(running: Running) -> None:
    options = [("grpc.max_send_message_length", -1)]
    before = running.stored()
    with grpc.insecure_channel(running.sidecar.grpc, options) as channel:
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate):
            assert _export(channel, _body(), compression=compression) is grpc.StatusCode.OK
            assert _export(channel, b"\xff\xff", compression=compression) is grpc.StatusCode.INVALID_ARGUMENT
            too_large = _export(channel, bytes(21 << 20), compression=compression)
            assert too_large is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert _export(channel, gzip.compress(_body())[:-5]) is grpc.StatusCode.INVALID_ARGUMENT
        assert _export(channel, b"") is grpc.StatusCode.OK
        for method, code in (
            ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", grpc.StatusCode.UNIMPLEMENTED),
            ("/unknown.Service/Export", grpc.StatusCode.CANCELLED),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(b"", timeout=60)
            assert refused.value.code() is code
        silent = channel.stream_unary(TRACES)
        with pytest.raises(grpc.RpcError) as refused:
            silent(iter(()), timeout=60)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert running.stored() == before + 3


def test_a_method_that_is_no_text_does_not_end_the_grpc_server(running: Running) -> None:
    with connections(running.sidecar.grpc, 3, GRPC_OPENED + grpc_call(path="/\udce9\udcff")) as opened:
        for connection in opened:
            connection.setblocking(True)
            received = b""
            while b"\0\0\4\3\0\0\0\0\1" not in received:  # RST_STREAM
                received += (piece := connection.recv(1000))
                assert piece
    with grpc.insecure_channel(running.sidecar.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        assert _export(channel, _body()) is grpc.StatusCode.OK


def test_too_little_memory_is_503_and_unavailable_with_retry(tmp_path: Path) -> None:
    with running_sidecar(tmp_path, "--body-memory", "64") as sidecar:
        length = 19 << 20
        with connections(sidecar.http, 4, http_request(content_length=str(length))) as opened:
            send_evenly(opened[:3], bytes(length - 1))
            with grpc.insecure_channel(sidecar.grpc) as channel, pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(TRACES)(gzip.compress(bytes(10 << 20)), timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            trailers = dict(refused.value.trailing_metadata())
            details = Status.FromString(trailers["grpc-status-details-bin"]).details[0]
            retry = RetryInfo()
            assert details.Unpack(retry)
            assert 0 < retry.retry_delay.seconds <= 2
            answer = asking.post(f"{sidecar.http}/v1/traces", content=bytes(10 << 20), headers=PROTOBUF)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert Status.FromString(answer.content).code == 14
            json = {"content-type": "application/json", "content-encoding": "gzip"}
            answer = asking.post(f"{sidecar.http}/v1/traces", content=gzip.compress(bytes(10 << 20)), headers=json)
            assert (answer.status_code, answer.json()["code"]) == (503, 14)
            # What is small still finds a place.
            answer = asking.post(
                f"{sidecar.http}/v1/traces",
                content=turns_json([client_turn()]),
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 200
