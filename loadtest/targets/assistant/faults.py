"""Misbehavior on demand, so that callers can be shown what real endpoints do on bad days.

One fault per server, on a share of its calls chosen by a seeded hash of the order in which they come, so a repeated run
hits the same calls. Where the wire still allows it, the reply's metadata says so (`voice.fault`).
"""

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
from numpy.typing import NDArray

from loadtest.targets.assistant.sink import Sink

FAULTS: Final[dict[str, str]] = {
    "never-answer": "takes everything and answers nothing after the session began",
    "garbage": "sends things that are no events in place of the reply's audio",
    "drop-mid-turn": "cuts the connection in the middle of a reply",
    "oversized-message": "sends one message of 20 MiB before the reply's audio",
    "unknown-messages": "strews events of unknown types between the known ones",
    "answer-before-question": "speaks before the caller has said anything",
    "wrong-rate": "sends 8 kHz audio as if it had the declared rate",
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
    """Which calls are hit."""

    fault: str | None
    share: float = 1.0
    seed: int = 1

    def for_call(self, call_index: int) -> str | None:
        """The fault of the n-th call of this server, or None."""
        if self.fault is None:
            return None
        digest = hashlib.sha256(f"{self.seed}:{call_index}".encode()).digest()
        return self.fault if int.from_bytes(digest[:8]) < self.share * 2**64 else None


class FaultySender:
    """Stands between a session and its connection; without a fault it passes everything on."""

    def __init__(self, fault: str | None, sink: Sink) -> None:
        self.fault = fault
        self._sink = sink
        self._audio_sent = 0
        self._strewn = 0

    @property
    def speaks_first(self) -> bool:
        """Whether the session answers before anything was asked."""
        return self.fault == "answer-before-question"

    async def send(self, message: str | bytes) -> None:
        """An event that is not audio."""
        if self.fault == "unknown-messages":
            self._strewn += 1
            event = {"type": f"voiceprobe.unknown.{self._strewn}", "event_id": f"event_unknown_{self._strewn}"}
            await self._sink.text(orjson.dumps({**event, "payload": [None, 1.5, {"deep": [[]]}]}))
        await self._sink.text(message)

    async def send_in_turn(self, message: str | bytes) -> None:
        """An event that answers the caller, once the session has begun."""
        if self.fault != "never-answer":
            await self.send(message)

    async def send_audio(self, message: str | bytes) -> None:
        """A chunk of the reply's audio."""
        if self.fault == "never-answer":
            return
        if self.fault == "garbage":
            for rubbish in _GARBAGE:
                await (self._sink.binary(rubbish) if rubbish[:1] == b"\x00" else self._sink.text(rubbish))
            return
        if self.fault == "oversized-message" and self._audio_sent == 0:
            await self._sink.text(orjson.dumps({"type": "voiceprobe.oversized", "padding": "x" * _OVERSIZED_BYTES}))
        if self.fault == "drop-mid-turn" and self._audio_sent == _DROP_AFTER_CHUNKS:
            self._sink.cut()
            return
        self._audio_sent += 1
        await self.send(message)

    def distort(self, pcm: NDArray[np.int16], rate_hz: int) -> NDArray[np.int16]:
        """The samples of a chunk as this call gets them (`rate_hz` is what was declared)."""
        if self.fault != "wrong-rate" or rate_hz <= _WRONG_RATE_HZ:
            return pcm
        kept = np.arange(0, len(pcm), rate_hz / _WRONG_RATE_HZ).astype(np.int64)
        return pcm[kept]
