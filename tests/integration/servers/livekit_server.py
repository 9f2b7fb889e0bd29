"""A LiveKit agent that answers after known delays: `python -m tests.integration.servers.livekit_server PORT`.

It connects to the caller, hears a question in loud frames of audio and its end in quiet ones, and answers by a script;
its reply is over when the caller says that it has been played. For each turn it prints one line of JSON: the moments
right before each message is handed to the socket and right after, on the clock that all processes of a machine share.
"""

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any, Final

from tests.unit.loadtest.protocols.contract.scripts import livekit as wire

LOUD: Final = 500
LOUD_FRAMES: Final = 10  # 20 ms each
QUIET_FRAMES: Final = 30  # longer than any pause within the words
TONE: Final = array("h", [6000, -6000] * (48_000 * 40 // 2000)).tobytes()  # 40 ms, audible from the first sample
FINISHED: Final = b"\x42\x00"
# After the end of the question was detected: what is sent, and when.
SCRIPT_S: Final[tuple[tuple[float, str, list[bytes]], ...]] = (
    (0.0, "final", [wire.event(13, wire.field(1, b"x") + wire.field(2, 1))]),
    (
        0.1,
        "stopped",
        [wire.item(wire.USER, "x", wire.USER_METRICS), wire.agent_state(wire.LISTENING, wire.THINKING)],
    ),
    (0.25, "audio", [wire.audio(TONE), wire.agent_state(wire.THINKING, wire.SPEAKING)]),
    (0.28, "more", [wire.audio(TONE), wire.FLUSH]),
)
OVER: Final = [
    wire.item(wire.ASSISTANT, "Yes.", wire.ASSISTANT_METRICS),
    wire.agent_state(wire.SPEAKING, wire.LISTENING),
]


def framed(messages: Sequence[bytes]) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


class Agent:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._script = wire.ConsoleScript()
        self._loud = self._quiet = 0

    async def run(self) -> None:
        self._writer.write(framed(self._script.greets()))
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                self._heard(await self._reader.readexactly(length))
        except asyncio.IncompleteReadError:
            return

    def _heard(self, message: bytes) -> None:
        if message == FINISHED:
            self._writer.write(framed(OVER))
        elif message[0] != 1 << 3 | 2:
            self._writer.write(framed(self._script.answers(message)))
        elif max(map(abs, array("h", message[6:1926]))) > LOUD:
            if self._loud == 0:
                self._writer.write(framed([wire.user_state(wire.USER_LISTENING, wire.USER_SPEAKING)]))
            self._loud, self._quiet = self._loud + 1, 0
        else:
            self._quiet += 1
        if self._loud >= LOUD_FRAMES and self._quiet == QUIET_FRAMES:
            self._loud = 0
            task = asyncio.get_running_loop().create_task(self._reply())
            task.add_done_callback(lambda done: done.result())

    async def _reply(self) -> None:
        loop = asyncio.get_running_loop()
        began_ns, began = time.perf_counter_ns(), loop.time()
        stamps: dict[str, Any] = {"began": began_ns}
        for after_s, name, messages in SCRIPT_S:
            await asyncio.sleep(began + after_s - loop.time())
            before = time.perf_counter_ns()
            self._writer.write(framed(messages))
            stamps[name] = (before, time.perf_counter_ns())
        print(json.dumps(stamps), flush=True)


async def main(port: int) -> None:
    """Connect as soon as somebody listens."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            await Agent(reader, writer).run()
            return


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
