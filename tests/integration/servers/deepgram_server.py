"""A Deepgram agent that answers after known delays: `python -m ….servers.deepgram_server PORT LOG JSON`.

It hears a question in loud frames and its end in quiet ones, or in ForceEndTurn, and answers by a script, faster than
it is played. LOG gets a line of JSON for each caller at its first message (its headers), for each text message that it
sent, and for each turn with the moments right before each step is handed to the socket and right after, on the clock
that all processes of a machine share. JSON holds options: `reply_ms` (of one sentence), `tool` (the name of a function
that is called first), `fault` (the code of an error in place of the answer), `refuse` (one in place of
SettingsApplied).

The messages are those of the contract suite's script; test_wire_deepgram.py has the official package read
them.
"""

import asyncio
import json
import sys
import time
from array import array
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.server import ServerConnection, serve

from tests.unit.loadtest.protocols.contract.scripts.deepgram import message

LOUD: Final = 500
LOUD_FRAMES: Final = 10  # 20 ms each
QUIET_FRAMES: Final = 30  # longer than any pause within the words
# After the end of the question was detected: what is sent, and when.
SCRIPT_S: Final = {"final": 0.0, "text": 0.12, "audio": 0.15, "more": 0.2, "ended": 0.25}
GREETING: Final = [message("Welcome", request_id="550e8400-e29b-41d4-a716-446655440000")]
SENTENCES: Final = ("It is on.", "Anything else?")


class Agent:
    """One caller."""

    def __init__(self, connection: ServerConnection, log: Path, options: dict[str, Any]) -> None:
        self.connection, self.log, self.options = connection, log, options
        self.loud = self.quiet = self.frames = 0
        self.reply: asyncio.Task[None] | None = None
        self.result = asyncio.Event()
        self.rate_hz = 24_000

    def note(self, **line: Any) -> None:
        with self.log.open("a") as log:
            log.write(json.dumps(line) + "\n")

    async def send(self, *messages: str | bytes) -> None:
        for sent in messages:
            await self.connection.send(sent)

    async def run(self) -> None:
        assert self.connection.request is not None
        self.note(headers=dict(self.connection.request.headers.raw_items()), path=self.connection.request.path)
        await self.send(*GREETING)
        async for received in self.connection:
            if isinstance(received, bytes):
                await self.hear(received)
                continue
            fields = json.loads(received)
            self.note(message=fields, frames=self.frames)
            if fields["type"] == "Settings":
                await self.apply(fields)
            elif fields["type"] == "ForceEndTurn":
                self.answer()
            elif fields["type"] == "FunctionCallResponse":
                self.result.set()

    async def apply(self, settings: dict[str, Any]) -> None:
        self.rate_hz = settings["audio"]["output"]["sample_rate"]
        if code := self.options.get("refuse"):
            await self.send(message("Error", description="These settings cannot be used.", code=code))
            await self.connection.close()
            return
        await self.send(message("SettingsApplied"))

    async def hear(self, frame: bytes) -> None:
        self.frames += 1
        if max(map(abs, array("h", frame))) > LOUD:
            self.loud, self.quiet = self.loud + 1, 0
            if self.loud == 3:
                await self.caller_speaks()
        else:
            self.quiet += 1
        if self.quiet == QUIET_FRAMES:
            if self.loud >= LOUD_FRAMES:
                self.answer()
            self.loud = 0

    async def caller_speaks(self) -> None:
        busy = self.reply is not None and not self.reply.done()
        if self.reply is not None and busy:
            self.reply.cancel()
        before = time.perf_counter_ns()
        await self.send(message("UserStartedSpeaking"), message("LatencyReport", stt_latency=0.02))
        if busy:
            await self.send(message("AgentAudioDone"))
        self.note(interrupted_ns=(before, time.perf_counter_ns()))

    def answer(self) -> None:
        self.loud = self.quiet = 0
        self.reply = asyncio.create_task(self.speak())
        self.reply.add_done_callback(lambda done: done.cancelled() or done.result())

    def sound(self) -> bytes:
        """One sentence, audible from its first sample."""
        return array("h", [6000, -6000] * (self.rate_hz * int(self.options.get("reply_ms", 40)) // 2000)).tobytes()

    async def speak(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        stamps: dict[str, tuple[int, int]] = {}
        for step, after_s in SCRIPT_S.items():
            await asyncio.sleep(began + after_s - loop.time())
            messages = await self.messages(step)
            before = time.perf_counter_ns()
            await self.send(*messages)
            stamps[step] = (before, time.perf_counter_ns())
            if step == "text" and self.options.get("fault"):
                await self.connection.close()
                return
        self.note(stamps=stamps)

    async def messages(self, step: str) -> list[str | bytes]:
        words = {"role": "assistant", "conversational_behavior": "default"}
        if step == "final":
            user = {"role": "user", "content": "turn the light on"}
            return [message("ConversationText", **user), message("History", **user)]
        if step == "text":
            if code := self.options.get("fault"):
                return [message("Error", description="The agent could not think.", code=code)]
            if name := self.options.get("tool"):
                call = {"id": "call_1", "name": name, "arguments": "{}", "client_side": True}
                await self.send(message("FunctionCallRequest", functions=[call]))
                await self.result.wait()
            slow = "We have now waited 5 seconds for a think response."
            return [
                message("Warning", description=slow, code="SLOW_THINK_REQUEST"),
                message("AgentThinking", content="The light is meant."),
                message("LatencyReport", ttt_token_latency=0.1),
                message("ConversationText", content=SENTENCES[0], **words),
            ]
        if step == "audio":
            spoke = message("AgentStartedSpeaking", total_latency=0.15, tts_latency=0.03, ttt_latency=0.12)
            return [self.sound(), spoke, message("LatencyReport", tts_latency=0.03, total_latency=0.15)]
        if step == "more":
            sound = self.sound()
            return [message("ConversationText", content=SENTENCES[1], **words), sound[:333], sound[333:]]
        return [message("AgentAudioDone")]


async def main(port: int, log: Path, options: dict[str, Any]) -> None:
    async with serve(lambda one: Agent(one, log, options).run(), "127.0.0.1", port, compression=None) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))
