"""What every page judges by: one version of the objectives at a time, and the next one once their file has changed."""

import os
import threading
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from dashboard.source_names import ENV_SLO
from telemetry.model.errors import ConfigError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.store.run_folders.places import objectives_kept_beside

_FAULT: Final = "The changed file cannot be used, and every page judges by the version before it: {}"
_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ObjectivesInForce:
    """Objectives. `fault` says why a newer version of their file is not in force; None where there is none."""

    objectives: tuple[Objective, ...]
    fault: str | None = None


class ObjectivesFile:
    """A file of objectives, or the default set, as it is at each look. Thread-safe."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: _Stamp | None = None
        self._found: ObjectivesInForce | None = None
        self._lock = threading.Lock()

    def look(self) -> ObjectivesInForce:
        """What is in force: the newest version of the file, or the one before it where that cannot be used. The file is
        read when it is another one, or has changed. Raises ConfigError as long as no version can be used."""
        with self._lock:
            stamp = _stamp_of(self._path)
            if self._found is None or stamp != self._stamp:
                self._found = self._read(self._found)
                self._stamp = stamp
            return self._found

    def _read(self, former: ObjectivesInForce | None) -> ObjectivesInForce:
        try:
            return ObjectivesInForce(tuple(load_objectives(self._path)))
        except ConfigError as error:
            if former is None:
                raise
            return replace(former, fault=_FAULT.format(one_line(str(error))))


def _stamp_of(path: Path | None) -> _Stamp:
    """What changes with the file, with who may read it, or with its place; empty where nothing is there."""
    if path is None:
        return ()
    try:
        stat = path.stat()
    except OSError:
        return ()
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_size)


@lru_cache(maxsize=16)
def _file(path: Path | None) -> ObjectivesFile:
    return ObjectivesFile(path)


def given_objectives() -> ObjectivesInForce | None:
    """What is in force of the file that the launcher was given, for every run; None where it was given none. Raises
    ConfigError as long as no version of the file can be used."""
    given = os.environ.get(ENV_SLO)
    return _file(Path(given)).look() if given else None


def objectives_in_force(store: str) -> ObjectivesInForce:
    """What the runs of a store are judged by: the file that the launcher was given, else the objectives that the run
    around the store was judged by, else the default set. Raises ConfigError as long as no version can be used."""
    given = given_objectives()
    return _file(objectives_kept_beside(store)).look() if given is None else given
