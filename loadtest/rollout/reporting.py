"""`voiceprobe rollout report`: a rollout as one HTML file, from the verdicts that are kept and its turns."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.html.rollout_page import CohortCurve, RolloutReport, rollout_as_html
from loadtest.run.json_file import write_result
from loadtest.run.report import opened_store
from loadtest.run.rollout_check import EXIT_CODES, read_plans
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import load_objectives
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.gate import first_history
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.verdict import rollout_verdict
from telemetry.store.questions.rollouts import RolloutQuestion, look, question_of
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_rows import RolloutRecord


@dataclass(frozen=True, slots=True)
class RolloutReportRequest:
    """The request for a report."""

    plan: Path
    store: str
    html: Path
    slo: Path | None = None


def report_rollout(request: RolloutReportRequest, console: Console, *, now_unix_ns: int | None = None) -> ExitCode:
    """Write the page; the exit code is that of the verdict on it. Raises UsageError, StoreError, OutputError."""
    now_unix_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
    objectives = load_objectives(request.slo)
    plan, _ = read_plans((request.plan,), objectives)
    if fault := unwritable(request.html):
        raise UsageError(fault)
    with opened_store(request.store) as reader:
        record = next((record for record in reader.rollouts() if record.name == plan.name), None)
        report = (
            _looked(plan, reader, objectives, now_unix_ns)
            if record is None or not record.verdicts
            else _kept(plan, reader, record)
        )
    write_result(request.html, rollout_as_html(report).encode())
    console.print(report.verdict.sentence, soft_wrap=True, markup=False, highlight=False)
    console.print(f"report: {request.html}", soft_wrap=True, markup=False, highlight=False)
    return EXIT_CODES[report.verdict.verdict]


def _kept(plan: RolloutPlan, reader: StoreReader, record: RolloutRecord) -> RolloutReport:
    """The report of the store's record, with the turns that its last verdict was about."""
    last = record.verdicts[-1]
    if not any(stage.name == last.stage for stage in plan.stages):
        raise UsageError(f"the rollout {plan.name} in the store is of another plan: it has the stage {last.stage}")
    asked = _question(plan, last.since_unix_ns)
    asked = replace(asked, filter=replace(asked.filter, until_unix_ns=last.at_unix_ns))
    turns = reader.rollout_turns(asked)
    return RolloutReport(
        plan=plan,
        verdict=last.verdict,
        at_unix_ns=last.at_unix_ns,
        here=record.entries[-1].stage,
        entries=record.entries,
        candidate=_curve(turns.candidate),
        control=_curve(turns.control),
    )


def _looked(plan: RolloutPlan, reader: StoreReader, objectives: Sequence[Objective], now_unix_ns: int) -> RolloutReport:
    """The report of a look taken now, where no verdict was kept."""
    if plan.begins_unix_ns is None:
        raise UsageError(
            f"no verdict on the rollout {plan.name} is kept in the store, and nothing says when it began: write "
            "begins = 2026-11-02T08:00:00Z into the plan"
        )
    history = first_history(plan)
    verdict = look(reader.rollout_turns, plan, history, now_unix_ns, objectives=objectives)
    turns = reader.rollout_turns(_question(plan, history.stage_since_unix_ns))
    return RolloutReport(
        plan=plan,
        verdict=rollout_verdict(plan, verdict),
        at_unix_ns=now_unix_ns,
        here=verdict.stage.name,
        entries=(),
        candidate=_curve(turns.candidate),
        control=_curve(turns.control),
    )


def _question(plan: RolloutPlan, since_unix_ns: int | None) -> RolloutQuestion:
    asked = question_of(plan, since_unix_ns)
    return replace(asked, metrics=(HEADLINE,), reported=(), slices=(), with_audio=False)


def _curve(cohort_turns: CohortTurns) -> CohortCurve:
    values_ns, turns = cohort_turns.distribution(HEADLINE)
    return CohortCurve(cohort_turns.cohort, tuple(map(float, values_ns)), turns)
