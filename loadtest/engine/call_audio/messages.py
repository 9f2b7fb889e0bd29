"""Messages of a worker to the process that writes the audio of its calls: a head of fixed size and a payload. Pure."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from telemetry.store.recordings.kept_call import KeptTurn

# Kind, call, playback, rate in Hz, a moment in ns (or the number of a frame), and the size of the payload in bytes.
_HEAD: Final = struct.Struct("<BIIIqI")
HEAD_BYTES: Final = _HEAD.size
MOST_PAYLOAD_BYTES: Final = 1 << 30


class KeeperMessageKind(IntEnum):
    """The kinds of messages. The comments say what `at` and the payload are."""

    BACKGROUND = 1  # at: the line; PCM that is sent between utterances, of the rate
    OPEN = 2  # at: nothing; a CallOpened
    BEGAN = 3  # at: when the first sample of the call was spoken
    SPOKE = 4  # at: the first frame; PCM of an utterance, of the rate
    MUTED = 5  # at: the first frame that is background again
    PLAYED = 6  # at: when its first sample is played; PCM of the rate
    STOPPED = 7  # at: from when nothing of the playback is heard
    LOST = 8  # at: when it would have been played; its length in ns as eight bytes
    TURN = 9  # at: nothing; a KeptTurn
    CLOSE = 10  # at: when the call ended
    SETTLED = 11  # at: nothing before this moment changes any more, in any call


class CallOpened(msgspec.Struct, frozen=True):
    """A call whose audio or texts are kept. `keeps_audio` is False where only its texts are."""

    run_id: str
    call_id: str
    trace_id: str
    rate_hz: int  # of what the caller sends
    frame_samples: int
    line: int
    background_first: int
    keep_for_ns: int
    keeps_audio: bool


class KeeperMessage(NamedTuple):
    """One message."""

    kind: int
    call: int = 0
    playback: int = 0
    rate_hz: int = 0
    at: int = 0
    payload: bytes | memoryview = b""


def head(message: KeeperMessage) -> bytes:
    """The head of a message; its payload follows as it is."""
    kind, call, playback, rate_hz, at, payload = message
    return _HEAD.pack(kind, call, playback, rate_hz, at, len(payload))


def ns_payload(length_ns: int) -> bytes:
    """The payload of a LOST message."""
    return length_ns.to_bytes(8, "little")


def ns_of(payload: bytes | memoryview) -> int:
    """The length in a LOST message, ns."""
    return int.from_bytes(payload, "little")


def turn_payload(turn: KeptTurn) -> bytes:
    """The payload of a TURN message."""
    return msgspec.msgpack.encode(turn)


class KeeperDeframer:
    """Cuts a stream of bytes into messages, however it is split."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[KeeperMessage]:
        """Add bytes and give the messages that are whole. Raises ValueError for bytes that are none."""
        self._kept += data
        at, size = 0, len(self._kept)
        while size - at >= HEAD_BYTES:
            kind, call, playback, rate_hz, moment, length = _HEAD.unpack_from(self._kept, at)
            if not KeeperMessageKind.BACKGROUND <= kind <= KeeperMessageKind.SETTLED or length > MOST_PAYLOAD_BYTES:
                raise ValueError(f"a message of kind {kind} with {length} bytes is not one of ours")
            if size - at - HEAD_BYTES < length:
                break
            begin = at + HEAD_BYTES
            yield KeeperMessage(kind, call, playback, rate_hz, moment, bytes(self._kept[begin : begin + length]))
            at = begin + length
        del self._kept[:at]
