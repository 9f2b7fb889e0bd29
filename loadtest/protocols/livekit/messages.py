"""The protobuf messages of LiveKit's agent sessions: `AgentSessionMessage`, of which only what is needed is declared.

Source: livekit-protocol 1.1.29, agent/livekit_agent_session.proto. Fields that are not declared here are ignored.
Enumerations are declared as numbers, so that values of a later release are kept. The console link carries one message
behind each length, a room one in each byte stream of the topic `lk.agent.session`.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from loadtest.protocols.json_fields import MalformedError

_PACKAGE: Final = "livekit.agent"
_Kind = descriptor_pb2.FieldDescriptorProto
_NUMBER: Final = _Kind.TYPE_INT32
_COUNT: Final = _Kind.TYPE_UINT32
_STRING: Final = _Kind.TYPE_STRING
_BYTES: Final = _Kind.TYPE_BYTES
_FLAG: Final = _Kind.TYPE_BOOL
_SECONDS: Final = _Kind.TYPE_DOUBLE
_NOTHING: Final = "Nothing"  # a message of which only the presence counts

# The values of AgentState, UserState and ChatRole.
INITIALIZING, IDLE, LISTENING, THINKING, SPEAKING = range(5)
USER_SPEAKING, USER_LISTENING, USER_AWAY = range(3)
USER, ASSISTANT = 2, 3

# Messages by name: their fields by name, each with its number and a scalar type or the name of a message.
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, Any]]]] = {
    _NOTHING: {},
    "AudioFrame": {
        "data": (1, _BYTES),
        "sample_rate": (2, _COUNT),
        "num_channels": (3, _COUNT),
        "samples_per_channel": (4, _COUNT),
    },
    "MetricsReport": {
        "transcription_delay": (3, _SECONDS),
        "end_of_turn_delay": (4, _SECONDS),
        "on_user_turn_completed_delay": (5, _SECONDS),
        "llm_node_ttft": (6, _SECONDS),
        "tts_node_ttfb": (7, _SECONDS),
        "e2e_latency": (8, _SECONDS),
        "llm_node_ttfs": (10, _SECONDS),
    },
    "ChatMessage": {
        "id": (1, _STRING),
        "role": (2, _NUMBER),
        "interrupted": (4, _FLAG),
        "metrics": (7, "MetricsReport"),
    },
    "LlmUsage": {
        "input_tokens": (3, _NUMBER),
        "input_cached_tokens": (4, _NUMBER),
        "input_audio_tokens": (5, _NUMBER),
        "input_cached_audio_tokens": (6, _NUMBER),
        "output_tokens": (11, _NUMBER),
        "output_audio_tokens": (12, _NUMBER),
    },
    "TtsUsage": {"characters_count": (5, _NUMBER), "audio_duration": (6, _SECONDS)},
    "SttUsage": {"audio_duration": (5, _SECONDS)},
    "SessionUsage": {"model_usage": (1, "ModelUsage")},
    "AgentStateChanged": {"old_state": (1, _NUMBER), "new_state": (2, _NUMBER)},
    "UserStateChanged": {"old_state": (1, _NUMBER), "new_state": (2, _NUMBER)},
    "ConversationItemAdded": {"item": (1, "ChatItem")},
    "UserInputTranscribed": {"transcript": (1, _STRING), "is_final": (2, _FLAG)},
    "Error": {"message": (1, _STRING)},
    "OverlappingSpeech": {"is_interruption": (1, _FLAG), "detection_delay": (3, _SECONDS)},
    "SessionUsageUpdated": {"usage": (1, "SessionUsage")},
    "SessionState": {"agent_state": (1, _NUMBER)},
    "FrameworkInfo": {"sdk": (1, _STRING), "sdk_version": (2, _STRING)},
}
# Messages that hold one of several, by name; and, in `_BESIDE`, what they hold besides.
_CHOICES: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
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
    "SessionRequest": {"get_session_state": (7, _NOTHING), "get_framework_info": (10, _NOTHING)},
    "SessionResponse": {"get_session_state": (8, "SessionState"), "get_framework_info": (11, "FrameworkInfo")},
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
_BESIDE: Final[Mapping[str, Mapping[str, tuple[int, Any]]]] = {
    "SessionRequest": {"request_id": (1, _STRING)},
    "SessionResponse": {"request_id": (1, _STRING), "error": (2, _STRING)},
}
_REPEATED: Final = frozenset({"model_usage"})


def _message_class() -> Any:
    """Create the class of `AgentSessionMessage`, in a pool of its own: LiveKit's SDK registers the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="agent_session.proto", package=_PACKAGE, syntax="proto3")
    for name in {**_FIELDS, **_CHOICES}:
        message = file.message_type.add(name=name)
        for field, (number, kind) in {**_FIELDS.get(name, {}), **_BESIDE.get(name, {})}.items():
            _add_field(message, field, number, kind)
        if choices := _CHOICES.get(name):
            message.oneof_decl.add(name="chosen")
            for field, (number, kind) in choices.items():
                _add_field(message, field, number, kind).oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.AgentSessionMessage"))


def _add_field(message: Any, name: str, number: int, kind: Any) -> Any:
    label = _Kind.LABEL_REPEATED if name in _REPEATED else _Kind.LABEL_OPTIONAL
    if isinstance(kind, str):
        full_name = f".{_PACKAGE}.{kind}"
        return message.field.add(name=name, number=number, type=_Kind.TYPE_MESSAGE, type_name=full_name, label=label)
    return message.field.add(name=name, number=number, type=kind, label=label)


_Message: Final = _message_class()


def audio_input(pcm: bytes, rate_hz: int) -> bytes:
    """Encode mono 16-bit little-endian samples for the agent."""
    message = _Message()
    frame = message.audio_input
    frame.data, frame.sample_rate, frame.num_channels, frame.samples_per_channel = pcm, rate_hz, 1, len(pcm) // 2
    return message.SerializeToString()


def request(name: str) -> bytes:
    """Encode a request without parameters; its id is its name."""
    message = _Message()
    message.request.request_id = name
    getattr(message.request, name).SetInParent()
    return message.SerializeToString()


def playback_finished() -> bytes:
    """Encode that what the agent has flushed is played."""
    message = _Message()
    message.audio_playback_finished.SetInParent()
    return message.SerializeToString()


def decode(data: bytes) -> tuple[str | None, Any]:
    """Return the name of the message's kind and its fields; the name is None for a kind that is not known.

    Raises MalformedError for bytes that are no such message.
    """
    try:
        message = _Message.FromString(data)
    except DecodeError:
        beginning = f"{len(data)} bytes beginning {data[:16].hex()}"
        raise MalformedError(f"not a message of a LiveKit agent's session in protobuf: {beginning}") from None
    return chosen(message)


def chosen(message: Any) -> tuple[str | None, Any]:
    """Return which of several a message holds, and its fields; the name is None where it holds none that is known."""
    name = message.WhichOneof("chosen")
    return name, None if name is None else getattr(message, name)
