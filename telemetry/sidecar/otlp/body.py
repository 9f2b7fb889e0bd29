"""Reads a request's body within a size limit, before and after decompression."""

import zlib
from collections.abc import AsyncIterator
from typing import Final

BODY_BYTES_MAX: Final = 20 << 20
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


class BodyTooLarge(Exception):  # noqa: N818 - reads as what happened
    """The body, compressed or decompressed, exceeds the limit."""


class BodyDamaged(Exception):  # noqa: N818 - reads as what happened
    """The body is not valid compressed data."""


async def read_limited(chunks: AsyncIterator[bytes], limit: int = BODY_BYTES_MAX) -> bytes:
    """Read the whole body. Raises BodyTooLarge as soon as it exceeds the limit."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise BodyTooLarge
    return bytes(body)


def decompress(body: bytes, limit: int = BODY_BYTES_MAX) -> bytes:
    """Decompress gzip (of one or more members) or deflate, without ever exceeding the limit in memory.

    Raises BodyTooLarge, or BodyDamaged for data that is truncated or not compressed.
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
