"""One caller's byte stream, cut into frames, without decoding the audio in it. Pure.

Frames of audio all have one length, and silence is one known frame: a comparison of bytes tells them apart. Everything
else (the session, pings, the goodbye) is rare, and left to the WebSocket library.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from loadtest.audio.pcm import Pcm16, from_bytes
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.fields import parse_object, required_base64
from loadtest.protocols.websocket import FIXED_MASK, FramePreparer
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES

_HEAD: Final = 8  # two bytes, two of length, four of mask: what a frame of audio has before its payload


class Kind(Enum):
    """What a frame is to the endpoint."""

    SILENCE = "silence"
    SPEECH = "speech"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class CutFrame:
    """A whole frame. `is_last` when nothing came behind it in the same read: only then is the read's stamp its own."""

    kind: Kind
    data: bytes
    is_last: bool


def audio_frame(pcm: Pcm16) -> bytes:
    """A frame of audio as the callers put it on the wire."""
    return FramePreparer().frame(OpenAIRealtimeCaller(CallerOptions()).audio_message(pcm), text=True)


SILENCE: Final = audio_frame(np.zeros(FRAME_SAMPLES, np.int16))


def samples_of(frame: bytes) -> Pcm16:
    """The samples in a frame of audio: done for the first and the last speech frame of a turn, and for no other."""
    payload = np.frombuffer(frame, np.uint8)[_HEAD:]
    mask = np.frombuffer((FIXED_MASK * (len(payload) // 4 + 1))[: len(payload)], np.uint8)
    return from_bytes(required_base64(parse_object(np.bitwise_xor(payload, mask).tobytes()), "audio"))


class FrameCutter:
    """Bytes in, frames out. For a read that holds just one frame of silence there is nothing to do."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream stands between two frames."""
        return not self._rest

    def cut(self, data: bytes) -> list[CutFrame]:
        """The frames that `data` completes, in order."""
        data = self._rest + data
        found: list[CutFrame] = []
        at = 0
        while (stop := _end_of_frame(data, at)) is not None:
            frame = data[at:stop]
            found.append(CutFrame(_kind(frame), frame, stop == len(data)))
            at = stop
        self._rest = data[at:]
        return found


def _kind(frame: bytes) -> Kind:
    if frame == SILENCE:
        return Kind.SILENCE
    return Kind.SPEECH if len(frame) == len(SILENCE) and frame[:4] == SILENCE[:4] else Kind.OTHER


def _end_of_frame(data: bytes, at: int) -> int | None:
    """Where the masked frame at `at` ends; None while it is incomplete."""
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
