"""The number of processes that a number of callers needs, by the calibration of the machine. Pure."""

import math
from collections.abc import Mapping
from typing import Final

from loadtest.reports.calibration_citing import Stored, fewest_processes, good_for, in_processes, matches
from telemetry.model import formatting

# On a machine that was not calibrated: 200 conversations take about 0.4 of a core of a virtual AMD EPYC, so a core half
# as fast still holds them.
CALLERS_A_PROCESS: Final = 200


def advice(stored: Stored | None, machine: Mapping[str, str], users: int, processes: int) -> str | None:
    """Return what somebody should know who asks for so many callers in so many processes, as one sentence; None where
    the calibration has nothing against it, or there is none of this machine."""
    if stored is None or not matches(stored, machine) or stored["ceiling"]["callers"] is None:
        return None
    date, wanted = stored["date"], fewest_processes(stored, users)
    if wanted is None:
        if not stored["ceiling"]["reached"]:
            return None
        ceiling = stored["ceiling"]["callers"]
        return (
            f"{formatting.count(users, 'caller')} are more than this machine was found good for with any number of"
            f" processes ({formatting.number(ceiling)} on {date}): use fewer callers, or several machines"
        )
    if wanted <= processes:
        return None
    good = good_for(stored, processes)
    so_far = "no load" if good is None else formatting.count(good, "caller")
    return (
        f"{formatting.count(users, 'caller')} want{'s' if users == 1 else ''} {in_processes(wanted)} on this machine:"
        f" {in_processes(processes)}"
        f" {'was' if processes == 1 else 'were'} found good for {so_far} ({date}); give --processes {wanted}"
    )


def automatic_processes(stored: Stored | None, machine: Mapping[str, str], users: int, most: int) -> int:
    """Return how many processes so many callers should share: as many as the calibration of this machine found that
    they want; more than were calibrated, or without one, by how many callers a process was good for. At most `most`
    unless it found more, and one for each caller."""
    each = float(CALLERS_A_PROCESS)
    if stored is not None and matches(stored, machine):
        wanted = fewest_processes(stored, users)
        if wanted is not None:
            return min(wanted, max(1, users))
        good = [step["callers"] / step["processes"] for step in stored["steps"] if step["verdict"] == "trustworthy"]
        each = max(good, default=each)
    return max(1, min(most, users, math.ceil(users / each)))
