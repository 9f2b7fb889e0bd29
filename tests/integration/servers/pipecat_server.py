"""A Pipecat bot that answers after known delays: `python -m tests.integration.servers.pipecat_server PORT`.

It hears a question in loud frames of audio and its end in quiet ones, and answers by a script. For each turn it prints
one line of JSON: the moments right before each message is handed to the socket and right after, on the clock that all
processes of a machine share.
"""

import asyncio
import json
import sys
import time
from array import array
from typing import Any, Final

from websockets.asyncio.server import ServerConnection, serve

from tests.unit.loadtest.protocols.contract.scripts.pipecat import audio_frame, message_frame, rtvi

LOUD: Final = 500
LOUD_FRAMES: Final = 10  # 20 ms each
QUIET_FRAMES: Final = 30  # longer than any pause within the words
RATE_HZ: Final = 24_000
TONE: Final = array("h", [6000, -6000] * (RATE_HZ * 40 // 2000)).tobytes()  # 40 ms, audible from the first sample
# After the end of the question was detected: what is sent, and when.
SCRIPT_S: Final[tuple[tuple[float, str, list[bytes]], ...]] = (
    (0.0, "stopped", [message_frame(rtvi("user-stopped-speaking"))]),
    (
        0.05,
        "final",
        [message_frame(rtvi("user-input", {"text": "x", "input_type": "transcription", "final": True}))],
    ),
    (0.06, "started", [message_frame(rtvi("bot-llm-started")), message_frame(rtvi("bot-tts-started"))]),
    (0.13, "text", [message_frame(rtvi("bot-llm-text", {"text": "Yes."}))]),
    (0.25, "audio", [audio_frame(TONE, RATE_HZ)]),
    (0.3, "more", [audio_frame(TONE, RATE_HZ), message_frame(rtvi("bot-started-speaking"))]),
    (
        0.35,
        "ended",
        [message_frame(rtvi(f"bot-{kind}")) for kind in ("llm-stopped", "tts-stopped", "stopped-speaking")],
    ),
)


async def answer(connection: ServerConnection) -> None:
    """Serve one caller."""
    quiet = loud = 0
    async for message in connection:
        assert isinstance(message, bytes)
        if b"client-ready" in message:
            await connection.send(message_frame(rtvi("bot-ready", {"version": "2.2.0"})))
        if message[0] != 2 << 3 | 2:
            continue
        if _is_loud(message):
            loud, quiet = loud + 1, 0
        else:
            quiet += 1
        if loud >= LOUD_FRAMES and quiet == QUIET_FRAMES:
            loud = 0
            task = asyncio.create_task(_reply(connection))
            task.add_done_callback(lambda done: done.result())


def _is_loud(message: bytes) -> bool:
    """Whether a frame holds loud samples: all that is before its last five bytes, the rate and the channels."""
    samples = array("h", message[-597:-5])
    return max(map(abs, samples)) > LOUD


async def _reply(connection: ServerConnection) -> None:
    loop = asyncio.get_running_loop()
    began_ns, began = time.perf_counter_ns(), loop.time()
    stamps: dict[str, Any] = {"began": began_ns}
    for after_s, name, messages in SCRIPT_S:
        await asyncio.sleep(began + after_s - loop.time())
        before = time.perf_counter_ns()
        for message in messages:
            await connection.send(message)
        stamps[name] = (before, time.perf_counter_ns())
    print(json.dumps(stamps), flush=True)


async def main(port: int) -> None:
    async with serve(answer, "127.0.0.1", port, compression=None) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
