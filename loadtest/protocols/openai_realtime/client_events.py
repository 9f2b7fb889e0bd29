"""Creates the events that a caller sends."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from loadtest.errors import UsageError
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.dialects import Dialect
from loadtest.protocols.openai_realtime.formats import beta_name, ga_object
from loadtest.protocols.openai_realtime.settings import OpenAIRealtimeSettings
from loadtest.protocols.wire_settings import merged

UPDATE_EVENT_ID: Final = "voiceprobe-session-update"
MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512


def session_update(options: CallerOptions, dialect: Dialect, settings: OpenAIRealtimeSettings) -> str:
    """Request the formats, the transcription and the turn control that the caller needs, and what the settings say."""
    build = {"ga": _ga_session, "beta": _beta_session, "xai": _xai_session}[dialect.session]
    session = build(options, dialect, settings)
    if options.instructions is not None:
        session["instructions"] = options.instructions
    session = merged(session, settings.session)
    return _encode({"type": "session.update", "event_id": UPDATE_EVENT_ID, "session": session})


def _turn_detection(options: CallerOptions) -> dict[str, object] | None:
    if options.turn_control == "manual":
        return None
    detection: dict[str, object] = {"type": "server_vad"}
    if options.silence_duration_ms is not None:
        detection["silence_duration_ms"] = options.silence_duration_ms
    return detection


def _transcription(options: CallerOptions, dialect: Dialect) -> dict[str, object]:
    model = options.transcription_model or dialect.transcription_model
    return {} if model is None else {"model": model}


def _ga_session(options: CallerOptions, dialect: Dialect, settings: OpenAIRealtimeSettings) -> dict[str, Any]:
    del settings
    transcription = _transcription(options, dialect)
    heard: dict[str, object] = {"format": ga_object(AudioFormat.of(options.input_format))}
    if transcription:
        heard["transcription"] = transcription
    output: dict[str, object] = {"format": ga_object(AudioFormat.of(options.output_format))}
    if options.voice is not None:
        output["voice"] = options.voice
    audio = {"input": {**heard, "turn_detection": _turn_detection(options)}, "output": output}
    return {"type": "realtime", "output_modalities": ["audio"], "audio": audio}


def _beta_session(options: CallerOptions, dialect: Dialect, settings: OpenAIRealtimeSettings) -> dict[str, Any]:
    del settings
    session: dict[str, Any] = {"modalities": ["text", "audio"]}
    if dialect.states_formats:
        session["input_audio_format"] = beta_name(AudioFormat.of(options.input_format))
        session["output_audio_format"] = beta_name(AudioFormat.of(options.output_format))
    if transcription := _transcription(options, dialect):
        session["input_audio_transcription"] = transcription
    session["turn_detection"] = _turn_detection(options)
    if options.voice is not None:
        session["voice"] = options.voice
    return session


def _xai_session(options: CallerOptions, dialect: Dialect, settings: OpenAIRealtimeSettings) -> dict[str, Any]:
    """Return a session with GA's formats, and turn detection and voice at the top."""
    transport = {"transport": "binary"} if settings.binary_audio else {}
    heard = {
        "format": ga_object(AudioFormat.of(options.input_format)),
        "transcription": _transcription(options, dialect),
    }
    output = {"format": ga_object(AudioFormat.of(options.output_format))}
    session: dict[str, Any] = {
        "turn_detection": _turn_detection(options),
        "audio": {"input": heard | transport, "output": output | transport},
    }
    if options.voice is not None:
        session["voice"] = options.voice
    return session


def commit() -> str:
    """End the caller's turn (manual turn control)."""
    return _encode({"type": "input_audio_buffer.commit"})


def response_create(metadata: Mapping[str, str]) -> str:
    """Request a response; the metadata comes back with it."""
    response: dict[str, object] = {"metadata": dict(metadata)} if metadata else {}
    return _encode({"type": "response.create", "response": response})


def response_cancel(response_id: str) -> str:
    """Stop generating."""
    return _encode({"type": "response.cancel", "response_id": response_id})


def item_truncate(item_id: str, audio_end_ms: int) -> str:
    """Report how much of the item was heard."""
    return _encode(
        {
            "type": "conversation.item.truncate",
            "item_id": item_id,
            "content_index": 0,
            "audio_end_ms": audio_end_ms,
        }
    )


def _encode(event: Mapping[str, object]) -> str:
    return orjson.dumps(event).decode()


def check_metadata(metadata: Sequence[tuple[str, str]]) -> None:
    """Check metadata. Raises UsageError for metadata that this protocol cannot carry."""
    if len(metadata) > MAX_METADATA_PAIRS:
        raise UsageError(
            f"{len(metadata)} metadata pairs are too many; OpenAI Realtime allows at most {MAX_METADATA_PAIRS}"
        )
    for key, value in metadata:
        if len(key) > MAX_METADATA_KEY_CHARS or len(value) > MAX_METADATA_VALUE_CHARS:
            raise UsageError(
                f"the metadata pair {key[:MAX_METADATA_KEY_CHARS]!r} is too long: use "
                f"at most {MAX_METADATA_KEY_CHARS} characters for the key and {MAX_METADATA_VALUE_CHARS} for the value"
            )
