"""Frames of audio on the wire: the part prepared once for all callers, and the head of each. Pure."""

from collections.abc import Callable
from functools import partial

from loadtest.protocols.base import Capabilities
from loadtest.protocols.transports.length_prefixed import prefixed
from loadtest.protocols.transports.masked_frames import FramePreparer, headed_frames

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
