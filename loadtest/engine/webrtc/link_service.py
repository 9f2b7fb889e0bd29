"""The side of a process that carries calls for the engine: commands in, reports out, one task for each piece of work.

It ends when the engine's end is closed, whatever ended the engine.
"""

import asyncio
import contextlib
import logging
import socket
import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from loadtest.engine.local_limits import LocalLimits
from loadtest.engine.webrtc.messages import Command, Deframer, LinkKind, Lost, arrived

_log = logging.getLogger(__name__)


class LinkService(asyncio.Protocol):
    """The engine's calls, whatever carries them. `ended` is set when the engine is gone."""

    def __init__(self, greeting: bytes) -> None:
        """`greeting` is the data of the report that the process is ready."""
        self._greeting = greeting
        self._deframer = Deframer()
        self._transport: asyncio.WriteTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()

    @abstractmethod
    def perform(self, command: Command) -> None:
        """Do what the engine asks for."""

    @abstractmethod
    def endings(self) -> Iterable[Any]:
        """Return what ends each call, to be awaited."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Signal that the process is ready."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=2**26)
        self.report(0, LinkKind.STARTED, time.perf_counter_ns(), 0, self._greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the engine is gone."""
        del exc
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        """Do what the engine asks for."""
        for command in self._deframer.commands(data):
            try:
                self.perform(command)
            except Exception as error:  # noqa: BLE001 - a fault in one call must not end the others
                _log.exception("a command of the engine failed")
                self._fault(command.call, error)

    def start(self, call: int, work: Any) -> None:
        """Run the work for a call; a fault in it ends that call."""
        task = asyncio.get_running_loop().create_task(self._guarded(call, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, call: int, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a fault in one call must not end the others
            _log.exception("the work for a call failed")
            self._fault(call, error)

    def _fault(self, call: int, error: Exception) -> None:
        exhausted = LocalLimits().exhausted(error)
        lost = (
            Lost(f"{type(error).__name__}: {error}", None)
            if exhausted is None
            else Lost(str(exhausted), exhausted.failure)
        )
        self.report(call, LinkKind.LOST, time.perf_counter_ns(), 0, msgspec.json.encode(lost))

    def report(self, call: int, kind: LinkKind, stamp_perf_ns: int, lag_bound_ns: int, data: bytes) -> None:
        """Report an event of a call to the engine."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(arrived(kind, call, stamp_perf_ns, lag_bound_ns, data))

    def report_closed(self, call: int) -> None:
        """Report to the engine that a call unknown to this process is closed."""
        self.report(call, LinkKind.CLOSED, time.perf_counter_ns(), 0, b"")

    async def serve(self, descriptor: int, ending_s: float) -> None:
        """Serve on the socket of this number until the engine is gone; then end all calls, within `ending_s`."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=socket.socket(fileno=descriptor))
        await self.ended.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self.endings(), return_exceptions=True), ending_s)
