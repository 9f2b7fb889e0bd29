"""Creates the messages that a caller sends, with the members that the vendor's own client gives them."""

from collections.abc import Mapping
from typing import Any

import orjson

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.elevenlabs.settings import TRACE_VARIABLE, ElevenLabsSettings
from loadtest.protocols.tool_results import result_of, result_text
from loadtest.protocols.wire_settings import merged


def initiation(options: CallerOptions, settings: ElevenLabsSettings, traceparent: str | None) -> str:
    """The first message: what the agent is to know of this caller, and what differs from its configuration."""
    trace = {} if traceparent is None else {TRACE_VARIABLE: traceparent}
    extra_body = settings.custom_llm_extra_body | (trace if settings.trace_in_llm_body else {})
    message = {
        "type": "conversation_initiation_client_data",
        "custom_llm_extra_body": extra_body,
        "conversation_config_override": merged(_neutral_overrides(options), settings.overrides),
        "dynamic_variables": {**dict(options.metadata), **settings.dynamic_variables, **trace},
        **({} if settings.user_id is None else {"user_id": settings.user_id}),
        **settings.initiation,
    }
    return orjson.dumps(message).decode()


def _neutral_overrides(options: CallerOptions) -> dict[str, Any]:
    prompt = {"prompt": options.instructions, "llm": options.model}
    asked = {name: value for name, value in prompt.items() if value is not None}
    agent = {"agent": {"prompt": asked}} if asked else {}
    tts = {} if options.voice is None else {"tts": {"voice_id": options.voice}}
    return {**agent, **tts}


def pong(event_id: object) -> str:
    """The answer to a ping."""
    return orjson.dumps({"type": "pong", "event_id": event_id}).decode()


def tool_result(call_id: str, name: str, results: Mapping[str, Any]) -> tuple[str, bool]:
    """The answer to the call of a tool by its canned result; without one an error. Returns whether there is one."""
    found = result_of(results, name)
    text = f"Tool '{name}' is not registered" if found is None else result_text(found)
    message = {"type": "client_tool_result", "tool_call_id": call_id, "result": text, "is_error": found is None}
    return orjson.dumps(message).decode(), found is not None
