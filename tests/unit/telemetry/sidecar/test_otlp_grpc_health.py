"""The health service under a context of the test: what it says, when it says it again, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from telemetry.sidecar.otlp.grpc import SERVICES
from telemetry.sidecar.otlp.grpc_health import GrpcHealth

SERVING, NOT_SERVING, UNKNOWN = b"\x08\1", b"\x08\2", b"\x08\3"
TRACES = "opentelemetry.proto.collector.trace.v1.TraceService"


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
        (TRACES, SERVING),
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


def test_health_follows_readiness_and_ends_as_not_serving() -> None:
    async def run() -> list[object]:
        ready = [False]
        health = GrpcHealth(lambda: ready[0], SERVICES, every_s=0)
        values: list[object] = [await _checked(health, Call())]
        ready[0] = True
        values.append(await _checked(health, Call()))
        health.close()
        values.append(await _checked(health, Call()))
        return values

    assert asyncio.run(run()) == [NOT_SERVING, SERVING, NOT_SERVING]


def _watched(service: str, steps: list[Callable[[GrpcHealth, list[bool]], Any]]) -> tuple[list[bytes], int]:
    """Return the answers to a watching call; each step follows an answer, and the last one closes."""

    async def run() -> tuple[list[bytes], int]:
        ready = [True]
        health = GrpcHealth(lambda: ready[0], SERVICES, every_s=0)
        left = list(steps)
        answers: list[bytes] = []
        async for answer in health.watch(_no_messages(), Call(service)):
            answers.append(answer)
            if left:
                left.pop(0)(health, ready)
        return answers, health.watchers

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_watch_gets_every_change_once_and_ends_with_sidecar() -> None:
    def become(value: bool) -> Callable[[GrpcHealth, list[bool]], None]:
        return lambda _health, ready: ready.__setitem__(0, value)

    def close(health: GrpcHealth, _ready: list[bool]) -> None:
        health.close()

    assert _watched(TRACES, [become(False), become(True), close]) == ([SERVING, NOT_SERVING, SERVING, NOT_SERVING], 0)
    assert _watched("", [close]) == ([SERVING, NOT_SERVING], 0)
    assert _watched("else", [close]) == ([UNKNOWN], 0)


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
