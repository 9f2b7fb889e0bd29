"""The condition under which speech was heard, for people: its noise with the level, and its channel."""

from typing import Final

from telemetry.model.formatting import declared_decibels
from telemetry.model.generator_health import NOT_REPORTED

CLEAN: Final = "clean"


def condition_label(noise: str | None, snr_db: float | None, channel: str | None) -> str:
    """A condition: `babble 10 dB, g711u`. `snr_db` is the level that was asked for; a noise that names its level keeps
    that name, and a clean channel is not named."""
    if not noise:
        shown = NOT_REPORTED
    elif noise in (CLEAN, "none"):
        shown = CLEAN
    else:
        shown = noise if snr_db is None or "dB" in noise else f"{noise} {declared_decibels(snr_db)}"
    return shown if channel in (None, CLEAN) else f"{shown}, {channel}"
