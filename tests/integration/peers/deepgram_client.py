"""The official `deepgram-sdk` as a client: `python deepgram_client.py URL SENT SERVED`. Prints what it understood.

It talks to the agent at URL through a whole turn, and says of each message which of the package's types it became and
what of it the package does not know. SENT is a JSON list of messages that another client sent to such an agent: each is
validated by the package's types, and what they do not know is listed. SERVED is a JSON list of messages as an agent
sends them, which the package's client reads. Nothing here comes from this project.
"""

import json
import sys
import typing
from typing import Any

import pydantic
from deepgram import DeepgramClient
from deepgram.agent.v1 import types
from deepgram.agent.v1.socket_client import V1SocketClient
from deepgram.environment import DeepgramClientEnvironment

FRAME = bytes(640)
FRAMES = 20
CLIENT_TYPES: dict[str, type[pydantic.BaseModel]] = {
    "Settings": types.AgentV1Settings,
    "ForceEndTurn": types.AgentV1ForceEndTurn,
    "FunctionCallResponse": types.AgentV1SendFunctionCallResponse,
    "KeepAlive": types.AgentV1KeepAlive,
}
ENCODINGS = {
    "input": types.AgentV1SettingsAudioInputEncoding,
    "output": types.AgentV1SettingsAudioOutputEncoding,
}


def unknown(value: Any, where: str = "") -> list[str]:
    """The paths of all that no type of the package describes."""
    if isinstance(value, pydantic.BaseModel):
        extra = [f"{where}.{name}" for name in value.model_extra or {}]
        return extra + [
            path for name in type(value).model_fields for path in unknown(getattr(value, name), f"{where}.{name}")
        ]
    if isinstance(value, list):
        return [path for at, element in enumerate(value) for path in unknown(element, f"{where}[{at}]")]
    return [where] if isinstance(value, dict) else []


def named_encodings(settings: dict[str, Any]) -> list[str]:
    """The encodings that the package does not name: its type takes any other value, too."""
    names = []
    for direction, kind in ENCODINGS.items():
        literal = typing.get_args(kind)[0]
        encoding = settings["audio"][direction]["encoding"]
        if encoding not in typing.get_args(literal):
            names.append(f".audio.{direction}.encoding")
    return names


def accepted(message: dict[str, Any]) -> dict[str, Any]:
    """Parse a client's message with the package. Raises pydantic.ValidationError."""
    kind = CLIENT_TYPES[message["type"]]
    parsed = kind.model_validate(message)
    faults = unknown(parsed) + (named_encodings(message) if message["type"] == "Settings" else [])
    dumped = json.loads(json.dumps(parsed.dict()))
    return {"type": type(parsed).__name__, "unknown": faults, "same": dumped == message}


def understood(received: Any) -> dict[str, Any]:
    """Return the package's reading of a message of the service."""
    if isinstance(received, bytes):
        return {"type": "bytes", "length": len(received)}
    if not isinstance(received, pydantic.BaseModel):
        return {"type": "unparsed", "value": received}
    strict = type(received).model_validate(received.dict())
    return {"type": type(received).__name__, "unknown": unknown(strict), "kind": getattr(received, "type", None)}


def settings() -> types.AgentV1Settings:
    """Return the settings that an application would send."""
    audio = {
        "input": {"encoding": "linear16", "sample_rate": 16000},
        "output": {"encoding": "linear16", "sample_rate": 24000, "container": "none"},
    }
    agent = {
        "listen": {"provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en"}},
        "think": {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}},
        "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en"}},
    }
    return types.AgentV1Settings(audio=types.AgentV1SettingsAudio(**audio), agent=types.AgentV1SettingsAgent(**agent))


def turn(line: V1SocketClient) -> list[dict[str, Any]]:
    """Speak a turn, loud and then quiet, and hear the answer to its end."""
    values: list[dict[str, Any]] = []

    def until(kind: str) -> Any:
        while True:
            received = line.recv()
            values.append(understood(received))
            if getattr(received, "type", None) == kind:
                return received

    until("Welcome")
    line.send_settings(settings())
    until("SettingsApplied")
    for _ in range(FRAMES):
        line.send_media(b"\x00\x30" * (len(FRAME) // 2))
    until("UserStartedSpeaking")
    line.send_force_end_turn()
    call = until("FunctionCallRequest").functions[0]
    line.send_function_call_response(types.AgentV1SendFunctionCallResponse(id=call.id, name=call.name, content="on"))
    until("AgentAudioDone")
    return values


class Line:
    """A connection on which messages have arrived."""

    def __init__(self, messages: list[str]) -> None:
        self.messages = iter(messages)

    def recv(self) -> str:
        return next(self.messages)


def main(url: str, sent: str, served: str) -> None:
    """Talk, validate, and print."""
    environment = DeepgramClientEnvironment(base=url, production=url, agent=url, agent_rest=url)
    client = DeepgramClient(api_key="key", environment=environment)
    with client.agent.v1.connect() as line:
        received = turn(line)
    messages = json.loads(served)
    reader = V1SocketClient(websocket=Line(messages))
    result = {
        "received": received,
        "accepted": [accepted(load) for load in json.loads(sent)],
        "served": [understood(reader.recv()) for _ in messages],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
