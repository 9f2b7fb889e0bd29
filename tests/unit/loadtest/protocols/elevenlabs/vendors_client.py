"""The vendor client's reports of an agent's messages, next to our caller's reading of the same messages."""

import hashlib
import json
from typing import Any, Final

from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import EVERY_EVENT

TRACE: Final = f"00-{7:032x}-{9:016x}-01"
TOOLS: Final = {"weather": "sunny in Paris"}
# Every member that a setting or an option can give the first message.
FULL_OPTIONS: Final = CallerOptions(
    model="gpt-4o",
    settings={
        "overrides": {
            "agent": {"prompt": {"prompt": "Be brief."}, "first_message": "Hello.", "language": "en"},
            "tts": {"voice_id": "voice_1"},
        },
        "dynamic_variables": {"cohort": "a", "name": "Ada", "age": 36, "member": True},
        "custom_llm_extra_body": {"temperature": 0.2},
        "trace_in_llm_body": True,
        "user_id": "user_1",
        "initiation": {"branch_id": "branch_1"},
    },
)


def first_message(options: CallerOptions = FULL_OPTIONS) -> dict[str, Any]:
    """The first message of a caller."""
    caller = make_caller("elevenlabs", options)
    caller.upgrade("wss://h/v1/convai/conversation", TRACE)
    (message,) = caller.opened()
    return json.loads(message)  # type: ignore[arg-type]  # every message of this wire is text


def reported(event: VoiceEvent) -> list[Any] | None:
    """An event in the words of the vendor's callbacks; None for what these do not report."""
    match event.raw_type, event.kind:
        case "audio", EventKind.AUDIO:
            pcm = event.audio or b""
            return ["audio", {"bytes": len(pcm), "sha256": hashlib.sha256(pcm).hexdigest()}]
        case "interruption", EventKind.CLEAR:
            return ["interrupt", None]
        case "user_transcript", EventKind.ASR_FINAL:
            return ["user_transcript", event.text]
        case ("agent_response" | "agent_chat_response_part" | "agent_response_correction") as kind, _:
            return [kind, event.text]
        case "ping", EventKind.SERVICE_REPORT:
            return ["latency_ms", event.service_ns["ping"] // 1_000_000]
        case _:
            return None


def theirs(reports: list[Any]) -> list[Any]:
    """The client's reports, in the form of `reported`."""
    converted: list[Any] = []
    for what, value in reports:
        if what == "part":
            converted.append(["agent_chat_response_part", value[0]])
        elif what == "correction":
            converted.append(["agent_response_correction", value[1]])
        elif what != "alignment":  # lip movements: no caller has any
            converted.append([what, value])
    return sorted(converted, key=str)


def assert_same(session: dict[str, Any]) -> None:
    """Our caller makes of every message of a recorded session what the vendor's client made of it."""
    caller = make_caller("elevenlabs", CallerOptions(settings={"client_events": EVERY_EVENT, "tools": TOOLS}))
    compared: set[str] = set()
    for entry in session["messages"]:
        message = entry["message"]
        events = caller.receive(json.dumps(message))
        ours = [report for report in map(reported, events) if report is not None]
        answers = [json.loads(text) for text in caller.pending()]  # type: ignore[arg-type]
        ours += [["sent", answer] for answer in answers if answer["type"] == "pong"]
        assert sorted(ours, key=str) == theirs(entry["reported"]), _short(message)
        compared |= {what for what, _ in entry["reported"]}
    assert compared >= {"audio", "interrupt", "user_transcript", "agent_response", "correction", "part", "latency_ms"}
    assert compared >= {"sent"}


def _short(message: dict[str, Any]) -> str:
    return json.dumps(message)[:200]
