"""The path of a request from a receiver into the store and back: what is acknowledged is committed.

Receivers call `Ingest.take` in the event loop. One thread decodes each request. Another takes the decoded requests as a
group, commits them in one transaction, returns the answers, and then counts what was stored. At most two seconds of
work wait: further requests are refused with the advice to retry.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from telemetry.model.errors import StoreError
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.signals import Encoding, Signal

# Exporters give up after ten seconds. Who waits until shortly before is sent back; it may be stored all the same, and
# is recognized when it is sent again.
ANSWER_WITHIN_S: Final = 8.0
PENDING_BYTES_MAX: Final = 64 << 20
PENDING_S_MAX: Final = 2.0
# Python's exporters give up ten seconds after their first attempt, so a retry must come well before that.
RETRY_AFTER_S: Final = 1
# What a request costs in addition to its body, and a group in addition to its requests, in bytes of a body.
_REQUEST_COST_BYTES: Final = 4096
_GROUP_COST_BYTES: Final = 64 << 10
# A commit of few rows takes nearly as long as one of many (9 ms of CPU for one request, 15 ms for eight): small groups
# begin no more often.
_COMMIT_EVERY_S: Final = 0.04
_SMALL_GROUP_BYTES: Final = 256 << 10
# A larger group ends after about this much work, so that the first request is answered soon.
_GROUP_S: Final = 0.1
_GROUP_BYTES_MIN: Final = 512 << 10
# The rate is a mean that forgets a fifth with each group; before anything was measured it is assumed.
_KEPT: Final = 0.8
_ASSUMED_BYTES_PER_S: Final = 4e6

_log = logging.getLogger(__name__)


class Overloaded(StoreError):  # noqa: N818 - reads as what happened
    """Raised if more requests wait than can be stored soon; the request is to be sent again after `RETRY_AFTER_S`."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A decompressed request from a receiver."""

    signal: Signal
    encoding: Encoding
    body: bytes

    @property
    def cost_bytes(self) -> int:
        """The cost of storing it, in bytes of a body."""
        return len(self.body) + _REQUEST_COST_BYTES


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of an accepted request: how many of its items were rejected, and the first few reasons."""

    rejected: int = 0
    reasons: tuple[str, ...] = ()


Outcome = Taken | OtlpDecodeError | StoreError


class Backlog:
    """The waiting work, in bytes and in seconds; used in one thread."""

    def __init__(self, bytes_max: int = PENDING_BYTES_MAX, seconds_max: float = PENDING_S_MAX) -> None:
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self.pending_bytes = 0
        self.bytes_per_s = _ASSUMED_BYTES_PER_S

    @property
    def pending_s(self) -> float:
        """The time needed to store the waiting requests."""
        return self.pending_bytes / self.bytes_per_s

    def add(self, cost_bytes: int) -> None:
        """Add a request. Raises Overloaded if too much waits already; a request without others before it may be of any
        size."""
        if self.pending_bytes and self.pending_bytes + cost_bytes > self._bytes_max:
            raise Overloaded(f"{self.pending_bytes} bytes wait to be stored; send it again")
        if self.pending_s > self._seconds_max:
            raise Overloaded(f"what waits to be stored takes {self.pending_s:.1f} s; send it again")
        self.pending_bytes += cost_bytes

    def stored(self, cost_bytes: int, took_s: float) -> None:
        """Remove a stored group, and update the storage rate from the time that it took."""
        self.pending_bytes -= cost_bytes
        rate = (cost_bytes + _GROUP_COST_BYTES) / max(took_s, 1e-4)
        self.bytes_per_s = _KEPT * self.bytes_per_s + (1 - _KEPT) * rate


class Stages(Protocol):
    """The stages of processing requests."""

    def decode(self, request: ExportRequest) -> Any:
        """Decode a request; called in the decoding thread only."""
        ...

    def commit(self, decoded: Sequence[Any]) -> Sequence[Outcome]:
        """Store a group of decoded requests and return their outcomes; called in the storing thread only."""
        ...

    def count(self) -> None:
        """Do the work on the last group that can follow the answers to its requests, in the storing thread."""
        ...


@dataclass(slots=True)
class _Waiting:
    """A request that waits to be stored; `decoded` is the result of decoding it, which took `took_s`."""

    request: ExportRequest
    answer: "asyncio.Future[Taken]"
    decoded: Any = None
    took_s: float = 0.0


class Ingest:
    """Takes the requests of all receivers, in the event loop in which it was started.

    To read counts that include everything acknowledged, acquire `counting` once before.
    """

    def __init__(
        self,
        stages: Stages,
        *,
        backlog: Backlog | None = None,
        answer_within_s: float = ANSWER_WITHIN_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages = stages
        self._backlog = backlog or Backlog()
        self._answer_within_s = answer_within_s
        self._clock_s = clock_s
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._decoded: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("decode", self._decode_all), ("commit", self._commit_all))
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began_s: dict[str, float] = {}
        # The numbers of requests that were queued and that were decoded, each counted by one thread.
        self._queued_requests = self._decoded_requests = 0
        self.counting = threading.Lock()
        self.bad_requests = 0
        self.refused_requests = 0

    def start(self) -> None:
        """Start storing; to be called in the event loop."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Store and answer the waiting requests, then end."""
        self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                await asyncio.to_thread(thread.join)

    @property
    def busy_s(self) -> float:
        """Time spent so far on the request or group that is being decoded or stored; 0 between two of them."""
        return max((self._clock_s() - began_s for began_s in self._began_s.copy().values()), default=0.0)

    def bad_request(self) -> None:
        """Count a request that was refused before it reached `take`."""
        self.bad_requests += 1

    def refused_request(self) -> None:
        """Count a request that was refused with the advice to retry before it reached `take`."""
        self.refused_requests += 1

    async def take(self, signal: Signal, encoding: Encoding, body: bytes) -> Taken:
        """Store a request durably. `body` is decompressed.

        Raises OtlpDecodeError for a body that cannot be read, Overloaded and StoreError if it is to be sent again.
        """
        try:
            return await self._submit(ExportRequest(signal, encoding, body))
        except OtlpDecodeError:
            self.bad_requests += 1
            raise
        except StoreError:
            self.refused_requests += 1
            raise

    async def _submit(self, request: ExportRequest) -> Taken:
        self._backlog.add(request.cost_bytes)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._queued_requests += 1
        self._queue.put(waiting)
        try:
            async with asyncio.timeout(self._answer_within_s):
                return await waiting.answer
        except TimeoutError:
            sentence = f"it was not stored within {self._answer_within_s:.0f} s; send it again"
            raise Overloaded(sentence) from None

    def _decode_all(self) -> None:
        while (waiting := self._queue.get()) is not None:
            self._began_s["decode"] = began_s = self._clock_s()
            try:
                waiting.decoded = self._stages.decode(waiting.request)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one may be decoded
                _log.exception("a request could not be decoded")
                waiting.decoded = error
            waiting.took_s = self._clock_s() - began_s
            del self._began_s["decode"]
            self._decoded_requests += 1
            self._decoded.put(waiting)
        self._decoded.put(None)

    def _commit_all(self) -> None:
        goes_on, next_s = True, 0.0
        while goes_on and (first := self._decoded.get()) is not None:
            group, goes_on = self._group(first, next_s)
            self._began_s["commit"] = began_s = self._clock_s()
            next_s = began_s + _COMMIT_EVERY_S
            outcomes, is_stored = self._outcomes(group)
            with self.counting:
                took_s = max(self._clock_s() - began_s, sum(waiting.took_s for waiting in group))
                assert self._loop is not None  # noqa: S101 - the threads are started in it
                self._loop.call_soon_threadsafe(self._answer, group, outcomes, took_s)
                if is_stored:
                    self._count()
            del self._began_s["commit"]

    def _outcomes(self, group: Sequence[_Waiting]) -> tuple[Sequence[Outcome], bool]:
        fault = next((waiting.decoded for waiting in group if isinstance(waiting.decoded, Exception)), None)
        if fault is None:
            try:
                return self._stages.commit([waiting.decoded for waiting in group]), True
            except Exception as error:  # noqa: BLE001 - whatever it is, the next group may be stored
                _log.exception("a group of requests could not be stored")
                fault = error
        return [StoreError(f"it could not be stored ({type(fault).__name__}); send it again")] * len(group), False

    def _count(self) -> None:
        try:
            self._stages.count()
        except Exception:  # noqa: BLE001 - it is stored and answered
            _log.exception("a group of requests could not be counted")

    def _group(self, first: _Waiting, begins_s: float) -> tuple[list[_Waiting], bool]:
        """Collect the request and those that wait after it, a small group also until `begins_s`; return them and
        whether more may follow."""
        group, cost_bytes = [first], first.request.cost_bytes
        limit_bytes = max(_GROUP_BYTES_MIN, self._backlog.bytes_per_s * _GROUP_S)
        while cost_bytes < limit_bytes:
            wait_s = begins_s - self._clock_s() if cost_bytes < _SMALL_GROUP_BYTES else 0.0
            if self._queued_requests > self._decoded_requests:
                wait_s = _GROUP_S  # the next request follows, soon unless it is large
            try:
                waiting = self._decoded.get(timeout=max(0.0, wait_s))
            except queue.Empty:
                break
            if waiting is None:
                return group, False
            group.append(waiting)
            cost_bytes += waiting.request.cost_bytes
        return group, True

    def _answer(self, group: Sequence[_Waiting], outcomes: Sequence[Outcome], took_s: float) -> None:
        self._backlog.stored(sum(waiting.request.cost_bytes for waiting in group), took_s)
        for waiting, outcome in zip(group, outcomes, strict=True):
            if waiting.answer.done():
                continue
            if isinstance(outcome, Taken):
                waiting.answer.set_result(outcome)
            else:
                waiting.answer.set_exception(outcome)
