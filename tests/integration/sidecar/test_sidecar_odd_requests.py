"""Requests that are legal but rare, or wrong in ways that cost time, against a real sidecar."""

import gzip
import os
import socket
import zlib
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from google.protobuf.json_format import Parse
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tests import asking
from tests.fixtures_sidecar import running_sidecar, turns_json, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar.raw_clients import (
    TRACES,
    AskedSidecar,
    address,
    connections,
    http_request,
    send_evenly,
)
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf"}


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
def test_every_compression_is_taken(running: AskedSidecar, encoding: str, packed: bytes) -> None:
    before = running.state("received")
    answer = running.client.post("/v1/traces", content=packed, headers={**PROTOBUF, "content-encoding": encoding})
    assert (answer.status_code, answer.content) == (200, b"")
    assert running.state("received") == before + 1
    damaged = running.client.post("/v1/traces", content=packed[:-3], headers={**PROTOBUF, "content-encoding": encoding})
    assert damaged.status_code == 400


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/traces/", "//v1/traces"])
def test_a_slash_at_the_end_of_the_address_does_not_matter(running: AskedSidecar, path: str) -> None:
    before = running.state("received")
    answer = running.ask(http_request(_body()).replace(b"/v1/traces", path.encode()))
    assert [status for status, _ in answer] == [200]
    assert running.state("received") == before + 1


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/logs/", "//v1/logs", "/v1development/profiles"])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
def test_a_signal_that_is_not_taken_is_404_with_a_sentence(running: AskedSidecar, path: str, kind: str) -> None:
    request = http_request(b"\x0a\0", content_type=kind).replace(b"/v1/traces", path.encode())
    ((status, body), (second, _)) = running.ask(request + http_request(_body()), 2)
    answer = Status.FromString(body) if "proto" in kind else Parse(body, Status())
    assert (status, answer.code, second) == (404, 5, 200)
    assert answer.message.startswith("this sidecar takes traces and metrics, no ")
    assert running.client.get("/v1/logs").status_code == 404


def test_pipelined_requests_are_answered_in_order(running: AskedSidecar) -> None:
    before = running.state("received")
    requests = [
        http_request(_body()),
        http_request(b"\xff"),
        http_request(_body(2)),
        b"HEAD /v1/traces HTTP/1.1\r\nhost: a\r\n\r\n",
    ]
    assert [status for status, _ in running.ask(b"".join(requests), 3)][:3] == [200, 400, 200]
    many = running.ask(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n" * 500, 500)
    assert [status for status, _ in many] == [200] * 500
    assert running.state("received") == before + 2


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_405(running: AskedSidecar, method: str) -> None:
    answer = running.client.request(method, "/v1/traces")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_body_is_asked_for_only_when_it_is_wanted(running: AskedSidecar) -> None:
    body = _body()
    with socket.create_connection(address(running.sidecar.http), timeout=60) as connection:
        connection.sendall(http_request(expect="100-continue", content_length=str(len(body))))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    for field in ({"content_type": "text/plain"}, {"content_length": str(21 << 20)}):
        ((status, _),) = running.ask(http_request(**{"content_length": "10", "expect": "100-continue", **field}))
        assert status in (413, 415)


def test_small_chunks_are_taken_and_floods_of_them_are_not(running: AskedSidecar) -> None:
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
def test_flood_of_fields_is_400_and_delays_no_request(running: AskedSidecar, flood: bytes) -> None:
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
def test_strange_targets_are_refused(running: AskedSidecar, target: str, status: int) -> None:
    ((code, _),) = running.ask(f"GET {target} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    assert code == status


@pytest.mark.parametrize(
    "octets", [b"\0\1\2\3\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\0\1\0" + bytes(600)]
)
def test_request_that_is_not_http_is_400(running: AskedSidecar, octets: bytes) -> None:
    assert running.ask(octets, 2)[-1][0] == 400


def test_a_websocket_is_not_opened(running: AskedSidecar) -> None:
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
