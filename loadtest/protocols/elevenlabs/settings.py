"""The settings of ElevenLabs Agents, and their effect on the metrics. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.elevenlabs.formats import USUAL, FormatName
from loadtest.protocols.elevenlabs.names import CLIENT_EVENTS, USUAL_CLIENT_EVENTS
from loadtest.protocols.json_fields import as_object
from loadtest.protocols.stage_metrics import OF_PARTIALS, OF_TEXT, OF_TRANSCRIPTS
from loadtest.protocols.unused_options import faults_of_options
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

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
    conversation = as_object(overrides.get("conversation")) or {}
    if conversation.get("text_only"):
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


def checked_settings(options: CallerOptions, wire: str) -> ElevenLabsSettings:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect."""
    faults = faults_of_options(options, wire, "the agent", "the agent's configuration", names=_OF_THE_AGENT)
    if (options.input_format, options.output_format) != ("pcm16", "pcm16"):
        faults.append(
            f"{wire}: the agent's configuration decides the formats: set user_input_audio_format to the agent's"
        )
    clashing = sorted(name for name, _ in options.metadata if name == TRACE_VARIABLE or name.startswith("system__"))
    if clashing:
        faults.append(f"{wire}: {', '.join(clashing)} is the name of a dynamic variable that others set: rename it")
    settings = read_settings(ElevenLabsSettings, options.settings, wire, known_faults=faults)
    refuse(faults)
    return settings


# The metrics that cannot be without a client event, by the event.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "tentative_user_transcript": OF_PARTIALS,
    "user_transcript": OF_TRANSCRIPTS,
    "agent_chat_response_part": OF_TEXT,
}


def not_observable(client_events: list[str]) -> dict[str, str]:
    """Return the metrics that an agent with these client events cannot show, each with the reason."""
    found = {"endpointing": "the agent does not say when it takes the caller's turn for ended"}
    for event, metrics in _NEEDED.items():
        if event not in client_events:
            reason = f"the agent does not send {event}, which is not among the client events of the settings"
            found |= {name: reason for name in metrics if name not in found}
    return found
