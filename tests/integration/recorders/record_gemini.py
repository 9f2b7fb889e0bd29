"""Calls a server of Gemini Live's wire with the vendor's client: `record_gemini.py BASE_URL INPUT OUTPUT`.

Runs in the environment of the peer (google-genai). The client wants TLS: SSL_CERT_FILE names the authority. INPUT is a
JSON object: `audio`, a loud and a quiet frame in base64, and `ours`, messages that our caller sends. OUTPUT gets,
session by session, what the client sent, and each message that it received together with what it made of it, as its own
types have it. `ours` becomes our messages as these types read them. All but that is tests/fixtures/gemini.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from google import genai
from google.genai import errors, live, types

LOUD_FRAMES = 12
QUIET_FRAMES = 30
WAIT_S = 30.0
CONFIG: dict[str, Any] = {
    "response_modalities": ["AUDIO"],
    "input_audio_transcription": {},
    "output_audio_transcription": {},
    "speech_config": {
        "voice_config": {"prebuilt_voice_config": {"voice_name": "Puck"}},
        "language_code": "en-US",
    },
}
AUTOMATIC = {"realtime_input_config": {"automatic_activity_detection": {"silence_duration_ms": 300}}}
MANUAL = {"realtime_input_config": {"automatic_activity_detection": {"disabled": True}}}
LIGHT = {"function_declarations": [{"name": "light"}]}
ANSWERS = ("at once", "in words", "after a tool", "until it is stopped")
REFUSED = ("full", "keyless", "none")


class Wire:
    """The traffic of the connections of the vendor's client, and the last of them."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.received: list[bytes] = []
        self.opened: dict[str, Any] = {}
        kind = live.ClientConnection
        send, recv = kind.send, kind.recv

        async def noted_send(connection: Any, message: str, **options: Any) -> None:
            audio = '"audio": {' in message
            if not (audio and '"audio": {' in self.sent[-1]):  # the first of many frames
                self.sent.append(message)
            names = ("authorization", "x-goog-api-key")
            headers = {name.lower(): value for name, value in connection.request.headers.raw_items()}
            kept = {name: headers[name] for name in names if name in headers}
            self.opened = {"path": connection.request.path, "headers": kept}
            await send(connection, message, **options)

        async def noted_recv(connection: Any, **options: Any) -> bytes:
            message = await recv(connection, **options)
            self.received.append(message)
            return message

        kind.send, kind.recv = noted_send, noted_recv

    def take(self) -> tuple[list[str], list[bytes]]:
        both = self.sent, self.received
        self.sent, self.received = [], []
        return both


class Recorder:
    """Sessions of the vendor's client with one server."""

    def __init__(self, base_url: str, loud: bytes, quiet: bytes) -> None:
        self.wire = Wire()
        self.client = genai.Client(api_key="key-1", http_options=types.HttpOptions(base_url=base_url))
        self.loud, self.quiet = loud, quiet

    async def frames(self, session: Any, pcm: bytes, count: int) -> None:
        for _ in range(count):
            await session.send_realtime_input(audio=types.Blob(data=pcm, mime_type="audio/pcm;rate=16000"))

    async def speak(self, session: Any) -> None:
        await self.frames(session, self.loud, LOUD_FRAMES)
        await self.frames(session, self.quiet, QUIET_FRAMES)

    async def automatic(self, instructions: str) -> dict[str, Any]:
        """A question; its answer, perhaps with a tool, or the question that stops it."""
        values: list[Any] = []
        config = CONFIG | AUTOMATIC | {"system_instruction": instructions, "tools": [LIGHT]}
        async with self.client.aio.live.connect(model="gemini-live", config=config) as session:
            await self.speak(session)
            stopped = False
            async for message in session.receive():
                values.append(message)
                if message.tool_call is not None:
                    results = [
                        types.FunctionResponse(id=call.id, name=call.name, response={"state": "on"})
                        for call in message.tool_call.function_calls
                    ]
                    await session.send_tool_response(function_responses=results)
                elif instructions == "until it is stopped" and message.data and not stopped:
                    stopped = True
                    await self.frames(session, self.loud, LOUD_FRAMES)
            await session.send_realtime_input(audio_stream_end=True)
            return self.recorded(instructions, session, values)

    async def manual(self) -> dict[str, Any]:
        """A question whose beginning and end the client marks."""
        config = CONFIG | MANUAL | {"system_instruction": "manual", "tools": [LIGHT]}
        async with self.client.aio.live.connect(model="gemini-live", config=config) as session:
            await session.send_realtime_input(activity_start=types.ActivityStart())
            await self.speak(session)
            await session.send_realtime_input(activity_end=types.ActivityEnd())
            messages = [message async for message in session.receive()]
            return self.recorded("manual", session, messages)

    def recorded(self, name: str, session: Any, values: list[Any]) -> dict[str, Any]:
        sent, received = self.wire.take()
        ready, *received = [message.decode() for message in received]
        parsed = [
            json.loads(message.model_dump_json(exclude_none=True))
            | {"data": base64.b64encode(message.data or b"").decode(), "text": message.text}
            for message in values
        ]
        return {
            "name": name,
            "opened": self.wire.opened,
            "sent": [json.loads(message) for message in sent],
            "ready": {"message": ready, "session_id": session.session_id},
            "received": [{"message": message, "parsed": made} for message, made in zip(received, parsed, strict=True)],
        }

    async def refused(self, model: str) -> dict[str, Any]:
        try:
            async with self.client.aio.live.connect(model=model, config=CONFIG):
                return {"name": model}
        except errors.APIError as error:
            self.wire.take()
            return {"name": model, "code": error.code, "reason": error.details}


def validated(message: dict[str, Any]) -> dict[str, Any]:
    """One of our messages as the types read it; they have no place in a setup for `realtimeInputConfig`."""
    setup = dict(message.get("setup", {}))
    heard = setup.pop("realtimeInputConfig", None)
    read = types.LiveClientMessage.model_validate(message | ({"setup": setup} if setup else {}))
    setup = json.loads(read.model_dump_json(by_alias=True, exclude_none=True))
    if heard is not None:
        read_heard = types.RealtimeInputConfig.model_validate(heard)
        setup["setup"]["realtimeInputConfig"] = json.loads(read_heard.model_dump_json(by_alias=True, exclude_none=True))
    return setup


async def main(base_url: str, given: dict[str, Any]) -> dict[str, Any]:
    loud, quiet = (base64.b64decode(text) for text in given["audio"])
    recorder = Recorder(base_url, loud, quiet)
    async with asyncio.timeout(WAIT_S):
        sessions = [await recorder.automatic(answer) for answer in ANSWERS]
        sessions.append(await recorder.manual())
        refused = [await recorder.refused(model) for model in REFUSED]
    ours = [validated(message) for message in given["ours"]]
    return {"version": genai.__version__, "sessions": sessions, "refused": refused, "ours": ours}


if __name__ == "__main__":
    done = asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())))
    Path(sys.argv[3]).write_text(json.dumps(done))
