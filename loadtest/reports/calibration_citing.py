"""How a later run cites the calibration of its machine, and when it must not. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from telemetry.model.formatting import NS_PER_MS, declared_milliseconds

CALIBRATION_SCHEMA: Final = 3  # of the object that is stored and cited
State = Literal["calibrated", "beyond", "not reached", "elsewhere", "none"]
HOW: Final = "run voiceprobe calibrate"
# What must be the same for a calibration to say anything; the rest of the fingerprint is there to be read.
BINDING: Final = ("cpu", "cores", "kernel", "python", "priority", "engine")

Stored = Mapping[str, Any]  # a calibration as it is stored: the object of `calibration_object`


@dataclass(frozen=True, slots=True)
class Citation:
    """What is known of the instrument's own error at a run's load. `error_ms` and `callers` only where it holds.

    It is one part of the error of a run's figures; the other is how far the annotation of its clips may be off
    (telemetry.model.stated_error brings them together).
    """

    state: State
    sentence: str
    error_ms: float | None = None
    callers: int | None = None
    date: str | None = None


def matches(stored: Stored, machine: Mapping[str, str]) -> bool:
    """Whether a calibration was made on this machine with this engine."""
    return all(stored["machine"].get(name) == machine[name] for name in BINDING)


def choose(stored: Sequence[Stored], machine: Mapping[str, str]) -> Stored | None:
    """The newest calibration of this machine, else the newest of any."""
    ordered = sorted(stored, key=lambda each: each["started_unix_ns"])
    own = [each for each in ordered if matches(each, machine)]
    return (own or ordered or [None])[-1]


def cite(stored: Stored | None, machine: Mapping[str, str], users: int) -> Citation:
    """What a run with that many callers may say."""
    if stored is None:
        return Citation("none", f"not calibrated: {HOW}")
    date = str(stored["date"])
    if not matches(stored, machine):
        differing = ", ".join(name for name in BINDING if stored["machine"].get(name) != machine[name])
        return Citation("elsewhere", f"calibrated on another machine ({differing} differs): {HOW}", date=date)
    ceiling = stored["ceiling"]
    callers: int | None = ceiling["callers"]
    if callers is None:
        return Citation("beyond", f"no load was trustworthy when this machine was calibrated on {date}", date=date)
    trusted = sorted(
        (step["callers"], step["voice_to_voice_bound_s"])
        for step in stored["steps"]
        if step["verdict"] == "trustworthy" and step["callers"] >= users
    )
    if not trusted:
        if ceiling["reached"]:
            return Citation("beyond", f"beyond the calibrated ceiling of {callers} callers ({date})", date=date)
        sentence = f"beyond the {callers} callers that were calibrated on {date}: {HOW}"
        return Citation("not reached", sentence, date=date)
    at, bound_s = trusted[0]
    error_ms = rounded_up_ms(bound_s)
    bound = declared_milliseconds(error_ms * NS_PER_MS)
    sentence = f"calibrated to ±{bound} at {at} callers on {date}, beside the error of the clips' speech bounds"
    return Citation("calibrated", sentence, error_ms, at, date)


def rounded_up_ms(seconds: float) -> float:
    """An error bound in ms with two decimals, never rounded towards zero."""
    return math.ceil(round(seconds * 1e5, 6)) / 100
