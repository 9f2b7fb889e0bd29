"""With how many processes a calibration tries a load, and which loads each number of them was found good for. Pure.

One process is tried first. Where it cannot keep up with a load because its core is taken, more of them are, as many as
the callers that one process was good for suggest; a larger load begins with the number that the last one wanted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.calibration.calibration import CalibrationStep, best_attempts
from loadtest.reports.calibration_citing import in_processes
from loadtest.reports.run_outcome import SHORT_OF_CPU
from telemetry.model.formatting import count, number


@dataclass(frozen=True, slots=True)
class ProcessRange:
    """The largest trustworthy load that wanted so many processes, and no fewer."""

    processes: int
    callers: int


def more_processes(steps: Sequence[CalibrationStep], most: int) -> int | None:
    """With how many processes to try the load of the last step, which failed, again; None where more do not help.

    That is at least one more than before, at most `most` and one for each caller.
    """
    last = steps[-1]
    most = min(most, last.callers)
    used = last.usage.generator_cpu
    if not last.fell_behind or last.verdict != "not trustworthy" or last.processes >= most:
        return None
    if used is not None and used < SHORT_OF_CPU:
        return None
    each = max((step.callers / step.processes for step in steps if step.verdict == "trustworthy"), default=0.0)
    suggested = math.ceil(last.callers / each) if each else 0
    return min(most, max(last.processes + 1, suggested))


def process_ranges(steps: Sequence[CalibrationStep]) -> list[ProcessRange]:
    """By number of processes, fewest first; a number that served no larger load than fewer did is left out."""
    found: list[ProcessRange] = []
    good = [step for step in best_attempts(steps) if step.verdict == "trustworthy"]
    for processes in sorted({step.processes for step in good}):
        callers = max(step.callers for step in good if step.processes == processes)
        if not found or callers > found[-1].callers:
            found.append(ProcessRange(processes, callers))
    return found


def ranges_sentence(ranges: Sequence[ProcessRange], *, failed: int | None) -> str:
    """Return how many processes which load wants; `failed` callers were not trustworthy with any number that was
    tried."""
    parts = [f"up to {count(each.callers, 'caller')}: {in_processes(each.processes)}" for each in ranges]
    if ranges and failed is not None:
        parts.append(f"{number(failed)} are not trustworthy here")
    return "; ".join(parts)
