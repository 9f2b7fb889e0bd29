"""`voiceprobe runs`: the list of runs, all or some, removing some of them, and notes about them."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.output_paths import unwritable
from corpora.progress import progress_bar
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.json_file import write_json
from telemetry.client_tls import sidecar_token
from telemetry.model.durations import Duration
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import DASH, MINUS, NS_PER_S, count, milliseconds, number
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.store.reader import is_address
from telemetry.store.run_folders.catalog import RunCatalog, find_run
from telemetry.store.run_folders.changes import finish_removals, remove_folder, write_note
from telemetry.store.run_folders.entries import EntryState, RunEntry, RunFilter, narrowed
from telemetry.store.run_folders.places import RUNS_FOLDER, StorePlace

SCHEMA_VERSION: Final = 1
WIDE_COLUMNS: Final = 120
_STYLES: Final[dict[EntryState, str]] = {
    "met": "green",
    "missed": "red",
    "damaged": "red",
    "failed": "red",
    "under way": "cyan",
}


@dataclass(frozen=True, slots=True)
class RunsRequest:
    """The request for a list of runs: the places they are in, none for the folder of runs here; how many at most, and
    where JSON goes. The list alone is narrowed, by how long ago runs began at most, a cohort in them, their target and
    their state."""

    places: tuple[str, ...] = ()
    most: int | None = None
    slo: Path | None = None
    json_file: Path | None = None
    since: Duration | None = None
    cohort: str | None = None
    target: str | None = None
    state: str | None = None

    def or_else(self, other: "RunsRequest") -> "RunsRequest":
        """Return what is asked for here, and where nothing is, what is there."""
        own = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) not in (None, ())}
        return replace(other, **own)

    def filter(self, now_unix_ns: int) -> RunFilter:
        """The runs that are listed. Raises UsageError for a state that no run can have."""
        if self.state is not None and self.state not in get_args(EntryState):
            states = ", ".join(get_args(EntryState))
            raise UsageError(f"--state {self.state!r} is not a state of a run: give one of {states}")
        since_unix_ns = None if self.since is None else now_unix_ns - self.since.ns
        return RunFilter(since_unix_ns, self.cohort, self.target, self.state)


def default_places(given: Sequence[str]) -> tuple[str, ...]:
    """Return what was given; without it the folder of runs in the current folder."""
    return tuple(given) or (RUNS_FOLDER,)


def list_runs(request: RunsRequest, console: Console, *, now_unix_ns: int | None = None) -> ExitCode:
    """Print the runs that are asked for, the newest first. Raises UsageError, ConfigError, OutputError; StoreError once
    all else is printed, where a sidecar cannot be asked for its runs."""
    if request.json_file is not None and (fault := unwritable(request.json_file)):
        raise UsageError(fault)
    f = request.filter(time.time_ns() if now_unix_ns is None else now_unix_ns)
    listed = _catalogued(request)
    matching = narrowed(listed, f)
    shown = matching if request.most is None else matching[: request.most]
    if listed and not matching:
        console.print(
            f"no run matches: without a filter there {'is' if len(listed) == 1 else 'are'} {count(len(listed), 'run')}"
        )
    elif not matching:
        console.print(
            f"no runs: {RUNS_FOLDER} in the current folder holds none; "
            "start one with voiceprobe run ws://…, or name a place with --runs",
            soft_wrap=True,
        )
    else:
        console.print(_table(shown, is_wide=console.width >= WIDE_COLUMNS), markup=False)
    if len(shown) < len(matching):
        console.print(f"{count(len(matching) - len(shown), 'older run')} not shown: give --limit more", style="dim")
    if request.json_file is not None:
        write_json(request.json_file, {"schema_version": SCHEMA_VERSION, "runs": [_object(entry) for entry in shown]})
    if unasked := [entry for entry in listed if entry.state == "damaged" and is_address(entry.store)]:
        raise StoreError("\n".join(f"{entry.store}: {entry.fault}" for entry in unasked))
    return ExitCode.OK


def remove_runs(names: Sequence[str], request: RunsRequest, console: Console, *, is_sure: bool) -> ExitCode:
    """Remove the folders of runs, after a confirmation unless `is_sure`. Raises UsageError, ConfigError, StoreError."""
    folders = _folders(names, request)
    for folder, entries in folders.items():
        for entry in entries:
            console.print(f"{folder}: {_described(entry)}", soft_wrap=True, markup=False, highlight=False)
    if not is_sure:
        if not console.is_terminal:
            raise UsageError("runs remove asks before it deletes, and nobody is there to answer: give --yes")
        answer = console.input(f"delete {count(len(folders), 'folder')} for good? [y/N] ", markup=False)
        if answer.strip().lower() not in ("y", "yes"):
            console.print("nothing was removed")
            return ExitCode.OK
    faults: list[str] = []
    for folder in folders:
        try:
            remove_folder(folder)
            console.print(f"removed {folder}", soft_wrap=True, markup=False, highlight=False)
        except StoreError as error:
            faults.append(str(error))
    for root in {folder.parent for folder in folders}:
        finish_removals(root)
    if faults:
        raise StoreError("\n".join(faults))
    return ExitCode.OK


def note_run(name: str, text: str, request: RunsRequest, console: Console) -> ExitCode:
    """Store a note on a run; an empty text removes it. Raises UsageError, ConfigError, StoreError."""
    (entry,) = named_runs([name], lambda: _catalogued(request), judged_by=_asked_for(request))
    folder = StorePlace(entry.store, None if entry.folder is None else Path(entry.folder)).notes_folder
    if folder is None:
        raise UsageError(f"{entry.store}: a note is stored next to a store, not by its sidecar: run the command there")
    write_note(folder, entry.run_id, text)
    console.print(f"{'noted' if text.strip() else 'note removed'}: {entry.title}", soft_wrap=True, markup=False)
    return ExitCode.OK


def _catalogued(request: RunsRequest) -> list[RunEntry]:
    catalog = RunCatalog(default_places(request.places), _asked_for(request), token=sidecar_token())
    with progress_bar("reading runs") as progress:
        return catalog.entries(progress=progress)


def _asked_for(request: RunsRequest) -> list[Objective] | None:
    return None if request.slo is None else load_objectives(request.slo)


def named_runs(
    names: Sequence[str],
    list_all: Callable[[], Sequence[RunEntry]],
    *,
    judged_by: list[Objective] | None = None,
    may_repeat: bool = True,
) -> list[RunEntry]:
    """The runs of these names; `list_all` is asked where a name is no place. Raises UsageError with a line for each
    run that does not exist, or that is named twice and must not be."""
    listed = cache(list_all)
    faults: list[str] = []
    entries: list[RunEntry] = []
    for name in names:
        try:
            entries.append(find_run(name, listed, lambda place: RunCatalog([place], judged_by, token=sidecar_token())))
        except ConfigError as error:
            faults += [f"{error.where} {fault}" for fault in error.faults]
    twice = {
        entry.reference: entry for place, entry in enumerate(entries) if not may_repeat and entry in entries[:place]
    }
    faults += [f"{entry.title} is named twice" for entry in twice.values()]
    if faults:
        raise UsageError("\n".join(faults))
    return entries


def list_default(places: Sequence[str] = ()) -> list[RunEntry]:
    """The runs of these places, without judging them by other objectives."""
    return RunCatalog(default_places(places), None, token=sidecar_token()).entries()


def _folders(names: Sequence[str], request: RunsRequest) -> dict[Path, list[RunEntry]]:
    """The folders to remove, each with all the runs in it. Raises UsageError."""
    faults: list[str] = []
    folders: dict[Path, list[RunEntry]] = {}
    by_name: list[str] = []
    for name in names:
        # A folder that is named goes with whatever is in it; a run goes only if it has its folder for itself.
        entries = [entry for entry in _in_folder(name) if entry.folder is not None]
        if entries:
            folders[Path(name)] = entries
        else:
            by_name.append(name)
    for entry in named_runs(by_name, lambda: _catalogued(request), judged_by=_asked_for(request)):
        if entry.folder is None:
            faults.append(f"{entry.title} has no folder of its own: it is in the store {entry.store}, which is kept")
            continue
        entries = [other for other in _in_folder(entry.folder) if other.folder == entry.folder]
        if len(entries) > 1:
            faults.append(f"{entry.title} shares {entry.folder} with {count(len(entries) - 1, 'other run')}: name it")
        folders[Path(entry.folder)] = entries or [entry]
    if faults:
        raise UsageError("\n".join(faults))
    return folders


def _in_folder(name: str) -> list[RunEntry]:
    folder = Path(name)
    if not folder.is_dir():
        return []
    entries = RunCatalog([name], None).entries()
    return [entry for entry in entries if entry.folder is not None and Path(entry.folder) == folder]


def _described(entry: RunEntry) -> str:
    return f"{one_line(entry.run_id)}, {_began(entry)}, {count(entry.turns, 'turn')}, {entry.state}"


def _began(entry: RunEntry) -> str:
    if entry.began_unix_ns is None:
        return DASH
    return datetime.fromtimestamp(entry.began_unix_ns // NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M")


def _table(entries: Sequence[RunEntry], *, is_wide: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("run", overflow="fold")
    table.add_column("began (UTC)", no_wrap=True)
    if is_wide:
        table.add_column("target", overflow="fold")
        table.add_column("callers", justify="right")
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("p50, p95, p99 ms", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    shared = Counter(entry.folder for entry in entries)
    for entry in entries:
        # A folder's name identifies its run; if it has several, each is named.
        title = Text(one_line(entry.name if entry.name and shared[entry.folder] == 1 else entry.title, 80))
        for extra in (entry.note, entry.fault):
            if extra:
                title.append(f"\n  {one_line(extra, 200)}", style="dim")
        wide = [one_line(entry.target or DASH, 80), number(entry.users)] if is_wide else []
        turns = number(entry.turns) + (f" ({number(entry.invalid)} invalid)" if entry.invalid else "")
        figures = ", ".join(milliseconds(value, unit=False) for value in (entry.p50_ns, entry.p95_ns, entry.p99_ns))
        state = Text(entry.state, style=_STYLES.get(entry.state, "yellow"))
        table.add_row(title, _began(entry), *wide, turns, figures, state)
    return table


def _object(entry: RunEntry) -> dict[str, Any]:
    """A run as JSON: durations in seconds, null where it is not known."""

    def seconds(value: float | None) -> float | None:
        return None if value is None else value / NS_PER_S

    return {
        "run": entry.run_id,
        "name": entry.name or None,
        "folder": entry.folder,
        "store": entry.store,
        "state": entry.state,
        "sentence": entry.sentence or None,
        "began_unix_ns": entry.began_unix_ns,
        "source": entry.source,
        "target": entry.target,
        "protocol": entry.protocol,
        "users": entry.users,
        "scenario": entry.scenario,
        # Programs read the minus sign of other numbers.
        "profile": None if entry.profile is None else entry.profile.replace(MINUS, "-"),
        "cohorts": None if entry.cohorts is None else list(entry.cohorts),
        "turns": {"total": entry.turns, "invalid": entry.invalid, "missing": entry.missing_turns},
        "generator_limited": entry.is_generator_limited,
        "calibrated_to_s": None if entry.calibrated_to_ms is None else entry.calibrated_to_ms / 1e3,
        "voice_to_voice": {
            "p50_s": seconds(entry.p50_ns),
            "p95_s": seconds(entry.p95_ns),
            "p99_s": seconds(entry.p99_ns),
        },
        "note": entry.note,
        "fault": entry.fault,
    }
