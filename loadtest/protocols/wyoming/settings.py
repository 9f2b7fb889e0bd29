"""The settings of the wire wyoming: its services, and what each of them is asked for."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from loadtest.errors import UsageError
from loadtest.protocols.address import parse_address
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.unused_options import CALLER_ENDS_TURNS, faults_of_two, faults_without_effect
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

WIRE: Final = "wyoming"
Stage = Literal["asr", "handle", "tts"]
# The settings that only one service is asked for.
_OF_STAGE: Final[Mapping[str, Stage]] = {
    "asr_url": "asr",
    "handle_url": "handle",
    "tts_url": "tts",
    "asr_model": "asr",
    "language": "asr",
    "voice": "tts",
    "speaker": "tts",
}


def _service_url(url: str) -> str:
    try:
        parse_address(url, "tcp")
    except UsageError as error:
        raise ValueError(str(error)) from None
    return url


ServiceUrl = Annotated[str, AfterValidator(_service_url)]


class WyomingSettings(WireSettings):
    """What can be set for the wire wyoming."""

    stages: tuple[Stage, ...] = ("asr", "handle", "tts")
    # A stage without an address of its own is at the target.
    asr_url: ServiceUrl | None = None
    handle_url: ServiceUrl | None = None
    tts_url: ServiceUrl | None = None
    rate_hz: Literal[8000, 16000, 22050, 24000, 48000] = 16000
    language: str | None = None
    asr_model: str | None = None
    voice: str | None = None
    speaker: str | None = None

    def url(self, stage: Stage, target_url: str) -> str:
        """Return the address of one stage."""
        own: str | None = getattr(self, f"{stage}_url")
        return target_url if own is None else own


def wyoming_settings(options: CallerOptions) -> WyomingSettings:
    """Return the settings, completed by the neutral options. Raises UsageError with all faults."""
    faults = faults_without_effect(
        options,
        WIRE,
        {"instructions": "its services have none", "silence_duration_ms": CALLER_ENDS_TURNS},
    )
    settings = read_settings(WyomingSettings, options.settings, WIRE, known_faults=faults)
    only_asr = settings.stages == ("asr",)
    faults += [
        f"{WIRE}: the setting {name!r} is of {stage}, which is not among the stages; leave it out"
        for name, stage in _OF_STAGE.items()
        if name in settings.model_fields_set and stage not in settings.stages
    ]
    absent = {"transcription_model": "asr", "voice": "tts"}
    reasons = {name: f"{stage} is not a stage" for name, stage in absent.items() if stage not in settings.stages}
    if not only_asr:
        reasons["model"] = "only its recognizer has a choice of models: the transcription model"
    faults += faults_without_effect(options, WIRE, reasons)
    models = {"transcription_model": options.transcription_model, "model": options.model if only_asr else None}
    faults += faults_of_two(WIRE, {**models, "asr_model": settings.asr_model})
    faults += faults_of_two(WIRE, {"voice": options.voice, "the setting voice": settings.voice})
    refuse(faults)
    model = settings.asr_model or models["transcription_model"] or models["model"]
    return settings.model_copy(update={"asr_model": model, "voice": settings.voice or options.voice})
