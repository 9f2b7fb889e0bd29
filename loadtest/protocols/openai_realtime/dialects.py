"""The servers that speak OpenAI Realtime, and what each expects of a client that the others do not.

Their events differ mostly in names, which need no dialect: every caller understands all of them (`names`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import AfterValidator, Field

from loadtest.audio import g711
from loadtest.protocols.audio_format import HIGHEST_RATE_HZ, LOWEST_RATE_HZ, MEDIA_TYPES, PCM, AudioFormat, Encoding
from loadtest.protocols.base import CallerOptions, TurnControl
from loadtest.protocols.headers import header_fault
from loadtest.protocols.json_fields import as_object
from loadtest.protocols.wire_settings import WireSettings, member_at, merged, read_settings, refuse

_GA_TYPES: Final[dict[str, Encoding]] = {name: encoding for encoding, name in MEDIA_TYPES.items()}
_BETA_NAMES: Final[dict[str, Encoding]] = {"pcm16": "pcm16", "g711_ulaw": "pcmu", "g711_alaw": "pcma"}
_BETA_BY_ENCODING: Final = {encoding: name for name, encoding in _BETA_NAMES.items()}


def ga_object(audio: AudioFormat) -> dict[str, object]:
    """Return the object of a GA session; only PCM states its rate."""
    if audio.encoding == "pcm16":
        return {"type": "audio/pcm", "rate": audio.rate_hz}
    return {"type": MEDIA_TYPES[audio.encoding]}


def beta_name(audio: AudioFormat) -> str:
    """Return the name in a beta session, which has no place for a rate."""
    return _BETA_BY_ENCODING[audio.encoding]


def parse_ga(declared: object) -> AudioFormat:
    """Parse a GA format object. Raises ValueError, with a sentence, for an unknown or invalid format."""
    fields = as_object(declared)
    if fields is None:
        raise ValueError(f"an audio format is an object with a type and, for PCM, a rate, not {declared!r}")
    kind, rate = fields.get("type"), fields.get("rate")
    encoding = _GA_TYPES.get(kind) if isinstance(kind, str) else None
    if encoding is None:
        raise ValueError(f"unknown audio format type {kind!r}; known: {', '.join(_GA_TYPES)}")
    if rate is None:
        return AudioFormat.of(encoding)
    if isinstance(rate, bool) or not isinstance(rate, int) or not LOWEST_RATE_HZ <= rate <= HIGHEST_RATE_HZ:
        raise ValueError(f"the rate {rate!r} of {kind} is not between {LOWEST_RATE_HZ} and {HIGHEST_RATE_HZ} Hz")
    if encoding != "pcm16" and rate != g711.RATE_HZ:
        raise ValueError(f"{kind} always has {g711.RATE_HZ} Hz, not {rate}")
    return AudioFormat(encoding, rate)


def parse_beta(declared: object) -> AudioFormat:
    """Parse a beta format name. Raises ValueError, with a sentence, for an unknown one."""
    encoding = _BETA_NAMES.get(declared) if isinstance(declared, str) else None
    if encoding is None:
        raise ValueError(f"unknown audio format {declared!r}; known: {', '.join(_BETA_NAMES)}")
    return AudioFormat.of(encoding)


# What a `session.update` looks like: nested with a type (GA), flat with names of formats (beta), or xAI's mixture.
SessionShape = Literal["ga", "beta", "xai"]

_BETA_HEADER: Final = ("OpenAI-Beta", "realtime=v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. The path and the query are used where the address has none of its own."""

    name: str
    headers: tuple[tuple[str, str], ...] = ()
    session: SessionShape = "ga"
    path: str = "/v1/realtime"
    query: tuple[tuple[str, str], ...] = ()
    model_parameter: str = "model"  # of the address
    key_header: str | None = None  # carries the token as it is; None: `Authorization` carries it as a bearer token
    # Requested unless another is asked for; None: the server's own, which a request would replace.
    transcription_model: str | None = "gpt-4o-mini-transcribe"
    states_formats: bool = True  # False: the server has one format, and refuses a request that names it
    binary_audio: bool = False  # whether audio can be requested as binary messages
    turn_controls: frozenset[TurnControl] = frozenset({"server", "manual"})


GA: Final = Dialect(name="openai-realtime")
BETA: Final = Dialect(name="openai-realtime-beta", headers=(_BETA_HEADER,), session="beta")

# By the names of the setting `dialect`.
DIALECTS: Final = {
    "openai": GA,
    "openai-beta": BETA,
    # The v1 surface: GA, with the deployment as the model, and a key in a header of its own.
    "azure": Dialect(name="azure", path="/openai/v1/realtime", key_header="api-key"),
    "azure-preview": Dialect(
        name="azure-preview",
        session="beta",
        path="/openai/realtime",
        query=(("api-version", "2025-04-01-preview"),),
        model_parameter="deployment",
        key_header="api-key",
        transcription_model="whisper-1",
    ),
    "xai": Dialect(name="xai", session="xai", transcription_model="grok-transcribe", binary_audio=True),
    # A model in the request would replace the transcription of the pipeline.
    "localai": Dialect(name="localai", transcription_model=None),
    "speaches": Dialect(
        name="speaches",
        session="beta",
        transcription_model=None,
        states_formats=False,
        turn_controls=frozenset({"server"}),  # it does not accept that `turn_detection` is null
    ),
    "speech-to-speech": Dialect(name="speech-to-speech"),
}


# What the caller itself decides in a session: its audio would not be what the session says.
_OURS: Final = (
    ("type",),
    ("input_audio_format",),
    ("output_audio_format",),
    ("audio", "input", "format"),
    ("audio", "output", "format"),
    ("audio", "input", "transport"),
    ("audio", "output", "transport"),
)


def _dialect(name: str) -> str:
    if name not in DIALECTS:
        raise ValueError(f"known dialects: {', '.join(DIALECTS)}")
    return name


def _headers(headers: dict[str, str]) -> dict[str, str]:
    faults = [fault for name, value in headers.items() if (fault := header_fault(name, value)) is not None]
    secret = [name for name in headers if name.lower() in ("authorization", "api-key", "traceparent")]
    faults += [f"{name} does not belong into a file: use VOICEPROBE_TOKEN or --header" for name in secret]
    if faults:
        raise ValueError("; ".join(faults))
    return headers


def _session(session: dict[str, Any]) -> dict[str, Any]:
    for path in _OURS:
        if member_at(session, path) is not None:
            raise ValueError(f"{'.'.join(path)} is what the callers choose: leave it out")
    return session


class OpenAIRealtimeSettings(WireSettings):
    """The settings of the wire openai-realtime."""

    dialect: Annotated[str, AfterValidator(_dialect)] | None = None
    session: Annotated[dict[str, Any], AfterValidator(_session)] = Field(default_factory=dict)  # over the caller's own
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)  # no secrets
    tools: dict[str, Any] = Field(default_factory=dict)  # the result of each tool by its name; "*" is any other
    binary_audio: bool = False  # audio as binary messages, both ways


def openai_settings(options: CallerOptions, dialect: Dialect) -> tuple[OpenAIRealtimeSettings, Dialect]:
    """Return the settings and the dialect. Raises UsageError with one line for each fault."""
    settings = read_settings(OpenAIRealtimeSettings, options.settings, dialect.name)
    wire, faults = dialect.name, list[str]()
    if settings.dialect is not None:
        chosen = DIALECTS[settings.dialect]
        if dialect not in (GA, chosen):
            faults.append(f"{wire}: this is a dialect of its own: leave out dialect {settings.dialect!r}")
        dialect = chosen
    if settings.binary_audio and not dialect.binary_audio:
        able = ", ".join(name for name, other in DIALECTS.items() if other.binary_audio)
        faults.append(f"{wire}: binary_audio: the dialect {dialect.name!r} has audio in JSON only; binary: {able}")
    if options.turn_control not in dialect.turn_controls:
        faults.append(f"{wire}: the dialect {dialect.name!r} cannot leave the end of turns to the caller")
    refuse(faults)
    return settings, dialect


UPDATE_EVENT_ID: Final = "voiceprobe-session-update"


def session_update(options: CallerOptions, dialect: Dialect, settings: OpenAIRealtimeSettings) -> str:
    """Request the formats, the transcription and the turn control that the caller needs, and what the settings say."""
    model = options.transcription_model or dialect.transcription_model
    transcription = {} if model is None else {"model": model}
    detection: dict[str, object] | None = None if options.turn_control == "manual" else {"type": "server_vad"}
    if detection is not None and options.silence_duration_ms is not None:
        detection["silence_duration_ms"] = options.silence_duration_ms
    transport = {"transport": "binary"} if settings.binary_audio else {}
    sound: dict[str, Any] = {"format": ga_object(PCM), **transport}
    session: dict[str, Any]
    match dialect.session:
        case "ga":
            transcribed = {"transcription": transcription} if transcription else {}
            audio = {"input": {**sound, **transcribed, "turn_detection": detection}, "output": sound}
            session = {"type": "realtime", "output_modalities": ["audio"], "audio": audio}
        case "xai":  # GA's formats, and turn detection at the top
            heard = {"format": ga_object(PCM), "transcription": transcription, **transport}
            audio = {"input": heard, "output": sound}
            session = {"turn_detection": detection, "audio": audio}
        case "beta":
            session = {"modalities": ["text", "audio"], "turn_detection": detection}
            if dialect.states_formats:
                session["input_audio_format"] = session["output_audio_format"] = beta_name(PCM)
            if transcription:
                session["input_audio_transcription"] = transcription
    return encoded("session.update", event_id=UPDATE_EVENT_ID, session=merged(session, settings.session))


# Ends the caller's turn (manual turn control).
COMMIT: Final = '{"type":"input_audio_buffer.commit"}'
RESPONSE_CREATE: Final = '{"type":"response.create","response":{}}'


def encoded(kind: str, **fields: object) -> str:
    """Return an event that a caller sends."""
    return orjson.dumps({"type": kind, **fields}).decode()
