"""The objectives that the command of a run kept in the run's folder: what the run was judged by."""

from functools import lru_cache
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.openslo import parse_objectives
from telemetry.objectives.slo import default_objectives, objectives_text
from telemetry.store.run_folders.places import folder_around

OBJECTIVES_NAME: Final = "objectives.yaml"


def kept_objectives(folder: Path | None) -> Path | None:
    """The file of a run folder; None where it has none."""
    kept = None if folder is None else folder / OBJECTIVES_NAME
    return kept if kept is not None and kept.is_file() else None


def objectives_kept_beside(store: str) -> Path | None:
    """The file of the run folder around a store; None for a store of its own, and for a sidecar."""
    return kept_objectives(folder_around(store))


def objectives_of(folder: Path | None) -> tuple[Objective, ...]:
    """What the run of a folder is judged by: the objectives that are kept there, else the default set. Raises
    ConfigError."""
    file = kept_objectives(folder)
    return tuple(default_objectives()) if file is None else _parsed(objectives_text(file), str(file))


def are_kept_otherwise(folder: Path | None, objectives: tuple[Objective, ...]) -> bool:
    """Whether the run of a folder was judged by other objectives than these. Where none are kept, that is not known."""
    return kept_objectives(folder) is not None and are_judged_otherwise(folder, objectives)


def are_judged_otherwise(folder: Path | None, objectives: tuple[Objective, ...]) -> bool:
    """Whether the run of a folder is judged by other objectives than these; those that cannot be read are."""
    try:
        return objectives_of(folder) != objectives
    except ConfigError:
        return True


# Hundreds of runs were judged by a few files: to parse one takes 10 ms.
@lru_cache(maxsize=64)
def _parsed_text(text: str) -> tuple[Objective, ...]:
    return tuple(parse_objectives(text, ""))


def _parsed(text: str, where: str) -> tuple[Objective, ...]:
    try:
        return _parsed_text(text)
    except ConfigError as error:
        raise ConfigError(where, error.faults) from error
