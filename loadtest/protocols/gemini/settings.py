"""The settings of Gemini Live, their effect on the metrics, and the beginning of a session: address, headers, setup."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl

import orjson
from pydantic import AfterValidator, Field

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.json_fields import as_object
from loadtest.protocols.wire_settings import (
    OF_PARTIALS,
    OF_SPEECH,
    OF_TEXT,
    OF_TRANSCRIPTS,
    WireSettings,
    member_at,
    merged,
    read_settings,
    refuse,
    withheld,
)

WIRE: Final = "gemini-live"
# What the caller itself decides in a setup: its replies and its turns would not be what the settings say.
_OURS: Final = (
    ("model",),
    ("inputAudioTranscription",),
    ("outputAudioTranscription",),
    ("explicitVadSignal",),
    ("generationConfig", "responseModalities"),
    ("realtimeInputConfig", "automaticActivityDetection"),
)


def _setup(setup: dict[str, Any]) -> dict[str, Any]:
    faults = [
        f"{'.'.join(path)} follows from options and other settings: leave it out"
        for path in _OURS
        if member_at(setup, path) is not None
    ]
    for name, inner in (("", setup), *((f"{key}.", as_object(value) or {}) for key, value in setup.items())):
        faults += [f"write the names as the wire does: {name}{key} with capitals, not _" for key in inner if "_" in key]
    if faults:
        raise ValueError("; ".join(faults))
    return setup


class GeminiSettings(WireSettings):
    """The settings of the wire gemini-live."""

    api_version: Literal["v1", "v1beta", "v1alpha"] | None = None  # of an address without a path
    replies: Literal["audio", "text"] = "audio"
    language: str | None = None  # of the replies, for example de-DE
    input_transcription: bool = True
    output_transcription: bool = True
    voice_activity: bool = False  # whether the service is to say when it hears speech begin and end
    start_sensitivity: Literal["high", "low"] | None = None
    end_sensitivity: Literal["high", "low"] | None = None
    prefix_padding_ms: Annotated[int, Field(ge=0, le=10_000)] | None = None
    interruptible: bool = True  # whether speech stops a reply
    setup: Annotated[dict[str, Any], AfterValidator(_setup)] = Field(default_factory=dict)  # over the caller's own
    tools: dict[str, Any] = Field(default_factory=dict)  # the result of each tool by its name; "*" is any other


def gemini_settings(options: CallerOptions) -> GeminiSettings:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect."""
    faults: list[str] = []
    if options.transcription_model is not None:
        faults.append(f"{WIRE}: the service chooses its transcription model itself; leave 'transcription_model' out")
    settings = read_settings(GeminiSettings, options.settings, WIRE, known_faults=faults)
    if options.turn_control == "manual":
        unused = {
            "start_sensitivity": settings.start_sensitivity,
            "end_sensitivity": settings.end_sensitivity,
            "prefix_padding_ms": settings.prefix_padding_ms,
            "voice_activity": settings.voice_activity or None,
        }
        faults += [
            f"{WIRE}: the setting {name!r} is of the service's detection of speech, which manual turns switch off"
            for name, value in unused.items()
            if value is not None
        ]
    refuse(faults)
    return settings


def not_observable(options: CallerOptions, settings: GeminiSettings) -> Mapping[str, str]:
    """Return the metrics that a session with these settings cannot show, each with the reason."""
    reasons: list[tuple[tuple[str, ...], str]] = []
    if options.turn_control == "manual":
        reasons.append((("endpointing",), "the caller itself ends its turn"))
    elif not settings.voice_activity:
        reasons.append((("endpointing",), "the service says when speech ended only with the setting voice_activity"))
    if settings.replies == "text":
        reasons.append((OF_SPEECH, "replies were requested as text"))
    else:
        why = "with replies in speech, the words come in parallel with the audio, with no fixed order between them"
        reasons.append((OF_TEXT, why))
    if not settings.input_transcription:
        reasons.append(((*OF_PARTIALS, *OF_TRANSCRIPTS), "the setting input_transcription is off"))
    return withheld(*reasons)


EPHEMERAL: Final = "auth_tokens/"  # how the name of a token begins that a server made for one client
_ENTERPRISE: Final = "aiplatform"  # in host or path: the Enterprise Agent Platform (Vertex AI)
_ENTERPRISE_PATH: Final = "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent"
_KEY_PARAMETERS: Final = frozenset({"key", "access_token"})


def is_enterprise(parts: SplitResult) -> bool:
    """Return whether an address is of the Enterprise Agent Platform rather than of the Gemini API."""
    return _ENTERPRISE in (parts.hostname or "") or _ENTERPRISE in parts.path


def completed(parts: SplitResult, options: CallerOptions, settings: GeminiSettings) -> SplitResult:
    """Return the address with the service's path if it has none."""
    if parts.path not in ("", "/"):
        return parts
    if is_enterprise(parts):
        return parts._replace(path=_ENTERPRISE_PATH)
    ephemeral = (options.token or "").startswith(EPHEMERAL)
    version = settings.api_version or ("v1alpha" if ephemeral else "v1")
    method = "BidiGenerateContentConstrained" if ephemeral else "BidiGenerateContent"
    return parts._replace(path=f"/ws/google.ai.generativelanguage.{version}.GenerativeService.{method}")


def credentials(parts: SplitResult, token: str | None) -> list[tuple[str, str]]:
    """Return the header with the token; none where the query of the address has a key."""
    if token is None or _KEY_PARAMETERS & {name for name, _ in parse_qsl(parts.query)}:
        return []
    if token.startswith(EPHEMERAL):
        return [("Authorization", f"Token {token}")]
    if is_enterprise(parts):
        return [("Authorization", f"Bearer {token}")]
    return [("x-goog-api-key", token)]


def setup_message(options: CallerOptions, settings: GeminiSettings, *, enterprise: bool) -> str:
    """Return the message that a session begins with."""
    config: dict[str, Any] = {"responseModalities": [settings.replies.upper()]}
    if settings.language is not None:
        config["speechConfig"] = {"languageCode": settings.language}
    setup: dict[str, Any] = {"generationConfig": config}
    if options.model is not None:
        setup["model"] = _model_name(options.model, enterprise=enterprise)
    if heard := _realtime_input(options, settings):
        setup["realtimeInputConfig"] = heard
    if settings.input_transcription:
        setup["inputAudioTranscription"] = {}
    if settings.output_transcription and settings.replies == "audio":
        setup["outputAudioTranscription"] = {}
    if settings.voice_activity:
        setup["explicitVadSignal"] = True
    return orjson.dumps({"setup": merged(setup, settings.setup)}).decode()


def _realtime_input(options: CallerOptions, settings: GeminiSettings) -> dict[str, Any]:
    """Return how the service separates turns; empty for its default."""
    detection: dict[str, Any] = {}
    if options.turn_control == "manual":
        detection["disabled"] = True
    else:
        if settings.start_sensitivity is not None:
            detection["startOfSpeechSensitivity"] = f"START_SENSITIVITY_{settings.start_sensitivity.upper()}"
        if settings.end_sensitivity is not None:
            detection["endOfSpeechSensitivity"] = f"END_SENSITIVITY_{settings.end_sensitivity.upper()}"
        if settings.prefix_padding_ms is not None:
            detection["prefixPaddingMs"] = settings.prefix_padding_ms
        if options.silence_duration_ms is not None:
            detection["silenceDurationMs"] = options.silence_duration_ms
    config: dict[str, Any] = {"automaticActivityDetection": detection} if detection else {}
    if not settings.interruptible:
        config["activityHandling"] = "NO_INTERRUPTION"
    return config


def _model_name(model: str, *, enterprise: bool) -> str:
    """Return a model's full name: the service knows none by its short name."""
    if "/" in model:
        return model
    return f"publishers/google/models/{model}" if enterprise else f"models/{model}"
