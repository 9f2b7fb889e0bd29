"""A server's session: what a client can set of it, from GA and beta session objects, and one response in it.

The events of a response come in the order that official clients expect. The item and its content part are announced
with the first text or audio, so a reply that is cancelled before that is just `response.created` and `response.done`.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, TypeVar

import orjson
import pydantic
from pydantic import BeforeValidator, Field, Strict

from loadtest.audio.pcm import Pcm16
from loadtest.protocols.audio_format import PCM, AudioFormat
from loadtest.protocols.json_fields import Json, MalformedError, as_list, as_object
from loadtest.protocols.openai_realtime.dialects import beta_name, ga_object, parse_beta, parse_ga
from loadtest.protocols.openai_realtime.names import GA_ONLY, ServerEvent, wire_name
from loadtest.protocols.wire_settings import reason_of

Modality = Literal["audio", "text"]
_BETA_ONLY_KEYS: Final = frozenset(
    {"modalities", "input_audio_format", "output_audio_format", "input_audio_transcription", "turn_detection", "voice"}
)
Count = Annotated[int, Field(ge=0)]
Flag = Annotated[bool, Strict()]


def _without_nulls(value: object) -> object:
    """A member that is null counts as missing."""
    fields = as_object(value)
    return value if fields is None else {name: inner for name, inner in fields.items() if inner is not None}


class InvalidSessionError(MalformedError):
    """A session object is invalid; `param` is the path of the invalid field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@pydantic.dataclasses.dataclass(frozen=True, slots=True)
class TurnDetection:
    """Server turn detection as the client requested it."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    silence_duration_ms: Count = 500
    prefix_padding_ms: Count = 300
    create_response: Flag = True
    interrupt_response: Flag = True

    def rendered(self) -> dict[str, object]:
        """Return the object on the wire, which is the same in GA and beta."""
        choices: dict[str, object] = {
            "type": self.type,
            "create_response": self.create_response,
            "interrupt_response": self.interrupt_response,
        }
        if self.type == "server_vad":
            choices |= {
                "threshold": self.threshold,
                "silence_duration_ms": self.silence_duration_ms,
                "prefix_padding_ms": self.prefix_padding_ms,
            }
        return choices


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The settings of a client that change the server's behavior.

    `turn_detection` None means that the client ends its turns itself.
    """

    model: str = "voiceprobe-reference"
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    input_format: AudioFormat = PCM
    output_format: AudioFormat = PCM
    transcription_model: str | None = None  # None: no transcripts were requested
    modality: Modality = "audio"  # audio always comes with its transcript
    voice: str = "default"
    instructions: str = ""

    def rendered(self, session_id: str, *, beta: bool) -> dict[str, object]:
        """Return the session object of `session.created` and `session.updated`."""
        detection = None if self.turn_detection is None else self.turn_detection.rendered()
        transcription = None if self.transcription_model is None else {"model": self.transcription_model}
        common: dict[str, object] = {
            "id": session_id,
            "object": "realtime.session",
            "model": self.model,
            "instructions": self.instructions,
            "tools": [],
            "tool_choice": "auto",
        }
        if beta:
            return common | {
                "modalities": ["text"] if self.modality == "text" else ["audio", "text"],
                "voice": self.voice,
                "input_audio_format": beta_name(self.input_format),
                "output_audio_format": beta_name(self.output_format),
                "input_audio_transcription": transcription,
                "turn_detection": detection,
            }
        return common | {
            "type": "realtime",
            "output_modalities": [self.modality],
            "audio": {
                "input": {
                    "format": ga_object(self.input_format),
                    "transcription": transcription,
                    "noise_reduction": None,
                    "turn_detection": detection,
                },
                "output": {"format": ga_object(self.output_format), "voice": self.voice},
            },
        }

    def updated(self, session: Json) -> "SessionConfig":
        """Return this configuration with the changes in `session`. Raises InvalidSessionError for an invalid one."""
        if session.get("type") is None and not session.keys() & _BETA_ONLY_KEYS and "audio" in session:
            raise InvalidSessionError("session.type is missing; it should be 'realtime'", "session.type")
        asked = _checked(_Session, session, "session")
        audio = asked.audio or _Audio()
        heard, spoken = audio.input or _Input(), audio.output or _Output()
        chosen = {
            "model": asked.model,
            "instructions": asked.instructions,
            "voice": spoken.voice or asked.voice,
            "modality": asked.modalities or asked.output_modalities,
            "input_format": asked.input_audio_format or heard.format,
            "output_format": asked.output_audio_format or spoken.format,
        }
        changes: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
        # Null switches these off, so that it counts.
        input_fields, session_fields = heard.model_fields_set, asked.model_fields_set
        if "transcription" in input_fields or "input_audio_transcription" in session_fields:
            transcription = asked.input_audio_transcription or heard.transcription
            changes["transcription_model"] = None if transcription is None else transcription.model or "default"
        if "turn_detection" in input_fields or "turn_detection" in session_fields:
            changes["turn_detection"] = asked.turn_detection or heard.turn_detection
        return replace(self, **changes)


def parse_modalities(value: object, path: str) -> Modality:
    """Parse ["audio"], ["text"], or the beta's ["text", "audio"] in any order.

    Raises InvalidSessionError for anything else.
    """
    return _checked(_Modalities, {"of": value}, path).of


def _modality(value: object) -> object:
    names = as_list(value) or []
    if not names or any(name not in ("audio", "text") for name in names):
        raise ValueError(f"it should be ['audio'] or ['text'], not {value!r}")
    return "audio" if "audio" in names else "text"


def _voice(value: object) -> object:
    custom = as_object(value)
    return value if custom is None else custom.get("id")


Text = Annotated[str, Strict()] | None
Voice = Annotated[Annotated[str, Strict()], BeforeValidator(_voice)] | None
Detection = Annotated[TurnDetection, BeforeValidator(_without_nulls)] | None
GaFormat = Annotated[AudioFormat, BeforeValidator(parse_ga)] | None
BetaFormat = Annotated[AudioFormat, BeforeValidator(parse_beta)] | None
ParsedModality = Annotated[Modality, BeforeValidator(_modality)]


class _Modalities(pydantic.BaseModel):
    of: ParsedModality


class _Transcription(pydantic.BaseModel):
    model: Text = None


class _Input(pydantic.BaseModel):
    format: GaFormat = None
    transcription: _Transcription | None = None
    turn_detection: Detection = None


class _Output(pydantic.BaseModel):
    format: GaFormat = None
    voice: Voice = None


class _Audio(pydantic.BaseModel):
    input: _Input | None = None
    output: _Output | None = None


class _Session(pydantic.BaseModel):
    """The session as a client sends it, in GA's members and the beta's."""

    type: Literal["realtime"] | None = None
    model: Text = None
    instructions: Text = None
    voice: Voice = None
    output_modalities: ParsedModality | None = None
    modalities: ParsedModality | None = None
    audio: _Audio | None = None
    input_audio_format: BetaFormat = None
    output_audio_format: BetaFormat = None
    input_audio_transcription: _Transcription | None = None
    turn_detection: Detection = None


M = TypeVar("M", bound=pydantic.BaseModel)


def _checked(kind: type[M], fields: Json, path: str) -> M:
    try:
        return kind.model_validate(dict(fields))
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = path if kind is _Modalities else ".".join([path, *map(str, fault["loc"])])
        is_object = fault["type"] in ("model_type", "dataclass_type")
        reason = "it should be an object" if is_object else reason_of(fault)
        raise InvalidSessionError(f"{where}: {reason}", where) from None


MakeId = Callable[[str], str]
Note = Callable[[ServerEvent, Mapping[str, object]], None]


class Encoder:
    """Encodes a canonical event and its fields as one JSON message."""

    def __init__(self, make_id: MakeId, *, beta: bool, note: Note) -> None:
        """`note` is called with each event before it is encoded."""
        self.make_id = make_id
        self.beta = beta
        self._note = note

    def __call__(self, event: ServerEvent, **fields: object) -> str:
        """Return the message, with the event's name in the client's dialect."""
        self._note(event, fields)
        named = {"type": wire_name(event, beta=self.beta), "event_id": self.make_id("event")}
        return orjson.dumps(named | fields).decode()

    def ga_only(self, event: ServerEvent, **fields: object) -> list[str]:
        """Return the message in a list, which is empty if the client's dialect has no such event."""
        return [] if self.beta and event in GA_ONLY else [self(event, **fields)]


Status = Literal["completed", "cancelled", "failed", "incomplete"]
Reason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one response."""

    input_text_tokens: int = 0
    input_audio_tokens: int = 0
    cached_tokens: int = 0
    output_text_tokens: int = 0
    output_audio_tokens: int = 0

    def rendered(self) -> dict[str, object]:
        """Return the usage object on the wire."""
        input_tokens = self.input_text_tokens + self.input_audio_tokens
        output_tokens = self.output_text_tokens + self.output_audio_tokens
        return {
            "total_tokens": input_tokens + output_tokens,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "input_token_details": {
                "text_tokens": self.input_text_tokens,
                "audio_tokens": self.input_audio_tokens,
                "cached_tokens": self.cached_tokens,
            },
            "output_token_details": {
                "text_tokens": self.output_text_tokens,
                "audio_tokens": self.output_audio_tokens,
            },
        }


class ServiceReply:
    """One response, created by `ServiceSession.reply`.

    Audio is PCM16 at `rate_hz`, the session's output rate when the response was created.
    """

    def __init__(
        self,
        encoder: Encoder,
        config: SessionConfig,
        *,
        metadata: Mapping[str, str],
        modality: Modality,
        previous_item_id: str | None,
        conversation_id: str,
    ) -> None:
        self.response_id = encoder.make_id("resp")
        self.item_id = encoder.make_id("item")
        self.metadata = dict(metadata)
        self.modality = modality
        self._encoder = encoder
        self._config = config
        self._previous_item_id = previous_item_id
        self._conversation_id = conversation_id
        self._text: list[str] = []
        self._opened = False
        self._ended = False

    @property
    def rate_hz(self) -> int:
        """The sample rate that `audio_delta` expects."""
        return self._config.output_format.rate_hz

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def created(self) -> str:
        """Create `response.created`."""
        return self._encoder(ServerEvent.RESPONSE_CREATED, response=self._response("in_progress", None, None))

    def text_delta(self, text: str) -> list[str]:
        """Create the events for the next text: the transcript of the audio, or the answer itself in text mode."""
        self._text.append(text)
        event = ServerEvent.TRANSCRIPT_DELTA if self.modality == "audio" else ServerEvent.TEXT_DELTA
        return [*self._open(), self._encoder(event, **self._part_ids(), delta=text)]

    def audio_delta(self, pcm: Pcm16) -> list[str]:
        """Create the events for the next audio. Raises ValueError in text mode."""
        if self.modality != "audio":
            raise ValueError("this response is text only")
        encoded = base64.b64encode(self._config.output_format.encode(pcm)).decode()
        return [*self._open(), self._encoder(ServerEvent.AUDIO_DELTA, **self._part_ids(), delta=encoded)]

    def done(
        self,
        status: Status = "completed",
        *,
        reason: Reason | None = None,
        error: str | None = None,
        usage: Usage | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Close everything that was opened and end with `response.done`. `metadata` is added to the response's."""
        if self._ended:
            raise ValueError(f"the response {self.response_id} has already ended")
        self._ended = True
        self.metadata |= metadata or {}
        messages: list[str] = []
        if self._opened:
            ids = self._part_ids()
            if self.modality == "audio":
                messages.append(self._encoder(ServerEvent.AUDIO_DONE, **ids))
                messages.append(self._encoder(ServerEvent.TRANSCRIPT_DONE, **ids, transcript=self.text))
            else:
                messages.append(self._encoder(ServerEvent.TEXT_DONE, **ids, text=self.text))
            messages.append(self._encoder(ServerEvent.CONTENT_PART_DONE, **ids, part=self._part(self.text)))
            item = self._item("completed" if status == "completed" else "incomplete")
            messages.append(self._encoder(ServerEvent.OUTPUT_ITEM_DONE, **self._output_ids(), item=item))
            messages += self._encoder.ga_only(ServerEvent.ITEM_DONE, previous_item_id=self._previous_item_id, item=item)
        details: dict[str, object] | None = None
        if status != "completed":
            details = {"type": status}
            if reason is not None:
                details["reason"] = reason
            if error is not None:
                details["error"] = {"type": "server_error", "code": "response_failed", "message": error}
        messages.append(self._encoder(ServerEvent.RESPONSE_DONE, response=self._response(status, details, usage)))
        return messages

    def _open(self) -> list[str]:
        if self._opened:
            return []
        self._opened = True
        item = self._item("in_progress")
        return [
            self._encoder(ServerEvent.OUTPUT_ITEM_ADDED, **self._output_ids(), item=item),
            self._encoder(ServerEvent.ITEM_ADDED, previous_item_id=self._previous_item_id, item=item),
            self._encoder(ServerEvent.CONTENT_PART_ADDED, **self._part_ids(), part=self._part("")),
        ]

    def _output_ids(self) -> dict[str, object]:
        return {"response_id": self.response_id, "output_index": 0}

    def _part_ids(self) -> dict[str, object]:
        return {"response_id": self.response_id, "item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _part(self, text: str) -> dict[str, object]:
        """Return the content part of `response.content_part.*`, which has the short type names in GA as well."""
        return {"type": "audio", "transcript": text} if self.modality == "audio" else {"type": "text", "text": text}

    def _item(self, status: str) -> dict[str, object]:
        content: list[dict[str, object]] = []
        if status != "in_progress":
            part = self._part(self.text)
            content.append(part if self._encoder.beta else part | {"type": f"output_{part['type']}"})
        return {
            "id": self.item_id,
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _response(self, status: str, details: Mapping[str, object] | None, usage: Usage | None) -> dict[str, object]:
        ended_item = "completed" if status == "completed" else "incomplete"
        shown = self._opened and status != "in_progress"
        response: dict[str, object] = {
            "id": self.response_id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": [self._item(ended_item)] if shown else [],
            "conversation_id": self._conversation_id,
            "usage": None if usage is None else usage.rendered(),
            "metadata": dict(self.metadata) or None,
        }
        if self._encoder.beta:
            return response | {
                "modalities": ["text"] if self.modality == "text" else ["audio", "text"],
                "voice": self._config.voice,
                "output_audio_format": beta_name(self._config.output_format),
            }
        output = {"format": ga_object(self._config.output_format), "voice": self._config.voice}
        return response | {"output_modalities": [self.modality], "audio": {"output": output}}
