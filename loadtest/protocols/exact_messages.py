"""Reads a message of a known shape with one decoder, straight from its text to typed fields: most messages carry audio.

Only messages that have no other members than their shape, each of its declared type, are read. All others are left to
the caller's way of reading any message, which alone decides what is wrong with one. This keeps apart what two decoders
of JSON take differently: msgspec does not check the encoding of members that it skips, and keeps integers of any size
where orjson makes floats of them or refuses them.
"""

from typing import Annotated, Final, Generic, TypeVar

import msgspec

from loadtest.protocols.base import Message

# A whole number that every decoder of JSON reads as the same integer.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
# After so many messages in a row of other shapes, only every `RETRIED`th is tried: an attempt in vain costs half as
# much as decoding.
MOST_MISSES: Final = 16
RETRIED: Final = 64


class ExactMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A shape of messages, or of an object in one. Optional members may be missing or null."""


Shape = TypeVar("Shape", bound=ExactMessage)


class ExactReader(Generic[Shape]):
    """Reads the messages of one connection that have a shape; `decoder` can be shared by many."""

    __slots__ = ("_decode", "_misses")

    def __init__(self, decoder: msgspec.json.Decoder[Shape]) -> None:
        self._decode = decoder.decode
        self._misses = 0

    def read(self, message: Message) -> Shape | None:
        """Return a message of the shape. None for any other one, and while too many messages have had other shapes."""
        if self._misses >= MOST_MISSES:
            self._misses += 1
            if self._misses % RETRIED:
                return None
        try:
            found = self._decode(message)
        except (msgspec.DecodeError, UnicodeError):
            self._misses += 1
            return None
        self._misses = 0
        return found
