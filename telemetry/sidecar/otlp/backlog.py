"""How much work waits for the store process, in bytes and in seconds, and when a request is sent back for it."""

import math
from typing import Final

from telemetry.model.errors import StoreError

PENDING_BYTES_MAX: Final = 64 << 20
PENDING_S_MAX: Final = 2.0
# Python's exporters give up ten seconds after their first attempt, so a retry must come well before that.
RETRY_AFTER_S: Final = 1
# A request costs what this many bytes cost, however short it is.
_REQUEST_OVERHEAD_BYTES: Final = 4096
# The rate is a mean over about this many seconds of work; before anything was measured it is assumed.
_MEMORY_S: Final = 1.0
_ASSUMED_BYTES_PER_S: Final = 4e6
_ASSUMED_FOR_S: Final = 0.1
# The store process ends a group after about this much decoding, and then waits for the disk once.
GROUP_S: Final = 0.05


class Overloaded(StoreError):  # noqa: N818 - reads as what happened
    """More waits than can be stored soon; the request is to be sent again after `retry_after_s`."""

    def __init__(self, sentence: str, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class Backlog:
    """The requests that were passed to the store process and are not answered yet."""

    def __init__(self, bytes_max: int = PENDING_BYTES_MAX, seconds_max: float = PENDING_S_MAX) -> None:
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._pending_bytes = 0
        self._done_bytes = _ASSUMED_BYTES_PER_S * _ASSUMED_FOR_S
        self._done_s = _ASSUMED_FOR_S
        self._durable_s = 0.0

    @property
    def pending_bytes(self) -> int:
        """The size of what waits; every request counts a little more than its body."""
        return self._pending_bytes

    @property
    def pending_s(self) -> float:
        """How long the store process will work on what waits: decoding it, and waiting for the disk per group."""
        decode_s = self._pending_bytes * self._done_s / self._done_bytes
        return decode_s + math.ceil(decode_s / GROUP_S) * self._durable_s

    def add(self, body_bytes: int) -> None:
        """Count a request in. Raises Overloaded when too much waits already; a request alone may be of any size."""
        if self._pending_bytes and self._pending_bytes + body_bytes > self._bytes_max:
            raise Overloaded(f"{self._pending_bytes} bytes wait to be stored; send it again")
        if self.pending_s > self._seconds_max:
            raise Overloaded(f"what waits to be stored takes {self.pending_s:.1f} s; send it again")
        self._pending_bytes += body_bytes + _REQUEST_OVERHEAD_BYTES

    def remove(self, body_bytes: int) -> None:
        """Count a request out."""
        self._pending_bytes -= body_bytes + _REQUEST_OVERHEAD_BYTES

    def measured(self, requests: int, body_bytes: int, decode_s: float, durable_s: float) -> None:
        """Learn from a group that was stored."""
        kept = math.exp(-decode_s / _MEMORY_S)
        self._done_bytes = self._done_bytes * kept + body_bytes + requests * _REQUEST_OVERHEAD_BYTES
        self._done_s = self._done_s * kept + decode_s
        self._durable_s = (self._durable_s + durable_s) / 2
