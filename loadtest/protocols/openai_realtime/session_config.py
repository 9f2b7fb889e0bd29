"""A server's session configuration: what a client can set, merged from GA and beta session objects."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from loadtest.protocols.audio_format import PCM, AudioFormat
from loadtest.protocols.json_fields import Json, MalformedError, as_list, as_object, optional_count, optional_text
from loadtest.protocols.openai_realtime.formats import beta_name, ga_object, parse_beta, parse_ga

Modality = Literal["audio", "text"]

TURN_DETECTION_TYPES: Final = ("server_vad", "semantic_vad")
_BETA_ONLY_KEYS: Final = frozenset(
    {"modalities", "input_audio_format", "output_audio_format", "input_audio_transcription", "turn_detection", "voice"}
)


class InvalidSessionError(MalformedError):
    """A session object is invalid; `param` is the path of the invalid field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Server turn detection as the client requested it."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    silence_duration_ms: int = 500
    prefix_padding_ms: int = 300
    create_response: bool = True
    interrupt_response: bool = True

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
        kind = session.get("type")
        if kind is None and not session.keys() & _BETA_ONLY_KEYS and "audio" in session:
            raise InvalidSessionError("session.type is missing; it should be 'realtime'", "session.type")
        if kind not in (None, "realtime"):
            raise InvalidSessionError(
                f"sessions of type {kind!r} are not supported here, only 'realtime'", "session.type"
            )
        config = self
        for key in ("model", "instructions", "voice"):
            value = _text(session, key, f"session.{key}")
            if value is not None:
                config = replace(config, **{key: value})
        config = _with_modalities(config, session)
        audio = _object(session, "audio", "session.audio") or {}
        audio_input = _object(audio, "input", "session.audio.input") or {}
        audio_output = _object(audio, "output", "session.audio.output") or {}
        config = _with_formats(config, session, audio_input, audio_output)
        for source, key, path in (
            (audio_input, "transcription", "session.audio.input.transcription"),
            (session, "input_audio_transcription", "session.input_audio_transcription"),
        ):
            if key in source:
                config = replace(config, transcription_model=_transcription(source, key, path))
        for source, path in ((audio_input, "session.audio.input.turn_detection"), (session, "session.turn_detection")):
            if "turn_detection" in source:
                config = replace(config, turn_detection=_turn_detection(source, path))
        return config


def parse_modalities(value: object, path: str) -> Modality:
    """Parse ["audio"], ["text"], or the beta's ["text", "audio"] in any order.

    Raises InvalidSessionError for anything else.
    """
    listed = as_list(value) or []
    names = {name for name in listed if isinstance(name, str)}
    if not names or len(names) != len(listed) or names - {"audio", "text"}:
        raise InvalidSessionError(f"{path} should be ['audio'] or ['text'], not {value!r}", path)
    return "audio" if "audio" in names else "text"


def _with_modalities(config: SessionConfig, session: Json) -> SessionConfig:
    for key in ("output_modalities", "modalities"):
        if session.get(key) is not None:
            config = replace(config, modality=parse_modalities(session[key], f"session.{key}"))
    return config


def _with_formats(config: SessionConfig, session: Json, audio_input: Json, audio_output: Json) -> SessionConfig:
    declared = (
        ("input_format", audio_input.get("format"), parse_ga, "session.audio.input.format"),
        ("output_format", audio_output.get("format"), parse_ga, "session.audio.output.format"),
        ("input_format", session.get("input_audio_format"), parse_beta, "session.input_audio_format"),
        ("output_format", session.get("output_audio_format"), parse_beta, "session.output_audio_format"),
    )
    for name, value, parse, path in declared:
        if value is None:
            continue
        try:
            config = replace(config, **{name: parse(value)})
        except ValueError as error:
            raise InvalidSessionError(f"{path}: {error}", path) from None
    voice = audio_output.get("voice")
    if isinstance(voice, str):
        return replace(config, voice=voice)
    custom = as_object(voice)
    if custom is not None and isinstance(custom.get("id"), str):
        return replace(config, voice=str(custom["id"]))
    if voice is not None:
        raise InvalidSessionError(
            f"session.audio.output.voice is {voice!r}; it should be a name", "session.audio.output.voice"
        )
    return config


def _transcription(source: Json, key: str, path: str) -> str | None:
    requested = _object(source, key, path)
    if requested is None:
        return None
    return _text(requested, "model", f"{path}.model") or "default"


def _turn_detection(source: Json, path: str) -> TurnDetection | None:
    requested = _object(source, "turn_detection", path)
    if requested is None:
        return None
    kind = requested.get("type", "server_vad")
    detection = TurnDetection()
    if kind == "semantic_vad":
        detection = replace(detection, type="semantic_vad")
    elif kind != "server_vad":
        known = " or ".join(TURN_DETECTION_TYPES)
        raise InvalidSessionError(
            f"{path}.type is {kind!r}; it should be {known}, or turn_detection null", f"{path}.type"
        )
    threshold = requested.get("threshold")
    if threshold is not None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise InvalidSessionError(
                f"{path}.threshold is {threshold!r}; it should be between 0 and 1", f"{path}.threshold"
            )
        detection = replace(detection, threshold=float(threshold))
    for key in ("silence_duration_ms", "prefix_padding_ms"):
        try:
            count = optional_count(requested, key)
        except MalformedError as error:
            raise InvalidSessionError(f"{path}: {error}", f"{path}.{key}") from None
        if count is not None:
            detection = replace(detection, **{key: count})
    for key in ("create_response", "interrupt_response"):
        choice = requested.get(key)
        if choice is None:
            continue
        if not isinstance(choice, bool):
            raise InvalidSessionError(f"{path}.{key} is {choice!r}; it should be true or false", f"{path}.{key}")
        detection = replace(detection, **{key: choice})
    return detection


def _object(source: Json, key: str, path: str) -> Json | None:
    value = source.get(key)
    inner = as_object(value)
    if inner is None and value is not None:
        raise InvalidSessionError(f"{path} is {value!r}; it should be an object", path)
    return inner


def _text(source: Json, key: str, path: str) -> str | None:
    try:
        return optional_text(source, key)
    except MalformedError as error:
        raise InvalidSessionError(f"{path}: {error}", path) from None
