"""Bodies of requests: read and decompressed within limits of size, memory and time.

Decompression takes linear time, for the compressions that the receivers of the OpenTelemetry Collector accept.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

import pyarrow as pa

from telemetry.sidecar.limits import BodyBudget, BodyLease, ConnectionLimits

BODY_BYTES_MAX: Final = 20 << 20
_PIECE_BYTES: Final = 1 << 20

# gzip's decoder recognizes zlib's header too, which is what `deflate` means in HTTP.
_STREAMED: Final[dict[str, Literal["gzip", "zstd", "lz4"]]] = {
    "gzip": "gzip",
    "x-gzip": "gzip",
    "zlib": "gzip",
    "deflate": "gzip",
    "zstd": "zstd",
    "lz4": "lz4",
}
_SNAPPY: Final = frozenset({"snappy", "x-snappy-framed"})
COMPRESSIONS: Final = frozenset(_STREAMED) | _SNAPPY

# https://github.com/google/snappy/blob/main/framing_format.txt
_SNAPPY_IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_COMPRESSED: Final = 0x00
_SNAPPY_PLAIN: Final = 0x01
_SNAPPY_SKIPPABLE: Final = 0x80
_SNAPPY_CHECKSUM_BYTES: Final = 4
_SNAPPY_CHUNK_BYTES_MAX: Final = 65_536


class BodyTooLarge(Exception):  # noqa: N818 - reads as what happened
    """Raised if the body, compressed or decompressed, exceeds the limit."""


class BodyDamaged(Exception):  # noqa: N818 - reads as what happened
    """Raised if the body is not valid compressed data."""


def decompress(
    body: bytes, compression: str, limit: int = BODY_BYTES_MAX, hold: Callable[[int], None] = lambda _count: None
) -> bytes:
    """Decompress a body of any number of members or frames; `hold` is called with each number of bytes to be kept.

    Raises BodyTooLarge above the limit, and BodyDamaged for data that is truncated or not compressed in this way.
    """
    if compression in _SNAPPY:
        return _snappy(body, limit, hold)
    pieces: list[bytes] = []
    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), _STREAMED[compression]) as stream:
            while piece := stream.read(min(_PIECE_BYTES, limit - total + 1)):
                total += len(piece)
                if total > limit:
                    raise BodyTooLarge
                hold(len(piece))
                pieces.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise BodyDamaged(str(error)) from error
    return b"".join(pieces)


def _snappy(body: bytes, limit: int, hold: Callable[[int], None]) -> bytes:
    """Decompress the framing format, or a bare block, which lacks its identifier."""
    if not body:
        return b""
    if not body.startswith(_SNAPPY_IDENTIFIER):
        return _snappy_block(body, limit, hold)
    unpacked = bytearray()
    view = memoryview(body)
    at = 0
    while at < len(body):
        kind, end = body[at], at + 4 + int.from_bytes(body[at + 1 : at + 4], "little")
        if at + 4 > len(body) or end > len(body):
            raise BodyDamaged("the compressed data ends early")
        if kind in (_SNAPPY_COMPRESSED, _SNAPPY_PLAIN):
            content = view[at + 4 + _SNAPPY_CHECKSUM_BYTES : end]
            room = min(limit - len(unpacked), _SNAPPY_CHUNK_BYTES_MAX)
            if kind == _SNAPPY_PLAIN:
                if len(content) > room:
                    raise BodyTooLarge
                hold(len(content))
                unpacked += content
            else:
                unpacked += _snappy_block(content, room, hold)
        elif kind < _SNAPPY_SKIPPABLE:
            raise BodyDamaged(f"a chunk of the reserved type {kind:#x}")
        at = end
    return bytes(unpacked)


def _snappy_block(block: bytes | memoryview, limit: int, hold: Callable[[int], None]) -> bytes:
    size, shift = 0, 0
    for octet in block[:5]:
        size |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    else:
        raise BodyDamaged("the compressed data has no length")
    if size > limit:
        raise BodyTooLarge
    hold(size)
    try:
        return pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise BodyDamaged(str(error)) from error


# Each holds a body twice for a moment, in which it puts the pieces together.
_DECOMPRESSING_THREADS: Final = 2


class BodyTooSlow(Exception):  # noqa: N818 - reads as what happened
    """Raised if the body did not arrive in time."""


class Bodies:
    """Reads and decompresses the bodies of all requests, which share one budget of bytes."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.budget = BodyBudget(limits.bodies_bytes)
        self._threads = ThreadPoolExecutor(_DECOMPRESSING_THREADS, "decompress")

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)

    async def read(self, chunks: AsyncIterator[bytes], lease: BodyLease, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        """Read a whole body; every chunk is held by the lease as it arrives.

        Raises BodyTooLarge as soon as it exceeds the limit, BudgetExhausted, and BodyTooSlow when it takes longer than
        `body_s` in all, or than `stall_s` for the next `stall_bytes`.
        """
        limits = self.limits
        body = bytearray()
        recent = 0
        now = asyncio.get_running_loop().time
        end = now() + limits.body_s
        try:
            async with asyncio.timeout_at(min(end, now() + limits.stall_s)) as timeout:
                async for chunk in chunks:
                    if len(body) + len(chunk) > bytes_max:
                        raise BodyTooLarge
                    lease.grow(len(chunk))
                    body += chunk
                    recent += len(chunk)
                    if recent >= limits.stall_bytes:
                        recent = 0
                        timeout.reschedule(min(end, now() + limits.stall_s))
        except TimeoutError:
            raise BodyTooSlow from None
        return bytes(body)

    async def decompress(self, body: bytes, compressions: Sequence[str], lease: BodyLease) -> bytes:
        """Undo the compressions, the last one first, in a thread.

        Raises BodyTooLarge, BodyDamaged and BudgetExhausted.
        """
        loop = asyncio.get_running_loop()
        for compression in reversed(compressions):
            compressed_bytes = len(body)
            body = await loop.run_in_executor(self._threads, decompress, body, compression, BODY_BYTES_MAX, lease.grow)
            lease.shrink(compressed_bytes)
        return body
