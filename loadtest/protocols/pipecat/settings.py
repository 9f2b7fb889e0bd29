"""The settings of Pipecat; the bot's code decides the rest."""

from typing import Annotated, Literal

import pydantic

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.pipecat.client_messages import VERSION
from loadtest.protocols.unused_options import faults_of_formats, faults_of_options
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse


class PipecatSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    # Pipecat does not resample what it receives: audio at another rate than the bot's spoils recognition silently.
    input_rate_hz: Literal[8000, 16000, 24000, 48000] = 16000
    rtvi_version: Annotated[str, pydantic.Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$")] = VERSION


def faults_of_the_bot(options: CallerOptions, wire: str) -> list[str]:
    """Return a sentence for each option that has no effect on a bot."""
    return [*faults_of_options(options, wire, "the bot", "the bot's code"), *faults_of_formats(options, wire)]


def checked_settings(options: CallerOptions, wire: str) -> PipecatSettings:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect."""
    faults = faults_of_the_bot(options, wire)
    settings = read_settings(PipecatSettings, options.settings, wire, known_faults=faults)
    refuse(faults)
    return settings
