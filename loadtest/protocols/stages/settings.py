"""The settings of the stage services: where each stage is, which model it uses, and how it is asked."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.stages.parts import StageName
from loadtest.protocols.stages.recorded_partials import RecordedUtterance, read_recording
from loadtest.protocols.wire_settings import WireSettings, read_settings


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give the base of an API such as http://127.0.0.1:8000/v1")
    if parts.query or parts.fragment:
        raise ValueError("the base of an API has no query and no fragment")
    return url.rstrip("/")


def _key(variable: object) -> object:
    """Return the key in the environment variable of this name. No sentence shows what was given: it may be a key."""
    if not isinstance(variable, str):
        return variable
    value = os.environ.get(variable, "").strip() if _VARIABLE.fullmatch(variable) else ""
    if not value:
        raise ValueError("give the name of an environment variable that holds the key")
    if not value.isascii() or not value.isprintable():
        raise ValueError("the environment variable holds characters that a header cannot carry")
    return SecretStr(value)


def _recording(file: object) -> object:
    return read_recording(str(file))


_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
BaseUrl = Annotated[str, AfterValidator(_base_url)]
Key = Annotated[SecretStr, BeforeValidator(_key)]


# Read from the file that is named.
Recording = Annotated[Any, BeforeValidator(_recording)]


class StageSettings(WireSettings):
    """What can be set for the wires http-cascade, asr, llm and tts; a stage without a URL is at the target."""

    asr_url: BaseUrl | None = None
    asr_model: str | None = None
    asr_key: Key | None = None
    asr_language: str | None = None
    asr_stream: bool = True
    asr_rate_hz: Literal[8000, 16000, 24000, 48000] = 16000
    asr_form: dict[str, str] = Field(default_factory=dict)  # further fields of the form, as the service wants them
    llm_url: BaseUrl | None = None
    llm_model: str | None = None
    llm_key: Key | None = None
    llm_max_tokens: int | None = Field(default=None, ge=1)  # of one answer
    llm_body: dict[str, Any] = Field(default_factory=dict)  # further members of the request
    history: bool = True  # whether a request contains the turns before it
    # Recorded transcripts, by utterance, that the llm stage alone gets at their recorded times. None: the words, once.
    partials: Recording | None = None
    tts_url: BaseUrl | None = None
    tts_model: str | None = None
    tts_key: Key | None = None
    tts_voice: str | None = None
    tts_format: Literal["pcm", "wav"] = "pcm"
    tts_stream_format: Literal["audio", "sse"] | None = None
    tts_rate_hz: int = Field(default=24000, ge=8000, le=48000)  # of raw PCM, which does not say it
    tts_body: dict[str, Any] = Field(default_factory=dict)
    ready_path: str = "models"  # asked once per service, before the first turn

    def recorded(self, utterance_id: str | None) -> RecordedUtterance | None:
        """Return what was recognized of an utterance in an earlier run, if that is to be replayed."""
        recording: Mapping[str, RecordedUtterance] = self.partials or {}
        return None if utterance_id is None else recording.get(utterance_id)

    def base_url(self, stage: StageName, target_url: str) -> str:
        """Return the base of one stage's API."""
        own: str | None = getattr(self, f"{stage}_url")
        return own if own is not None else target_url.rstrip("/")

    def key(self, stage: StageName, token: str | None) -> str | None:
        """Return the bearer token of one stage: its own, else the one that all stages share."""
        own: SecretStr | None = getattr(self, f"{stage}_key")
        return own.get_secret_value() if own is not None else token


def stage_settings(options: CallerOptions, wire: str) -> StageSettings:
    """Return the settings of a wire, completed by the neutral options. Raises UsageError with all faults."""
    settings = read_settings(StageSettings, options.settings, wire)
    if settings.partials is not None and wire != "llm":
        raise UsageError(f"{wire}: the setting 'partials' is for the protocol llm alone: leave it out")
    neutral = {"asr_model": options.transcription_model, "llm_model": options.model, "tts_voice": options.voice}
    missing = {name: value for name, value in neutral.items() if value is not None and getattr(settings, name) is None}
    return settings.model_copy(update=missing)
