"""A Wyoming server by the official package that recognizes, handles and synthesizes, with known delays.

Run in an environment of its own: `python wyoming_server.py PORT [STAGES [closing]]`, of which STAGES are those that it
offers (`asr,handle,tts`). A server that is `closing` ends the connection after each transcript, answer and synthesis,
as Home Assistant's servers of one stage do; each connection adds a line to the output. What a request carried as its
context comes back in the text of the answer, so that a test sees what arrived. Each stage of a turn adds a line to the
output: the moments right before its first result was handed to the socket and right after, on the monotonic clock that
all processes of a machine share.
"""

import asyncio
import json
import math
import struct
import sys
import time

from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.event import Event
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop
from wyoming.info import (
    AsrModel,
    AsrProgram,
    Attribution,
    Describe,
    HandleModel,
    HandleProgram,
    Info,
    TtsProgram,
    TtsVoice,
)
from wyoming.server import AsyncEventHandler, AsyncServer
from wyoming.tts import Synthesize

BY = Attribution(name="a test", url="https://example.com")
OF_PROGRAM = {"name": "scripted", "attribution": BY, "installed": True, "description": None, "version": "1"}
OF_MODEL = {"name": "any", "attribution": BY, "installed": True, "description": None, "version": "1"}
PROGRAMS = {
    "asr": [AsrProgram(**OF_PROGRAM, models=[AsrModel(**OF_MODEL, languages=["en"])])],
    "handle": [HandleProgram(**OF_PROGRAM, models=[HandleModel(**OF_MODEL, languages=["en"])])],
    "tts": [TtsProgram(**OF_PROGRAM, voices=[TtsVoice(**OF_MODEL, languages=["en"])])],
}
STAGES = sys.argv[2].split(",") if sys.argv[2:] else list(PROGRAMS)
IS_CLOSING = "closing" in sys.argv[3:]
INFO = Info(**{stage: PROGRAMS[stage] for stage in STAGES})
RATE_HZ = 22_050
RECOGNITION_S = 0.05
ANSWER_S = 0.08
SYNTHESIS_S = 0.06


class Scripted(AsyncEventHandler):
    """One connection."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.heard_bytes = 0
        self.context: dict[str, object] = {}
        print(json.dumps({"connection": STAGES}), flush=True)

    async def write_first(self, stage: str, event: Event) -> None:
        """Send the first result of a stage, and say when."""
        before = time.perf_counter_ns()
        await self.write_event(event)
        print(json.dumps({"stage": stage, "sent_ns": [before, time.perf_counter_ns()]}), flush=True)

    async def handle_event(self, event: Event) -> bool:
        if Describe.is_type(event.type):
            await self.write_event(INFO.event())
        elif Transcribe.is_type(event.type):
            self.heard_bytes, self.context = 0, Transcribe.from_event(event).context or {}
        elif AudioChunk.is_type(event.type):
            self.heard_bytes += len(AudioChunk.from_event(event).audio)
        elif AudioStop.is_type(event.type):
            await asyncio.sleep(RECOGNITION_S)
            for one in (TranscriptStart(), TranscriptChunk(text="turn ")):
                await self.write_event(one.event())
            text = f"turn {self.heard_bytes} {self.context.get('traceparent')}"
            await self.write_first("asr_final", Transcript(text=text).event())
            await self.write_event(TranscriptStop().event())
            return not IS_CLOSING
        elif Transcript.is_type(event.type):
            await self.answer(Transcript.from_event(event))
            return not IS_CLOSING
        elif Synthesize.is_type(event.type):
            await self.speak(Synthesize.from_event(event).text)
            return not IS_CLOSING
        return True

    async def answer(self, question: Transcript) -> None:
        await asyncio.sleep(ANSWER_S)
        pieces = ("It is on. ", f"You said {question.text}, {(question.context or {}).get('traceparent')}.")
        await self.write_event(HandledStart().event())
        await self.write_first("llm_first_token", HandledChunk(text=pieces[0]).event())
        await self.write_event(HandledChunk(text=pieces[1]).event())
        await self.write_event(Handled(text="".join(pieces)).event())
        await self.write_event(HandledStop().event())

    async def speak(self, text: str) -> None:
        await asyncio.sleep(SYNTHESIS_S)
        await self.write_event(AudioStart(rate=RATE_HZ, width=2, channels=1).event())
        count = RATE_HZ * len(text) // 15
        tone = struct.pack(f"<{count}h", *(round(9000 * math.sin(i / 8)) for i in range(count)))
        first, *rest = (
            AudioChunk(rate=RATE_HZ, width=2, channels=1, audio=tone[begin : begin + 2048]).event()
            for begin in range(0, len(tone), 2048)
        )
        await self.write_first("tts_first_chunk", first)
        for chunk in rest:
            await self.write_event(chunk)
        await self.write_event(AudioStop().event())


if __name__ == "__main__":
    asyncio.run(AsyncServer.from_uri(f"tcp://127.0.0.1:{sys.argv[1]}").run(Scripted))
