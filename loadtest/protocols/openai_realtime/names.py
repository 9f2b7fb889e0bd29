"""The names of OpenAI Realtime events: one canonical (GA) name each, and the names that other dialects use.

Servers of this family differ mostly in naming (`response.audio.delta`), so the names are tables. Some servers send an
event under two names at once; `AliasFilter` counts it once.
"""

from enum import StrEnum
from typing import Final


class ServerEvent(StrEnum):
    """Server events that are read or written here, by GA name."""

    SESSION_CREATED = "session.created"
    SESSION_UPDATED = "session.updated"
    CONVERSATION_CREATED = "conversation.created"
    SPEECH_STARTED = "input_audio_buffer.speech_started"
    SPEECH_STOPPED = "input_audio_buffer.speech_stopped"
    COMMITTED = "input_audio_buffer.committed"
    CLEARED = "input_audio_buffer.cleared"
    ITEM_ADDED = "conversation.item.added"
    ITEM_DONE = "conversation.item.done"
    ITEM_RETRIEVED = "conversation.item.retrieved"
    ITEM_DELETED = "conversation.item.deleted"
    ITEM_TRUNCATED = "conversation.item.truncated"
    TRANSCRIPTION_DELTA = "conversation.item.input_audio_transcription.delta"
    # The whole partial transcript so far, not a piece of it (xAI).
    TRANSCRIPTION_UPDATED = "conversation.item.input_audio_transcription.updated"
    TRANSCRIPTION_COMPLETED = "conversation.item.input_audio_transcription.completed"
    TRANSCRIPTION_FAILED = "conversation.item.input_audio_transcription.failed"
    RESPONSE_CREATED = "response.created"
    OUTPUT_ITEM_ADDED = "response.output_item.added"
    OUTPUT_ITEM_DONE = "response.output_item.done"
    CONTENT_PART_ADDED = "response.content_part.added"
    CONTENT_PART_DONE = "response.content_part.done"
    TEXT_DELTA = "response.output_text.delta"
    TEXT_DONE = "response.output_text.done"
    TRANSCRIPT_DELTA = "response.output_audio_transcript.delta"
    TRANSCRIPT_DONE = "response.output_audio_transcript.done"
    AUDIO_DELTA = "response.output_audio.delta"
    AUDIO_DONE = "response.output_audio.done"
    OUTPUT_CLEARED = "output_audio_buffer.cleared"
    REASONING_DELTA = "response.reasoning_text.delta"
    RESPONSE_DONE = "response.done"
    RATE_LIMITS = "rate_limits.updated"
    PING = "ping"
    ERROR = "error"


# The names for a client that requested the beta. ITEM_DONE has no counterpart there.
BETA_NAMES: Final[dict[ServerEvent, str]] = {
    ServerEvent.ITEM_ADDED: "conversation.item.created",
    ServerEvent.TEXT_DELTA: "response.text.delta",
    ServerEvent.TEXT_DONE: "response.text.done",
    ServerEvent.TRANSCRIPT_DELTA: "response.audio_transcript.delta",
    ServerEvent.TRANSCRIPT_DONE: "response.audio_transcript.done",
    ServerEvent.AUDIO_DELTA: "response.audio.delta",
    ServerEvent.AUDIO_DONE: "response.audio.done",
}
GA_ONLY: Final = frozenset({ServerEvent.ITEM_DONE})

# Names of other dialects for the same thing.
_OTHER_NAMES: Final[dict[str, ServerEvent]] = {
    "transcription_session.created": ServerEvent.SESSION_CREATED,
    "transcription_session.updated": ServerEvent.SESSION_UPDATED,
    "response.reasoning.delta": ServerEvent.REASONING_DELTA,
    "response.reasoning_summary_text.delta": ServerEvent.REASONING_DELTA,
}

_CANONICAL: Final[dict[str, ServerEvent]] = (
    {str(event): event for event in ServerEvent} | {beta: event for event, beta in BETA_NAMES.items()} | _OTHER_NAMES
)

# Other events of the official API, which no caller needs.
_UNUSED: Final = frozenset(
    {
        "conversation.item.created",
        "conversation.item.input_audio_transcription.segment",
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.dtmf_event_received",
        "output_audio_buffer.started",
        "output_audio_buffer.stopped",
        "response.output_text.annotation.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "mcp_list_tools.failed",
        "pong",
    }
)
# Prefixes of the events of a tool call, wherever the tool runs.
_TOOL_CALLS: Final = ("response.function_call_arguments.", "response.mcp_call_arguments.", "response.mcp_call.")

# The answer's text comes as text, as the transcript of its audio, or (xAI) as both: it is one stream of text.
_SAME_STREAM: Final[dict[ServerEvent, ServerEvent]] = {
    ServerEvent.TRANSCRIPT_DELTA: ServerEvent.TEXT_DELTA,
    ServerEvent.TRANSCRIPTION_UPDATED: ServerEvent.TRANSCRIPTION_DELTA,
}


def canonical(raw_type: str) -> ServerEvent | None:
    """Return the canonical event of a wire name, or None for a name that is not read or written here."""
    return _CANONICAL.get(raw_type)


def is_tool_call(raw_type: str) -> bool:
    """Return whether the event is part of a tool call."""
    return raw_type.startswith(_TOOL_CALLS)


def is_known(raw_type: str) -> bool:
    """Return whether the event belongs to this protocol, whether or not it is used here."""
    return raw_type in _CANONICAL or raw_type in _UNUSED or is_tool_call(raw_type)


def wire_name(event: ServerEvent, *, beta: bool) -> str:
    """Return the name of an event in the client's dialect."""
    return BETA_NAMES.get(event, str(event)) if beta else str(event)


class AliasFilter:
    """Ignores the second of two names under which a server sends the same events.

    Within one content part of one response, only the first name seen for a stream counts. The choice is made again for
    each part and response, so a gateway may change its upstream between turns.
    """

    def __init__(self) -> None:
        self._chosen: dict[ServerEvent, tuple[tuple[str | None, ...], str]] = {}

    def is_alias(self, event: ServerEvent, raw_type: str, *part: str | None) -> bool:
        """Return whether another name already carries this stream in this part (response id, item id, …)."""
        stream = _SAME_STREAM.get(event, event)
        chosen = self._chosen.get(stream)
        if chosen is None or chosen[0] != part:
            self._chosen[stream] = (part, raw_type)
            return False
        return chosen[1] != raw_type
