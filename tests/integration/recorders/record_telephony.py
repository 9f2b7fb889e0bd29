"""Records what Pipecat's serializers say and hear: `python record_telephony.py CALLS.json OUT_FOLDER`.

It runs where pipecat-ai is installed. CALLS.json comes from `python -m tests.unit.loadtest.protocols.telephony.calls`,
in this project's environment. One fixture per variant of a wire: its first line says what was recorded; then come the
messages by which Pipecat's agent speaks, interrupts and marks, and for each message of the call what Pipecat makes of
it. The audio that a message of the agent means is decoded here by Python's own `audioop`.
"""

import asyncio
import audioop
import base64
import importlib.metadata
import json
import math
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
)
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer

CHUNKS_MS = (20, 37, 40)


def serializer(variant: str, stream_id: str, rate_hz: int) -> Any:
    wire = variant.partition("-")[0]
    kind = {
        "twilio": TwilioFrameSerializer,
        "telnyx": TelnyxFrameSerializer,
        "plivo": PlivoFrameSerializer,
        "exotel": ExotelFrameSerializer,
        "vonage": VonageFrameSerializer,
    }[wire]
    own = {"auto_hang_up": False} if wire in ("twilio", "telnyx", "plivo") else {}
    params = kind.InputParams(**{f"{wire}_sample_rate": rate_hz}, **own)
    if wire == "telnyx":
        law = "PCMA" if variant == "telnyx-alaw" else "PCMU"
        return kind(stream_id, law, law, params=params)
    return kind(params=params) if wire == "vonage" else kind(stream_id, params=params)


def law(variant: str) -> str:
    if variant in ("twilio", "telnyx", "plivo"):
        return "ulaw"
    return "alaw" if variant == "telnyx-alaw" else "pcm"


def tone(rate_hz: int, ms: int) -> bytes:
    count = rate_hz * ms // 1000
    values = [int(9000 * math.sin(2 * math.pi * 300 * position / rate_hz)) for position in range(count)]
    return struct.pack(f"<{count}h", *values)


def shown(message: str | bytes) -> object:
    return message if isinstance(message, str) else {"binary": base64.b64encode(message).decode()}


def whole(message: object) -> str | bytes:
    return base64.b64decode(message["binary"]) if isinstance(message, dict) else str(message)


def meant(variant: str, message: str | bytes) -> bytes:
    """The audio of a message of the agent, 16-bit little-endian."""
    payload = message if isinstance(message, bytes) else base64.b64decode(json.loads(message)["media"]["payload"])
    if law(variant) == "pcm":
        return payload
    return audioop.ulaw2lin(payload, 2) if law(variant) == "ulaw" else audioop.alaw2lin(payload, 2)


async def agent_lines(variant: str, speaker: Any, rate_hz: int, stream_id: str) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for ms in CHUNKS_MS:
        message = await speaker.serialize(OutputAudioRawFrame(tone(rate_hz, ms), rate_hz, 1))
        pcm = base64.b64encode(meant(variant, message)).decode()
        lines.append({"agent": "audio", "message": shown(message), "pcm": pcm, "rate_hz": rate_hz})
    lines.append({"agent": "clear", "message": await speaker.serialize(InterruptionFrame())})
    if not variant.startswith("vonage"):
        mark = {"event": "mark", "streamSid": stream_id, "mark": {"name": "reply 1"}}
        name = "reply 1"
        if variant == "plivo":
            mark = {"event": "checkpoint", "streamId": stream_id, "name": name}
        elif variant != "twilio":
            del mark["streamSid"]
    else:
        mark, name = {"action": "notify", "payload": {"reply": 1}}, '{"reply":1}'
    # Telnyx's serializer passes no messages on.
    passed_on = await speaker.serialize(OutputTransportMessageFrame(message=mark))
    if passed_on is not None:
        lines.append({"agent": "mark", "message": passed_on, "name": name})
    return lines


async def heard_lines(listener: Any, call: list[object]) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for message in call:
        frame = await listener.deserialize(whole(message))
        heard: dict[str, object] | None = None
        if isinstance(frame, InputAudioRawFrame):
            heard = {"audio": base64.b64encode(frame.audio).decode(), "rate_hz": frame.sample_rate}
        elif isinstance(frame, InputDTMFFrame):
            heard = {"key": frame.button.value}
        lines.append({"caller": message, "heard": heard})
    return lines


class Socket:
    """The socket from which the runner reads its first two messages."""

    def __init__(self, call: list[object]) -> None:
        self._call = call

    async def _texts(self) -> Any:
        for message in self._call:
            if isinstance(message, str):
                yield message

    def iter_text(self) -> Any:
        return self._texts()


async def record(variant: str, call: list[object]) -> list[dict[str, object]]:
    wire = variant.partition("-")[0]
    kind, data = await parse_telephony_websocket(Socket(call))
    rate_hz = {"vonage": 16_000, "exotel-16k": 16_000}.get(variant, 8_000)
    stream_id = data["stream_id"] if kind != "unknown" else ""
    peer = serializer(variant, stream_id, rate_hz)
    await peer.setup(SimpleNamespace(audio_in_sample_rate=rate_hz))
    note: dict[str, object] = {
        "peer": "pipecat-ai",
        "version": importlib.metadata.version("pipecat-ai"),
        "variant": variant,
    }
    known: dict[str, object] = {
        "detected": kind,
        "call": data.model_dump(by_alias=True, mode="json") if kind == wire else None,
    }
    lines = await agent_lines(variant, peer, rate_hz, stream_id)
    return [{"recorded": note}, known, *lines, *await heard_lines(peer, call)]


def main(calls: str, out: str) -> None:
    for variant, call in json.loads(Path(calls).read_text()).items():
        lines = [json.dumps(line) for line in asyncio.run(record(variant, call))]
        (Path(out) / f"{variant}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
