"""WebSocket data frames that are encoded and masked once and then sent by any number of callers. Pure.

Where a frame carries something of its call, only its beginning is made when it is sent: the rest stays as it was
masked, because the key that goes on the wire is rotated by the length of the beginning.
"""

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from loadtest.protocols.base import Capabilities, Message
from loadtest.protocols.transports.byte_streams import prefixed

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the library's compiled part
    from websockets.utils import apply_mask

FIXED: Final = "fixed"
MASKS: Final = (FIXED, "random")
FIXED_MASK: Final = b"\x5a\xa5\x3c\xc3"
_KEY_BYTES: Final = 4
# The key of a frame with a head of so many bytes, modulo 4, before what was masked with the fixed mask.
_ROTATED_FIXED_MASK: Final = tuple((2 * FIXED_MASK)[-size & 3 :][:_KEY_BYTES] for size in range(_KEY_BYTES))
# A mask of a frame's own is written twice before its rest, so that any rotation of it is one slice.
_REST_HEAD_BYTES: Final = 8
_pack_medium: Final = struct.Struct("!BBH").pack
_pack_keyed: Final = struct.Struct("!BBH4s").pack
_pack_long: Final = struct.Struct("!BBQ").pack


def frame(message: Message, *, mask: bytes, text: bool) -> bytes:
    """Create a complete masked data frame (FIN set, no extension), as it goes on the wire.

    `mask` has 4 bytes; `text` selects the opcode, whatever the type of `message`. Raises ValueError for another mask
    length.
    """
    payload = message.encode() if isinstance(message, str) else message
    return _frame_head(len(payload), text=text) + mask + _masked(payload, mask)


def masked_rest(payload: bytes, *, mask: bytes) -> bytes:
    """Create the rest of a frame with a mask of its own that begins with a head: the mask, twice, and the masked rest.

    Raises ValueError for a mask that has not 4 bytes.
    """
    return mask + mask + _masked(payload, mask)


def headed_frames(mask_mode: str, *, text: bool) -> Callable[[bytes, bytes], bytes]:
    """Return a function that creates the complete masked frame of a head and what `FramePreparer.rest` returned.

    The payload's byte at i is masked with byte i % 4 of the key. The rest was masked as if it came first, so the key on
    the wire is the rest's, rotated by the length of the head. The function is called for every frame that is sent.
    `mask_mode` is the preparer's.
    """
    first = 0x81 if text else 0x82

    def with_fixed_mask(head: bytes, rest: bytes) -> bytes:
        size = len(head)
        key = _ROTATED_FIXED_MASK[size & 3]
        length = size + len(rest)
        if 125 < length < 65_536:  # nearly every frame of audio
            return _pack_keyed(first, 254, length, key) + apply_mask(head, key) + rest
        return _frame_head(length, text=text) + key + apply_mask(head, key) + rest

    def with_own_mask(head: bytes, rest: bytes) -> bytes:
        cut = -len(head) & 3
        key = rest[cut : cut + 4]
        length = len(head) + len(rest) - _REST_HEAD_BYTES
        return b"".join((_frame_head(length, text=text), key, apply_mask(head, key), rest[_REST_HEAD_BYTES:]))

    return with_fixed_mask if mask_mode == FIXED else with_own_mask


def _masked(payload: bytes, mask: bytes) -> bytes:
    """Return a masked payload. Raises ValueError for a mask that has not 4 bytes."""
    if len(mask) != _KEY_BYTES:
        raise ValueError(f"a WebSocket mask has 4 bytes, not {len(mask)}")
    return apply_mask(payload, mask)


def _frame_head(length: int, *, text: bool) -> bytes:
    """Return the beginning of a masked data frame (FIN set, no extension), up to its mask."""
    first = 0x81 if text else 0x82
    if length < 126:
        return bytes((first, 0x80 | length))
    if length < 65_536:
        return _pack_medium(first, 0x80 | 126, length)
    return _pack_long(first, 0x80 | 127, length)


class FramePreparer:
    """Creates frames that are prepared once and shared by all callers.

    RFC 6455 (5.3) requires unpredictable masks to protect proxies from a hostile script in a browser. A load generator
    is not one, and a fixed mask is valid on the wire: `"fixed"` is the default, so that the same clip gives the same
    bytes. `"random"` draws a mask per frame from `seed`, for endpoints or proxies that check it.
    """

    def __init__(self, mask_mode: str = FIXED, seed: int = 0) -> None:
        """Raises ValueError for a mode that is not in `MASKS`."""
        if mask_mode not in MASKS:
            raise ValueError(f"unknown mask mode {mask_mode!r}; known: {', '.join(MASKS)}")
        self._random = random.Random(seed) if mask_mode == "random" else None  # noqa: S311 - reproducible by design

    def frame(self, message: Message, *, text: bool) -> bytes:
        """Create the complete masked frame that carries `message`."""
        return frame(message, mask=self._mask(), text=text)

    def rest(self, payload: bytes) -> bytes:
        """Create what all callers share of a frame that begins with a head, as `headed_frames` takes it."""
        return _masked(payload, FIXED_MASK) if self._random is None else masked_rest(payload, mask=self._mask())

    def _mask(self) -> bytes:
        return FIXED_MASK if self._random is None else self._random.randbytes(_KEY_BYTES)


# Makes what all callers share of a frame from `audio_message`'s result.
Prepare = Callable[[bytes], bytes]
# Makes a whole frame from what `audio_head` returned and what was prepared.
Join = Callable[[bytes, bytes], bytes]


def preparation(capabilities: Capabilities, mask_mode: str, seed: int) -> Prepare:
    """Return how the frames of a protocol are prepared. Raises ValueError for an unknown mask mode."""
    if capabilities.transport != "websocket":
        framed = capabilities.framing == "length_prefixed" and not capabilities.audio_heads
        return prefixed if framed else bytes
    preparer = FramePreparer(mask_mode, seed)
    return preparer.rest if capabilities.audio_heads else partial(preparer.frame, text=capabilities.audio_is_text)


def joining(capabilities: Capabilities, mask_mode: str) -> Join | None:
    """Return how a head joins a frame that was prepared with this mask mode; None where frames are complete then."""
    if not capabilities.audio_heads:
        return None
    if capabilities.transport == "websocket":
        return headed_frames(mask_mode, text=capabilities.audio_is_text)
    return _joined_and_prefixed if capabilities.framing == "length_prefixed" else _joined


def _joined(head: bytes, rest: bytes) -> bytes:
    return head + rest


def _joined_and_prefixed(head: bytes, rest: bytes) -> bytes:
    return prefixed(head + rest)
