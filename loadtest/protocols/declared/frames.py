"""The caller's audio on a declared wire: binary, or base64 in a JSON message with counters before it. Pure."""

import base64
import itertools
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import Pcm16
from loadtest.protocols.declared.spec import CallersAudio
from loadtest.protocols.declared.templates import AUDIO, OF_FRAME, filled, places

_MARK: Final = "@voiceprobe-audio@"
# Numbers that stand for a counter while a template is made. None of them begins with the digits that another ends with,
# so that they are found where they were put, whatever digits are around them.
_STAND_INS: Final = range(10**18 + 7, 10**19, 10)
_USUAL_ORDER: Final = (True, False)  # the sequence number, then the time


class DeclaredFrames:
    """The frames of one call. What differs from call to call is in the head, which precedes the audio."""

    def __init__(self, spec: CallersAudio) -> None:
        self._spec = spec
        self._format = AudioFormat(spec.encoding, spec.rate_hz)
        self._sequence = 0
        self._frame_ms = spec.frame_ms
        self._counts = spec.frame != "binary" and bool(OF_FRAME & set(places(spec.frame)))
        self._before, self._after = b"", b""
        if spec.frame != "binary":
            self._before, self._after = _around(spec.frame, {})
        self._head, self._order = _counting_head(spec.frame) if self._counts else (None, ())

    @property
    def is_text(self) -> bool:
        """Whether frames are text messages."""
        return self._spec.frame != "binary"

    @property
    def has_heads(self) -> bool:
        """Whether frames count, so that each begins with a head of its own."""
        return self._counts

    def message(self, pcm: Pcm16) -> bytes:
        """Return what all callers share of a frame."""
        encoded = self._format.encode(pcm)
        if not self.is_text:
            return encoded
        rest = base64.b64encode(encoded) + self._after
        return rest if self._counts else self._before + rest

    def head(self) -> bytes | None:
        """Return the beginning of the next frame where it counts, else None."""
        if self._head is None:
            return None
        at = self._sequence
        self._sequence = at + 1
        if self._order == _USUAL_ORDER:
            return self._head % (at + 1, at * self._frame_ms)
        return self._head % tuple([at + 1 if is_sequence else at * self._frame_ms for is_sequence in self._order])


def _around(frame: object, values: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return a frame's JSON before its audio and behind it."""
    text = orjson.dumps(filled(frame, {**values, AUDIO: _MARK}))
    before, _, after = text.partition(_MARK.encode())
    return before, after


def _counting_head(frame: object) -> tuple[bytes, tuple[bool, ...]]:
    """Return the JSON before the audio with a `%d` for each counter, and which of them are the sequence number.

    It is made once, with numbers that occur nowhere else in it: for a frame, only the counters are written.
    """
    text = orjson.dumps(frame).decode()
    of_sequence, of_time = itertools.islice((number for number in _STAND_INS if str(number) not in text), 2)
    before, _ = _around(frame, {"sequence": of_sequence, "timestamp_ms": of_time})
    pattern = b"%d|%d" % (of_sequence, of_time)
    order = tuple(int(found) == of_sequence for found in re.findall(pattern, before))
    return re.sub(pattern, b"%d", before.replace(b"%", b"%%")), order
