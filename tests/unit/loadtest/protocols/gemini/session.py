"""A session with Gemini Live that is ready, for tests of single messages."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from loadtest.protocols.base import CallerOptions, SpokenText, VoiceEvent
from loadtest.protocols.gemini.caller import GeminiCaller

PCM = b"\1\0\2\0"


class Session:
    """A session that is ready."""

    def __init__(self, **wire_settings: Any) -> None:
        self.caller = GeminiCaller(CallerOptions(model="m", settings=wire_settings))
        self.receive(setupComplete={})

    def receive(self, **members: Any) -> Sequence[VoiceEvent]:
        return self.caller.receive(json.dumps(members).encode())

    def content(self, **members: Any) -> Sequence[VoiceEvent]:
        return self.receive(serverContent=members)

    def speech(self, mime_type: str = "audio/pcm;rate=24000", **members: Any) -> Sequence[VoiceEvent]:
        return self.content(**speech(mime_type), **members)

    def begin(self) -> None:
        self.caller.begin_turn(SpokenText("turn the light on"))


def speech(mime_type: str = "audio/pcm;rate=24000") -> dict[str, Any]:
    blob = {"mimeType": mime_type, "data": base64.b64encode(PCM).decode()}
    return {"modelTurn": {"role": "model", "parts": [{"inlineData": blob}]}}
