"""Arrival times of packets, as early as user space can know them, and their order.

asyncio passes a datagram on through several turns of its loop, and aiortc holds four packets of audio back before it
decodes the first. Here the moment is that at which the loop's selector returned, taken for each datagram; and each
packet of audio is decoded when it comes.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

# A selector that returns sooner than this did not wait: what it reports may have come since it was asked before.
_AT_ONCE_NS: Final = 50_000
_KEPT_STAMPS: Final = 512
_RTP_HEADER_BYTES: Final = 12
_SECOND_NS: Final = 1_000_000_000

StampedAt = tuple[int, int]  # the moment, and how long at most the datagram had been waiting by then; both in ns


class StampedSelector(selectors.DefaultSelector):
    """Knows when it returned last, and how long at most what it reported had been waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.returned_perf_ns = time.perf_counter_ns()
        self.lag_bound_ns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for what is ready."""
        entered = time.perf_counter_ns()
        ready = super().select(timeout)
        now = time.perf_counter_ns()
        waited = timeout != 0 and now - entered >= _AT_ONCE_NS
        self.lag_bound_ns = 0 if waited else now - self.returned_perf_ns
        self.returned_perf_ns = now
        return ready


class PeerStamps:
    """The stamps of what one peer has sent."""

    def __init__(self) -> None:
        self.newest: StampedAt = (time.perf_counter_ns(), 0)
        self._by_sequence: dict[int, StampedAt] = {}  # by the sequence number in the RTP header

    def note(self, datagram: bytes, stamp: StampedAt) -> None:
        """Keep the stamp of a datagram. The header of an encrypted RTP packet is not encrypted."""
        self.newest = stamp
        if len(datagram) >= _RTP_HEADER_BYTES and 128 <= datagram[0] < 192 and not 192 <= datagram[1] < 224:
            self._by_sequence[int.from_bytes(datagram[2:4], "big")] = stamp
            if len(self._by_sequence) > _KEPT_STAMPS:
                del self._by_sequence[next(iter(self._by_sequence))]

    def packet_stamp(self, sequence_number: int) -> StampedAt:
        """Return the stamp of an RTP packet."""
        return self._by_sequence.pop(sequence_number, self.newest)


# Whose sockets are being opened: ICE opens them in tasks of the peer connection that it belongs to.
CURRENT_PEER: Final[ContextVar[PeerStamps | None]] = ContextVar("CURRENT_PEER", default=None)


class StampedLoop(asyncio.SelectorEventLoop):
    """Stamps the datagrams of each socket that is opened on behalf of `CURRENT_PEER`."""

    def __init__(self) -> None:
        self.stamps = StampedSelector()
        super().__init__(self.stamps)

    async def create_datagram_endpoint(self, protocol_factory: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        """Open a socket; its protocol receives each datagram after it was stamped."""
        peer, stamps = CURRENT_PEER.get(), self.stamps
        made = await super().create_datagram_endpoint(protocol_factory, *args, **kwargs)
        protocol: Any = made[1]
        if peer is not None:
            received = protocol.datagram_received

            def stamp(data: bytes, address: Any) -> None:
                peer.note(data, (stamps.returned_perf_ns, stamps.lag_bound_ns))
                received(data, address)

            protocol.datagram_received = stamp
        return made


class PacketOrder:
    """The losses of a stream of RTP packets, and its interarrival jitter (RFC 3550, 6.4.1 and A.8)."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._sequence: int | None = None
        self._timestamp = 0
        self._stamp_perf_ns = 0
        self._jitter_ns = 0.0

    @property
    def jitter_ns(self) -> int:
        """The jitter so far."""
        return round(self._jitter_ns)

    def add(self, sequence: int, timestamp: int, stamp_perf_ns: int) -> int | None:
        """Account for a packet; return how many are missing directly before it, None if it came too late or twice."""
        if self._sequence is None:
            lost = 0
        else:
            ahead = (sequence - self._sequence) & 0xFFFF
            if ahead == 0 or ahead >= 0x8000:
                return None
            lost = ahead - 1
            elapsed = (timestamp - self._timestamp) & 0xFFFFFFFF
            media_ns = (elapsed - (0x100000000 if elapsed >= 0x80000000 else 0)) * _SECOND_NS // self._rate_hz
            difference = abs(stamp_perf_ns - self._stamp_perf_ns - media_ns)
            self._jitter_ns += (difference - self._jitter_ns) / 16
        self._sequence, self._timestamp, self._stamp_perf_ns = sequence, timestamp, stamp_perf_ns
        return lost
