"""The rollouts that a sidecar evaluates: the checked content of `--rollout` and of the `[[rollout]]` tables of its
file.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import shown
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.plan import RolloutPlan, conflicts

# When the next stage begins: once the runner of the rollout asks for it, or with the promotion itself.
NextStage = Literal["on-request", "on-promotion"]
# Each is looked at in turn, by one process.
MOST_ROLLOUTS: Final = 50
PLAN_BYTES_MAX: Final = 1 << 20
EVERY_S: Final = 60.0
# What faults of several files are about.
ROLLOUTS: Final = "the rollouts"
_KEYS: Final = ("plan_file", "next_stage")


class RolloutSetting(msgspec.Struct, frozen=True):
    """A rollout to evaluate. `name` is its plan's."""

    name: str
    plan_file: str
    next_stage: NextStage = "on-request"


def rollouts_from(
    tables: Sequence[Mapping[str, Any]], files: Sequence[str], where: str, slo: Path | None
) -> tuple[RolloutSetting, ...]:
    """The rollouts of the plan files if any are named, else of the `[[rollout]]` tables of `where`.

    Raises ConfigError with every fault of the tables, of all plans and between them.
    """
    faults: list[str] = []
    asked: list[tuple[str, NextStage]] = [(file, "on-request") for file in files]
    if not files:
        for number, table in enumerate(tables, 1):
            table_faults = list(_faults_of(table))
            faults += [f"{where}: [[rollout]] {number}: {fault}" for fault in table_faults]
            if not table_faults:
                asked.append((table["plan_file"], table.get("next_stage", "on-request")))
    if len(asked) > MOST_ROLLOUTS:
        faults.append(f"{len(asked)} plans are given; a sidecar evaluates {MOST_ROLLOUTS} at most, so end some of them")
        raise ConfigError(ROLLOUTS, faults)
    objectives = load_objectives(slo) if asked else []
    plans: list[RolloutPlan] = []
    settings: list[RolloutSetting] = []
    for file, next_stage in asked:
        try:
            plan, _ = read_plan(Path(file), objectives)
        except ConfigError as error:
            faults += [f"{error.where}: {fault}" for fault in error.faults]
        else:
            plans.append(plan)
            settings.append(RolloutSetting(plan.name, str(file), next_stage))
    faults += conflicts(plans)
    if faults:
        raise ConfigError(ROLLOUTS, faults)
    return tuple(settings)


def read_plan(file: Path, objectives: Iterable[Objective]) -> tuple[RolloutPlan, str]:
    """The plan of a file, with the targets of the objectives that it names, and its text. Raises ConfigError."""
    try:
        if not file.exists():
            raise ConfigError(str(file), ["does not exist; name the plan"])
        if not file.is_file() or file.stat().st_size > PLAN_BYTES_MAX:
            raise ConfigError(str(file), [f"is not a file of at most {PLAN_BYTES_MAX >> 20} MiB; name the plan"])
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(str(file), ["is not UTF-8 text; save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}; check its permissions"]) from None
    # Imported when a plan is read: most sidecars evaluate no rollout.
    from telemetry.rollout.plan_document import parse_plan

    promises = {objective.name: objective.promise for objective in objectives}
    return parse_plan(text, str(file)).with_promises(promises), text


def _faults_of(table: Mapping[str, Any]) -> Iterable[str]:
    yield from (
        f"{one_line(str(key))!r} is not a known key; known are {', '.join(_KEYS)}" for key in table if key not in _KEYS
    )
    file = table.get("plan_file")
    if not isinstance(file, str) or not file or "\0" in file:
        yield "plan_file: the path of a plan is expected, such as rollout.toml"
    next_stage = table.get("next_stage", "on-request")
    if next_stage not in get_args(NextStage):
        yield f"next_stage is {shown(next_stage)}; write {' or '.join(get_args(NextStage))}"
