"""The health service under a context of the test: what it answers, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from telemetry.sidecar.otlp.grpc import SERVICES
from telemetry.sidecar.otlp.grpc_health import GrpcHealth

SERVING = b"\x08\1"


class AbortedError(Exception):
    """The call was ended with a status."""


class Call:
    """A call with one message, as grpc.aio's context shows it."""

    def __init__(self, service: str | bytes = "") -> None:
        octets = service.encode() if isinstance(service, str) else service
        self._message = b"\x0a" + bytes([len(octets)]) + octets if isinstance(service, str) and octets else octets
        self.code: grpc.StatusCode | None = None

    async def read(self) -> object:
        return self._message

    def peer(self) -> str:
        return "test"

    async def abort(self, code: grpc.StatusCode, _sentence: str) -> None:
        self.code = code
        raise AbortedError


async def _no_messages() -> AsyncIterator[bytes]:
    return
    yield b""


async def _checked(health: GrpcHealth, call: Call) -> bytes | grpc.StatusCode | None:
    try:
        return await health.check(_no_messages(), call)
    except AbortedError:
        return call.code


@pytest.mark.parametrize(
    ("service", "answer"),
    [
        ("", SERVING),
        ("opentelemetry.proto.collector.trace.v1.TraceService", SERVING),
        ("opentelemetry.proto.collector.metrics.v1.MetricsService", SERVING),
        ("opentelemetry.proto.collector.logs.v1.LogsService", grpc.StatusCode.NOT_FOUND),
        (b"\x0a\5cut", grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x0a\1\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x12\xff\7" + bytes(1023), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_health_check_answers_by_service(service: str | bytes, answer: object) -> None:
    async def run() -> object:
        return await _checked(GrpcHealth(lambda: True, SERVICES), Call(service))

    assert asyncio.run(run()) == answer


def test_watchers_are_limited_and_one_that_leaves_makes_room() -> None:
    async def run() -> None:
        health = GrpcHealth(lambda: True, SERVICES, every_s=0, watchers_max=1)
        first = health.watch(_no_messages(), Call())
        assert await anext(first) == SERVING
        second = Call()
        with pytest.raises(AbortedError):
            await anext(health.watch(_no_messages(), second))
        assert second.code is grpc.StatusCode.UNAVAILABLE
        await first.aclose()  # type: ignore[attr-defined]
        assert await anext(health.watch(_no_messages(), Call())) == SERVING

    asyncio.run(run())
