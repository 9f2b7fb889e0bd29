"""Stores: check, export and import one, bring to it what was kept on disk, and take transcripts out of it."""

from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console

from corpora.output_paths import unwritable
from corpora.progress import progress_bar
from loadtest.errors import OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols.stages.settings import RecordedUtterance, written
from loadtest.reports.tables import turns_and_spans
from loadtest.run.json_file import write_json
from loadtest.run.processes import ProcessFailedError
from loadtest.run.report import choose_run, opened_store
from loadtest.run.sidecars import deliver_spool
from telemetry.export.span_log import logs_in
from telemetry.model.foreign_text import has_control_characters, one_line
from telemetry.model.formatting import NS_PER_S
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
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
        result = check_store(folder, progress=progress)
    for line in _lines(result):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if json_file is not None:
        write_json(json_file, result.as_dict())
    return ExitCode.STORE_DAMAGED if result.faults else ExitCode.OK


def _lines(result: StoreCheck) -> list[str]:
    rows = ", ".join(f"{result.rows[table]:,} {table}" for table in TABLES)
    lines = [f"{result.store}: {rows}"]
    for table, removed in result.removed.items():
        until = datetime.fromtimestamp((removed.until_unix_ns or 0) // NS_PER_S, UTC)
        lines.append(f"removed because they were old: {removed.rows:,} {table}, of until {until:%Y-%m-%d %H:%M:%S} UTC")
        if removed.run_ids:
            lines.append(f"runs that lack some of their {table}: {', '.join(map(one_line, removed.run_ids))}")
    lines += [f"fault: {fault}" for fault in result.faults]
    return lines if result.faults else [*lines, "no faults"]


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


def deliver(folder: Path, sidecar_url: str) -> str:
    """Hand over everything in the folder; a sentence that says how much it was.

    Raises UsageError for a path that is not a folder and for a folder that is still written to or holds logs of another
    version, ProcessFailedError if the sidecar does not take everything.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: give the one that the workers were given with --spool")
    if not sidecar_url.startswith(("http://", "https://")) or has_control_characters(sidecar_url):
        raise UsageError(f"--sidecar {sidecar_url!r} is not an address: give one such as http://127.0.0.1:4318")
    owners = {int(owner) for path in logs_in(folder) if (owner := path.name.partition("-")[0]).isdecimal()}
    if writing := sorted(owner for owner in owners if psutil.pid_exists(owner)):
        raise UsageError(f"{folder} is still written to by process {writing[0]}: deliver when the workers have ended")
    delivered = deliver_spool(folder, sidecar_url)
    if not delivered.is_complete:
        rest = turns_and_spans(delivered.left_turns, delivered.left_spans)
        raise ProcessFailedError(
            f"the sidecar at {sidecar_url} takes no more: {rest} of the spool stay in {folder}; try again"
        )
    if delivered.foreign:
        names = ", ".join(path.name for path in delivered.foreign)
        raise UsageError(
            f"{folder} holds logs that another version of voiceprobe wrote ({names}): deliver them with that version; "
            "all others were delivered"
        )
    if delivered.requests:
        return f"delivered from {folder}: {turns_and_spans(delivered.turns, delivered.spans)} of the spool"
    others = sum(path.is_file() for path in folder.iterdir())
    return f"nothing was waiting in {folder}" + (
        f"; files there that are not logs of this version: {others}" if others else ""
    )


_TURNS_AT_ONCE = 10_000
_NS_PER_MS = 1_000_000


def write_partials(store: str, out: Path, console: Console, run_id: str | None = None) -> ExitCode:
    """Write what the recognizer of a run sent of each utterance: of its first turn that has a final transcript.

    Raises UsageError, StoreError, OutputError.
    """
    if fault := unwritable(out):
        raise UsageError(fault)
    recordings: dict[str, RecordedUtterance] = {}
    with opened_store(store) as reader:
        chosen = choose_run(reader, run_id, store).run_id
        offset = 0
        while turns := reader.turns(Filter(run_id=chosen), _TURNS_AT_ONCE, offset, source="client"):
            for recorded in filter(None, map(_recorded, turns)):
                recordings.setdefault(recorded.utterance, recorded)
            offset += len(turns)
    if not recordings:
        raise UsageError(
            f"the run {chosen} has no transcripts: run it with --keep-transcripts, over a wire that has them"
        )
    try:
        out.write_bytes(b"".join(map(written, recordings.values())))
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}; give another file") from error
    partials = sum(len(recorded.partials) for recorded in recordings.values())
    console.print(
        f"{out}: {len(recordings)} utterances of run {chosen}, {partials} partial transcripts", soft_wrap=True
    )
    return ExitCode.OK


def _recorded(turn: Turn) -> RecordedUtterance | None:
    start, final = turn.speech_start_perf_ns, turn.asr_final_perf_ns
    if turn.utterance_id is None or start is None or final is None or not turn.transcript_pii:
        return None
    heard = zip(turn.asr_partials_after_ns, turn.asr_partials_pii, strict=True)
    partials = tuple((after_ns / _NS_PER_MS, text) for after_ns, text in heard)
    return RecordedUtterance(turn.utterance_id, partials, ((final - start) / _NS_PER_MS, turn.transcript_pii))
