"""The settings of the stage services: where each stage is, which model it uses, and how it is asked."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.stages.parts import STAGES, StageName
from loadtest.protocols.wire_settings import (
    CALLER_ENDS_TURNS,
    WireSettings,
    faults_of_two,
    faults_without_effect,
    read_settings,
    refuse,
)

_MAX_BYTES: Final = 256 * 2**20
Heard = tuple[float, str]


class RecordedUtterance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The partial transcripts that a recognizer sent in an earlier run: one line of JSON for each utterance in a file.

        {"utterance": "lights-1", "partials": [[180.5, "turn"], [420.0, "turn it"]], "final": [910.2, "turn it on"]}

    Times are in ms after the utterance's first speech sample, each with the whole text that was recognized by then.
    """

    utterance: Annotated[str, msgspec.Meta(min_length=1)]
    partials: tuple[Heard, ...]
    final: Heard


_decode: Final = msgspec.json.Decoder(RecordedUtterance).decode


def read_recording(path: str) -> Mapping[str, RecordedUtterance]:
    """Return the utterances of a file by their ids. Raises ValueError, with a sentence that names the line at fault."""
    try:
        state = Path(path).stat()
        if state.st_size > _MAX_BYTES:
            raise ValueError(f"{path} has more than {_MAX_BYTES} bytes: give a smaller one")
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; give the file of a recording") from None


@lru_cache(maxsize=4)
def _read(path: str, changed_unix_ns: int, size_bytes: int) -> Mapping[str, RecordedUtterance]:
    del changed_unix_ns, size_bytes  # every call has a caller of its own: a file that is unchanged is read once
    recordings: dict[str, RecordedUtterance] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            recorded = _decode(line)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"line {number} of {path} is no recorded utterance: {error}") from None
        if recorded.utterance in recordings:
            raise ValueError(f"line {number} of {path}: there is a line for {recorded.utterance!r} before it")
        recordings[recorded.utterance] = recorded
    if not recordings:
        raise ValueError(f"{path} has no recorded utterance: record a run with --keep-transcripts")
    return recordings


def written(recorded: RecordedUtterance) -> bytes:
    """Return an utterance as a line of such a file."""
    return msgspec.json.encode(recorded) + b"\n"


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
    """The settings of the wires http-cascade, asr, llm and tts; a stage without a URL is at the target."""

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
    llm_instructions: str | None = None
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


# The option that names the model of a stage, as a setting of its own does; on a wire of one stage, `model` is its.
_MODEL_OF: Final[Mapping[StageName, str]] = {"asr": "transcription_model", "llm": "model"}
# Of the language model, by their names; those of the other stages begin with the stage's.
_OF_LLM: Final = frozenset({"history", "partials"})


def stage_settings(options: CallerOptions, wire: str, stages: frozenset[StageName]) -> StageSettings:
    """Return the settings of a wire, completed by the neutral options. Raises UsageError with all faults."""
    faults = faults_without_effect(options, wire, _without_effect(stages))
    settings = read_settings(StageSettings, options.settings, wire, known_faults=faults)
    if settings.partials is not None and wire != "llm":
        faults.append(f"{wire}: the setting 'partials' is for the protocol llm alone: leave it out")
    faults += [
        f"{wire}: the setting {name!r} is of a stage that this wire does not have; leave it out"
        for name in sorted(settings.model_fields_set)
        if (stage := _stage_of(name)) is not None and stage not in stages and name != "partials"
    ]
    missing: dict[str, str] = {}
    for setting, sources in _sources(stages).items():
        given = {name: getattr(options, name) for name in sources}
        faults += faults_of_two(wire, {**given, setting: getattr(settings, setting)})
        value = next((value for value in given.values() if value is not None), None)
        if value is not None:
            missing[setting] = value
    refuse(faults)
    return settings.model_copy(update=missing)


def _sources(stages: frozenset[StageName]) -> dict[str, list[str]]:
    """Return the options that set the model of each stage."""
    sources = {f"{stage}_model": [option] for stage, option in _MODEL_OF.items() if stage in stages}
    if len(stages) == 1:
        (stage,) = stages
        model = sources.setdefault(f"{stage}_model", [])
        model += [] if "model" in model else ["model"]
    return sources


def _without_effect(stages: frozenset[StageName]) -> dict[str, str]:
    """Return the options that no stage of the wire has a use for, each with the reason."""
    used = {option for sources in _sources(stages).values() for option in sources}
    unused = {option: f"it has no {stage}" for stage, option in _MODEL_OF.items() if option not in used}
    return {"silence_duration_ms": CALLER_ENDS_TURNS, **unused}


def _stage_of(setting: str) -> StageName | None:
    if setting in _OF_LLM:
        return "llm"
    return next((stage for stage in STAGES if setting.startswith(f"{stage}_")), None)
