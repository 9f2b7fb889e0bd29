"""The turn and the reply that a session is working on."""

import asyncio
from dataclasses import dataclass

from loadtest.protocols.openai_realtime.reply import ServiceReply
from loadtest.targets.assistant.asr.recognition import UtteranceRecognition
from loadtest.targets.assistant.record import TurnRecord


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A caller's turn whose speech has stopped. It ends at `end_perf_ns`; `transcript` results in its final words."""

    record: TurnRecord
    utterance: UtteranceRecognition
    transcript: asyncio.Task[str]
    end_perf_ns: int


@dataclass(slots=True)
class AskedTurn:
    """A caller's turn that can be answered. `transcribing` results in the time that the answer's delays count from."""

    record: TurnRecord
    transcribing: asyncio.Task[int]


@dataclass(slots=True)
class PendingReply:
    """The reply in progress."""

    record: TurnRecord
    wire: ServiceReply
    task: asyncio.Task[None]


async def without_transcript(moment_ns: int) -> int:
    """Return the time that a reply's delays count from if it waits for no transcript."""
    return moment_ns
