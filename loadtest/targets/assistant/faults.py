"""Sending of a session's messages, with fault injection, to test how callers handle misbehaving endpoints.

If possible, the reply's metadata names the fault (`voice.fault`). The faults are listed in `config`; those of the
upgrade are in `server`.
"""

from typing import Final

import numpy as np
import orjson
from websockets.asyncio.server import ServerConnection

from loadtest.targets.assistant.config import Fault
from loadtest.targets.assistant.interfaces import Pcm

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


class FaultySender:
    """Sends a session's messages with the call's fault applied; without a fault, unchanged.

    Sending raises ConnectionClosed.
    """

    def __init__(self, connection: ServerConnection, fault: Fault | None) -> None:
        self.fault: Fault | None = fault
        self._connection = connection
        self._audio_sent = 0
        self._unknown_sent = 0

    async def send(self, message: str | bytes) -> None:
        """Send an event that is not audio."""
        if self.fault == "unknown-messages":
            self._unknown_sent += 1
            event = {
                "type": f"voiceprobe.unknown.{self._unknown_sent}",
                "event_id": f"event_unknown_{self._unknown_sent}",
                "payload": [None, 1.5, {"deep": [[]]}],
            }
            await self._connection.send(orjson.dumps(event), text=True)
        await self._connection.send(message, text=True)

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
                await self._connection.send(garbage, text=garbage[:1] != b"\x00")
            return
        if self.fault == "oversized-message" and self._audio_sent == 0:
            event = {"type": "voiceprobe.oversized", "padding": "x" * _OVERSIZED_BYTES}
            await self._connection.send(orjson.dumps(event), text=True)
        if self.fault == "drop-mid-turn" and self._audio_sent == _DROP_AFTER_CHUNKS:
            self._connection.transport.abort()
            return
        self._audio_sent += 1
        await self.send(message)

    def distort(self, pcm: Pcm, rate_hz: int) -> Pcm:
        """Return the samples of a chunk with the call's fault applied (`rate_hz` is the declared rate)."""
        if self.fault != "wrong-rate" or rate_hz <= _WRONG_RATE_HZ:
            return pcm
        return pcm[np.arange(0, len(pcm), rate_hz / _WRONG_RATE_HZ).astype(np.int64)]
