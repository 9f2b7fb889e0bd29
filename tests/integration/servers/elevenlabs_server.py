"""An ElevenLabs agent that answers after known delays.

`python -m tests.integration.servers.elevenlabs_server PORT REPLY_MS`. It sends the messages of the contract suite's
script, so that its clients keep that script honest, and can be interrupted. It hears a question in loud audio
and its end in quiet audio, however long the caller's frames are; on a message that the user is active, it sends the
script's odd messages. It prints one line of JSON for each request to connect and each message that it gets (`got`), and
one for each turn: the moments right before each message is handed to the socket and right after, on the clock that all
processes of a machine share.
"""

import asyncio
import base64
import json
import sys
import time
from array import array
from http import HTTPStatus
from typing import Any, Final

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from tests.unit.loadtest.protocols.contract.line import tone
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import (
    ElevenLabsScript,
    metadata,
    odd_messages,
    ping,
    tool_call,
)

LOUD: Final = 500
LOUD_MS: Final = 200
QUIET_MS: Final = 600  # longer than any pause within the words
INPUT_BYTES_PER_MS: Final = 32  # pcm_16000
OUTPUT: Final = "pcm_8000"
OUTPUT_HZ: Final = 8_000
PING_MS: Final = 37
TOOL: Final = "weather"
SIGNATURE: Final = "cvtkn_1"
TEXT: Final = "It is on. "
HEARD: Final = "turn the light on"
# After the end of the question was detected: what is sent, and when.
SCRIPT_S: Final = ((0.0, "final"), (0.03, "tool"), (0.06, "started"), (0.13, "text"), (0.25, "audio"), (0.35, "ended"))


def reply_pcm(reply_ms: int) -> bytes:
    """A tone that grows softer, so that no two pieces of it are alike."""
    loud = np.frombuffer(tone(OUTPUT_HZ, reply_ms), "<i2")
    return (loud * np.linspace(1.0, 0.5, len(loud))).astype("<i2").tobytes()


class Agent:
    """One conversation."""

    def __init__(self, connection: ServerConnection, reply_ms: int) -> None:
        self._connection = connection
        self._reply_ms = reply_ms
        self._script = ElevenLabsScript()
        self._script.reply_rate_hz = OUTPUT_HZ  # pyright: ignore[reportAttributeAccessIssue] - of this object alone
        self._loud_ms = self._quiet_ms = 0.0
        self._turn = 0
        self._playing_until_s = 0.0
        self._reply: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until the caller hangs up."""
        async for message in self._connection:
            fields = json.loads(message)
            if "user_audio_chunk" in fields:
                await self._hear(base64.b64decode(fields["user_audio_chunk"], validate=True), list(fields))
                continue
            print(json.dumps({"got": fields}), flush=True)
            if fields["type"] == "conversation_initiation_client_data":
                await self._send([metadata(OUTPUT), ping(self._script.next_id(), PING_MS)])
            elif fields["type"] == "user_activity":
                await self._send(odd_messages())

    async def _send(self, messages: Any) -> None:
        for message in messages:
            await self._connection.send(message)

    async def _hear(self, pcm: bytes, members: list[str]) -> None:
        samples = array("h", pcm)
        length_ms = len(pcm) / INPUT_BYTES_PER_MS
        if not samples or max(map(abs, samples)) <= LOUD:
            self._quiet_ms += length_ms
            if self._loud_ms >= LOUD_MS and self._quiet_ms >= QUIET_MS:
                self._loud_ms = 0.0
                self._reply = asyncio.create_task(self._answer())
                self._reply.add_done_callback(lambda done: done.cancelled() or done.result())
            return
        before, self._loud_ms, self._quiet_ms = self._loud_ms, self._loud_ms + length_ms, 0.0
        if before < LOUD_MS <= self._loud_ms:
            print(json.dumps({"got": {"members": members, "bytes": len(pcm)}}), flush=True)
            await self._interrupt()
            await self._send(self._script.partial(HEARD[: len(HEARD) // 2]))

    async def _interrupt(self) -> None:
        if asyncio.get_running_loop().time() >= self._playing_until_s:
            return
        if self._reply is not None:
            self._reply.cancel()
        self._playing_until_s = 0.0
        print(json.dumps({"interrupted": time.perf_counter_ns()}), flush=True)
        await self._send(self._script.broken_off())

    async def _answer(self) -> None:
        loop, script = asyncio.get_running_loop(), self._script
        began_ns, began = time.perf_counter_ns(), loop.time()
        self._turn += 1
        stamps: dict[str, tuple[int, int]] = {}
        for after_s, name in SCRIPT_S:
            messages = {
                "final": lambda: script.final(HEARD),
                "tool": lambda: [tool_call(TOOL, f"call_{self._turn}")],
                "started": script.reply_started,
                "text": lambda: script.text(TEXT),
                "audio": lambda: script.audio(reply_pcm(self._reply_ms)),
                "ended": script.reply_done,
            }[name]()
            await asyncio.sleep(began + after_s - loop.time())
            if name == "audio":
                self._playing_until_s = loop.time() + self._reply_ms / 1000
            before = time.perf_counter_ns()
            await self._send(messages)
            stamps[name] = (before, time.perf_counter_ns())
        print(json.dumps({"began": began_ns, **stamps}), flush=True)


def signed_url(connection: ServerConnection, request: Request) -> Response | None:
    """Answer the request for a signed address, and let conversations pass."""
    names = ("xi-api-key", "traceparent")
    headers = {name: request.headers[name] for name in names if name in request.headers}
    print(json.dumps({"got": {"path": request.path, "headers": headers}}), flush=True)
    path, _, query = request.path.partition("?")
    if path == "/v1/convai/conversation":
        return None
    if path != "/v1/convai/conversation/get-signed-url" or "xi-api-key" not in headers:
        return connection.respond(HTTPStatus.UNAUTHORIZED, "no key\n")
    host = request.headers["Host"]
    url = f"ws://{host}/v1/convai/conversation?{query}&conversation_signature={SIGNATURE}"
    return connection.respond(HTTPStatus.OK, json.dumps({"signed_url": url}))


async def main(port: int, reply_ms: int) -> None:
    """Serve on a port of this machine until the process is ended."""

    async def answer(connection: ServerConnection) -> None:
        await Agent(connection, reply_ms).run()

    async with serve(answer, "127.0.0.1", port, compression=None, process_request=signed_url) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
