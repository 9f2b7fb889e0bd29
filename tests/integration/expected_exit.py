"""Which exit code the objectives of a run's summary ask for: worked out from its JSON alone, beside the program."""

from typing import Any

from loadtest.exit_codes import ExitCode


def code_by_objectives(summary: dict[str, Any]) -> ExitCode:
    """For a run that nobody interrupted, with calls that were connected and no turn lost. A machine that paused again
    and again is the limit; a missed objective is a miss whatever else is undecided."""
    generator = summary["generator"]
    lost = generator["processes_lost"] or generator["killed_by"] or generator["workers_missing"]
    if generator["limited"] or lost:
        return ExitCode.GENERATOR_LIMITED
    met = [objective["met"] for objective in summary["objectives"]]
    if False in met:
        return ExitCode.OBJECTIVE_MISSED
    if None in met or not summary["turns"]["total"]:
        return ExitCode.UNDECIDED
    return ExitCode.OK
