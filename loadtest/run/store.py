"""`voiceprobe store`: checks, repairs, compacts and exports a store, and prints what it found."""

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
from telemetry.store.compaction import Compactor
from telemetry.store.export import TurnsFormat
from telemetry.store.export import export as export_store
from telemetry.store.inventory import known_manifests
from telemetry.store.manifest import QUARANTINE_FOLDER, TABLES
from telemetry.store.repair import repair as repair_store
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.writer import StoreWriter


def check(folder: Path, console: Console, json_file: Path | None) -> ExitCode:
    """Print the state of a store. Raises StoreError, UsageError, OutputError."""
    if json_file is not None and (fault := unwritable(json_file)):
        raise UsageError(fault)
    with progress_bar("reading files") as progress:
        found = check_store(folder, progress=progress)
    for line in _lines(found):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if json_file is not None:
        write_json(json_file, found.as_dict())
    return ExitCode.STORE_DAMAGED if found.faults else ExitCode.OK


def _lines(found: StoreCheck) -> list[str]:
    rows = ", ".join(f"{found.rows[table]:,} {table}" for table in TABLES)
    lines = [f"{found.store}: {found.segments:,} segments with {rows}"]
    if found.is_in_use:
        lines.append("a sidecar is writing to it")
    if found.unnamed:
        lines.append(f"files among the segments that the manifest does not name: {found.unnamed:,}")
    if found.quarantined:
        lines.append(f"files in {QUARANTINE_FOLDER}: {found.quarantined:,}")
    if found.strangers:
        lines.append(f"files among the segments that are not the store's: {found.strangers:,}")
    for table, removed in found.removed.items():
        until = datetime.fromtimestamp((removed.until_unix_ns or 0) // NS_PER_S, UTC)
        lines.append(f"removed because they were old: {removed.rows:,} {table}, of until {until:%Y-%m-%d %H:%M:%S} UTC")
        if removed.run_ids:
            lines.append(f"runs that lack some of their {table}: {', '.join(map(one_line, removed.run_ids))}")
    lines += [f"fault: {fault}" for fault in found.faults]
    if found.faults:
        return [*lines, f"to repair it: voiceprobe store repair {found.store}"]
    return [*lines, "no faults"]


def repair(folder: Path, console: Console, *, dry_run: bool) -> ExitCode:
    """Repair a store and print what was wrong with it. Raises StoreError."""
    with progress_bar("reading files") as progress:
        done = repair_store(folder, dry_run=dry_run, progress=progress)
    for fault in done.faults:
        console.print(f"fault: {fault}", soft_wrap=True, markup=False, highlight=False)
    rows = ", ".join(f"{done.rows[table]:,} {table}" for table in TABLES)
    if not done.faults:
        line = f"nothing to repair: the store holds {rows}"
    elif dry_run:
        line = f"nothing was changed; after a repair the store would hold {rows}"
    else:
        line = f"repaired: the store holds {rows}"
    console.print(line, soft_wrap=True, markup=False, highlight=False)
    return ExitCode.STORE_DAMAGED if done.lost_rows else ExitCode.OK


def compact(folder: Path, console: Console) -> None:
    """Merge until nothing is left to merge. Raises StoreError."""
    known_manifests(folder)
    with StoreWriter(folder) as writer:
        before = len(writer.manifest.segments)
        compactor = Compactor(writer, roll_up=RollUpMaker(), grace_s=0.0)
        merges = 0
        try:
            with console.status("merging segments"):
                while compactor.run_once():
                    merges += 1
                while compactor.roll_up_once():
                    pass
        finally:
            compactor.stop()
        after = len(writer.manifest.segments)
    console.print(f"{folder}: {before:,} segments before, {after:,} after {merges:,} merges", soft_wrap=True)


def export(folder: Path, target: Path, console: Console, turns: TurnsFormat) -> ExitCode:
    """Export a store and print what was written. Raises StoreError, UsageError."""
    if fault := unwritable(target / "spans"):
        raise UsageError(fault)
    with progress_bar("exporting rows") as progress:
        done = export_store(folder, target, turns=turns, progress=progress)
    for fault in done.faults:
        console.print(f"fault: {fault}", soft_wrap=True, markup=False, highlight=False)
    rows = f"{done.turns:,} turns, {done.spans:,} spans and {done.points:,} metric points"
    line = f"{target}: {rows} in {len(done.files):,} files"
    console.print(line, soft_wrap=True, markup=False, highlight=False)
    return ExitCode.STORE_DAMAGED if done.faults else ExitCode.OK
