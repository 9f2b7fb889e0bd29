"""The endpoint's events as whole WebSocket frames. The audio is encoded once and shared by all turns. Pure."""

import base64
import struct
from functools import lru_cache
from typing import Final

import numpy as np

from loadtest.audio.pcm import to_bytes
from loadtest.targets.ground_truth.speech import RATE_HZ, burst

_TEXT: Final = 0x81
_REPLY_SEED: Final = 99
WORDS: Final = ("It is ", "as it ", "was.")  # too few for a words-to-audio comparison


def frame(payload: bytes) -> bytes:
    """Create an unmasked text frame."""
    length = len(payload)
    if length < 126:
        return struct.pack("!BB", _TEXT, length) + payload
    if length < 65_536:
        return struct.pack("!BBH", _TEXT, 126, length) + payload
    return struct.pack("!BBQ", _TEXT, 127, length) + payload


def samples_in(duration_ns: int) -> int:
    """Return the number of samples in a duration."""
    return duration_ns * RATE_HZ // 1_000_000_000


@lru_cache(maxsize=4096)
def reply_audio(leading_samples: int, start: int, samples: int) -> bytes:
    """Return the base64 of part of the reply: silence up to `leading_samples`, loud after that."""
    pcm = np.zeros(samples, np.int16)
    loud = max(0, leading_samples - start)
    if loud < samples:
        pcm[loud:] = burst(samples - loud, _REPLY_SEED)
    return base64.b64encode(to_bytes(pcm))


class TurnEvents:
    """The events of one turn, with its ids."""

    def __init__(self, name: str) -> None:
        self.response_id = f"resp_{name}"
        self._response = self.response_id.encode()
        self._item = f"item_{name}".encode()
        self._input_item = f"heard_{name}".encode()

    def _of_caller(self, kind: bytes, fields: bytes) -> bytes:
        return frame(b'{"type":"' + kind + b'","item_id":"' + self._input_item + b'",' + fields + b"}")

    def _of_reply(self, kind: bytes, fields: bytes) -> bytes:
        ids = b'","response_id":"' + self._response + b'","item_id":"' + self._item
        return frame(b'{"type":"' + kind + ids + b'","output_index":0,"content_index":0' + fields + b"}")

    def _response_event(self, kind: bytes, status: bytes, more: bytes) -> bytes:
        head = b'{"type":"' + kind + b'","response":{"id":"' + self._response + b'","object":"realtime.response",'
        return frame(head + b'"status":"' + status + b'",' + more + b'"metadata":{"voice.route":"rule"}}}')

    def speech_started(self) -> bytes:
        """The caller began to speak."""
        return self._of_caller(b"input_audio_buffer.speech_started", b'"audio_start_ms":0')

    def speech_stopped(self) -> bytes:
        """The caller's turn ended."""
        return self._of_caller(b"input_audio_buffer.speech_stopped", b'"audio_end_ms":0')

    def partial(self) -> bytes:
        """A partial transcript."""
        return self._of_caller(
            b"conversation.item.input_audio_transcription.delta", b'"content_index":0,"delta":"calibration "'
        )

    def final(self) -> bytes:
        """The final transcript."""
        return self._of_caller(
            b"conversation.item.input_audio_transcription.completed",
            b'"content_index":0,"transcript":"calibration burst"',
        )

    def created(self) -> bytes:
        """The reply begins."""
        return self._response_event(b"response.created", b"in_progress", b"")

    def token(self, index: int) -> bytes:
        """One token of the answer's text."""
        return self._of_reply(b"response.output_audio_transcript.delta", b',"delta":"' + WORDS[index].encode() + b'"')

    def audio(self, leading_samples: int, start: int, samples: int) -> bytes:
        """A chunk of the answer's audio."""
        encoded = reply_audio(leading_samples, start, samples)
        return self._of_reply(b"response.output_audio.delta", b',"delta":"' + encoded + b'"')

    def done(self) -> bytes:
        """The end of the reply."""
        usage = b'"usage":{"output_tokens":3,"output_token_details":{"text_tokens":3}},'
        return self._of_reply(b"response.output_audio.done", b"") + self._response_event(
            b"response.done", b"completed", usage
        )
