"""A machine's calibration as later runs use it: citations, when they are not allowed, and how many processes to use.

Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from telemetry.model.formatting import NS_PER_MS, count, declared_milliseconds, number

CALIBRATION_SCHEMA: Final = 3  # of the object that is stored and cited
State = Literal["calibrated", "beyond", "not reached", "elsewhere", "none"]
HOW: Final = "run voiceprobe calibrate"
# What must be the same for a calibration to say anything; the rest of the fingerprint is there to be read.
BINDING: Final = ("cpu", "cores", "kernel", "python", "priority", "engine")

# On a machine that was not calibrated: 200 conversations take about 0.4 of a core of a virtual AMD EPYC, so a core half
# as fast still holds them.
CALLERS_A_PROCESS: Final = 200

Stored = Mapping[str, Any]  # a calibration as it is stored: the object of `calibration_object`


@dataclass(frozen=True, slots=True)
class Citation:
    """The known error of the instrument at a run's load. `error_ms` and `callers` only where it holds.

    It is evidence that the instrument keeps its word, and widens no figure: each turn states its own bounds
    (telemetry.model.bounds).
    """

    state: State
    sentence: str
    error_ms: float | None = None
    callers: int | None = None
    date: str | None = None
    processes: int | None = None  # that the load wants, where a trustworthy load covers it


def matches(stored: Stored, machine: Mapping[str, str]) -> bool:
    """Return whether a calibration was made on this machine with this engine."""
    return all(stored["machine"].get(name) == machine[name] for name in BINDING)


def choose(stored: Sequence[Stored], machine: Mapping[str, str]) -> Stored | None:
    """The newest calibration of this machine, else the newest of any."""
    ordered = sorted(stored, key=lambda entry: entry["started_unix_ns"])
    own = [entry for entry in ordered if matches(entry, machine)]
    return (own or ordered or [None])[-1]


def fewest_processes(stored: Stored, users: int) -> int | None:
    """Return the fewest processes with which so many callers measured trustworthily; None if no number did."""
    return min((step["processes"] for step in _trusted(stored, users)), default=None)


def good_for(stored: Stored, processes: int) -> int | None:
    """The most callers that were trustworthy with so many processes or fewer; None where none were."""
    return max((step["callers"] for step in _trusted(stored, 1) if step["processes"] <= processes), default=None)


def in_processes(how_many: int) -> str:
    """A number of processes in words."""
    return "one process" if how_many == 1 else f"{number(how_many)} processes"


def _trusted(stored: Stored, users: int) -> list[Stored]:
    """The trustworthy steps with so many callers or more, smallest first, and of one load the fewest processes."""
    steps = [step for step in stored["steps"] if step["verdict"] == "trustworthy" and step["callers"] >= users]
    return sorted(steps, key=lambda step: (step["callers"], step["processes"]))


def cite(stored: Stored | None, machine: Mapping[str, str], users: int, processes: int = 1) -> Citation:
    """Return what a run with that many callers in that many processes may say.

    A step speaks for as many processes as it had, and for more while each has a core.
    """
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
    wanted, trusted = fewest_processes(stored, users), _trusted(stored, users)
    if not trusted:
        if ceiling["reached"]:
            return Citation("beyond", f"beyond the calibrated ceiling of {callers} callers ({date})", date=date)
        sentence = f"beyond the {callers} callers that were calibrated on {date}: {HOW}"
        return Citation("not reached", sentence, date=date)
    cores = int(machine["cores"])
    covering = [step for step in trusted if step["processes"] <= processes <= max(step["processes"], cores)]
    if not covering:
        sentence = f"{count(users, 'caller')} in {in_processes(processes)} were not calibrated on {date}: they want"
        return Citation("beyond", f"{sentence} {in_processes(wanted or 1)}", date=date, processes=wanted)
    at, bound_s = covering[0]["callers"], covering[0]["voice_to_voice_bound_s"]
    error_ms = rounded_up_ms(bound_s)
    bound = declared_milliseconds(error_ms * NS_PER_MS)
    sentence = f"calibrated to ±{bound} at {at} callers on {date}, plus the error of the clips' speech bounds"
    return Citation("calibrated", sentence, error_ms, at, date, wanted)


def rounded_up_ms(seconds: float) -> float:
    """An error bound in ms with two decimals, never rounded towards zero."""
    return math.ceil(round(seconds * 1e5, 6)) / 100


def advice(stored: Stored | None, machine: Mapping[str, str], users: int, processes: int) -> str | None:
    """Return a warning about so many callers in so many processes, as one sentence; None where
    the calibration has nothing against it, or there is none of this machine."""
    if stored is None or not matches(stored, machine) or stored["ceiling"]["callers"] is None:
        return None
    date, wanted = stored["date"], fewest_processes(stored, users)
    if wanted is None:
        if not stored["ceiling"]["reached"]:
            return None
        ceiling = stored["ceiling"]["callers"]
        return (
            f"{count(users, 'caller')} are more than this machine was found good for with any number of"
            f" processes ({number(ceiling)} on {date}): use fewer callers, or several machines"
        )
    if wanted <= processes:
        return None
    good = good_for(stored, processes)
    so_far = "no load" if good is None else count(good, "caller")
    return (
        f"{count(users, 'caller')} want{'s' if users == 1 else ''} {in_processes(wanted)} on this machine:"
        f" {in_processes(processes)}"
        f" {'was' if processes == 1 else 'were'} found good for {so_far} ({date}); give --processes {wanted}"
    )


def automatic_processes(stored: Stored | None, machine: Mapping[str, str], users: int, most: int) -> int:
    """Return how many processes so many callers should share: as many as the calibration of this machine found that
    they want; more than were calibrated, or without one, by how many callers a process was good for. At most `most`
    unless it found more, and one for each caller."""
    callers_per_process = float(CALLERS_A_PROCESS)
    if stored is not None and matches(stored, machine):
        wanted = fewest_processes(stored, users)
        if wanted is not None:
            return min(wanted, max(1, users))
        good = [step["callers"] / step["processes"] for step in stored["steps"] if step["verdict"] == "trustworthy"]
        callers_per_process = max(good, default=callers_per_process)
    return max(1, min(most, users, math.ceil(users / callers_per_process)))
