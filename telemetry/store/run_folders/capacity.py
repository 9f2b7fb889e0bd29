"""What `voiceprobe capacity` left in its folder: the steps of its search and the sentence of what it found."""

from pathlib import Path
from typing import Final

import msgspec

from telemetry.store.run_folders.entries import RunEntry

CAPACITY_NAME: Final = "capacity.json"


class CapacityLatency(msgspec.Struct, frozen=True):
    """Percentiles of voice-to-voice at one step, in seconds; null where there are too few turns."""

    n: int = 0
    p50_s: float | None = None
    p95_s: float | None = None
    p95_interval_s: tuple[float, float] | None = None
    p99_s: float | None = None


class CapacityStep(msgspec.Struct, frozen=True):
    """One number of callers, measured."""

    callers: int
    turns: int = 0
    status: str = ""
    voice_to_voice: CapacityLatency = CapacityLatency()


class CapacityResult(msgspec.Struct, frozen=True):
    """A search: `callers_met` are served within the objectives, `callers_missed` are not; null is not known."""

    target: str
    sentence: str
    callers_met: int | None = None
    callers_missed: int | None = None
    steps: tuple[CapacityStep, ...] = ()


def read_capacity(entry: RunEntry) -> CapacityResult | None:
    """The search that a run was part of; None where its folder holds none that can be understood."""
    if entry.folder is None:
        return None
    try:
        return msgspec.json.decode((Path(entry.folder) / CAPACITY_NAME).read_bytes(), type=CapacityResult)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
