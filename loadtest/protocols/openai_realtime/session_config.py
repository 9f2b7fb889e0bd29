"""The session as a server keeps it: what a client may set, merged from GA and beta session objects alike."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from loadtest.protocols.openai_realtime.fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    optional_count,
    optional_text,
)
from loadtest.protocols.openai_realtime.formats import PCM, AudioFormat, parse_beta, parse_ga

Modality = Literal["audio", "text"]

TURN_DETECTION_TYPES: Final = ("server_vad", "semantic_vad")
_BETA_ONLY_KEYS: Final = frozenset(
    {"modalities", "input_audio_format", "output_audio_format", "input_audio_transcription", "turn_detection", "voice"}
)


class InvalidSessionError(MalformedError):
    """A session object cannot be used; `param` is the path of the field at fault."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Server turn detection as the client asked for it."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    silence_duration_ms: int = 500
    prefix_padding_ms: int = 300
    create_response: bool = True
    interrupt_response: bool = True

    def rendered(self) -> dict[str, object]:
        """The object on the wire, the same in GA and beta."""
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
    """Everything a client can set that changes what we do. `turn_detection` None means the client ends its turns."""

    model: str = "voiceprobe-reference"
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    input_format: AudioFormat = PCM
    output_format: AudioFormat = PCM
    transcription_model: str | None = None  # None: no transcripts were asked for
    modality: Modality = "audio"  # audio always comes with its transcript
    voice: str = "default"
    instructions: str = ""

    def rendered(self, session_id: str, *, beta: bool) -> dict[str, object]:
        """The session object of `session.created` and `session.updated`."""
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
                "input_audio_format": self.input_format.beta(),
                "output_audio_format": self.output_format.beta(),
                "input_audio_transcription": transcription,
                "turn_detection": detection,
            }
        return common | {
            "type": "realtime",
            "output_modalities": [self.modality],
            "audio": {
                "input": {
                    "format": self.input_format.ga(),
                    "transcription": transcription,
                    "noise_reduction": None,
                    "turn_detection": detection,
                },
                "output": {"format": self.output_format.ga(), "voice": self.voice},
            },
        }

    def updated(self, session: Json) -> "SessionConfig":
        """This configuration with what `session` says changed. Raises InvalidSessionError for what cannot be used."""
        kind = session.get("type")
        if kind is None and not session.keys() & _BETA_ONLY_KEYS and "audio" in session:
            raise InvalidSessionError("session.type is missing; it should be 'realtime'", "session.type")
        if kind not in (None, "realtime"):
            raise InvalidSessionError(
                f"sessions of type {kind!r} are not offered here, only 'realtime'", "session.type"
            )
        config = self
        for key in ("model", "instructions", "voice"):
            value = _text(session, key, f"session.{key}")
            if value is not None:
                config = replace(config, **{key: value})
        config = _with_modalities(config, session)
        audio = _object(session, "audio", "session.audio") or {}
        heard = _object(audio, "input", "session.audio.input") or {}
        spoken = _object(audio, "output", "session.audio.output") or {}
        config = _with_formats(config, session, heard, spoken)
        for source, key, path in (
            (heard, "transcription", "session.audio.input.transcription"),
            (session, "input_audio_transcription", "session.input_audio_transcription"),
        ):
            if key in source:
                config = replace(config, transcription_model=_transcription(source, key, path))
        for source, path in ((heard, "session.audio.input.turn_detection"), (session, "session.turn_detection")):
            if "turn_detection" in source:
                config = replace(config, turn_detection=_turn_detection(source, path))
        return config


def parse_modalities(value: object, path: str) -> Modality:
    """["audio"], ["text"], or the beta's ["text", "audio"] in any order. InvalidSessionError for anything else."""
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


def _with_formats(config: SessionConfig, session: Json, heard: Json, spoken: Json) -> SessionConfig:
    declared = (
        ("input_format", heard.get("format"), parse_ga, "session.audio.input.format"),
        ("output_format", spoken.get("format"), parse_ga, "session.audio.output.format"),
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
    voice = spoken.get("voice")
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
    wanted = _object(source, key, path)
    if wanted is None:
        return None
    return _text(wanted, "model", f"{path}.model") or "default"


def _turn_detection(source: Json, path: str) -> TurnDetection | None:
    wanted = _object(source, "turn_detection", path)
    if wanted is None:
        return None
    kind = wanted.get("type", "server_vad")
    detection = TurnDetection()
    if kind == "semantic_vad":
        detection = replace(detection, type="semantic_vad")
    elif kind != "server_vad":
        known = " or ".join(TURN_DETECTION_TYPES)
        raise InvalidSessionError(f"{path}.type is {kind!r}; it should be {known}, or the whole null", f"{path}.type")
    threshold = wanted.get("threshold")
    if threshold is not None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise InvalidSessionError(f"{path}.threshold is {threshold!r}; it should be 0 to 1", f"{path}.threshold")
        detection = replace(detection, threshold=float(threshold))
    for key in ("silence_duration_ms", "prefix_padding_ms"):
        try:
            count = optional_count(wanted, key)
        except MalformedError as error:
            raise InvalidSessionError(f"{path}: {error}", f"{path}.{key}") from None
        if count is not None:
            detection = replace(detection, **{key: count})
    for key in ("create_response", "interrupt_response"):
        choice = wanted.get(key)
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
