"""The places of runs (folders of runs, single run folders, stores, and the addresses of sidecars), and what the folder
of a run holds next to its store and reports: the objectives it was judged by, and the result of a search for the
capacity.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, objectives_text, parsed_objectives
from telemetry.store.database import DATABASE_NAME, OWNER_NAME, is_earlier
from telemetry.store.reader import is_address
from telemetry.store.run_folders.entries import RunEntry

RUNS_FOLDER: Final = "runs"
STORE_FOLDER: Final = "store"
SUMMARY_NAME: Final = "summary.json"
OBJECTIVES_NAME: Final = "objectives.yaml"
SETTINGS_PREFIX: Final = "settings-"
BENCH_NAME: Final = "llm.json"
# Objectives are no mark of a run's folder: somebody's own may lie next to a store.
_LEFT_BY_RUNS: Final = ("logs", SUMMARY_NAME, BENCH_NAME)
# A folder that is being removed has this name until it is gone.
REMOVING_PREFIX: Final = ".removing-"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store with runs, by its folder or the address of its sidecar. `folder` is that of a run of it; None where all
    runs of the store are meant."""

    store: str
    folder: Path | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a sidecar has to be queried."""
        return is_address(self.store)

    @property
    def notes_folder(self) -> Path | None:
        """The folder of notes about its runs; None if there is no local folder."""
        if self.folder is not None:
            return self.folder / "notes"
        return None if self.is_remote else Path(self.store) / "notes"


def is_store(folder: Path) -> bool:
    """Return whether a sidecar has written to a folder."""
    return (folder / DATABASE_NAME).exists() or (folder / OWNER_NAME).exists() or is_earlier(folder)


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder is that of one run (or of one command that made several)."""
    return (folder / STORE_FOLDER).is_dir() or (folder / SUMMARY_NAME).is_file() or bool(begun_runs(folder))


def places_of(given: Sequence[str]) -> list[StorePlace]:
    """Every store at the given places, each once, ordered by name. Raises ConfigError for a place that is not a folder;
    a folder without runs is accepted, and so is a missing RUNS_FOLDER: the first run creates it."""
    stores: dict[StorePlace, None] = {}
    faults: list[str] = []
    for name in given:
        if is_address(name):
            places = [StorePlace(name.rstrip("/"))]
        elif name == RUNS_FOLDER and not Path(name).exists():
            places = []
        elif not Path(name).is_dir():
            faults.append(f"{name} is not a folder: give a folder of runs, a run's folder, a store or http://HOST:4318")
            continue
        else:
            places = _in_folder(Path(name))
        stores.update(dict.fromkeys(places))
    if faults:
        raise ConfigError("runs", faults)
    return list(stores)


def _in_folder(folder: Path) -> list[StorePlace]:
    if is_store(folder):
        # The store of a run folder is that run's, however it was named.
        return [StorePlace(str(folder), None if folder_around(str(folder)) is None else folder.parent)]
    if is_run_folder(folder):
        return [run_place(folder)]
    with os.scandir(folder) as inside:
        names = sorted(entry.name for entry in inside if not entry.name.startswith(".") and entry.is_dir())
    return [run_place(folder / name) for name in names]


def folder_around(store: str) -> Path | None:
    """The run folder around a store; None for a standalone store, and for the address of a sidecar."""
    folder = Path(store)
    if is_address(store) or folder.name != STORE_FOLDER:
        return None
    parent = folder.absolute().parent
    return parent if any((parent / left).exists() for left in _LEFT_BY_RUNS) else None


def run_place(folder: Path) -> StorePlace:
    """Return the place of the runs of a folder: its own store, else the sidecar that its newest run was given."""
    if is_store(folder):
        return StorePlace(str(folder))
    own = folder / STORE_FOLDER
    sidecar = None if own.is_dir() else sidecar_of(folder)
    return StorePlace(str(own) if sidecar is None else sidecar.rstrip("/"), folder)


def begun_runs(folder: Path) -> list[str]:
    """The runs that were started in a folder, the oldest first: each left its settings."""
    files = sorted(folder.glob(f"{SETTINGS_PREFIX}*.json"), key=lambda file: (modified_ns(file), file.name))
    return [file.stem.removeprefix(SETTINGS_PREFIX) for file in files]


def modified_ns(file: Path) -> int:
    """Return when a file or folder was changed; 0 if it does not exist."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


class _Settings(msgspec.Struct):
    sidecar: str | None = None


def sidecar_of(folder: Path) -> str | None:
    """The sidecar that the newest run of a folder was given; None if its settings name none."""
    for run_id in begun_runs(folder)[-1:]:
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            content = (folder / f"{SETTINGS_PREFIX}{run_id}.json").read_bytes()
            named = msgspec.json.decode(content, type=_Settings).sidecar
            return named if named is not None and is_address(named) else None
    return None


def kept_objectives(folder: Path | None) -> Path | None:
    """The objectives file of a run folder; None if it has none."""
    kept = None if folder is None else folder / OBJECTIVES_NAME
    return kept if kept is not None and kept.is_file() else None


def objectives_next_to(store: str) -> Path | None:
    """The objectives file of the run folder around a store; None for a standalone store, and for a sidecar."""
    return kept_objectives(folder_around(store))


def objectives_of(folder: Path | None) -> tuple[Objective, ...]:
    """Return the objectives of the run of a folder: those stored there, else the default set. Raises ConfigError."""
    file = kept_objectives(folder)
    return tuple(default_objectives()) if file is None else _parsed(objectives_text(file), str(file))


def are_kept_otherwise(folder: Path | None, objectives: tuple[Objective, ...]) -> bool:
    """Return whether the run of a folder was judged by other objectives than these; False if none are stored."""
    return kept_objectives(folder) is not None and are_judged_otherwise(folder, objectives)


def are_judged_otherwise(folder: Path | None, objectives: tuple[Objective, ...]) -> bool:
    """Return whether the run of a folder is judged by other objectives than these; those that cannot be read are."""
    try:
        return objectives_of(folder) != objectives
    except ConfigError:
        return True


# Hundreds of runs were judged by a few files: to parse one takes 10 ms.
@lru_cache(maxsize=64)
def _parsed_text(text: str) -> tuple[Objective, ...]:
    return tuple(parsed_objectives(text, ""))


def _parsed(text: str, where: str) -> tuple[Objective, ...]:
    try:
        return _parsed_text(text)
    except ConfigError as error:
        raise ConfigError(where, error.faults) from error


CAPACITY_NAME: Final = "capacity.json"


class CapacityLatency(msgspec.Struct, frozen=True):
    """Percentiles of voice-to-voice at one step, in seconds; null where there are too few turns."""

    n: int = 0
    p50_s: float | None = None
    p95_s: float | None = None
    p95_interval_s: tuple[float, float] | None = None
    p99_s: float | None = None


class CapacityStep(msgspec.Struct, frozen=True):
    """One number of callers, measured."""

    callers: int
    turns: int = 0
    status: str = ""
    voice_to_voice: CapacityLatency = CapacityLatency()


class CapacityResult(msgspec.Struct, frozen=True):
    """A search: `callers_met` are served within the objectives, `callers_missed` are not; null is not known."""

    target: str
    sentence: str
    callers_met: int | None = None
    callers_missed: int | None = None
    steps: tuple[CapacityStep, ...] = ()


def read_capacity(entry: RunEntry) -> CapacityResult | None:
    """The search that a run was part of; None if its folder has no readable one."""
    if entry.folder is None:
        return None
    try:
        return msgspec.json.decode((Path(entry.folder) / CAPACITY_NAME).read_bytes(), type=CapacityResult)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
