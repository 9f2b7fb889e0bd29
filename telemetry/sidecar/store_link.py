"""The front's end of the store process: starts it, passes messages, and starts it again when it ends or hangs."""

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from telemetry.model.errors import StoreError
from telemetry.sidecar import messages
from telemetry.sidecar.fault_events import FaultEvents
from telemetry.sidecar.messages import (
    Answered,
    Ask,
    Begun,
    Faults,
    FromStore,
    FrontCounts,
    Page,
    Ready,
    Stop,
    StoreFault,
    StoreOptions,
    ToStore,
    Unusable,
)
from telemetry.sidecar.otlp.ingest import Ingest

# Longer than any request may take: the store process does not work any more.
HANGS_AFTER_S: Final = 20.0
PAGE_WITHIN_S: Final = 3.0
_TICK_S: Final = 0.5
_STOP_WITHIN_S: Final = 20.0
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
# A store process that served this long did not end because of how it was started.
_SERVED_S: Final = 30.0

_log = logging.getLogger(__name__)


class StoreLink:
    """The store process of a front, from `start` to `stop`; used in one event loop."""

    def __init__(self, options: StoreOptions, *, hangs_after_s: float = HANGS_AFTER_S) -> None:
        self._options = options
        self._hangs_after_s = hangs_after_s
        self._ingest: Ingest | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_ready = False
        self._faults: tuple[StoreFault, ...] = ()
        self._fault_events = FaultEvents()
        self._stops = False
        self._unusable: str | None = None
        self._opened: asyncio.Future[str | None] | None = None
        self._lost = asyncio.Event()
        self._pages: dict[int, asyncio.Future[Page]] = {}
        self._next_page = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.restarts = 0

    async def start(self, ingest: Ingest) -> None:
        """Start the process; its answers go to `ingest`. Raises StoreError if it cannot use the store."""
        self._ingest = ingest
        unusable = await self._begin()
        if unusable is not None:
            await self._reap()
            raise StoreError(unusable)
        self._tasks = [asyncio.create_task(self._supervise()), asyncio.create_task(self._tick())]
        self._note_faults()

    async def stop(self) -> None:
        """End the process; everything that was acknowledged is committed before, or stays in the log."""
        self._stops = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._is_ready:
            self.send(Stop())
        elif self._transport is not None:
            self._transport.close()  # one that only starts ends with its connection
        await self._reap()

    @property
    def pid(self) -> int | None:
        """The process id of the store process that runs or ran last."""
        return self._process.pid if self._process is not None else None

    @property
    def faults(self) -> tuple[StoreFault, ...]:
        """What is wrong with the store at this moment."""
        if self._is_ready:
            return self._faults
        why = f" ({self._unusable})" if self._unusable is not None else ""
        return (StoreFault("store_process", f"the store process is starting again{why}", stops_storing=True),)

    @property
    def is_storing(self) -> bool:
        """Whether what is sent can be acknowledged at this moment."""
        return not any(fault.stops_storing for fault in self.faults)

    def send(self, message: ToStore) -> None:
        """Pass a message. Raises StoreError while there is no store process."""
        if not self._is_ready or self._transport is None:
            raise StoreError("the store process is starting again; send it again")
        self._transport.write(messages.frame(message))

    async def ask(self, page: Literal["state", "metrics"], accept: str, counts: FrontCounts) -> Page:
        """Get a page from the store process. Raises StoreError if there is none, or no answer in time."""
        number = self._next_page
        self._next_page += 1
        self._pages[number] = future = asyncio.get_running_loop().create_future()
        try:
            self.send(Ask(number, page, accept, counts))
            return await asyncio.wait_for(future, PAGE_WITHIN_S)
        except TimeoutError:
            raise StoreError(f"the store process did not answer within {PAGE_WITHIN_S:.0f} s; ask again") from None
        finally:
            del self._pages[number]

    async def _begin(self) -> str | None:
        """Start a process and wait until it serves; return its sentence if it cannot."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        options = msgspec.json.encode(self._options).decode()
        command = [sys.executable, "-m", "telemetry.sidecar.store_process", str(theirs.fileno()), options]
        self._opened = loop.create_future()
        self._lost.clear()
        try:
            with theirs:
                self._process = await asyncio.to_thread(
                    subprocess.Popen,
                    command,
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),
                )
            self._transport, _ = await loop.create_unix_connection(
                lambda: _Connection(self._received, self._connection_lost), sock=ours
            )
        except BaseException:
            ours.close()
            raise
        return await self._opened

    def _received(self, message: FromStore) -> None:
        ingest = self._ingest
        assert ingest is not None  # noqa: S101 - messages come after `start`
        match message:
            case Answered():
                ingest.answered(message)
            case Begun():
                ingest.begun(message)
            case Page():
                if (future := self._pages.get(message.number)) is not None and not future.done():
                    future.set_result(message)
            case Faults():
                self._faults = message.faults
                self._note_faults()
            case Ready():
                self._is_ready, self._unusable = True, None
                self._note_faults()
                self._open(None)
            case Unusable():
                self._unusable = message.sentence
                self._open(message.sentence)

    def _connection_lost(self) -> None:
        self._is_ready, self._faults, self._transport = False, (), None
        self._note_faults()
        self._open("the store process ended while it opened the store; its messages say why")
        if self._ingest is not None:
            self._ingest.lost()
        for future in self._pages.values():
            if not future.done():
                future.set_exception(StoreError("the store process has ended and starts again; ask again"))
        self._lost.set()

    def _note_faults(self) -> None:
        # Before the first process is ready, whoever starts the sidecar is answered; at its end, its end is no fault.
        if not self._stops and self._tasks:
            self._fault_events.note(self.faults)

    def _open(self, unusable: str | None) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(unusable)

    async def _reap(self) -> None:
        """Wait until the process has ended, or end it."""
        process = self._process
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            _log.warning("the store process %d did not end in time and is killed", process.pid)
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _supervise(self) -> None:
        """Start the process again whenever it has ended, sooner the longer it served."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            began_s = time.monotonic()
            await self._lost.wait()
            await self._reap()
            if time.monotonic() - began_s >= _SERVED_S:
                backoff_s = _BACKOFF_FIRST_S
            code = self._process.returncode if self._process is not None else None
            _log.warning("the store process has ended with %s; it starts again in %.1f s", code, backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
            self.restarts += 1
            try:
                unusable = await self._begin()
            except OSError as error:
                unusable = f"it could not be started: {error.strerror}"
                self._lost.set()
            if unusable is not None:
                self._unusable = unusable
                _log.warning("the store process cannot serve: %s", unusable)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self._ingest is None or self._process is None:
                continue
            self._ingest.expire()
            if self._is_ready and self._ingest.unanswered_s > self._hangs_after_s:
                _log.warning("the store process %d has not answered for %.0f s", self._process.pid, self._hangs_after_s)
                self._process.kill()


class _Connection(asyncio.Protocol):
    def __init__(self, received: Callable[[FromStore], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._frames = messages.Frames()

    def data_received(self, data: bytes) -> None:
        for content in self._frames.feed(data):
            self._received(messages.from_store(content))

    def connection_lost(self, exc: Exception | None) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            self._lost()
