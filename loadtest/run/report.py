"""`voiceprobe report`: summary, JSON and exit code of any run in a store, whoever started it."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.judged_run import judged_run, print_and_write
from loadtest.run.losses import is_under_way
from telemetry.export.sdk import sidecar_token
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.store.answers import RunRecord
from telemetry.store.manifest import MANIFEST_NAME, SEGMENTS_FOLDER
from telemetry.store.reader import StoreReader
from telemetry.store.remote import RemoteStore, is_address, open_store
from telemetry.store.runs import newest_run


def report(
    store: str | Path,
    console: Console,
    *,
    run_id: str | None = None,
    slo: Path | None = None,
    json_file: Path | None = None,
    now_unix_ns: int | None = None,
) -> ExitCode:
    """Judge one run of the store, the newest unless one is named. Raises UsageError, StoreError, OutputError."""
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    objectives = _objectives(slo, json_file)
    with opened_store(store) as reader:
        runs = _runs(reader, store)
        chosen = _choose(runs, run_id, store)
        result = judged_run(reader, chosen.run_id, objectives, now_unix_ns=now_unix_ns)
    if run_id is None:
        others = (
            f"the newest of {len(runs)} runs; --run names another, --list shows them" if runs[1:] else "the only one"
        )
        console.print(f"run {chosen.run_id} of {store} ({others})", soft_wrap=True, markup=False)
    if chosen.lacks_old_turns:
        gone = "the store no longer keeps the oldest turns of the run: these are the figures of the others"
        console.print(gone, soft_wrap=True)
    if result.info.is_under_way:
        console.print("the run is still under way: these are the figures so far", soft_wrap=True)
    return print_and_write(result, console, json_file)


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


def _state(reader: StoreReader | RemoteStore, run: RunRecord, now_unix_ns: int) -> str:
    if run.service is not None:
        return "reported"
    known = reader.processes(run.run_id)
    if is_under_way(known, now_unix_ns):
        return "under way"
    return "ended" if known and all(process.ended for process in known) else "lost a process"


def opened_store(store: str | Path) -> StoreReader | RemoteStore:
    """Open a folder, or a sidecar's address with the token of the environment. Raises UsageError, StoreError."""
    return open_store(store if is_address(str(store)) else _store(Path(store)), sidecar_token())


def _store(store: Path) -> Path:
    """The folder, if it is a store. Raises UsageError."""
    if not store.is_dir():
        raise UsageError(f"--store {store} is not a folder: give the one that the sidecar was given with --store")
    if not (store / MANIFEST_NAME).exists() and not (store / SEGMENTS_FOLDER).exists():
        inner = store / "store"
        hint = f"give {inner}" if (inner / MANIFEST_NAME).exists() else "give the folder that the sidecar writes"
        raise UsageError(f"--store {store} is not a store, or nothing was ever written to it: {hint}")
    return store


def _runs(reader: StoreReader | RemoteStore, store: str | Path) -> Sequence[RunRecord]:
    """The runs with callers, and the days of services that report without them."""
    runs = [run for run in reader.runs() if run.turns or run.declared]
    if not runs:
        raise UsageError(
            f"--store {store} holds no run: nothing that callers measured or services reported has arrived there"
        )
    return runs


def _choose(runs: Sequence[RunRecord], run_id: str | None, store: str | Path) -> RunRecord:
    named = (run for run in runs if run.run_id == run_id)
    found = newest_run(runs) if run_id is None else next(named, None)
    if found is None:
        raise UsageError(f"--run {run_id!r} is not in {store}: --list shows the runs that are")
    return found


def choose_run(reader: StoreReader | RemoteStore, run_id: str | None, store: str | Path) -> RunRecord:
    """Return the run of this name, or the newest one. Raises UsageError."""
    return _choose(_runs(reader, store), run_id, store)


def _objectives(slo: Path | None, json_file: Path | None) -> list[Objective]:
    faults: list[str] = []
    objectives: list[Objective] = []
    try:
        objectives = load_objectives(slo)
    except ConfigError as error:
        faults += [f"{error.where}: {fault}" for fault in error.faults]
    if json_file is not None and (fault := unwritable(json_file)):
        faults.append(fault)
    if faults:
        raise UsageError("\n".join(faults))
    return objectives
