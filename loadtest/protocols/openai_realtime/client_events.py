"""Creates the events that a caller sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.formats import AudioFormat

DEFAULT_TRANSCRIPTION_MODEL: Final = "gpt-4o-mini-transcribe"
UPDATE_EVENT_ID: Final = "voiceprobe-session-update"
MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect of the protocol: what its servers expect from a client."""

    name: str
    headers: tuple[tuple[str, str], ...] = ()
    beta_session: bool = False  # flat session object, formats by name
    cumulative_partials: bool = False  # `...transcription.delta` carries the whole partial so far


GA: Final = Dialect("openai-realtime")
BETA: Final = Dialect("openai-realtime-beta", headers=(("OpenAI-Beta", "realtime=v1"),), beta_session=True)


def session_update(options: CallerOptions, dialect: Dialect) -> str:
    """Request the formats, the transcription and the turn control that the caller needs."""
    turn_detection: dict[str, object] | None = None
    if options.turn_control == "server":
        turn_detection = {"type": "server_vad"}
        if options.silence_duration_ms is not None:
            turn_detection["silence_duration_ms"] = options.silence_duration_ms
    transcription = {"model": options.transcription_model or DEFAULT_TRANSCRIPTION_MODEL}
    audio_input, audio_output = AudioFormat.of(options.input_format), AudioFormat.of(options.output_format)
    session: dict[str, object]
    if dialect.beta_session:
        session = {
            "modalities": ["text", "audio"],
            "input_audio_format": audio_input.beta(),
            "output_audio_format": audio_output.beta(),
            "input_audio_transcription": transcription,
            "turn_detection": turn_detection,
        }
        if options.voice is not None:
            session["voice"] = options.voice
    else:
        output: dict[str, object] = {"format": audio_output.ga()}
        if options.voice is not None:
            output["voice"] = options.voice
        session = {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {
                "input": {"format": audio_input.ga(), "transcription": transcription, "turn_detection": turn_detection},
                "output": output,
            },
        }
    if options.instructions is not None:
        session["instructions"] = options.instructions
    return _encode({"type": "session.update", "event_id": UPDATE_EVENT_ID, "session": session})


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
