"""`voiceprobe report`: summary, JSON and exit code of any run in a store, whatever started it."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.run_report import RunReport
from loadtest.run.artifacts import HTML, JUNIT, MARKDOWN, NAMES, SUMMARY, artifacts, write_together
from loadtest.run.json_file import write_result
from loadtest.run.judged_run import judged_run, print_and_write, read_pictures
from loadtest.run.run_place import NamedRun
from telemetry.client_tls import sidecar_token
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.store.answers import RunRecord
from telemetry.store.questions.runs import is_under_way, newest_run
from telemetry.store.reader import StoreReader, is_address, open_store
from telemetry.store.run_folders.places import STORE_FOLDER, is_store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The files that somebody asked for, each None where it was not."""

    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    markdown: Path | None = None

    @property
    def by_artifact(self) -> dict[str, Path]:
        """Each file by the name of what it holds."""
        asked = {SUMMARY: self.json, HTML: self.html, JUNIT: self.junit, MARKDOWN: self.markdown}
        return {name: file for name, file in asked.items() if file is not None}


def report(
    place: NamedRun | str | Path,
    console: Console,
    *,
    slo: Path | None = None,
    files: ReportFiles = ReportFiles(),
    now_unix_ns: int | None = None,
) -> ExitCode:
    """Judge one run of a store, the newest unless one is named, by the objectives that it was judged by before.

    A run that is over gets those of its reports that its folder lacks. Raises UsageError, StoreError, OutputError.
    """
    place = place if isinstance(place, NamedRun) else NamedRun(str(place))
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    objectives = _objectives(slo or place.objectives, [*files.by_artifact.values()])
    with opened_store(place.store) as reader:
        runs = _runs(reader, place.store)
        chosen = _choose(runs, place.run_id, place.store)
        ending = place.ending(chosen.run_id)
        result = judged_run(reader, chosen.run_id, objectives, now_unix_ns=now_unix_ns, ending=ending)
        lacking = _lacking(place, chosen, slo, result)
        wanted = {*lacking, *files.by_artifact}
        contents: dict[str, bytes] = {}
        if lacking or wanted - {SUMMARY}:
            contents = artifacts(replace(result, pictures=read_pictures(reader, result.summary)))
    if place.folder is not None:
        console.print(f"run {chosen.run_id} in {place.folder}", soft_wrap=True, markup=False, highlight=False)
    elif place.run_id is None:
        others = (
            f"the newest of {len(runs)} runs; --run names another, --list shows them" if runs[1:] else "the only one"
        )
        console.print(f"run {chosen.run_id} of {place.store} ({others})", soft_wrap=True, markup=False)
    if chosen.lacks_old_turns:
        gone = "the store no longer keeps the oldest turns of the run: these are the figures of the others"
        console.print(gone, soft_wrap=True)
    if result.run.is_under_way:
        console.print("the run is still under way: these are the figures so far", soft_wrap=True)
    code = print_and_write(result, console, files.json)
    for name, file in files.by_artifact.items():
        if name != SUMMARY:
            write_result(file, contents[name])
    if place.folder is not None and lacking:
        write_together(place.folder, {name: contents[name] for name in lacking})
        console.print(f"written to {place.folder}: {', '.join(lacking)}", soft_wrap=True, markup=False, highlight=False)
    return code


def _lacking(place: NamedRun, chosen: RunRecord, slo: Path | None, result: RunReport) -> list[str]:
    """The reports that a run should have left in its folder and did not, for its own command was killed; all of them
    where the service has reported more of its turns since."""
    is_in_folder = place.folder is not None and chosen.run_id == place.run_id
    if place.folder is None or not is_in_folder or result.run.is_under_way or slo is not None:
        return []
    known = place.joined(chosen.run_id)
    is_old = known is not None and known < result.summary.client_service_delta.joined
    lacking = [name for name in NAMES if is_old or not (place.folder / name).exists()]
    return lacking if os.access(place.folder, os.W_OK) else []


def list_runs(store: str | Path, console: Console, *, now_unix_ns: int | None = None) -> ExitCode:
    """Print every run of the store, the newest first. Raises UsageError, StoreError."""
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("run", "kind", "began (UTC)", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("target", overflow="fold")
    with opened_store(store) as reader:
        for run in _runs(reader, store):
            began = datetime.fromtimestamp(run.first_unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
            turns = f"{run.turns:,} left" if run.lacks_old_turns else f"{run.turns:,}"
            kind = "callers" if run.service is None else "service"
            target = run.target or (run.service.service if run.service is not None else "–")
            table.add_row(run.run_id, kind, began, _state(reader, run, now_unix_ns), turns, target)
    console.print(table, markup=False)
    return ExitCode.OK


def _state(reader: StoreReader, run: RunRecord, now_unix_ns: int) -> str:
    if run.service is not None:
        return "reported"
    known = reader.processes(run.run_id)
    if is_under_way(known, now_unix_ns):
        return "under way"
    return "ended" if known and all(process.ended for process in known) else "lost a process"


def opened_store(store: str | Path) -> StoreReader:
    """Open a folder, or a sidecar's address with the token of the environment. Raises UsageError, StoreError."""
    return open_store(store if is_address(str(store)) else _store(Path(store)), sidecar_token())


def _store(store: Path) -> Path:
    """The folder, if it is a store. Raises UsageError."""
    if not store.is_dir():
        raise UsageError(f"--store {store} is not a folder: give the one that the sidecar was given with --store")
    if not is_store(store):
        inner = store / STORE_FOLDER
        hint = f"give {inner}" if is_store(inner) else "give the folder that the sidecar writes"
        raise UsageError(f"--store {store} is not a store, or nothing was ever written to it: {hint}")
    return store


def _runs(reader: StoreReader, store: str | Path) -> Sequence[RunRecord]:
    """The runs with callers, and the days of services that report without them."""
    runs = [run for run in reader.runs() if run.turns or run.declared]
    if not runs:
        raise UsageError(
            f"--store {store} holds no run: nothing that callers measured or services reported has arrived there"
        )
    return runs


def _choose(runs: Sequence[RunRecord], run_id: str | None, store: str | Path) -> RunRecord:
    named = (run for run in runs if run.run_id == run_id)
    run = newest_run(runs) if run_id is None else next(named, None)
    if run is None:
        raise UsageError(f"--run {run_id!r} is not in {store}: --list shows the runs that are")
    return run


def choose_run(reader: StoreReader, run_id: str | None, store: str | Path) -> RunRecord:
    """Return the run of this name, or the newest one. Raises UsageError."""
    return _choose(_runs(reader, store), run_id, store)


def _objectives(slo: Path | None, files: Sequence[Path]) -> list[Objective]:
    faults: list[str] = []
    objectives: list[Objective] = []
    try:
        objectives = load_objectives(slo)
    except ConfigError as error:
        faults += [f"{error.where}: {fault}" for fault in error.faults]
    faults += [fault for file in files if (fault := unwritable(file))]
    if faults:
        raise UsageError("\n".join(faults))
    return objectives
