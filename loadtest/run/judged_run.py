"""A run from its store: its RunInfo, summary, verdicts and outcome. `run` and `report` ask here alike.

The store does not hold how a run ended; the command that carried it out gives that (`RunEnding`): that it is over,
whether somebody interrupted it, the signal that ended Locust's first process, whether that had lost contact with its
workers, what its spool held, the address of a dashboard, and that the target could not be reached before the first
call.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast, get_args

from rich.console import Console

from corpora.manifest.manifest import Edges
from loadtest.errors import OutputError
from loadtest.exit_codes import ExitCode
from loadtest.reports.calibration_citing import Citation, State
from loadtest.reports.run_info import ProcessShare, RunCorpus, RunInfo, RunProfile, SpoolInfo
from loadtest.reports.run_outcome import load_not_as_asked, run_outcome_for
from loadtest.reports.run_report import RunPictures, RunReport, SlowTurn
from loadtest.reports.summary import summary_object
from loadtest.reports.terminal import final_view
from loadtest.run.artifacts import HTML, artifacts, write_together
from loadtest.run.json_file import write_json
from telemetry.model.metrics import METRICS
from telemetry.model.semconv import RAMP
from telemetry.model.turns import Turn
from telemetry.model.waterfall import waterfall
from telemetry.objectives.judgment import is_unanswered
from telemetry.objectives.objective import Objective
from telemetry.objectives.observable import observed
from telemetry.store.answers import CallCounts, Filter, ProcessInfo, RunRecord, Summary
from telemetry.store.questions.caches import ModelServer
from telemetry.store.questions.filters import source_of
from telemetry.store.questions.runs import is_under_way, lost_processes
from telemetry.store.questions.verdicts import judged_objectives, judged_turns, measured_s
from telemetry.store.reader import RemoteStore, StoreReader

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """The end of a run, as only the command that carried it out can know it."""

    is_over: bool = False
    interrupted: bool = False
    killed_by: str | None = None
    workers_missing: bool = False
    spooled: SpoolInfo | None = None
    dashboard_url: str | None = None
    unreachable: "UnreachableTarget | None" = None


@dataclass(frozen=True, slots=True)
class UnreachableTarget:
    """A target that could not be reached before the first call: the reason, as half a sentence, and the time."""

    reason: str
    found_unix_ns: int


def judged_run(
    reader: StoreReader,
    run_id: str,
    objectives: Sequence[Objective],
    *,
    now_unix_ns: int | None = None,
    asked: Mapping[str, object] | None = None,
    ending: RunEnding = RunEnding(),
) -> RunReport:
    """The run, from its store, without pictures.

    With `now_unix_ns` a process that has not ended and reported lately counts as under way; without, or where its own
    command has ended (`ending`), the run is over and every process that did not end was lost. `asked` is what the run
    was asked to do, for one whose processes never said so. Raises StoreError.
    """
    stored = _StoredRun.read(reader, run_id)
    info = _info(stored, asked or {}, ending, None if ending.is_over else now_unix_ns)
    where = Filter(run_id=run_id)
    summary = reader.summary(where)
    if ending.unreachable is not None:
        info, summary = _unreached(ending.unreachable, info, summary)
    evidence = reader.run_verdict(where, objectives)
    objectives = observed(objectives, evidence.counts.is_withheld)
    counted = judged_objectives(objectives, evidence.counts, summary)
    run_outcome = run_outcome_for(run=info, summary=summary, verdicts=counted)
    # What the store shows limits a run also where somebody interrupted it: its figures are no better for that.
    judged = judged_turns(
        objectives,
        evidence.counts,
        summary,
        evidence.cause,
        limit=load_not_as_asked(info),
        measured_s=measured_s(summary, stored.record),
    )
    verdicts = [replace(verdict, sampling=evidence.sampling.get(verdict.name)) for verdict in judged.verdicts]
    return RunReport(
        run=info,
        summary=summary,
        objectives=tuple(objectives),
        verdicts=verdicts,
        run_outcome=run_outcome,
        verdict=judged.verdict,
    )


def _unreached(target: UnreachableTarget, info: RunInfo, summary: Summary) -> tuple[RunInfo, Summary]:
    """The run of a target that could not be reached: none of its processes was started, so none was lost."""
    changed = replace(info, started_unix_ns=target.found_unix_ns, connect_failure=target.reason, lost=())
    return changed, replace(summary, unreached=target.reason)


def print_and_write(report: RunReport, console: Console, json_file: Path | None) -> ExitCode:
    """Print the summary, write the JSON object whole or not at all, and give the exit code.

    Raises OutputError, also for the reports that could not be written before: once the summary is printed.
    """
    console.print(final_view(report))
    if json_file is not None:
        write_json(json_file, summary_object(report))
    if report.unwritten is not None:
        raise report.unwritten
    if report.folder is not None:
        console.print(f"report: {report.folder / HTML}", soft_wrap=True, markup=False, highlight=False)
    return report.run_outcome.code


# A turn that began last is still under way, and a page is read every so often.
SERVERS_READ_UNTIL_NS: Final = 30 * 10**9


@dataclass(frozen=True, slots=True)
class _StoredRun:
    """The data of a run in the store besides its turns. `record` is None for a run that the store does not list."""

    run_id: str
    record: RunRecord | None
    processes: Sequence[ProcessInfo]
    calls: CallCounts
    model_servers: tuple[ModelServer, ...]
    store: Path | str

    @classmethod
    def read(cls, reader: StoreReader, run_id: str) -> "_StoredRun":
        """Read what the store of `reader` holds of a run. Raises StoreError."""
        record = next((record for record in reader.runs() if record.run_id == run_id), None)
        return cls(
            run_id=run_id,
            record=record,
            processes=reader.processes(run_id),
            calls=reader.calls(Filter(run_id=run_id)),
            model_servers=()
            if record is None
            else reader.model_servers(record.first_unix_ns, record.last_unix_ns + SERVERS_READ_UNTIL_NS),
            store=reader.directory,
        )


def _info(stored: _StoredRun, asked: Mapping[str, object], ending: RunEnding, now_unix_ns: int | None) -> RunInfo:
    record, known, calls = stored.record, stored.processes, stored.calls
    service = record.service if record is not None else None
    declared = _Declared({**asked, **(record.declared if record is not None else {})})
    # A service that reported without callers of ours has no process that could be lost.
    processes = 0 if service is not None else declared.whole("processes") or max(1, len(known))
    target = record.target if record is not None else None
    return RunInfo(
        run_id=stored.run_id,
        target=declared.text("target") or target or UNKNOWN,
        protocol=declared.text("protocol") or (record.protocol if record is not None else None) or UNKNOWN,
        corpus=_corpus(declared),
        users=declared.whole("users"),
        arrivals=declared.text("arrivals") or "closed",
        rate_per_s=declared.number("rate_per_s"),
        max_calls=declared.whole("max_calls"),
        scenario=declared.text("scenario"),
        seed=declared.whole("seed"),
        run_time_s=declared.number("run_time_s"),
        started_unix_ns=_began_unix_ns(known, record),
        elapsed_s=_elapsed_s(known),
        processes=processes,
        shares=tuple(
            ProcessShare(worker=process.worker, turns=process.turns, cpu_ratio=process.cpu_ratio)
            for process in sorted(known, key=lambda process: process.worker)
        ),
        cores=declared.whole("cores"),
        profile=RunProfile(
            noise=declared.text("noise"),
            snr_db=declared.number("snr_db"),
            length=declared.text("length"),
            channel=declared.text("channel"),
        ),
        cohort=declared.text("cohort"),
        versions=declared.parsed("versions", dict),
        calls_started=calls.started if service is None else None,
        calls_connected=calls.connected if service is None else None,
        calls_prevented=calls.prevented,
        connect_failure=calls.connect_failure,
        interrupted=ending.interrupted,
        is_under_way=is_under_way(known, now_unix_ns),
        lost=lost_processes(known, processes, now_unix_ns),
        killed_by=ending.killed_by,
        workers_missing=ending.workers_missing,
        spooled=ending.spooled,
        store=str(stored.store),
        dashboard_url=ending.dashboard_url,
        service=service,
        calibration=_citation(declared),
        model_servers=stored.model_servers,
    )


def _began_unix_ns(known: Sequence[ProcessInfo], record: RunRecord | None) -> int:
    """Return when the first process was ready, or the first turn of a run whose processes did not say so began."""
    began = [process.began_unix_ns for process in known if process.began_unix_ns is not None]
    return min(began) if began else record.first_unix_ns if record is not None else 0


def _elapsed_s(known: Sequence[ProcessInfo]) -> float | None:
    """The longest that one process was there: the clocks of two hosts are never compared."""
    lasted = [p.last_seen_unix_ns - p.began_unix_ns for p in known if p.began_unix_ns is not None]
    return max(0.0, max(lasted) / 1e9) if lasted else None


def _corpus(declared: "_Declared") -> RunCorpus:
    edges = declared.text("edges")
    fade_ms, recorded_ends = declared.number("fade_ms"), declared.whole("recorded_ends")
    is_exact = edges == "exact"
    return RunCorpus(
        name=declared.text("corpus") or UNKNOWN,
        kind=declared.text("corpus_kind") or UNKNOWN,
        utterances=declared.whole("utterances") or 0,
        licenses=tuple(declared.parsed("licenses", list)),
        edges=edges if edges in get_args(Edges) else None,
        fade_ms=fade_ms if is_exact and fade_ms is not None and 0.0 <= fade_ms < math.inf else None,
        recorded_ends=recorded_ends if is_exact and recorded_ends is not None and recorded_ends >= 0 else None,
    )


def _citation(declared: "_Declared") -> Citation | None:
    state, sentence = declared.text("calibration_state"), declared.text("calibration")
    if state not in get_args(State) or sentence is None:
        return None
    return Citation(
        cast("State", state),
        sentence,
        declared.number("calibrated_to_ms"),
        declared.whole("calibrated_callers"),
        declared.text("calibration_date"),
        declared.whole("calibrated_processes"),
    )


class _Declared:
    """The declarations of a run's processes. They came over the network: a value that cannot be read counts as
    absent."""

    def __init__(self, declared: Mapping[str, object]) -> None:
        self._values = declared

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return str(value) if value not in (None, "") else None

    def number(self, name: str) -> float | None:
        try:
            return float(self.text(name) or "")
        except ValueError:
            return None

    def whole(self, name: str) -> int | None:
        value = self.number(name)
        return int(value) if value is not None and value.is_integer() else None

    def parsed(self, name: str, kind: type[list[str]] | type[dict[str, str]]) -> Any:
        try:
            value = json.loads(self.text(name) or "")
        except ValueError:
            return kind()
        return value if isinstance(value, kind) else kind()


# So many turns are drawn one by one; of more, the store's slots of time are drawn.
MOST_DOTS: Final = 3_000
# The distribution is made of so many values at most: each is read.
MOST_VALUES: Final = 2_000_000
SLOWEST: Final = 5
_TURNS_PER_SLOT: Final = 60
_MOST_SLOTS: Final = 90
_FEWEST_SLOTS: Final = 12


def leave_reports(reader: StoreReader, report: RunReport, folder: Path) -> RunReport:
    """Write the reports of a run into a folder, all or none; the result says where they are, or why they are not.
    Raises StoreError."""
    contents = artifacts(replace(report, pictures=read_pictures(reader, report.summary)))
    try:
        write_together(folder, contents)
    except OutputError as error:
        return replace(report, unwritten=error)
    return replace(report, folder=folder)


def read_pictures(reader: StoreReader, summary: Summary) -> RunPictures:
    """Read them for the run that a summary is about. Raises StoreError."""
    where, total = summary.filter, summary.turns.total
    if not total:
        return RunPictures()
    slots = min(_MOST_SLOTS, max(_FEWEST_SLOTS, total // _TURNS_PER_SLOT))
    dots = _dots(reader, summary) if total + summary.ramp_turns <= MOST_DOTS else []
    return RunPictures(
        timeline=reader.timeline(where, buckets=slots),
        dots=dots,
        values_ns=[value for _, value in dots if value is not None] if dots else _values_ns(reader, where, total),
        stages=reader.stage_budget(where),
        slowest=[_slow_turn(reader, turn) for turn in reader.slowest(where, limit=SLOWEST)],
    )


def _dots(reader: StoreReader, summary: Summary) -> list[tuple[int, float | None]]:
    """The valid turns that asked something: when each began, and its voice-to-voice. A turn without one although it
    was answered is left out."""
    value_of = METRICS["voice_to_voice"].value
    dots: list[tuple[int, float | None]] = []
    for turn in reader.turns(summary.filter, limit=MOST_DOTS, source=source_of(summary.filter)):
        if turn.outcome == "invalid" or turn.turn_kind == "silence" or turn.phase_kind == RAMP:
            continue
        value = value_of(turn)
        if value is not None or is_unanswered(turn):
            dots.append((turn.started_unix_ns, value))
    return dots


def _values_ns(reader: StoreReader, where: Filter, total: int) -> list[float] | None:
    if isinstance(reader, RemoteStore) or total > MOST_VALUES:
        return None
    return reader.metric_values(where, "voice_to_voice")


def _slow_turn(reader: StoreReader, turn: Turn) -> SlowTurn:
    """One turn with its other side, if that is in the store."""
    client, service = reader.turn(turn.trace_id, turn.turn_index) if turn.trace_id else (None, None)
    if client is None and service is None:
        client, service = (turn, None) if turn.source == "client" else (None, turn)
    spans = reader.spans(turn.trace_id) if turn.trace_id else []
    laid_out = waterfall(client, service, spans)
    return SlowTurn(turn=turn, waterfall=laid_out, has_both_sides=client is not None and service is not None)
