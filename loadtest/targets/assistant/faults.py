"""How a session sends messages, and fault injection there, to test how callers handle misbehaving endpoints.

A server has one fault, which affects a share of its calls. These are chosen by a seeded hash of the call's number, so a
repeated run affects the same calls. If possible, the reply's metadata names the fault (`voice.fault`).
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

FAULTS: Final[dict[str, str]] = {
    "never-answer": "accepts everything and answers nothing once the session has begun",
    "garbage": "sends invalid events instead of the reply's audio",
    "drop-mid-turn": "drops the connection in the middle of a reply",
    "oversized-message": "sends one message of 20 MiB before the reply's audio",
    "unknown-messages": "sends events of unknown types between the known ones",
    "answer-before-question": "speaks before the caller has spoken",
    "wrong-rate": "sends 8 kHz audio and declares another rate",
    "half-open": "accepts the TCP connection and never completes the upgrade",
    "refuse": "answers the upgrade with HTTP 503",
    "slow-accept": "waits three seconds before it completes the upgrade",
}
SLOW_ACCEPT_S: Final = 3.0
_OVERSIZED_BYTES: Final = 20 * 1024 * 1024
_DROP_AFTER_CHUNKS: Final = 2
_WRONG_RATE_HZ: Final = 8_000
_GARBAGE: Final = (
    b"\x00\xff\xfe not json at all",
    b"{",
    b"[]",
    b"null",
    b'{"type":7}',
    b'{"type":"response.output_audio.delta"}',
    b'{"type":"response.output_audio.delta","delta":"!!not base64!!"}',
    b'{"type":"response.done"}',
)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which calls are affected by which fault."""

    fault: str | None
    share: float = 1.0
    seed: int = 1

    def for_call(self, call_index: int) -> str | None:
        """Return the fault of the n-th call of this server, or None."""
        if self.fault is None:
            return None
        digest = hashlib.sha256(f"{self.seed}:{call_index}".encode()).digest()
        return self.fault if int.from_bytes(digest[:8]) < self.share * 2**64 else None


class CallerGone(Exception):  # noqa: N818 - reads as what happened
    """The connection has ended; nothing more can be sent."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A session's output: `text` and `binary` send a message, `cut` ends the connection at once.

    `text` and `binary` raise CallerGone.
    """

    text: Callable[[str | bytes], Awaitable[None]]
    binary: Callable[[bytes], Awaitable[None]]
    cut: Callable[[], None]


class FaultySender:
    """Sends a session's messages with the call's fault applied; without a fault, unchanged."""

    def __init__(self, fault: str | None, sink: Sink) -> None:
        self.fault = fault
        self._sink = sink
        self._audio_sent = 0
        self._unknown_sent = 0

    @property
    def speaks_first(self) -> bool:
        """Whether the session answers before the caller has spoken."""
        return self.fault == "answer-before-question"

    async def send(self, message: str | bytes) -> None:
        """Send an event that is not audio."""
        if self.fault == "unknown-messages":
            self._unknown_sent += 1
            event = {
                "type": f"voiceprobe.unknown.{self._unknown_sent}",
                "event_id": f"event_unknown_{self._unknown_sent}",
            }
            await self._sink.text(orjson.dumps({**event, "payload": [None, 1.5, {"deep": [[]]}]}))
        await self._sink.text(message)

    async def send_in_turn(self, message: str | bytes) -> None:
        """Send an event that answers the caller, once the session has begun."""
        if self.fault != "never-answer":
            await self.send(message)

    async def send_audio(self, message: str | bytes) -> None:
        """Send a chunk of the reply's audio."""
        if self.fault == "never-answer":
            return
        if self.fault == "garbage":
            for garbage in _GARBAGE:
                await (self._sink.binary(garbage) if garbage[:1] == b"\x00" else self._sink.text(garbage))
            return
        if self.fault == "oversized-message" and self._audio_sent == 0:
            await self._sink.text(orjson.dumps({"type": "voiceprobe.oversized", "padding": "x" * _OVERSIZED_BYTES}))
        if self.fault == "drop-mid-turn" and self._audio_sent == _DROP_AFTER_CHUNKS:
            self._sink.cut()
            return
        self._audio_sent += 1
        await self.send(message)

    def distort(self, pcm: NDArray[np.int16], rate_hz: int) -> NDArray[np.int16]:
        """Return the samples of a chunk with the call's fault applied (`rate_hz` is the declared rate)."""
        if self.fault != "wrong-rate" or rate_hz <= _WRONG_RATE_HZ:
            return pcm
        kept = np.arange(0, len(pcm), rate_hz / _WRONG_RATE_HZ).astype(np.int64)
        return pcm[kept]
