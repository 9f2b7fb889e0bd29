"""What became of the requests for one destination since a process began, and how it fares at the moment."""

from collections import Counter
from typing import Final, Literal, get_args

import msgspec

# Why requests are dropped without being sent.
DropReason = Literal["age", "size", "disk", "unreadable", "restart"]
DROP_REASONS: Final[tuple[DropReason, ...]] = get_args(DropReason)


class Tally(msgspec.Struct):
    """Counts of requests as senders made them, and of their bytes.

    `refused_requests` were not taken and are not sent again; `rejected_items` are spans and metric points that
    acknowledged requests lost upstream (partial success).
    """

    forwarded_requests: int = 0
    forwarded_bytes: int = 0
    rejected_items: int = 0
    refused_requests: int = 0
    refused_bytes: int = 0
    dropped_requests: dict[str, int] = {}
    dropped_bytes: int = 0
    failed_attempts: int = 0

    def drop(self, reason: DropReason, requests: int, size_bytes: int) -> None:
        """Count requests that are not going to be sent."""
        self.dropped_requests = dict(Counter(self.dropped_requests) + Counter({reason: requests}))
        self.dropped_bytes += size_bytes

    @property
    def settled_requests(self) -> int:
        """Requests that do not wait any more."""
        return self.forwarded_requests + self.refused_requests + sum(self.dropped_requests.values())

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.forwarded_requests + other.forwarded_requests,
            self.forwarded_bytes + other.forwarded_bytes,
            self.rejected_items + other.rejected_items,
            self.refused_requests + other.refused_requests,
            self.refused_bytes + other.refused_bytes,
            dict(Counter(self.dropped_requests) + Counter(other.dropped_requests)),
            self.dropped_bytes + other.dropped_bytes,
            self.failed_attempts + other.failed_attempts,
        )


class Waiting(msgspec.Struct, frozen=True):
    """What waits for a destination: octets, and the age of the oldest of it."""

    size_bytes: int = 0
    age_s: float = 0.0
