"""Records what the vendor's own client makes of an agent's messages: `python record_elevenlabs.py URL OUT [OURS]`.

It runs where the package `elevenlabs` is installed, and talks to the agent at URL (`http://127.0.0.1:PORT`, that of
tests/integration/servers/elevenlabs_server.py) through `Conversation`. Its audio interface asks a question, interrupts
the answer, asks again and says that the user is active. OUT holds each message as it came, with everything that the
client reported of it. OURS holds a first message of our caller's, which the package's models of that message must
understand.
"""

import hashlib
import importlib.metadata
import json
import math
import sys
import threading
import typing
from array import array
from pathlib import Path
from typing import Any

import pydantic
from elevenlabs import ElevenLabs
from elevenlabs.conversational_ai.conversation import (
    AudioInterface,
    ClientTools,
    Conversation,
    ConversationInitiationData,
)
from elevenlabs.types import ClientEvent, ConversationInitiationClientDataRequestInput

KEY = "sk_test"
BOUND_S = 20.0
RATE_HZ = 16_000
CHUNK = 4_000  # samples, as the client recommends
SPEECH = array("h", [round(9000 * math.sin(at / 8)) for at in range(CHUNK)]).tobytes()
SILENCE = bytes(2 * CHUNK)


class Caller(AudioInterface):
    """Speaks into the conversation, and notes what it should play."""

    def __init__(self, log: "Log") -> None:
        self._log = log
        self.say: Any = None
        self.started = threading.Event()
        self.heard = threading.Event()
        self.interrupted = threading.Event()

    def start(self, input_callback: Any) -> None:
        self.say = input_callback
        self.started.set()

    def stop(self) -> None:
        pass

    def output(self, audio: bytes) -> None:
        self._log.note("audio", {"bytes": len(audio), "sha256": hashlib.sha256(audio).hexdigest()})
        self.heard.set()

    def interrupt(self) -> None:
        self._log.note("interrupt", None)
        self.interrupted.set()

    def ask(self) -> None:
        for chunk in (SPEECH, SPEECH, SILENCE, SILENCE, SILENCE):
            self.say(chunk)


class Log:
    """Each message that came, with what the client reported of it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.ended = threading.Event()

    def note(self, what: str, value: Any) -> None:
        self.messages[-1]["reported"].append([what, value])


class Recorded(Conversation):
    """The vendor's client, with a note of each message before it handles it."""

    log: Log

    def _handle_message(self, message: Any, ws: Any) -> None:
        self.log.messages.append({"message": message, "reported": []})
        log, sent = self.log, ws.send

        class Noting:
            """The connection, with a note of what is sent in answer."""

            def send(self, text: str) -> None:
                log.messages[-1]["reported"].append(["sent", json.loads(text)])
                sent(text)

        # The result of a tool comes later, from a thread of its own: the server notes it.
        super()._handle_message(message, ws if message["type"] == "client_tool_call" else Noting())
        if message["type"] in ("context_usage", "error"):
            self.log.ended.set()


def converse(url: str) -> tuple[list[dict[str, Any]], str | None]:
    log = Log()
    caller = Caller(log)
    tools = ClientTools()
    tools.register("weather", lambda parameters: f"sunny in {parameters['city']}")
    conversation = Recorded(
        ElevenLabs(base_url=url, api_key=KEY),
        "agent_0001",
        user_id="user_1",
        requires_auth=True,
        audio_interface=caller,
        client_tools=tools,
        config=ConversationInitiationData(
            extra_body={"traceparent": "t"},
            conversation_config_override={"agent": {"prompt": {"prompt": "Be brief."}}, "tts": {"voice_id": "v1"}},
            dynamic_variables={"traceparent": "t"},
        ),
        callback_agent_response=lambda text: log.note("agent_response", text),
        callback_agent_response_correction=lambda before, after: log.note("correction", [before, after]),
        callback_agent_chat_response_part=lambda text, kind: log.note("part", [text, kind.value]),
        callback_user_transcript=lambda text: log.note("user_transcript", text),
        callback_latency_measurement=lambda ms: log.note("latency_ms", ms),
        callback_audio_alignment=lambda alignment: log.note("alignment", "".join(alignment.chars)),
    )
    conversation.log = log
    conversation.start_session()
    assert caller.started.wait(BOUND_S), "the conversation did not open"
    caller.ask()
    assert caller.heard.wait(BOUND_S), "no reply came"
    caller.ask()  # while the reply still plays
    assert caller.interrupted.wait(BOUND_S), "the interruption was not heard"
    log.ended.clear()
    assert log.ended.wait(BOUND_S), "the second reply did not end"
    log.ended.clear()
    conversation.register_user_activity()
    assert log.ended.wait(BOUND_S), "the odd messages did not come"
    conversation.end_session()
    return log.messages, conversation.wait_for_session_end()


def unknown_members(model: Any, path: str = "") -> list[str]:
    """The members of a message for which the package's models have no field."""
    members = [f"{path}{name}" for name in (model.model_extra or {})]
    for name in type(model).model_fields:
        inner = getattr(model, name)
        if isinstance(inner, pydantic.BaseModel):
            members += unknown_members(inner, f"{path}{name}.")
    return members


def understood(message: dict[str, Any]) -> dict[str, Any]:
    model = ConversationInitiationClientDataRequestInput.model_validate(message)
    return {"unknown_members": unknown_members(model), "fields": model.model_dump(mode="json", exclude_none=True)}


def main(url: str, out: str, ours: str | None) -> None:
    messages, conversation_id = converse(url)
    literal = next(kind for kind in typing.get_args(ClientEvent) if typing.get_args(kind))
    result: dict[str, Any] = {
        "recorded": {"peer": "elevenlabs", "version": importlib.metadata.version("elevenlabs")},
        "client_events": list(typing.get_args(literal)),
        "conversation_id": conversation_id,
        "messages": messages,
    }
    if ours is not None:
        given = json.loads(Path(ours).read_text())
        result["initiation"] = {"given": given, **understood(given)}
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
