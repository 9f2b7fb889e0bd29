"""Realtime transcription of vLLM and SGLang: recognition alone over a WebSocket, audio in and transcripts out.

vLLM's events have names of its own: `commit` with `final: false` begins an utterance and `final: true` ends it. SGLang
speaks OpenAI Realtime's transcription sessions, with turns that the caller ends. The transcript is a turn's result, so
that a reply without content follows it at once.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import orjson

from loadtest.audio import pcm as samples
from loadtest.audio.pcm import Pcm16
from loadtest.protocols.base import (
    CallerOptions,
    CallerProtocol,
    Capabilities,
    EventKind,
    Message,
    OpenRequest,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.error_objects import endpoint_error, error_message
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.json_fields import Json, optional_object, optional_text, required_text
from loadtest.protocols.received import Handler, JsonMessages, RepeatDetector, flat_usage
from loadtest.protocols.stages.parts import not_observable
from loadtest.protocols.wire_settings import (
    CALLER_ENDS_TURNS,
    WireSettings,
    checked_settings,
    faults_of_two,
    faults_without_effect,
)
from telemetry.model.recent import RecentDict

WIRE: Final = "vllm-realtime"
FRAME_MS: Final = 20
MAX_ITEMS: Final = 64  # remembered at once
# Errors after which no utterance of this session can be recognized.
FATAL_ERRORS: Final = frozenset({"model_not_validated", "model_not_found", "session_limit_reached"})
# Errors about the utterance under way: no transcript of it comes.
_OF_UTTERANCE: Final = frozenset({"processing_error"})


class VllmSettings(WireSettings):
    """The settings of the wire vllm-realtime."""

    server: Literal["vllm", "sglang"] = "vllm"
    language: str | None = None
    rate_hz: Literal[16000, 24000, 48000] = 16000


class VllmCaller(JsonMessages, CallerProtocol):
    """One conversation of a caller with a recognizer."""

    unused = frozenset(
        {
            "input_audio_buffer.cleared",
            "conversation.item.added",
            "conversation.item.created",
            "conversation.item.done",
        }
    )

    def __init__(self, options: CallerOptions) -> None:
        """Raises UsageError with all faults of the settings."""
        self._options = options
        faults = faults_without_effect(options, WIRE, {"silence_duration_ms": CALLER_ENDS_TURNS})
        faults += faults_of_two(WIRE, {"transcription_model": options.transcription_model, "model": options.model})
        self._settings = checked_settings(VllmSettings, options, WIRE, faults)
        self._is_vllm = self._settings.server == "vllm"
        self.capabilities = Capabilities(
            input_rate_hz=self._settings.rate_hz,
            frame_ms=FRAME_MS,
            not_observable=not_observable(frozenset({"asr"})),
            turn_controls=frozenset({"manual"}),
            names_questions=False,
        )
        self._model = options.transcription_model or options.model
        self._ready = self._update_sent = False
        self._turn = 0
        self._items = RecentDict[str, int](MAX_ITEMS)  # the turn that each of the newest items is the utterance of
        self._repeats = RepeatDetector()

    def upgrade(self, target_url: str, traceparent: str | None) -> OpenRequest:
        """Put the token and the trace into headers."""
        headers = bearer_headers(self._options.token, traceparent)
        return OpenRequest(target_url, (*headers, *self._options.headers))

    def awaited(self) -> str | None:
        """Return the message that opens the session, or acknowledges what was asked of it."""
        asked = self._update_sent
        return "session.updated in answer to session.update" if asked else "session.created"

    def audio_message(self, pcm: Pcm16) -> bytes:
        """Return `input_audio_buffer.append` with one frame."""
        encoded = base64.b64encode(samples.to_bytes(pcm))
        return b'{"type":"input_audio_buffer.append","audio":"' + encoded + b'"}'

    def begin_turn(self, spoken: SpokenText) -> Sequence[Message]:
        """Begin an utterance: vLLM starts to decode, SGLang forgets what it got between the turns."""
        del spoken
        self._turn += 1
        if self._is_vllm:
            return ('{"type":"input_audio_buffer.commit","final":false}',)
        return ('{"type":"input_audio_buffer.clear"}',)

    def end_turn(self) -> Sequence[Message]:
        """End the utterance."""
        if self._is_vllm:
            return ('{"type":"input_audio_buffer.commit","final":true}',)
        return ('{"type":"input_audio_buffer.commit"}',)

    def handle(self, raw_type: str, fields: Json, message: Message) -> Sequence[VoiceEvent]:
        """Return the events of a message of this type. May raise MalformedError."""
        if self._repeats.is_repeat(fields.get("event_id"), (raw_type, len(message))):
            return [VoiceEvent(EventKind.DUPLICATE, raw_type)]
        return super().handle(raw_type, fields, message)

    def _created(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        if self._ready:
            return []
        self._update_sent = True
        self._send(orjson.dumps(self._session_update()).decode())
        # vLLM acknowledges no update.
        return self._accepted(raw_type, fields) if self._is_vllm else []

    def _updated(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        return self._accepted(raw_type, optional_object(fields, "session") or {})

    def _accepted(self, raw_type: str, session: Json) -> list[VoiceEvent]:
        if self._ready:
            return []
        self._ready = True
        session_id = optional_text(session, "id")
        return [VoiceEvent(EventKind.READY, raw_type, metadata={"session.id": session_id} if session_id else {})]

    def _session_update(self) -> dict[str, object]:
        language = {"language": self._settings.language} if self._settings.language is not None else {}
        model = {"model": self._model} if self._model is not None else {}
        if self._is_vllm:
            # The member must be there, whatever the server makes of it.
            return {"type": "session.update", "model": self._model or "", **language}
        audio = {
            "input": {
                "format": {"type": "audio/pcm", "rate": self._settings.rate_hz},
                "transcription": {**model, **language},
                "turn_detection": None,
            }
        }
        return {"type": "session.update", "session": {"type": "transcription", "audio": audio}}

    def _committed(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        """SGLang names the item that the utterance has become."""
        del raw_type
        if (item_id := optional_text(fields, "item_id")) is not None:
            self._items[item_id] = self._turn
        return []

    def _is_of_before(self, fields: Json) -> bool:
        """Return whether an event names the item of an earlier turn, which has had its result."""
        return self._items.get(optional_text(fields, "item_id") or "", self._turn) != self._turn

    @property
    def _item_id(self) -> str:
        return f"utterance-{self._turn}"

    def _delta(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        text = required_text(fields, "delta")
        kind = EventKind.ASR_PARTIAL if text and not self._is_of_before(fields) else EventKind.OTHER
        return [VoiceEvent(kind, raw_type, item_id=self._item_id, text=text)]

    def _done(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        text = required_text(fields, "text" if self._is_vllm else "transcript")
        if self._is_of_before(fields):
            return [VoiceEvent(EventKind.OTHER, raw_type, text=text)]
        usage = _usage(optional_object(fields, "usage"))
        final = VoiceEvent(EventKind.ASR_FINAL, raw_type, item_id=self._item_id, text=text, usage=usage)
        return [final, *self._result(raw_type, "completed")]

    def _result(self, raw_type: str, status: str, **fields: Any) -> list[VoiceEvent]:
        response_id = f"result-{self._turn}"
        return [
            VoiceEvent(EventKind.RESPONSE_STARTED, raw_type, response_id=response_id),
            VoiceEvent(EventKind.RESPONSE_DONE, raw_type, response_id=response_id, status=status, **fields),
        ]

    def _failed(self, raw_type: str, fields: Json) -> list[VoiceEvent]:
        error = fields.get("error")
        # vLLM's error is a sentence next to its code, all others' an object.
        cause = endpoint_error(fields if isinstance(error, str) else error)
        message = error_message(error)
        if self._is_of_before(fields):
            return [VoiceEvent(EventKind.OTHER, raw_type, message=message)]
        if raw_type == "error" and cause.code not in _OF_UTTERANCE:
            fatal = not self._ready or cause.code in FATAL_ERRORS
            return [VoiceEvent(EventKind.ERROR, raw_type, message=message, fatal=fatal, failure=cause)]
        failed = VoiceEvent(EventKind.ASR_FAILED, raw_type, item_id=self._item_id, message=message, failure=cause)
        return [failed, *self._result(raw_type, "failed", message=message, failure=cause)]

    handlers: ClassVar[Mapping[str, Handler]] = {
        "session.created": _created,
        "session.updated": _updated,
        "input_audio_buffer.committed": _committed,
        "transcription.delta": _delta,
        "transcription.done": _done,
        "conversation.item.input_audio_transcription.delta": _delta,
        "conversation.item.input_audio_transcription.completed": _done,
        "conversation.item.input_audio_transcription.failed": _failed,
        "error": _failed,
    }


def _usage(usage: Json | None) -> dict[str, int]:
    """Return the counts of tokens: vLLM names them as in chat completions."""
    counts = flat_usage(usage)
    for name, ours in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        if name in counts:
            counts[ours] = counts.pop(name)
    return counts
