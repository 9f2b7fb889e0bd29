"""The settings of Gemini Live, and their effect on the metrics."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.json_fields import as_object
from loadtest.protocols.stage_metrics import OF_PARTIALS, OF_SPEECH, OF_TEXT, OF_TRANSCRIPTS
from loadtest.protocols.unused_options import faults_of_formats
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

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
    faults: list[str] = []
    for path in _OURS:
        inner: Any = setup
        for key in path:
            inner = (as_object(inner) or {}).get(key)
        if inner is not None:
            faults.append(f"{'.'.join(path)} follows from options and other settings: leave it out")
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


def checked_settings(options: CallerOptions) -> GeminiSettings:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect."""
    faults: list[str] = []
    if options.transcription_model is not None:
        faults.append(f"{WIRE}: the service chooses its transcription model itself; leave 'transcription_model' out")
    faults += faults_of_formats(options, WIRE)
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
    found: dict[str, str] = {}
    for names, why in reasons:
        found |= {name: why for name in names if name not in found}
    return found
