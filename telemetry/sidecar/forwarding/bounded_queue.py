"""The queue of one destination, in memory and bounded, and the counts of what became of each request. Thread-safe.

Every request that was added is in exactly one place: it waits, is being sent, or is counted as forwarded, refused or
dropped.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.signals import Signal

# Why requests are lost without an answer of the destination.
DropReason = Literal["size", "age", "redaction", "stop"]
DROP_REASONS: Final[tuple[DropReason, ...]] = get_args(DropReason)
# A request counts as refused once the destination has failed at it so often and taken others in between.
STRIKES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Received:
    """A request that an exporter made, in protobuf, with its number of items (spans or metric points)."""

    signal: Signal
    body: bytes
    items: int


@dataclass(slots=True)
class QueuedRequest:
    """A request as it is to be sent. `strikes` counts how often the destination failed at it alone after it had taken
    others, `taken_before` how many it had taken at the last of them."""

    body: bytes
    items: int
    added_s: float
    strikes: int = 0
    taken_before: int = -1


@dataclass(slots=True)
class DestinationState:
    """The requests that wait for a destination, and counts of the others since the start.

    `refused_requests` are never sent again, by the reason; `rejected_items` are left out of requests that the
    destination acknowledged (partial success); `lost_items` never arrive: dropped, refused or rejected. `failures` say
    why a signal cannot be sent at the moment, `refusal` why something was refused or rejected last.
    """

    name: str
    backlog_requests: int = 0
    backlog_items: int = 0
    backlog_bytes: int = 0
    backlog_s: float = 0.0
    forwarded_requests: int = 0
    forwarded_bytes: int = 0
    rejected_items: int = 0
    refused_requests: Counter[str] = field(default_factory=Counter[str])
    dropped_requests: Counter[str] = field(default_factory=Counter[str])
    lost_items: int = 0
    failed_attempts: int = 0
    failures: dict[Signal, str] = field(default_factory=dict["Signal", str])
    refusal: str | None = None


class BoundedQueue:
    """Requests of each signal in the order of their arrival, within the destination's limits.

    Where they are exceeded, the oldest that are not being sent are dropped; the newest stays, whatever its size. A
    signal has one sender, which settles what it took before it takes more.
    """

    def __init__(self, destination: Destination, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._destination = destination
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._waiting: dict[Signal, deque[QueuedRequest]] = {signal: deque() for signal in destination.signals}
        # What is being sent counts as waiting until it is settled.
        self._sending: dict[Signal, list[QueuedRequest]] = {signal: [] for signal in destination.signals}
        self._taken: Counter[Signal] = Counter()
        self._state = DestinationState(destination.name)
        self._is_closed = False

    def add(self, signal: Signal, body: bytes, items: int) -> None:
        """Add a request of one of the destination's signals, for which the oldest make room."""
        with self._lock:
            request = QueuedRequest(body, items, self._clock_s())
            self._account(request, 1)
            self._waiting[signal].append(request)
            if self._is_closed:
                self._drop(signal, "stop")
            self._make_room()

    def take(self, signal: Signal, requests_max: int, bytes_max: int) -> list[QueuedRequest]:
        """The oldest requests of a signal, at most so many, and one or more with at most so many octets."""
        with self._lock:
            waiting, batch = self._waiting[signal], self._sending[signal]
            while waiting and len(batch) < requests_max:
                if self._is_expired(waiting[0]):
                    self._drop(signal, "age")
                    continue
                bytes_max -= len(waiting[0].body)
                # One at which the destination failed is sent alone, so that it takes no other with it.
                if batch and (bytes_max < 0 or waiting[0].strikes or batch[0].strikes):
                    break
                batch.append(waiting.popleft())
            return list(batch)

    def put_back(self, signal: Signal) -> None:
        """Let what was taken wait again, in front of the others."""
        with self._lock:
            self._waiting[signal].extendleft(reversed(self._settled(signal)))
            self._make_room()

    def forwarded(self, signal: Signal, rejected_items: int) -> None:
        """Count what was taken as acknowledged by the destination, but for some items."""
        with self._lock:
            batch = self._settled(signal)
            rejected_items = min(rejected_items, sum(request.items for request in batch))
            for request in batch:
                self._account(request, -1)
                self._taken[signal] += 1
                self._state.forwarded_requests += 1
                self._state.forwarded_bytes += len(request.body)
            self._state.rejected_items += rejected_items
            self._state.lost_items += rejected_items

    def refused(self, signal: Signal, reason: str) -> None:
        """Count what was taken as refused by the destination for good."""
        with self._lock:
            for request in self._settled(signal):
                self._account(request, -1)
                self._state.refused_requests[reason] += 1
                self._state.lost_items += request.items

    def move_last(self, signal: Signal) -> bool:
        """Let the one request that was taken, at which the destination fails, wait behind the others; False if it has
        failed at it too often, each time after it had taken others: then it is for the sender to settle."""
        with self._lock:
            (request,) = self._sending[signal]
            if self._taken[signal] > request.taken_before:
                request.strikes += 1
                request.taken_before = self._taken[signal]
            if request.strikes < STRIKES_MAX:
                self._waiting[signal] += self._settled(signal)
            return request.strikes < STRIKES_MAX

    def not_queued(self, items: int) -> None:
        """Count a request that cannot wait here, because its texts could not be taken out."""
        with self._lock:
            self._count_dropped("redaction", items)

    def note(self, signal: Signal, failure: str | None, refusal: str | None = None) -> bool:
        """Note whether a signal can be sent and why something was refused; whether the first is new."""
        with self._lock:
            was_failing = signal in self._state.failures
            if failure is not None:
                self._state.failures[signal] = failure
                self._state.failed_attempts += 1
            else:
                self._state.failures.pop(signal, None)
            self._state.refusal = refusal or self._state.refusal
            return was_failing != (failure is not None)

    def expire(self) -> None:
        """Drop what has waited for too long and is not being sent."""
        with self._lock:
            for signal, waiting in self._waiting.items():
                while waiting and self._is_expired(waiting[0]):
                    self._drop(signal, "age")

    def close(self) -> None:
        """Drop all that waits, and whatever is added from now on."""
        with self._lock:
            self._is_closed = True
            for signal, waiting in self._waiting.items():
                waiting.extendleft(reversed(self._settled(signal)))
                while waiting:
                    self._drop(signal, "stop")

    def state(self) -> DestinationState:
        """The state at this moment."""
        with self._lock:
            state = deepcopy(self._state)
            oldest = [each[0].added_s for each in (*self._sending.values(), *self._waiting.values()) if each]
            state.backlog_s = round(self._clock_s() - min(oldest), 3) if oldest else 0.0
            return state

    def _make_room(self) -> None:
        """Drop the oldest until the limits hold, or one is left."""
        limits, state = self._destination, self._state
        while state.backlog_bytes > limits.queue_bytes or state.backlog_items > limits.queue_items:
            if sum(map(len, self._waiting.values())) <= 1:
                return
            heads: list[tuple[float, Signal]] = [
                (waiting[0].added_s, signal) for signal, waiting in self._waiting.items() if waiting
            ]
            self._drop(min(heads)[1], "size")

    def _is_expired(self, request: QueuedRequest) -> bool:
        return self._clock_s() - request.added_s > self._destination.max_age_s

    def _settled(self, signal: Signal) -> list[QueuedRequest]:
        batch, self._sending[signal] = self._sending[signal], []
        return batch

    def _drop(self, signal: Signal, reason: DropReason) -> None:
        """Drop the oldest request of a signal that is not being sent."""
        request = self._waiting[signal].popleft()
        self._account(request, -1)
        self._count_dropped(reason, request.items)

    def _count_dropped(self, reason: DropReason, items: int) -> None:
        self._state.dropped_requests[reason] += 1
        self._state.lost_items += items

    def _account(self, request: QueuedRequest, sign: int) -> None:
        self._state.backlog_requests += sign
        self._state.backlog_items += sign * request.items
        self._state.backlog_bytes += sign * len(request.body)
