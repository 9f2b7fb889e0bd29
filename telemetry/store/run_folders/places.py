"""Where runs are: folders of runs, single run folders, stores, and the addresses of sidecars."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.model.errors import ConfigError
from telemetry.store.database import DATABASE_NAME, OWNER_NAME, is_earlier
from telemetry.store.remote import is_address

RUNS_FOLDER: Final = "runs"
STORE_FOLDER: Final = "store"
SUMMARY_NAME: Final = "summary.json"
# A folder that is being removed has this name until it is gone.
REMOVING_PREFIX: Final = ".removing-"


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store with runs. `folder` is the run folder around it, None for a store of its own; `root` is the folder of
    runs that it was found in."""

    store: str
    folder: Path | None = None
    root: Path | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a sidecar has to be asked."""
        return is_address(self.store)

    @property
    def notes_folder(self) -> Path | None:
        """Where notes about its runs are kept; None where there is not a folder at hand."""
        if self.folder is not None:
            return self.folder / "notes"
        return None if self.is_remote else Path(self.store) / "notes"


def is_store(folder: Path) -> bool:
    """Whether a sidecar has written to a folder."""
    return (folder / DATABASE_NAME).exists() or (folder / OWNER_NAME).exists() or is_earlier(folder)


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is that of one run (or of one command that made several)."""
    return (folder / STORE_FOLDER).is_dir() or (folder / SUMMARY_NAME).is_file()


def places_of(given: Sequence[str]) -> list[StorePlace]:
    """Every store at what was named, each once, in the order of names. Raises ConfigError for what is not a folder;
    a folder without any run is no error, nor that RUNS_FOLDER is missing: the first run makes it."""
    found: dict[str, StorePlace] = {}
    faults: list[str] = []
    for each in given:
        if is_address(each):
            places = [StorePlace(each.rstrip("/"))]
        elif each == RUNS_FOLDER and not Path(each).exists():
            places = []
        elif not Path(each).is_dir():
            faults.append(f"{each} is not a folder: give a folder of runs, a run's folder, a store or http://HOST:4318")
            continue
        else:
            places = _in_folder(Path(each))
        for place in places:
            found.setdefault(place.store, place)
    if faults:
        raise ConfigError("runs", faults)
    return list(found.values())


def _in_folder(folder: Path) -> list[StorePlace]:
    if is_store(folder):
        # The store of a run folder is that run's, however it was named.
        return [StorePlace(str(folder), None if folder_around(str(folder)) is None else folder.parent)]
    if is_run_folder(folder):
        return [_run_place(folder, None)]
    with os.scandir(folder) as inside:
        names = sorted(each.name for each in inside if not each.name.startswith(".") and each.is_dir())
    return [_run_place(folder / name, folder) for name in names]


def folder_around(store: str) -> Path | None:
    """The run folder around a store; None for a store of its own, and for the address of a sidecar."""
    folder = Path(store)
    if is_address(store) or folder.name != STORE_FOLDER:
        return None
    parent = folder.absolute().parent
    return parent if _has_logs(parent) else None


def _has_logs(folder: Path) -> bool:
    return (folder / "logs").is_dir() or (folder / SUMMARY_NAME).is_file()


def _run_place(folder: Path, root: Path | None) -> StorePlace:
    store = folder if is_store(folder) else folder / STORE_FOLDER
    return StorePlace(str(store), folder if store != folder else None, root)
