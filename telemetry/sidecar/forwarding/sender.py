"""Sends what waits for one destination: in its order, in batches, until each request is settled."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.sidecar.forwarding.backoff import Backoff
from telemetry.sidecar.forwarding.queued import ForwardQueue, QueuedRequest, QueueWindow
from telemetry.sidecar.forwarding.tally import Tally
from telemetry.sidecar.forwarding.upstream import PostResult
from telemetry.sidecar.signals import Signal

# Most receivers take some 4 MiB; requests that are larger by themselves are sent as they are.
WINDOW_BYTES: Final = 2 << 20
# Requests that come one after another are sent together.
GATHER_S: Final = 0.3
# So often a server may fail at the same request before the request itself is suspected.
_SERVER_ERRORS_MAX: Final = 3
# A disk that cannot be read is tried again after this.
_READ_AGAIN_S: Final = 5.0

_log = logging.getLogger(__name__)


class _DrainingEnded(Exception):  # noqa: N818 - a way out, not an error
    """The destination takes nothing while everything comes to an end."""


@dataclass(frozen=True, slots=True)
class _Batch:
    signal: Signal
    requests: tuple[QueuedRequest, ...]

    @property
    def size_bytes(self) -> int:
        return sum(request.size_bytes for request in self.requests)


class QueueSender:
    """Takes from a queue and posts; `post` never raises, `pause` waits so many seconds or until it is draining.

    `failure` is the reason why nothing can be sent at the moment, as one sentence.
    """

    def __init__(
        self,
        name: str,
        queue: ForwardQueue,
        post: Callable[[Signal, Sequence[bytes]], Awaitable[PostResult]],
        tally: Tally,
        *,
        backoff: Backoff | None = None,
        pause: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._name = name
        self._queue = queue
        self._post = post
        self._tally = tally
        self._backoff = backoff or Backoff()
        self._pause = pause or self._wait
        self._came = asyncio.Event()
        self._draining = asyncio.Event()
        self.failure: str | None = None

    def wake(self) -> None:
        """Look into the queue: something was added."""
        self._came.set()

    def drain(self) -> None:
        """Send what waits, then end; end at once if the destination takes nothing."""
        self._draining.set()
        self._came.set()

    async def run(self) -> None:
        """Send until it is drained."""
        try:
            while True:
                self._came.clear()
                window = await self._take()
                if window is not None and await self._deliver(window):
                    await asyncio.to_thread(self._queue.settle, window)
                if window is None or window.requests:
                    await self._pause(GATHER_S)
                elif self._draining.is_set():
                    return
                else:
                    await self._came.wait()
        except _DrainingEnded:
            return

    async def _take(self) -> QueueWindow | None:
        try:
            return await asyncio.to_thread(self._queue.take, WINDOW_BYTES)
        except OSError as error:
            await self._failed(f"its queue cannot be read ({error.strerror})", _READ_AGAIN_S)
            return None

    async def _deliver(self, window: QueueWindow) -> bool:
        """Send every request of a window until it is taken, refused or too old; False if more of the queue is needed
        to know whether it is a request or the server that fails."""
        waiting = deque(_batches(window.requests))
        # Requests at which the server fails, each with how many batches had been taken before.
        suspects: list[tuple[_Batch, int]] = []
        accused: _Batch | None = None
        last_taken: _Batch | None = None
        server_errors = taken = 0
        while waiting or suspects:
            if not waiting:
                accused, before = suspects.pop(0)
                if taken == before and (last_taken is None or not await self._is_working(last_taken)):
                    return False
                waiting.append(accused)
            batch = waiting.popleft()
            result = await self._post(batch.signal, [request.body for request in batch.requests])
            server_errors = server_errors + 1 if result.is_doubtful else 0
            if result.outcome == "taken":
                taken += 1
                last_taken = batch
                self._taken(batch, result)
            elif result.outcome == "failed":
                self._tally.failed_attempts += 1
                await self._failed(result.reason, self._backoff.next_s(result.retry_after_s))
                if self._queue.has_expired(window):
                    self._expired([batch, *waiting, *(suspect for suspect, _ in suspects)])
                    return True
                if server_errors < _SERVER_ERRORS_MAX:
                    waiting.appendleft(batch)
                    continue
                server_errors = 0
                if _split(batch, waiting):
                    self._backoff.reset()  # the halves are other requests
                elif batch is accused:
                    self._refused(batch, result)
                else:
                    suspects.append((batch, taken))
            elif not _split(batch, waiting):
                self._refused(batch, result)
        return True

    async def _is_working(self, taken: _Batch) -> bool:
        """Send what was taken before once more, to know whether the server takes anything now."""
        result = await self._post(taken.signal, [request.body for request in taken.requests])
        if result.outcome == "failed":
            await self._failed(result.reason, self._backoff.next_s(result.retry_after_s))
        return result.outcome == "taken"

    def _taken(self, batch: _Batch, reply: PostResult) -> None:
        self._recovered()
        self._tally.forwarded_requests += len(batch.requests)
        self._tally.forwarded_bytes += batch.size_bytes
        if reply.rejected_items:
            self._tally.rejected_items += reply.rejected_items
            because = f": {reply.reason}" if reply.reason else ""
            _log.warning(
                "forwarding to %s: it rejected %d items of %s%s",
                self._name,
                reply.rejected_items,
                batch.signal,
                because,
            )

    def _refused(self, batch: _Batch, reply: PostResult) -> None:
        # It did answer: whatever comes next has a chance of its own.
        self._recovered()
        self._tally.refused_requests += 1
        self._tally.refused_bytes += batch.size_bytes
        _log.warning(
            "forwarding to %s: it refused a request of %s for good (%d bytes), which is not sent again: %s",
            self._name,
            batch.signal,
            batch.size_bytes,
            reply.reason,
        )

    def _expired(self, waiting: Sequence[_Batch]) -> None:
        requests = sum(len(batch.requests) for batch in waiting)
        size_bytes = sum(batch.size_bytes for batch in waiting)
        self._tally.drop("age", requests, size_bytes)
        _log.warning(
            "forwarding to %s: %d requests (%d KiB) are dropped: they waited for longer than max_age",
            self._name,
            requests,
            size_bytes >> 10,
        )

    async def _failed(self, reason: str, wait_s: float) -> None:
        if self.failure is None:
            _log.warning("forwarding to %s fails, what is received waits: %s", self._name, reason)
        self.failure = reason
        if self._draining.is_set():
            raise _DrainingEnded
        await self._pause(wait_s)
        if self._draining.is_set():
            raise _DrainingEnded

    def _recovered(self) -> None:
        if self.failure is not None:
            _log.warning("forwarding to %s works again", self._name)
        self.failure = None
        self._backoff.reset()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._draining.wait()
        except TimeoutError:
            return


def _split(batch: _Batch, waiting: deque[_Batch]) -> bool:
    """Put the halves of a batch before the others, as one of its requests may be at fault for all; False if it is one
    request."""
    half = len(batch.requests) // 2
    for requests in (batch.requests[half:], batch.requests[:half]):
        if half:
            waiting.appendleft(_Batch(batch.signal, requests))
    return half > 0


def _batches(requests: Sequence[QueuedRequest]) -> Iterator[_Batch]:
    """The requests of each signal together, in their order."""
    signals: dict[Signal, list[QueuedRequest]] = {}
    for request in requests:
        signals.setdefault(request.signal, []).append(request)
    for signal, found in signals.items():
        yield _Batch(signal, tuple(found))
