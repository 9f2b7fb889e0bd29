"""The types of messages that an agent sends.

Sources: elevenlabs 2.78.0 (`types/client_event.py`) and the AsyncAPI document of @elevenlabs/types 0.23.0.
"""

from collections.abc import Mapping
from typing import Final

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
