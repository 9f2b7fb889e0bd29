"""Messages between the sidecar's front and its store process, and their frames on the socket between them.

A frame is its length (u32, little endian) and a message in msgpack. Both ends are of one version and nobody else uses
the socket, so a frame that cannot be read is a fault of the program.
"""

import struct
from typing import Final, Literal

import msgspec

from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.signals import Signal

Encoding = Literal["protobuf", "json"]

LENGTH: Final = struct.Struct("<I")
_NO_TEXTS: Final[tuple[str, ...]] = ()


class FrontCounts(msgspec.Struct, frozen=True, array_like=True):
    """What the front has counted since its start: requests that were refused before a store process saw them."""

    bad_requests: int = 0
    refused_requests: int = 0
    restarts: int = 0


class StoreOptions(msgspec.Struct, frozen=True):
    """How a store process is started: the folder of the store, whether texts are kept, the objectives' file, what of
    the store is kept (None: no limit), the file of names that no text keeps, and where to forward to."""

    store: str
    keep_text: bool = False
    slo: str | None = None
    keep_age_ns: int | None = None
    keep_bytes: int | None = None
    redact_names: str | None = None
    destinations: tuple[Destination, ...] = ()


class Take(msgspec.Struct, frozen=True, array_like=True, tag="take"):
    """To the store process: a request of a sender. `alone` asks that it is decoded with no other request."""

    number: int
    signal: Signal
    encoding: Encoding
    alone: bool
    body: bytes


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """To the store process: a page that it renders. `accept` is the reader's Accept header."""

    number: int
    page: Literal["state", "metrics"]
    accept: str
    counts: FrontCounts


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """To the store process: commit everything that was acknowledged, then end."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """From the store process: the store is open and what the log held is committed."""


class Unusable(msgspec.Struct, frozen=True, array_like=True, tag="unusable"):
    """From the store process, before it ends: why it cannot start, as one sentence."""

    sentence: str


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """From the store process: the requests that it decodes now. If it dies, one of them may be the cause."""

    numbers: tuple[int, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What became of one request: durable, unless `undecodable` or `failure` says why not (a sentence)."""

    number: int
    rejected: int = 0
    reasons: tuple[str, ...] = _NO_TEXTS
    undecodable: str | None = None
    failure: str | None = None


class Answered(msgspec.Struct, frozen=True, array_like=True, tag="answered"):
    """From the store process: the answers to a group, and what it took to decode it and to make it durable."""

    answers: tuple[Answer, ...]
    decode_s: float
    durable_s: float


class Page(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """From the store process: the answer to an `Ask`."""

    number: int
    content_type: str
    body: bytes


class StoreFault(msgspec.Struct, frozen=True):
    """What is wrong with the store, as one sentence; `stops_storing` when nothing can be acknowledged meanwhile."""

    name: str
    sentence: str
    stops_storing: bool = False


class Faults(msgspec.Struct, frozen=True, array_like=True, tag="faults"):
    """From the store process whenever they change: all faults at this moment."""

    faults: tuple[StoreFault, ...]


ToStore = Take | Ask | Stop
FromStore = Ready | Unusable | Begun | Answered | Page | Faults

_encoder: Final = msgspec.msgpack.Encoder()
_to_store: Final[msgspec.msgpack.Decoder[ToStore]] = msgspec.msgpack.Decoder(ToStore)
_from_store: Final[msgspec.msgpack.Decoder[FromStore]] = msgspec.msgpack.Decoder(FromStore)


def frame(message: msgspec.Struct) -> bytearray:
    """Encode any message as one frame."""
    buffer = bytearray(LENGTH.size)
    _encoder.encode_into(message, buffer, LENGTH.size)
    LENGTH.pack_into(buffer, 0, len(buffer) - LENGTH.size)
    return buffer


def to_store(content: bytes | memoryview) -> ToStore:
    """Decode the content of a frame that the store process received. Raises msgspec.DecodeError."""
    return _to_store.decode(content)


def from_store(content: bytes | memoryview) -> FromStore:
    """Decode the content of a frame that the front received. Raises msgspec.DecodeError."""
    return _from_store.decode(content)


class Frames:
    """Puts the octets of a stream together to the contents of whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, octets: bytes | memoryview) -> list[bytes]:
        """Add what was received; return the contents of the frames that are whole now, in order."""
        buffer = self._buffer
        buffer += octets
        found: list[bytes] = []
        start = 0
        while len(buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, start)
            end = start + LENGTH.size + length
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                found.append(bytes(view[start + LENGTH.size : end]))
            start = end
        del buffer[:start]
        return found
