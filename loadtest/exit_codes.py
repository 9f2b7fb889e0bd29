"""Exit codes of the commands, for scripts. The reference page of exit codes is made from this file."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Documented process exit codes."""

    OK = 0
    FAULT = 1
    USAGE = 2
    OBJECTIVE_MISSED = 3
    GENERATOR_LIMITED = 4
    UNREACHABLE = 5
    UNDECIDED = 6
    STORE_DAMAGED = 7
    INTERRUPTED = 130


MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.OK: "all objectives are met; of a rollout: promote; of a comparison: shown to be within the margin",
    ExitCode.FAULT: "an unexpected fault of voiceprobe itself, or a result that could not be written (a full disk)",
    ExitCode.USAGE: "a flag, file or configuration cannot be used; all faults are reported together",
    ExitCode.OBJECTIVE_MISSED: (
        "an objective is missed, whatever else is undecided; or the service kept so many calls that others never "
        "began; or `voiceprobe audit` found personal data where there must not be any; of a rollout: roll back; "
        "of a comparison: a regression, shown to exceed the margin"
    ),
    ExitCode.GENERATOR_LIMITED: (
        "generator-limited: no objective is missed and one is undecided because of turns that the load generator "
        "held up or did not say as recorded, or calls that it could not begin; or no call began at all, or a process "
        "of the load generator was lost or not heard of for too long, so there is no verdict on the service"
    ),
    ExitCode.UNREACHABLE: "the target cannot be reached, or it refused the callers",
    ExitCode.UNDECIDED: (
        "undecided: no objective is missed, but not every one is shown to be met: too few turns (or calls) were heard, "
        "open turns (lost, cut, interrupted, of uncertain speech bounds) could turn the verdict, or the endpoint does "
        "not show what the objective is about; "
        "of a rollout: hold; of a comparison: the interval holds the margin, or a run says nothing about the service"
    ),
    ExitCode.STORE_DAMAGED: "`voiceprobe store check` found faults in a store",
    ExitCode.INTERRUPTED: "interrupted; the results so far are kept",
}
