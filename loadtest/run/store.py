"""`voiceprobe store`: checks, exports and imports a store, and prints what it found."""

from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from corpora.output_paths import unwritable
from corpora.progress import progress_bar
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.json_file import write_json
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import NS_PER_S
from telemetry.store.check import StoreCheck
from telemetry.store.check import check as check_store
from telemetry.store.export import SpansFormat, TurnsFormat, import_export
from telemetry.store.export import export as export_store
from telemetry.store.schema import TABLES


def check(folder: Path, console: Console, json_file: Path | None) -> ExitCode:
    """Print the state of a store. Raises StoreError, UsageError, OutputError."""
    if json_file is not None and (fault := unwritable(json_file)):
        raise UsageError(fault)
    with progress_bar("reading rows") as progress:
        found = check_store(folder, progress=progress)
    for line in _lines(found):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if json_file is not None:
        write_json(json_file, found.as_dict())
    return ExitCode.STORE_DAMAGED if found.faults else ExitCode.OK


def _lines(found: StoreCheck) -> list[str]:
    rows = ", ".join(f"{found.rows[table]:,} {table}" for table in TABLES)
    lines = [f"{found.store}: {rows}"]
    for table, removed in found.removed.items():
        until = datetime.fromtimestamp((removed.until_unix_ns or 0) // NS_PER_S, UTC)
        lines.append(f"removed because they were old: {removed.rows:,} {table}, of until {until:%Y-%m-%d %H:%M:%S} UTC")
        if removed.run_ids:
            lines.append(f"runs that lack some of their {table}: {', '.join(map(one_line, removed.run_ids))}")
    lines += [f"fault: {fault}" for fault in found.faults]
    return lines if found.faults else [*lines, "no faults"]


def export(folder: Path, target: Path, console: Console, turns: TurnsFormat, spans: SpansFormat) -> None:
    """Export a store and print what was written. Raises StoreError, UsageError."""
    if fault := unwritable(target / "spans"):
        raise UsageError(fault)
    with progress_bar("exporting rows") as progress:
        done = export_store(folder, target, turns=turns, spans=spans, progress=progress)
    rows = f"{done.turns:,} turns, {done.spans:,} spans and {done.points:,} metric points"
    console.print(f"{target}: {rows} in {len(done.files):,} files", soft_wrap=True, markup=False, highlight=False)


def import_files(source: Path, folder: Path, console: Console, *, keep_text: bool) -> None:
    """Import what an export wrote and print what was stored. Raises StoreError."""
    with progress_bar("importing rows") as progress:
        done = import_export(source, folder, keep_text=keep_text, progress=progress)
    rows = f"{done.turns:,} turns, {done.spans:,} spans and {done.points:,} metric points stored"
    known = f"; {done.duplicates:,} rows were there already" if done.duplicates else ""
    console.print(f"{folder}: {rows}{known}", soft_wrap=True, markup=False, highlight=False)
