"""Reading a request's body within a limit, before and after decompression."""

import zlib
from collections.abc import AsyncIterator
from typing import Final

BODY_BYTES_MAX: Final = 20 << 20
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


class BodyTooLarge(Exception):  # noqa: N818 - reads as what happened
    """The body, or what it unpacks to, is over the limit."""


class BodyDamaged(Exception):  # noqa: N818 - reads as what happened
    """The body is not the compressed data that it says."""


async def read_limited(chunks: AsyncIterator[bytes], limit: int = BODY_BYTES_MAX) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is over the limit."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge
    return bytes(body)


def decompress(body: bytes, limit: int = BODY_BYTES_MAX) -> bytes:
    """Unpack gzip (of one or more members) or deflate, never holding more than the limit.

    Raises BodyTooLarge, or BodyDamaged for what is truncated or no compressed data at all.
    """
    unpacked = bytearray()
    rest = body
    while rest:
        member = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            unpacked += member.decompress(rest, limit - len(unpacked) + 1)
        except zlib.error as error:
            raise BodyDamaged(str(error)) from error
        if len(unpacked) > limit:
            raise BodyTooLarge
        if not member.eof:
            raise BodyDamaged("the compressed data ends early")
        rest = member.unused_data
    return bytes(unpacked)
