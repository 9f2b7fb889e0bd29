"""What waits for one destination: the requests that are sent next, and the queue that they come from."""

from dataclasses import dataclass
from typing import Protocol

from telemetry.sidecar.forwarding.tally import Waiting
from telemetry.sidecar.signals import Signal
from telemetry.store.log_positions import START, Position


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request in protobuf as it is to be sent; `size_bytes` is what its sender sent."""

    signal: Signal
    body: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class QueueWindow:
    """The oldest requests of a queue. `next` is where the queue goes on behind them."""

    requests: tuple[QueuedRequest, ...] = ()
    oldest_unix_ns: int = 0
    next: Position = START


class ForwardQueue(Protocol):
    """A queue of requests with limits of size and age, beyond which the oldest are dropped and counted; thread-safe."""

    def take(self, bytes_max: int) -> QueueWindow:
        """The oldest requests, some `bytes_max` of them; none where nothing waits. They stay in the queue."""
        ...

    def settle(self, window: QueueWindow) -> None:
        """Remove what was taken: the destination has acknowledged or refused all of it."""
        ...

    def has_expired(self, window: QueueWindow) -> bool:
        """Whether what was taken waits for too long by now."""
        ...

    def enforce(self) -> None:
        """Drop what is beyond the limits, except what is being sent."""
        ...

    def backlog(self) -> Waiting:
        """What waits."""
        ...
