"""The place of a run: the store that holds it, its name there, and its folder, from what somebody names it by."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.run_info import SpoolInfo
from loadtest.run.artifacts import HTML, SUMMARY
from loadtest.run.judged_run import RunEnding
from telemetry.store.run_folders.places import (
    SETTINGS_PREFIX,
    STORE_FOLDER,
    begun_runs,
    is_store,
    kept_objectives,
    modified_ns,
    run_place,
)

RUNS: Final = Path("runs")
_COUNTS: Final = ("turns", "spans", "waiting_turns", "waiting_spans")


@dataclass(frozen=True, slots=True)
class NamedRun:
    """The store of a run (a folder, or a sidecar's address), the run's name in it (None: the newest) and its folder
    (None where only the store is known)."""

    store: str
    run_id: str | None = None
    folder: Path | None = None

    @property
    def objectives(self) -> Path | None:
        """The objectives that the run was judged by, where they were kept."""
        return kept_objectives(self.folder)

    def ending(self, run_id: str) -> RunEnding:
        """Return what no store can tell of the run, from the summary that it left."""
        left = {} if self.folder is None else _object(self.folder / SUMMARY)
        if _at(left, "run", "id") != run_id:
            return RunEnding()
        killed_by, spooled = _at(left, "generator", "killed_by"), _at(left, "telemetry", "spooled")
        counts = {name: _at(left, "telemetry", "spooled", name) for name in _COUNTS} if spooled else {}
        is_known = counts and all(isinstance(value, int) for value in counts.values())
        return RunEnding(
            is_over=True,
            interrupted=_at(left, "exit_code") == ExitCode.INTERRUPTED,
            killed_by=killed_by if isinstance(killed_by, str) else None,
            workers_missing=_at(left, "generator", "workers_missing") is True,
            spooled=SpoolInfo(**cast("dict[str, int]", counts)) if is_known else None,
        )

    def joined(self, run_id: str) -> int | None:
        """Return how many turns of the run had a counterpart of the service in the summary that it left; None without
        one."""
        left = {} if self.folder is None else _object(self.folder / SUMMARY)
        joined = _at(left, "client_service_delta", "joined")
        return joined if isinstance(joined, int) and _at(left, "run", "id") == run_id else None


def find_run(named: str | None, store: str | None, run_id: str | None, runs: Path = RUNS) -> NamedRun:
    """The place of a run. `named` is the folder of a run, or its id in the `store` or in one of the folders of `runs`;
    None means the newest run. `run_id` is its id in the store, too. Raises UsageError."""
    if named is not None and run_id is not None:
        raise UsageError(f"--run {run_id}: the run is named already, {named}; leave one of them out")
    if store is not None:
        return NamedRun(store, named or run_id)
    if named is not None and Path(named).is_dir():
        return _run_in(Path(named))
    folders = sorted(
        (folder for folder in runs.glob("*") if folder.is_dir() and _is_run(folder)), key=_began, reverse=True
    )
    wanted = named or run_id
    if wanted is None:
        if not folders:
            raise UsageError(f"there is no run in {runs.absolute()}: name the folder of one, or give --store")
        return _run_in(folders[0])
    for folder in folders:
        if wanted in (folder.name, *_run_ids(folder)):
            place = _run_in(folder)
            return NamedRun(place.store, place.run_id if wanted == folder.name else wanted, folder)
    raise UsageError(
        f"{wanted!r} is neither the folder of a run nor the id of one in {runs.absolute()}: voiceprobe report --list"
        " --store FOLDER shows the runs of a store"
    )


def _is_run(folder: Path) -> bool:
    return bool(_run_ids(folder)) or is_store(folder / STORE_FOLDER)


def _run_in(folder: Path) -> NamedRun:
    """Return the place of the newest run of a folder. Raises UsageError where it has neither store nor sidecar."""
    place = run_place(folder)
    if place.folder is None:
        return NamedRun(place.store)
    if place.is_remote or is_store(Path(place.store)):
        ids = _run_ids(folder)
        return NamedRun(place.store, ids[-1] if ids else None, folder)
    if (why := _why_nothing_is_stored(folder)) is not None:
        raise UsageError(f"{folder} has no turn to judge: {why}; its own reports say so: {folder / HTML}")
    raise UsageError(f"{folder} is not the folder of a run: it has no store, and names no sidecar; give --store")


def _why_nothing_is_stored(folder: Path) -> str | None:
    """Return why the newest run of a folder without a store ended before its first call; None where nothing says so."""
    left = _object(folder / SUMMARY)
    reason = _at(left, "exit_reason")
    return reason if _at(left, "exit_code") == ExitCode.UNREACHABLE and isinstance(reason, str) else None


def _run_ids(folder: Path) -> list[str]:
    """The runs that were started in a folder, the oldest first: each left its settings, or at least its summary."""
    ids = begun_runs(folder)
    left = _at(_object(folder / SUMMARY), "run", "id")
    return [left, *ids] if isinstance(left, str) and left not in ids else ids


def _began(folder: Path) -> int:
    """Return about when the newest run of a folder began: its settings are written before its callers start."""
    files = [*folder.glob(f"{SETTINGS_PREFIX}*.json")] or [folder]
    return max(map(modified_ns, files))


def _object(file: Path) -> Mapping[str, Any]:
    """The JSON object of a file; an empty one where there is none."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _at(value: Any, *names: str) -> Any:
    """Return the value at a path of names in nested objects; None if there is none."""
    for name in names:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value
