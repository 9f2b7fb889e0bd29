"""The beginning of a session with Gemini Live: its address, its headers and its first message."""

from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl

import orjson

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.gemini.settings import GeminiSettings
from loadtest.protocols.wire_settings import merged

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
    speech: dict[str, Any] = {}
    if options.voice is not None:
        speech["voiceConfig"] = {"prebuiltVoiceConfig": {"voiceName": options.voice}}
    if settings.language is not None:
        speech["languageCode"] = settings.language
    if speech:
        config["speechConfig"] = speech
    setup: dict[str, Any] = {"generationConfig": config}
    if options.model is not None:
        setup["model"] = _model_name(options.model, enterprise=enterprise)
    if options.instructions is not None:
        setup["systemInstruction"] = {"parts": [{"text": options.instructions}], "role": "user"}
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
    """Return how the service tells turns apart; empty where it is as by default."""
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
