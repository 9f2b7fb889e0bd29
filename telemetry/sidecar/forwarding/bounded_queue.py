"""The queue of one destination, in memory and bounded, the counts of the requests by outcome, and their display.
Thread-safe.

Every added request is in exactly one state: it waits, is being sent, or is counted as forwarded, refused or dropped.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal, get_args

import msgspec

from telemetry.sidecar.counts.families import Family
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.signals import Signal

# Reasons for which requests are lost without an answer of the destination.
DropReason = Literal["size", "age", "redaction", "stop"]
DROP_REASONS: Final[tuple[DropReason, ...]] = get_args(DropReason)
# A request counts as refused once the destination has failed at it so often and taken others in between.
STRIKES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Received:
    """An exporter's request in protobuf, with its number of items (spans or metric points)."""

    signal: Signal
    body: bytes
    items: int


@dataclass(slots=True)
class QueuedRequest:
    """A request to send. `strikes` counts how often the destination failed at it alone after it had taken others,
    `taken_before` is how many it had taken at the last strike."""

    body: bytes
    items: int
    added_s: float
    strikes: int = 0
    taken_before: int = -1


@dataclass(slots=True)
class DestinationState:
    """The requests that wait for a destination, and counts of the others since the start.

    `refused_requests` are never sent again, by reason; `rejected_items` were left out of requests that the destination
    acknowledged (partial success); `lost_items` never arrive: dropped, refused or rejected. `failures` say why a signal
    cannot be sent at the moment, `refusal` why something was last refused or rejected.
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
    """The requests of each signal in order of arrival, within the destination's limits.

    Beyond them, the oldest requests that are not being sent are dropped; the newest stays, whatever its size. A signal
    has one sender, which settles the requests that it took before it takes more; until then they count as waiting.
    """

    def __init__(self, destination: Destination, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._destination = destination
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._requests: dict[Signal, deque[QueuedRequest]] = {signal: deque() for signal in destination.signals}
        self._sending: Counter[Signal] = Counter()  # how many of the oldest are being sent
        self._taken: Counter[Signal] = Counter()
        self._state = DestinationState(destination.name)
        self._is_closed = False

    def add(self, signal: Signal, body: bytes, items: int) -> None:
        """Add a request of one of the destination's signals; drop the oldest if the limits require it."""
        with self._lock:
            request = QueuedRequest(body, items, self._clock_s())
            self._account(request, 1)
            self._requests[signal].append(request)
            if self._is_closed:
                self._drop(signal, "stop")
            self._make_room()

    def take(self, signal: Signal, requests_max: int, bytes_max: int) -> list[QueuedRequest]:
        """Take the oldest requests of a signal, limited in number and bytes, but at least one."""
        with self._lock:
            self._expire(signal)
            batch: list[QueuedRequest] = []
            for request in islice(self._requests[signal], requests_max):
                bytes_max -= len(request.body)
                # A request at which the destination failed is sent alone, so that others do not fail with it.
                if batch and (bytes_max < 0 or request.strikes or batch[0].strikes):
                    break
                batch.append(request)
            self._sending[signal] = len(batch)
            return batch

    def put_back(self, signal: Signal) -> None:
        """Return a taken request to the front of the queue."""
        with self._lock:
            self._sending[signal] = 0
            self._make_room()

    def forwarded(self, signal: Signal, rejected_items: int) -> None:
        """Count the taken requests as acknowledged by the destination, except for some items."""
        with self._lock:
            batch = self._settled(signal)
            rejected_items = min(rejected_items, sum(request.items for request in batch))
            self._taken[signal] += len(batch)
            self._state.forwarded_requests += len(batch)
            self._state.forwarded_bytes += sum(len(request.body) for request in batch)
            self._state.rejected_items += rejected_items
            self._state.lost_items += rejected_items

    def refused(self, signal: Signal, reason: str) -> None:
        """Count the taken requests as permanently refused by the destination."""
        with self._lock:
            for request in self._settled(signal):
                self._state.refused_requests[reason] += 1
                self._state.lost_items += request.items

    def move_last(self, signal: Signal) -> bool:
        """Move the taken request, at which the destination fails, behind the others; return False if it has failed at
        it too often, each time after it had taken others: then the sender must settle it."""
        with self._lock:
            request = self._requests[signal][0]
            if self._taken[signal] > request.taken_before:
                request.strikes += 1
                request.taken_before = self._taken[signal]
            if request.strikes < STRIKES_MAX:
                self._requests[signal].rotate(-1)
                self._sending[signal] = 0
            return request.strikes < STRIKES_MAX

    def not_queued(self, items: int) -> None:
        """Count a request that cannot be queued because its texts could not be removed."""
        with self._lock:
            self._count_dropped("redaction", items)

    def note(self, signal: Signal, failure: str | None, refusal: str | None = None) -> bool:
        """Record whether a signal can be sent and why something was refused; return whether the former changed."""
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
        """Drop requests that have waited too long and are not being sent."""
        with self._lock:
            for signal in self._requests:
                self._expire(signal)

    def close(self) -> None:
        """Drop all waiting requests, and all that are added from now on."""
        with self._lock:
            self._is_closed = True
            self._sending.clear()
            for signal, requests in self._requests.items():
                while requests:
                    self._drop(signal, "stop")

    def state(self) -> DestinationState:
        """The current state."""
        with self._lock:
            state = deepcopy(self._state)
            oldest = [requests[0].added_s for requests in self._requests.values() if requests]
            state.backlog_s = round(self._clock_s() - min(oldest), 3) if oldest else 0.0
            return state

    def _oldest(self, signal: Signal) -> QueuedRequest | None:
        """The oldest request that is not being sent."""
        place = self._sending[signal]
        return self._requests[signal][place] if place < len(self._requests[signal]) else None

    def _make_room(self) -> None:
        """Drop the oldest until the limits are met, or one is left."""
        limits, state = self._destination, self._state
        while state.backlog_bytes > limits.queue_bytes or state.backlog_items > limits.queue_items:
            if state.backlog_requests - self._sending.total() <= 1:
                return
            oldest: list[tuple[float, Signal]] = [
                (request.added_s, signal) for signal in self._requests if (request := self._oldest(signal))
            ]
            self._drop(min(oldest)[1], "size")

    def _expire(self, signal: Signal) -> None:
        while (oldest := self._oldest(signal)) and self._clock_s() - oldest.added_s > self._destination.max_age_s:
            self._drop(signal, "age")

    def _settled(self, signal: Signal) -> list[QueuedRequest]:
        """Remove and return the requests that were being sent."""
        batch = [self._requests[signal].popleft() for _ in range(self._sending.pop(signal, 0))]
        for request in batch:
            self._account(request, -1)
        return batch

    def _drop(self, signal: Signal, reason: DropReason) -> None:
        """Drop the oldest request of a signal that is not being sent."""
        place = self._sending[signal]
        request = self._requests[signal][place]
        del self._requests[signal][place]
        self._account(request, -1)
        self._count_dropped(reason, request.items)

    def _count_dropped(self, reason: DropReason, items: int) -> None:
        self._state.dropped_requests[reason] += 1
        self._state.lost_items += items

    def _account(self, request: QueuedRequest, sign: int) -> None:
        self._state.backlog_requests += sign
        self._state.backlog_items += sign * request.items
        self._state.backlog_bytes += sign * len(request.body)


# Reasons that are shown from the start, so that their first increase is seen as one.
_REFUSALS: Final = dict.fromkeys(("HTTP status 400", "HTTP status 413"), 0)

_Values = Callable[[DestinationState], Mapping[str, float] | float]


def _family(name: str, text: str, *labels: str, kind: Literal["counter", "gauge"] = "counter") -> Family:
    return Family(f"voice_forward_{name}", kind, text, ("destination", *labels))


# Requests are those that senders made, in protobuf and uncompressed.
FAMILIES: Final[dict[Family, _Values]] = {
    _family("up", "0 while what is sent to it fails and is tried again, else 1.", kind="gauge"): (
        lambda state: int(not state.failures)
    ),
    _family("backlog_bytes", "Bytes that wait for the destination.", kind="gauge"): lambda state: state.backlog_bytes,
    _family("backlog_items", "Spans and metric points that wait for it.", kind="gauge"): (
        lambda state: state.backlog_items
    ),
    _family("backlog_seconds", "Age of the oldest that waits for it.", kind="gauge"): lambda state: state.backlog_s,
    _family("requests", "Requests that the destination acknowledged."): lambda state: state.forwarded_requests,
    _family("bytes", "Bytes of requests that it acknowledged."): lambda state: state.forwarded_bytes,
    _family("refused_requests", "Requests that it refused for good, by reason; they are not sent again.", "reason"): (
        lambda state: _REFUSALS | state.refused_requests
    ),
    _family(
        "rejected_items", "Spans and metric points that it left out of requests it acknowledged (partial success)."
    ): lambda state: state.rejected_items,
    _family("failed_attempts", "Attempts that are made again."): lambda state: state.failed_attempts,
    _family(
        "dropped_requests",
        "Requests that are not forwarded, by reason: the size of the queue, their age, texts that cannot be taken out, "
        "the end of the sidecar.",
        "reason",
    ): lambda state: {reason: state.dropped_requests[reason] for reason in DROP_REASONS},
    _family("lost_items", "Spans and metric points that never arrive: dropped, refused or rejected."): (
        lambda state: state.lost_items
    ),
}


def forwarding_families(states: Sequence[DestinationState]) -> Iterator[Any]:
    """The families with their values; none without destinations."""
    for family, values in FAMILIES.items() if states else ():
        yield family.of(_samples(values, states))


def _samples(values: _Values, states: Sequence[DestinationState]) -> Iterator[tuple[tuple[str, ...], float]]:
    for state in states:
        value = values(state)
        if isinstance(value, Mapping):
            yield from (((state.name, reason), count) for reason, count in value.items())
        else:
            yield (state.name,), value


def shown_in_state(
    destinations: Sequence[Destination], states: Sequence[DestinationState]
) -> dict[str, dict[str, object]]:
    """The destinations by name: the target of each, its state and its counts."""
    return {
        state.name: {
            "url": destination.url,
            "text": destination.text,
            "signals": destination.signals,
            "failure": "; ".join(state.failures.values()) or None,
            **{key: value for key, value in msgspec.to_builtins(state).items() if key not in ("name", "failures")},
        }
        for destination, state in zip(destinations, states, strict=True)
    }
