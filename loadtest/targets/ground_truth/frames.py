"""Splits a caller's byte stream into frames without decoding the audio. Pure.

All audio frames have the same length, and silence is one known frame, so comparing bytes is enough. Everything else
(the session, pings, closing) is rare and left to the WebSocket library.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from loadtest.audio.pcm import Pcm16, from_bytes
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.json_fields import parse_object, required_base64
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.masked_frames import FIXED_MASK, FramePreparer
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES

_HEAD: Final = 8  # an audio frame's header: two bytes, two length bytes, four mask bytes


class Kind(Enum):
    """The endpoint's classification of a frame."""

    SILENCE = "silence"
    SPEECH = "speech"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class CutFrame:
    """A whole frame.

    `is_last` means that nothing followed it in the same read; only then is the read's timestamp its own.
    """

    kind: Kind
    data: bytes
    is_last: bool


def audio_frame(pcm: Pcm16) -> bytes:
    """Create an audio frame as the callers send it."""
    return FramePreparer().frame(OpenAIRealtimeCaller(CallerOptions()).audio_message(pcm), text=True)


SILENCE: Final = audio_frame(np.zeros(FRAME_SAMPLES, np.int16))


def samples_of(frame: bytes) -> Pcm16:
    """Decode the samples of an audio frame; used only for the first and last speech frame of a turn."""
    payload = np.frombuffer(frame, np.uint8)[_HEAD:]
    mask = np.frombuffer((FIXED_MASK * (len(payload) // 4 + 1))[: len(payload)], np.uint8)
    return from_bytes(required_base64(parse_object(np.bitwise_xor(payload, mask).tobytes()), "audio"))


class FrameCutter:
    """Splits received bytes into frames. It is not needed for a read that contains exactly one silent frame."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream is at a frame boundary."""
        return not self._rest

    def cut(self, data: bytes) -> list[CutFrame]:
        """Return the frames that `data` completes, in order."""
        data = self._rest + data
        frames: list[CutFrame] = []
        at = 0
        while (stop := _end_of_frame(data, at)) is not None:
            frame = data[at:stop]
            frames.append(CutFrame(_kind(frame), frame, stop == len(data)))
            at = stop
        self._rest = data[at:]
        return frames


def _kind(frame: bytes) -> Kind:
    if frame == SILENCE:
        return Kind.SILENCE
    return Kind.SPEECH if len(frame) == len(SILENCE) and frame[:4] == SILENCE[:4] else Kind.OTHER


def _end_of_frame(data: bytes, at: int) -> int | None:
    """Return the end of the masked frame at `at`, or None while it is incomplete."""
    if len(data) - at < 2:
        return None
    length, head = data[at + 1] & 0x7F, 2
    if length >= 126:
        head = 4 if length == 126 else 10
        if len(data) - at < head:
            return None
        length = int.from_bytes(data[at + 2 : at + head], "big")
    stop = at + head + 4 + length
    return stop if stop <= len(data) else None
