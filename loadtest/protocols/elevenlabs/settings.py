"""The settings of ElevenLabs Agents and their effect on the metrics; the types of messages, and the formats of audio.

Sources: elevenlabs 2.78.0 (`types/client_event.py`) and the AsyncAPI document of @elevenlabs/types 0.23.0. Pure.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.wire_settings import (
    OF_PARTIALS,
    OF_TEXT,
    OF_TRANSCRIPTS,
    WireSettings,
    checked_settings,
    faults_of_options,
    member_at,
    withheld,
)

WIRE: Final = "elevenlabs"
FormatName = Literal["pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000", "pcm_44100", "pcm_48000", "ulaw_8000"]
USUAL: Final[FormatName] = "pcm_16000"  # what the vendor's clients assume where nothing is said
FORMATS: Final[dict[str, AudioFormat]] = {
    "pcm_8000": AudioFormat("pcm16", 8_000),
    "pcm_16000": AudioFormat("pcm16", 16_000),
    "pcm_22050": AudioFormat("pcm16", 22_050),
    "pcm_24000": AudioFormat("pcm16", 24_000),
    "pcm_44100": AudioFormat("pcm16", 44_100),
    "pcm_48000": AudioFormat("pcm16", 48_000),
    "ulaw_8000": AudioFormat("pcmu", 8_000),
}
# The types that are decoded, and the member with their content.
CONTENT: Final[Mapping[str, str]] = {
    "conversation_initiation_metadata": "conversation_initiation_metadata_event",
    "audio": "audio_event",
    "user_transcript": "user_transcription_event",
    "tentative_user_transcript": "tentative_user_transcription_event",
    "agent_response": "agent_response_event",
    "agent_response_correction": "agent_response_correction_event",
    "agent_chat_response_part": "text_response_part",
    "agent_response_complete": "agent_response_complete_event",
    "interruption": "interruption_event",
    "ping": "ping_event",
    "client_tool_call": "client_tool_call",
    "context_usage": "context_usage_event",
    "guardrail_triggered": "guardrail_triggered_event",
    "error": "error_event",
    "client_error": "error_event",
}
# The types of these that may come without content.
MAY_BE_EMPTY: Final = frozenset({"agent_response_complete", "guardrail_triggered", "client_error"})
# The types of which a second message with the same id and the same content is the same message again. Not pings, each
# of which must be answered, and not what comes in small pieces: two equal words are two words.
IDENTIFIED: Final = frozenset(
    {
        "audio",
        "user_transcript",
        "agent_response",
        "agent_response_correction",
        "agent_response_complete",
        "interruption",
        "context_usage",
    }
)
# The types that no caller needs.
UNUSED: Final = frozenset(
    {
        "agent_reasoning_response_part",
        "agent_response_metadata",
        "agent_tool_request",
        "agent_tool_response",
        "agent_tool_response_full_payload",
        "agent_typing",
        "asr_initiation_metadata",
        "dtmf_request",
        "external_agent_connected",
        "external_agent_disconnected",
        "internal_tentative_agent_response",
        "internal_turn_probability",
        "mcp_connection_status",
        "mcp_tool_call",
        "rich_content",
        "vad_score",
    }
)
CLIENT_EVENTS: Final = frozenset(CONTENT) - {"error"} | UNUSED
USUAL_CLIENT_EVENTS: Final = (
    "audio",
    "interruption",
    "user_transcript",
    "agent_response",
    "agent_response_correction",
)
TRACE_VARIABLE: Final = "traceparent"
# ElevenLabs sets variables of this prefix itself.
_RESERVED_PREFIX: Final = "system__"
# What the agent's configuration decides, by the names of the neutral options.
_OF_THE_AGENT: Final = ("transcription_model", "silence_duration_ms")
# Members of the first message that have a setting of their own.
_OURS: Final = frozenset(
    {"type", "conversation_config_override", "custom_llm_extra_body", "dynamic_variables", "user_id"}
)


def _client_events(names: list[str]) -> list[str]:
    unknown = sorted(set(names) - CLIENT_EVENTS)
    if unknown:
        raise ValueError(f"there is no client event {', '.join(unknown)}; known: {', '.join(sorted(CLIENT_EVENTS))}")
    if "audio" not in names:
        raise ValueError("'audio' is missing: the callers would hear nothing")
    return names


def _overrides(overrides: dict[str, Any]) -> dict[str, Any]:
    if member_at(overrides, ("conversation", "text_only")):
        raise ValueError("conversation.text_only takes the agent's voice away: leave it out")
    return overrides


def _variables(variables: dict[str, Any]) -> dict[str, Any]:
    reserved = sorted(name for name in variables if name.startswith(_RESERVED_PREFIX))
    if reserved:
        raise ValueError(f"ElevenLabs sets {', '.join(reserved)} itself: leave out names with {_RESERVED_PREFIX}")
    if TRACE_VARIABLE in variables:
        raise ValueError(f"the callers set {TRACE_VARIABLE} themselves: leave it out")
    return variables


def _initiation(members: dict[str, Any]) -> dict[str, Any]:
    taken = sorted(_OURS & members.keys())
    if taken:
        raise ValueError(f"{', '.join(taken)}: the callers set it, from the settings of their own names; leave it out")
    return members


class ElevenLabsSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    # What the agent is configured to take: it does not convert, and says its format only once the call is open.
    user_input_audio_format: FormatName = USUAL
    frame_ms: Literal[20, 40, 60, 100] = 20
    # What the agent is configured to send (`conversation.client_events`). No client can ask for others.
    client_events: Annotated[list[str], AfterValidator(_client_events)] = Field(
        default_factory=lambda: list(USUAL_CLIENT_EVENTS)
    )
    overrides: Annotated[dict[str, Any], AfterValidator(_overrides)] = Field(default_factory=dict)
    dynamic_variables: Annotated[dict[str, str | int | float | bool], AfterValidator(_variables)] = Field(
        default_factory=dict
    )
    custom_llm_extra_body: dict[str, Any] = Field(default_factory=dict)
    trace_in_llm_body: bool = False  # the trace also goes to a custom language model, within its extra body
    user_id: str | None = Field(default=None, min_length=1)
    # Further members of the first message: `tool_mock_config`, `branch_id` …
    initiation: Annotated[dict[str, Any], AfterValidator(_initiation)] = Field(default_factory=dict)
    tools: dict[str, Any] = Field(default_factory=dict)  # the result of each client tool by its name; "*" is any other


def elevenlabs_settings(options: CallerOptions) -> ElevenLabsSettings:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect."""
    faults = faults_of_options(options, WIRE, "the agent", "the agent's configuration", names=_OF_THE_AGENT)
    return checked_settings(ElevenLabsSettings, options, WIRE, faults)


# The metrics that cannot be without a client event, by the event.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "tentative_user_transcript": OF_PARTIALS,
    "user_transcript": OF_TRANSCRIPTS,
    "agent_chat_response_part": OF_TEXT,
}


def not_observable(client_events: list[str]) -> dict[str, str]:
    """Return the metrics that an agent with these client events cannot show, each with the reason."""
    sentence = "the agent does not send {}, which is not among the client events of the settings"
    unsent = [(metrics, sentence.format(event)) for event, metrics in _NEEDED.items() if event not in client_events]
    return withheld((("endpointing",), "the agent does not say when it takes the caller's turn for ended"), *unsent)
