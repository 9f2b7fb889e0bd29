"""The plans of staged rollouts that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path

from loadtest.errors import UsageError
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.rollout.plan import RolloutPlan
from telemetry.sidecar.rollouts.settings import read_plan


def read_plans(
    files: Sequence[Path], objectives: Sequence[Objective], known_faults: Sequence[str] = ()
) -> tuple[RolloutPlan, tuple[RolloutPlan, ...]]:
    """The plan of the first file, and those of the others. Raises UsageError with a line for each fault of the files,
    and for those that are known already."""
    faults: list[str] = []
    plans: list[RolloutPlan] = []
    for file in files:
        try:
            plans.append(read_plan(file, objectives)[0])
        except ConfigError as error:
            faults += [f"{error.where}: {fault}" for fault in error.faults]
    faults += known_faults
    if faults:
        raise UsageError("\n".join(faults))
    plan, *others = plans
    return plan, tuple(others)
