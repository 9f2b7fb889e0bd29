"""The protobuf messages of LiveKit's agent sessions: `AgentSessionMessage`, of which only what is needed is declared.

Source: livekit-protocol 1.1.29, agent/livekit_agent_session.proto. Fields that are not declared here are ignored.
Enumerations are declared as numbers, so that values of a later release are kept. The console link carries one message
behind each length, a room one in each byte stream of the topic `lk.agent.session`.
"""

from collections.abc import Mapping
from typing import Any, Final

from loadtest.protocols.transports.protobuf import (
    BYTES,
    COUNT,
    DOUBLE,
    FLAG,
    NUMBER,
    STRING,
    Fields,
    decoded,
    message_class,
)

_NOTHING: Final = "Nothing"  # a message of which only the presence counts

# The values of AgentState, UserState and ChatRole.
INITIALIZING, IDLE, LISTENING, THINKING, SPEAKING = range(5)
USER_SPEAKING, USER_LISTENING, USER_AWAY = range(3)
USER, ASSISTANT = 2, 3

# Messages by name: their fields by name, each with its number and a scalar type or the name of a message.
_FIELDS: Final[Mapping[str, Fields]] = {
    _NOTHING: {},
    "AudioFrame": {
        "data": (1, BYTES),
        "sample_rate": (2, COUNT),
        "num_channels": (3, COUNT),
        "samples_per_channel": (4, COUNT),
    },
    "MetricsReport": {
        "transcription_delay": (3, DOUBLE),
        "end_of_turn_delay": (4, DOUBLE),
        "on_user_turn_completed_delay": (5, DOUBLE),
        "llm_node_ttft": (6, DOUBLE),
        "tts_node_ttfb": (7, DOUBLE),
        "e2e_latency": (8, DOUBLE),
        "llm_node_ttfs": (10, DOUBLE),
    },
    "ChatMessage": {
        "id": (1, STRING),
        "role": (2, NUMBER),
        "interrupted": (4, FLAG),
        "metrics": (7, "MetricsReport"),
    },
    "LlmUsage": {
        "input_tokens": (3, NUMBER),
        "input_cached_tokens": (4, NUMBER),
        "input_audio_tokens": (5, NUMBER),
        "input_cached_audio_tokens": (6, NUMBER),
        "output_tokens": (11, NUMBER),
        "output_audio_tokens": (12, NUMBER),
    },
    "TtsUsage": {"characters_count": (5, NUMBER), "audio_duration": (6, DOUBLE)},
    "SttUsage": {"audio_duration": (5, DOUBLE)},
    "SessionUsage": {"model_usage": (1, "ModelUsage")},
    "AgentStateChanged": {"old_state": (1, NUMBER), "new_state": (2, NUMBER)},
    "UserStateChanged": {"old_state": (1, NUMBER), "new_state": (2, NUMBER)},
    "ConversationItemAdded": {"item": (1, "ChatItem")},
    "UserInputTranscribed": {"transcript": (1, STRING), "is_final": (2, FLAG)},
    "Error": {"message": (1, STRING)},
    "OverlappingSpeech": {"is_interruption": (1, FLAG), "detection_delay": (3, DOUBLE)},
    "SessionUsageUpdated": {"usage": (1, "SessionUsage")},
    "SessionState": {"agent_state": (1, NUMBER)},
    "FrameworkInfo": {"sdk": (1, STRING), "sdk_version": (2, STRING)},
}
# Messages that hold one of several, by name; what is no message, they hold besides.
_CHOICES: Final[Mapping[str, Fields]] = {
    "ChatItem": {
        "message": (1, "ChatMessage"),
        "function_call": (2, _NOTHING),
        "function_call_output": (3, _NOTHING),
        "agent_handoff": (4, _NOTHING),
        "agent_config_update": (5, _NOTHING),
    },
    "ModelUsage": {
        "llm": (1, "LlmUsage"),
        "tts": (2, "TtsUsage"),
        "stt": (3, "SttUsage"),
        "interruption": (4, _NOTHING),
        "eot": (5, _NOTHING),
    },
    "AgentSessionEvent": {
        "agent_state_changed": (10, "AgentStateChanged"),
        "user_state_changed": (11, "UserStateChanged"),
        "conversation_item_added": (12, "ConversationItemAdded"),
        "user_input_transcribed": (13, "UserInputTranscribed"),
        "function_tools_executed": (14, _NOTHING),
        "error": (15, "Error"),
        "overlapping_speech": (16, "OverlappingSpeech"),
        "session_usage_updated": (17, "SessionUsageUpdated"),
        "amd_prediction": (18, _NOTHING),
        "eot_prediction": (19, _NOTHING),
        "function_tools_started": (20, _NOTHING),
        "debug_message": (21, _NOTHING),
        "tool_execution_updated": (22, _NOTHING),
        "agent_false_interruption": (23, _NOTHING),
    },
    "SessionRequest": {
        "request_id": (1, STRING),
        "get_session_state": (7, _NOTHING),
        "get_framework_info": (10, _NOTHING),
    },
    "SessionResponse": {
        "request_id": (1, STRING),
        "error": (2, STRING),
        "get_session_state": (8, "SessionState"),
        "get_framework_info": (11, "FrameworkInfo"),
    },
    "AgentSessionMessage": {
        "audio_input": (1, "AudioFrame"),
        "audio_output": (2, "AudioFrame"),
        "event": (3, "AgentSessionEvent"),
        "request": (4, "SessionRequest"),
        "response": (5, "SessionResponse"),
        "audio_playback_flush": (6, _NOTHING),
        "audio_playback_clear": (7, _NOTHING),
        "audio_playback_finished": (8, _NOTHING),
    },
}
_Message: Final = message_class("AgentSessionMessage", _FIELDS, _CHOICES, frozenset({"model_usage"}))


def audio_input(pcm: bytes, rate_hz: int) -> bytes:
    """Encode mono 16-bit little-endian samples for the agent."""
    frame = {"data": pcm, "sample_rate": rate_hz, "num_channels": 1, "samples_per_channel": len(pcm) // 2}
    return _Message(audio_input=frame).SerializeToString()


def request(name: str) -> bytes:
    """Encode a request without parameters; its id is its name."""
    return _Message(request={"request_id": name, name: {}}).SerializeToString()


def playback_finished() -> bytes:
    """Encode that what the agent has flushed is played."""
    return _Message(audio_playback_finished={}).SerializeToString()


def decode(data: bytes) -> tuple[str | None, Any]:
    """Return the name of the message's kind and its fields; the name is None for a kind that is not known.

    Raises MalformedError for bytes that are no such message.
    """
    return decoded(_Message, data, "a message of a LiveKit agent's session")
