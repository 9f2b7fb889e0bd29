"""Random octets, random HTTP and random gRPC from many connections: the sidecar goes on, and keeps nothing of them."""

import gzip
import json
import random
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import SidecarProcess, running_sidecar, turns_json, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.sidecar.raw_clients import (
    GRPC_OPENED,
    TRACES,
    connections,
    grpc_call,
    http2_frame,
    http_request,
    is_open,
    memory_bytes,
    open_descriptors,
    send,
)
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.nightly

CONNECTIONS = 100
ROUNDS = 12
JSON = turns_json([client_turn(1, run_id="fuzz")])
PROTOBUF = turns_request([client_turn(1, run_id="fuzz")]).SerializeToString()
Chance = random.Random


def _mutated(chance: Chance, octets: bytes) -> bytes:
    """Octets of which some are changed, removed, repeated or moved."""
    changed = bytearray(octets)
    for _ in range(chance.choice((0, 1, 1, 2, 5, 20))):
        if not changed:
            break
        at, length = chance.randrange(len(changed)), chance.choice((1, 1, 4, 50))
        match chance.randrange(4):
            case 0:
                changed[at : at + length] = chance.randbytes(length)
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = changed[at : at + length] * chance.choice((1, 2, 100))
            case _:
                changed[at:at] = chance.randbytes(length)
    return bytes(changed)


def _random_octets(chance: Chance) -> bytes:
    return chance.randbytes(chance.choice((1, 10, 1000, 100_000)))


def _random_http(chance: Chance) -> bytes:
    body, kind = chance.choice(((PROTOBUF, "application/x-protobuf"), (JSON, "application/json")))
    pack, encoding = chance.choice(
        ((gzip.compress, "gzip"), (zlib.compress, "zlib"), (bytes, "identity"), (bytes, "zstd"))
    )
    body = _mutated(chance, pack(_mutated(chance, body)))
    fields = {"content_type": kind, "content_encoding": encoding}
    if chance.random() < 0.2:
        fields["content_length"] = chance.choice(("-1", "0", "99999999999999999999", "x", "3", "100000"))
    request = http_request(body, **fields)
    if chance.random() < 0.3:
        size = chance.choice((1, 10, 1000))
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
        request = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + chunks
    path = chance.choice(
        (b"/v1/traces", b"/v1/metrics", b"/healthz", b"/metrics", b"/v1/state", b"/%s" % chance.randbytes(5))
    )
    method = chance.choice((b"POST", b"POST", b"GET", b"HEAD", b"CONNECT", b"PRI"))
    request = request.replace(b"POST /v1/traces", method + b" " + path, 1)
    return _mutated(chance, request * chance.choice((1, 1, 3)))


def _random_frame(chance: Chance) -> bytes:
    payload = chance.randbytes(chance.choice((0, 1, 4, 5, 8, 100, 16_384)))
    stream = chance.choice((0, 1, 1, 2, 3, 5, 2**31 - 1))
    return http2_frame(chance.randrange(12), chance.choice((0, 1, 4, 5, 8, 32, 255)), stream, payload)


def _random_grpc(chance: Chance) -> bytes:
    frames = [GRPC_OPENED]
    for stream in (1, 3, 5):
        path = chance.choice(
            (TRACES, TRACES, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "/a/b", "")
        )
        frames.append(grpc_call(stream, path))
        body = _mutated(chance, chance.choice((PROTOBUF, gzip.compress(PROTOBUF))))
        length = len(body) if chance.random() < 0.7 else chance.randrange(2**32)
        message = bytes([chance.choice((0, 0, 1, 7))]) + length.to_bytes(4, "big") + body
        frames.append(http2_frame(0, chance.choice((0, 1, 1)), stream, message))
        frames += [_random_frame(chance) for _ in range(chance.choice((0, 0, 1, 3)))]
    octets = b"".join(frames)
    return octets if chance.random() < 0.5 else _mutated(chance, octets)


def _throw(chance: Chance, url: str, kinds: list[Callable[[Chance], bytes]]) -> None:
    """Open connections and send something random on each, in parts, and close them at random moments."""
    with connections(url, CONNECTIONS) as opened:
        rest = {connection: chance.choice(kinds)(chance) for connection in opened}
        for _ in range(4):
            for connection, octets in list(rest.items()):
                is_open(connection)
                sent = max(0, send(connection, octets[: chance.choice((1, 100, 1 << 20))]))
                rest[connection] = octets[sent:]
                if chance.random() < 0.1:
                    connection.shutdown(socket.SHUT_WR) if chance.random() < 0.5 and is_open(connection) else None
                    connection.close()
                    del rest[connection]


def _assert_stored(sidecar: SidecarProcess, sequence: int) -> None:
    request = turns_request([client_turn(sequence, run_id="proper")])
    headers = {"content-type": "application/x-protobuf"}
    content = request.SerializeToString()
    assert asking.post(f"{sidecar.http}/v1/traces", content=content, headers=headers).status_code == 200
    request = turns_request([client_turn(sequence + 1, run_id="proper")])
    with grpc.insecure_channel(sidecar.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        TraceServiceStub(channel).Export(request, timeout=60, wait_for_ready=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_input_leaves_no_trace(tmp_path: Path, seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    chance = Chance(seed)
    options = ("--header-timeout", "1", "--body-timeout", "1", "--idle-timeout", "1")
    with running_sidecar(tmp_path, *options) as sidecar:
        pid = sidecar.process.pid
        _assert_stored(sidecar, 1)
        wait_until(lambda: open_descriptors(pid) < 20)
        descriptors = open_descriptors(pid)
        memory: list[int] = []
        for half in range(2):
            for _ in range(ROUNDS // 2):
                _throw(chance, sidecar.http, [_random_octets, _random_http, _random_http, _random_http])
                _throw(chance, sidecar.grpc, [_random_octets, _random_grpc, _random_grpc, _random_grpc])
            _assert_stored(sidecar, 3 + 2 * half)
            wait_until(lambda: open_descriptors(pid) <= descriptors)
            memory.append(memory_bytes(pid))
        with capfd.disabled():
            print(f" memory after each half: {[f'{size_bytes / 2**20:.0f} MiB' for size_bytes in memory]}", end="")
        assert memory[1] < memory[0] + (16 << 20)
        assert sidecar.process.poll() is None
        state = asking.get(f"{sidecar.http}/v1/state").json()
        assert state["bad_requests"] > 50, "the random requests were refused"
        assert sidecar.terminate() == 0
    logged = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert logged == ["ready", "stopping", "stopped"], "what clients send fills no log"
    with StoreReader(tmp_path) as reader:
        proper = [turn.sequence for turn in reader.turns(limit=10_000) if turn.run_id == "proper"]
        assert sorted(proper) == [1, 2, 3, 4, 5, 6]
