"""gRPC's own health service (`grpc.health.v1.Health`): whether the sidecar can store, as one answer or as a stream.

It requires no token, as `/readyz` does not: it reveals nothing else, and load balancers have none. The messages are
those of https://github.com/grpc/grpc/blob/master/src/proto/grpc/health/v1/health.proto: on the wire they are the same
as protobuf's own messages of one string and of one number.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from telemetry.sidecar.otlp.receive_slots import NoSlot, ReceiveSlots

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
# Watching calls stay open; each takes one of a connection's streams and a task.
WATCHERS_MAX: Final = 64
# The longest delay before a change of readiness is visible.
EVERY_S: Final = 0.5
_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3
# A request is the name of a service. gRPC would take one of 20 MiB, from anybody: few at once, and not for long.
_REQUEST_BYTES_MAX: Final = 1024
_RECEIVED_AT_ONCE: Final = 2
_RECEIVE_S: Final = 2.0
_BUSY: Final = "too many ask for health at once; ask again"
_Context = Any  # grpc.aio has no type information
_NO_MESSAGE: Final[object] = cast(Any, grpc.aio).EOF


class GrpcHealth:
    """Answers for `services` and, under the empty name, for all of them. `is_ready` returns whether anything can be
    stored at the moment."""

    def __init__(
        self,
        is_ready: Callable[[], bool],
        services: frozenset[str],
        *,
        every_s: float = EVERY_S,
        watchers_max: int = WATCHERS_MAX,
    ) -> None:
        self._is_ready = is_ready
        self._services = services | {""}
        self._every_s = every_s
        self._watchers_max = watchers_max
        self._watchers = 0
        self._slots = ReceiveSlots(_RECEIVE_S, slots=_RECEIVED_AT_ONCE, waiting_max=WATCHERS_MAX)
        self._closed = asyncio.Event()

    @property
    def watchers(self) -> int:
        """The number of open `Watch` calls."""
        return self._watchers

    def close(self) -> None:
        """Notify the open `Watch` calls of the end, and end them."""
        self._closed.set()

    async def check(self, _messages: AsyncIterator[bytes], context: _Context) -> bytes:
        """The method `Check`: one answer; NOT_FOUND for an unknown service."""
        service = await self._service(context)
        if service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "this sidecar has no such service")
        return Int32Value(value=self._status()).SerializeToString()

    async def watch(self, _messages: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
        """The method `Watch`: an answer immediately, and one at each change."""
        service = await self._service(context)
        if self._watchers >= self._watchers_max:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _BUSY)
        with self._watching():
            before = None
            while True:
                is_last = self._closed.is_set()
                status = self._status() if service in self._services else _SERVICE_UNKNOWN
                if status != before:
                    yield Int32Value(value=status).SerializeToString()
                    before = status
                if is_last:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), self._every_s)

    @contextlib.contextmanager
    def _watching(self) -> Generator[None]:
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    def _status(self) -> int:
        return _SERVING if self._is_ready() and not self._closed.is_set() else _NOT_SERVING

    async def _service(self, context: _Context) -> str:
        """The name of the requested service; aborts the call if it cannot be read."""
        try:
            received = await self._slots.receive(context.read)
        except (NoSlot, TimeoutError):
            await context.abort(grpc.StatusCode.UNAVAILABLE, _BUSY)
            raise  # raised by abort
        if received is not _NO_MESSAGE and len(octets := cast(bytes, received)) <= _REQUEST_BYTES_MAX:
            with contextlib.suppress(DecodeError):
                return StringValue.FromString(octets).value
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a HealthCheckRequest")
        raise AssertionError("abort raises")
