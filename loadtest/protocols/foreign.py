"""Recognizes messages of another protocol than the one that is spoken, by what only its messages have. Pure."""

from typing import Final

import orjson

from loadtest.protocols.json_fields import Json, MalformedError, as_object, excerpt

# The types that only messages of one protocol have, in whole or by their beginning.
_TYPES: Final = {
    "Welcome": "deepgram-agent",
    "SettingsApplied": "deepgram-agent",
    "ConversationText": "deepgram-agent",
    "conversation_initiation_metadata": "elevenlabs",
    "agent_response": "elevenlabs",
    "bot-ready": "pipecat-eval",
    "transcription.delta": "vllm-realtime",
    "transcription.done": "vllm-realtime",
    "info": "wyoming",
}
_BEGINNINGS: Final = ("session.", "response.", "conversation.item.", "input_audio_buffer.")
_EVENTS: Final = {
    "playAudio": "plivo",
    "clearAudio": "plivo",
    "checkpoint": "plivo",
    "media": "twilio",
    "mark": "twilio",
    "clear": "twilio",
    "connected": "twilio",
}
_GEMINI: Final = frozenset({"setupComplete", "serverContent", "setup_complete", "server_content"})
_RTVI: Final = b"rtvi-ai"
_HTTP: Final = b"HTTP/1."


def protocol_of(message: str | bytes) -> str | None:
    """Return the protocol that has such messages, None where they could be anybody's."""
    if isinstance(message, bytes) and _RTVI in message and not message.startswith(b"{"):
        return "pipecat"  # its messages in protobuf
    try:
        # Of bytes, the library takes no subclass, such as the message of a service.
        fields = as_object(orjson.loads(bytes(message) if isinstance(message, bytes) else message))
    except orjson.JSONDecodeError:
        return None
    return None if fields is None else _protocol_of_fields(fields)


def _protocol_of_fields(fields: Json) -> str | None:
    kind, event = fields.get("type"), fields.get("event")
    if fields.get("label") == _RTVI.decode():
        return "pipecat-eval"
    if _GEMINI & fields.keys():
        return "gemini-live"
    if isinstance(kind, str):
        if kind == "session.created" and "session" not in fields:
            return "vllm-realtime"
        if kind == "error" and "event_id" in fields and as_object(fields.get("error")) is not None:
            return "openai-realtime"
        return _TYPES.get(kind) or ("openai-realtime" if kind.startswith(_BEGINNINGS) else None)
    return _EVENTS.get(event) if isinstance(event, str) else None


def sent_instead(message: str | bytes) -> str:
    """Return a clause that shows a message which the spoken protocol does not have, and whose it is."""
    raw = message.encode() if isinstance(message, str) else message
    if raw.startswith(_HTTP):
        status = raw.partition(b"\r\n")[0].decode(errors="replace")
        return f"it answered with HTTP ({excerpt(status)}): give the address and the --protocol of a web service"
    shown, protocol = f"it sent {excerpt(message)}", protocol_of(message)
    return shown if protocol is None else f"{shown}, a message of the protocol {protocol}: use --protocol {protocol}"


def message_type(fields: Json, key: str, message: str | bytes) -> str:
    """Return what kind of message this is. Raises MalformedError where the member that says it is missing."""
    value = fields.get(key)
    if isinstance(value, str):
        return value
    sentence = f"the endpoint's message does not say what it is in {key!r}, as those of this protocol do"
    raise MalformedError(f"{sentence}: {sent_instead(message)}")
