"""Records events as the official `wyoming` package writes them, for tests/fixtures/wyoming: `record_wyoming.py FILE`.

Run by an interpreter that has the package (tests/peers/wyoming.lock).
"""

import asyncio
import base64
import json
import sys
from pathlib import Path

from wyoming.asr import Transcript, TranscriptChunk
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_write_event
from wyoming.handle import Handled, HandledChunk, HandledStart, HandledStop, NotHandled
from wyoming.info import AsrModel, AsrProgram, Attribution, Info

BY = Attribution(name="a test", url="https://example.com")
MODEL = AsrModel(
    name="small", attribution=BY, installed=True, description="Grüße, 東京", version="1", languages=["en", "de"]
)
EVENTS = {
    "info": Info(
        asr=[AsrProgram(name="scripted", attribution=BY, installed=True, description=None, version="1", models=[MODEL])]
    ),
    "chunk": TranscriptChunk(text="turn "),
    "transcript": Transcript(text="turn it on – bitte"),
    "handled-start": HandledStart(),
    "handled-chunk": HandledChunk(text="It is on."),
    "handled": Handled(text="It is on."),
    "handled-stop": HandledStop(),
    "not-handled": NotHandled(text="Sorry."),
    "audio-start": AudioStart(rate=22050, width=2, channels=1),
    "audio-chunk": AudioChunk(rate=22050, width=2, channels=1, audio=bytes(range(100))),
    "audio-stop": AudioStop(),
    "error": Error(text="no such program", code="unknown-program"),
}


class Written:
    """The writer that the package writes to."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def writelines(self, lines: list[bytes]) -> None:
        self.data += b"".join(lines)

    async def drain(self) -> None:
        return


async def written(event: Event) -> str:
    """The bytes of an event, in base64."""
    to = Written()
    await async_write_event(event, to)
    return base64.b64encode(to.data).decode()


if __name__ == "__main__":
    written_events = {name: asyncio.run(written(event.event())) for name, event in EVENTS.items()}
    Path(sys.argv[1]).write_text(json.dumps(written_events, indent=1) + "\n")
