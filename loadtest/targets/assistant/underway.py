"""What one session is in the middle of."""

import asyncio
from dataclasses import dataclass

from loadtest.protocols.openai_realtime.reply import ServiceReply
from loadtest.targets.assistant.record import TurnRecord


@dataclass(slots=True)
class AskedTurn:
    """A turn of the caller that can be answered. `transcribing` ends with the moment the answer counts from."""

    record: TurnRecord
    transcribing: asyncio.Task[int]


@dataclass(slots=True)
class PendingReply:
    """The reply under way."""

    record: TurnRecord
    wire: ServiceReply
    task: asyncio.Task[None]


async def already(moment_ns: int) -> int:
    """For a reply that waits for no transcript: the moment it counts from."""
    return moment_ns
