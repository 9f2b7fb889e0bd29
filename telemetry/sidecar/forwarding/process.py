"""The process that forwards: one sender and one queue for each destination, at low priority.

It is started by the store process and ends with it. Whatever a destination does, it disturbs neither the receiving of
telemetry nor another destination.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from telemetry.sidecar import messages
from telemetry.sidecar.forwarding import folders
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.disk_queue import DiskQueue, LogSource
from telemetry.sidecar.forwarding.encryption import RecordCipher, UnreadableRecordError
from telemetry.sidecar.forwarding.link_messages import (
    Add,
    Begin,
    DestinationReport,
    Drain,
    LogEnds,
    Report,
    ToForwarder,
    to_forwarder,
)
from telemetry.sidecar.forwarding.memory_queue import MemoryQueue
from telemetry.sidecar.forwarding.queued import QueuedRequest
from telemetry.sidecar.forwarding.sender import QueueSender
from telemetry.sidecar.forwarding.tally import Tally
from telemetry.sidecar.forwarding.upstream import Upstream
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.privacy.of_store import redactor_of_store
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.sidecar.store_process.record_kinds import is_without_text, signal_of
from telemetry.store.log_positions import START
from telemetry.store.log_records import Record

_NICENESS: Final = 10
_THREADS: Final = 32
_CHUNK_BYTES: Final = 1 << 18
_TICK_S: Final = 1.0
_LANE_AGAIN_S: Final = 5.0
# The process before this one ends as soon as the store process does; a request in progress ends with it.
_LOCK_WITHIN_S: Final = 30.0
_LOCK_EVERY_S: Final = 0.05

_log = logging.getLogger(__name__)


async def run(connection: socket.socket) -> None:
    """Forward until the store process asks to drain or has ended."""
    os.nice(_NICENESS)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "forwarding"))
    reader, writer = await asyncio.open_connection(sock=connection)
    received = _received(reader)
    begin = await anext(received, None)
    if not isinstance(begin, Begin):
        return
    store = Path(begin.store)
    with folders.lock(store).open("ab") as lock:
        await _lock(lock)
        lanes = [_lane(begin, destination) for destination in begin.destinations]
        tasks = [asyncio.create_task(each) for each in (*(lane.run() for lane in lanes), _tick(lanes, writer))]
        within_s = await _follow(received, lanes)
        for lane in lanes:
            lane.sender.drain()
        if within_s is not None:
            await asyncio.wait(tasks[:-1], timeout=within_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.write(_report(lanes))
        with contextlib.suppress(OSError):
            await writer.drain()


@dataclass(slots=True)
class _Lane:
    """All that belongs to one destination."""

    destination: Destination
    queue: DiskQueue | MemoryQueue
    sender: QueueSender
    upstream: Upstream
    tally: Tally

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.sender.run()
                except Exception as error:  # noqa: BLE001 - it must not end for good, and disturb no other
                    _log.exception("forwarding to %s has failed and begins again", self.destination.name)
                    self.sender.failure = f"{type(error).__name__}: {error}"
                    await asyncio.sleep(_LANE_AGAIN_S)
                else:
                    return
        finally:
            await self.upstream.close()

    def report(self) -> DestinationReport:
        queue = self.queue
        return DestinationReport(
            self.destination.name,
            queue.cursor if isinstance(queue, DiskQueue) else START,
            self.tally,
            queue.backlog(),
            self.sender.failure,
            queue.unreadable if isinstance(queue, DiskQueue) else None,
        )


def _lane(begin: Begin, destination: Destination) -> _Lane:
    store, ends = Path(begin.store), begin.ends
    tally = Tally()
    name = destination.name
    cursor = folders.cursor(store, name)
    if destination.in_memory:
        queue = MemoryQueue(destination, tally)
    elif destination.text == "keep":
        decrypted = _decrypted(RecordCipher(destination.read_key()))
        source = LogSource(folders.queue(store, name), _requests(destination, decrypted), signal_of)
        queue = DiskQueue(destination, source, cursor, tally, ends.queues[name])
    else:
        names = Path(begin.redact_names) if begin.redact_names is not None else None
        redacted = _redacted(redactor_of_store(store, names=names))
        source = LogSource(folders.ingest(store), _requests(destination, redacted), signal_of)
        queue = DiskQueue(destination, source, cursor, tally, ends.ingest)
    upstream = Upstream(destination)
    return _Lane(destination, queue, QueueSender(name, queue, upstream.send, tally), upstream, tally)


def _requests(
    destination: Destination, content_of: Callable[[Record], bytes]
) -> Callable[[Record], QueuedRequest | None]:
    """How records of a log become requests for a destination, which gets only some signals."""

    def request_of(record: Record) -> QueuedRequest | None:
        signal = signal_of(record)
        if signal is None or signal not in destination.signals:
            return None
        return QueuedRequest(signal, content_of(record), len(record.payload))

    return request_of


def _redacted(redactor: Redactor) -> Callable[[Record], bytes]:
    """How the ingest log's records are sent without texts: it holds texts where the store keeps them."""

    def content_of(record: Record) -> bytes:
        if is_without_text(record):
            return record.payload
        try:
            return redactor.redact_request(record.payload, signal_of(record) or "traces")
        except OtlpDecodeError as error:
            raise UnreadableRecordError("it is not an OTLP request") from error

    return content_of


def _decrypted(cipher: RecordCipher) -> Callable[[Record], bytes]:
    return lambda record: cipher.decrypt(record).payload


async def _follow(received: AsyncIterator[ToForwarder], lanes: list[_Lane]) -> float | None:
    """Do as the store process says; return how long to drain, None if it has ended."""
    async for message in received:
        match message:
            case LogEnds():
                for lane in lanes:
                    if isinstance(lane.queue, DiskQueue):
                        lane.queue.reached(message.queues.get(lane.destination.name, message.ingest))
                    lane.sender.wake()
            case Add():
                request = QueuedRequest(message.signal, message.body, len(message.body))
                for lane in lanes:
                    if isinstance(lane.queue, MemoryQueue) and message.signal in lane.destination.signals:
                        lane.queue.add(request)
                        lane.sender.wake()
            case Drain():
                return message.within_s
            case Begin():
                raise AssertionError("it begins once")
    return None


async def _tick(lanes: list[_Lane], writer: asyncio.StreamWriter) -> None:
    while True:
        for lane in lanes:
            try:
                await asyncio.to_thread(lane.queue.enforce)
            except OSError as error:
                _log.warning("forwarding to %s: its queue cannot be read (%s)", lane.destination.name, error)
        with contextlib.suppress(OSError):
            writer.write(await asyncio.to_thread(_report, lanes))
            await writer.drain()
        await asyncio.sleep(_TICK_S)


def _report(lanes: list[_Lane]) -> bytearray:
    return messages.frame(Report(tuple(lane.report() for lane in lanes)))


async def _received(reader: asyncio.StreamReader) -> AsyncIterator[ToForwarder]:
    frames = messages.Frames()
    while chunk := await reader.read(_CHUNK_BYTES):
        for content in frames.feed(chunk):
            yield to_forwarder(content)


async def _lock(lock: IO[bytes]) -> None:
    """Wait until no other process forwards for this store. Raises BlockingIOError if one does not end."""
    until_s = time.monotonic() + _LOCK_WITHIN_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(_LOCK_EVERY_S)
        else:
            return
