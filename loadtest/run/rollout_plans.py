"""The plans of staged rollouts that are named on the command line."""

from collections.abc import Sequence
from pathlib import Path

from loadtest.errors import UsageError
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan


def load_plan(file: Path, objectives: Sequence[Objective]) -> RolloutPlan:
    """The plan of a file, with what the objectives promise that it names. Raises ConfigError."""
    promises = {objective.name: objective.promise for objective in objectives}
    try:
        return parse_plan(file.read_text(encoding="utf-8"), str(file)).with_promises(promises)
    except UnicodeDecodeError:
        raise ConfigError(str(file), ["is not UTF-8 text; save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}"]) from None


def read_plans(
    files: Sequence[Path], objectives: Sequence[Objective], known_faults: Sequence[str] = ()
) -> tuple[RolloutPlan, tuple[RolloutPlan, ...]]:
    """The plan of the first file, and those of the others. Raises UsageError with a line for each fault of the files,
    and for those that are known already."""
    faults: list[str] = []
    plans: list[RolloutPlan] = []
    for file in files:
        try:
            plans.append(load_plan(file, objectives))
        except ConfigError as error:
            faults += [f"{error.where}: {fault}" for fault in error.faults]
    faults += known_faults
    if faults:
        raise UsageError("\n".join(faults))
    plan, *others = plans
    return plan, tuple(others)
