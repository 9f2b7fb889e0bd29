"""The messages between the engine and its WebRTC process: a length, a kind, a call, and what belongs to the kind. Pure.

What comes from the process also carries when it arrived from the network, on the clock that both share, and how long
at most it had been waiting by then.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec

from loadtest.protocols.failure import Failure


class LinkKind(IntEnum):
    """The kinds of messages, in either direction."""

    MAKE_OFFER = 1  # JSON of MakeOffer
    ANSWER = 2  # an SDP
    TEXT = 3  # a text of the data channel; from the process too
    KEEP_ALIVE = 4  # JSON of KeepAlive
    FRAME = 5  # when it was handed over, and its samples
    CLOSE = 6
    JOIN = 7  # JSON of JoinRoom
    STARTED = 10  # JSON of Started
    OFFER = 11  # an SDP
    CHANNEL_OPEN = 12
    BINARY = 13  # bytes of the data channel, or of a byte stream of a room
    AUDIO = 14  # packets lost before it, jitter, and its samples
    QUIET = 15
    REPORT = 16  # packets lost and jitter as the endpoint reports them
    SENT_LATE = 17  # how long after it was handed over a frame was sent
    STATE = 18  # of the peer connection, one word
    LOST = 19  # JSON of Lost
    CLOSED = 20
    ROOM = 21  # JSON of a RoomItem


class Started(msgspec.Struct, frozen=True):
    """The process is ready."""

    aiortc: str  # its version


class Lost(msgspec.Struct, frozen=True):
    """A peer connection cannot continue. `reason` is a sentence without an end; `failure` None: a fault of ours."""

    reason: str
    failure: Failure | None


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A message of the process. Times are in ns on the monotonic clock."""

    kind: int
    call: int
    stamp_perf_ns: int
    lag_bound_ns: int
    data: bytes


class Command(msgspec.Struct, frozen=True, gc=False):
    """A message of the engine."""

    kind: int
    call: int
    data: bytes


_LENGTH: Final = struct.Struct("<I")
_COMMAND: Final = struct.Struct("<IBI")
_ARRIVED: Final = struct.Struct("<IBIqq")
# A frame that leaves this machine later than this after it was handed over is reported (`LinkKind.SENT_LATE`).
REPORTED_LATE_NS: Final = 2_000_000
HANDED_OVER: Final = struct.Struct("<q")
PACKET: Final = struct.Struct("<Iq")
# A message beyond it cannot be one: an SDP and a text of a data channel are smaller.
MAX_BYTES: Final = 16 * 2**20


def command(kind: LinkKind, call: int, data: bytes = b"") -> bytes:
    """Encode a message of the engine."""
    return _COMMAND.pack(_COMMAND.size - _LENGTH.size + len(data), kind, call) + data


def frame_command(call: int, handed_over_perf_ns: int, pcm: bytes) -> bytes:
    """Encode one frame of audio; this runs for every frame."""
    size = _COMMAND.size - _LENGTH.size + HANDED_OVER.size + len(pcm)
    return _COMMAND.pack(size, LinkKind.FRAME, call) + HANDED_OVER.pack(handed_over_perf_ns) + pcm


def arrived(kind: LinkKind, call: int, stamp_perf_ns: int, lag_bound_ns: int, data: bytes = b"") -> bytes:
    """Encode a message of the process."""
    size = _ARRIVED.size - _LENGTH.size + len(data)
    return _ARRIVED.pack(size, kind, call, stamp_perf_ns, lag_bound_ns) + data


class Deframer:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def commands(self, data: bytes) -> Iterator[Command]:
        """Decode what the engine sent. Raises ValueError for what is no message."""
        for message in self._cut(data, _COMMAND.size):
            _, kind, call = _COMMAND.unpack_from(message)
            yield Command(kind, call, message[_COMMAND.size :])

    def arrivals(self, data: bytes) -> Iterator[Arrived]:
        """Decode what the process sent. Raises ValueError for what is no message."""
        for message in self._cut(data, _ARRIVED.size):
            _, kind, call, stamp_perf_ns, lag_bound_ns = _ARRIVED.unpack_from(message)
            yield Arrived(kind, call, stamp_perf_ns, lag_bound_ns, message[_ARRIVED.size :])

    def _cut(self, data: bytes, head_bytes: int) -> Iterator[bytes]:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            if not head_bytes - _LENGTH.size <= length <= MAX_BYTES:
                raise ValueError(f"a message of {length} bytes between the engine and its WebRTC process")
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            whole = bytes(self._buffer[at:end])
            at = end
            yield whole
        del self._buffer[:at]
