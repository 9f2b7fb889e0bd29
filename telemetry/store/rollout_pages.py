"""What the page of rollouts shows: the rollouts whose verdicts the store keeps, one of them in whole, and the error
budgets of its candidate."""

from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.model.errors import ConfigError
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.objectives.objective import Objective
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.progress import RolloutProgress, rollout_progress
from telemetry.store.answers import Filter
from telemetry.store.budget_period import of_period
from telemetry.store.burn_rates import budgets_of
from telemetry.store.connection import StoreConnection
from telemetry.store.measured_turns import MeasuredTurns, measured_turns
from telemetry.store.period_turns import PeriodTurns, turns_of_period
from telemetry.store.rollout_lines import logged_verdicts
from telemetry.store.rollout_log import RolloutRecord
from telemetry.store.turns_of_runs import CountedTurns, turns_by_run


@dataclass(frozen=True, slots=True)
class RolloutPage:
    """`names` are all rollouts, the one with the newest entry first. Of the one that is shown: `faults` say what of its
    log is not what was written; `control` and `candidate` are None where its plan cannot be read; `progress` is None
    before its first verdict; `budgets` are those of the candidate's turns. `measured` are the turns of both cohorts
    within the period of a budget, None where the plan cannot be read. Of a plan that names services there are neither
    budgets nor `measured`."""

    names: tuple[str, ...] = ()
    name: str | None = None
    faults: tuple[str, ...] = ()
    control: str | None = None
    candidate: str | None = None
    stage: str | None = None
    progress: RolloutProgress | None = None
    budgets: tuple[ErrorBudget, ...] = ()
    measured: MeasuredTurns | None = None


def rollout_page(
    connection: StoreConnection,
    records: Sequence[RolloutRecord],
    name: str | None,
    objectives: Sequence[Objective],
    *,
    now_unix_ns: int,
) -> RolloutPage:
    """The rollout of this name, else the one with the newest entry; of an unknown name, the names alone."""
    newest_first = sorted(records, key=lambda record: -record.entries[-1].at_unix_ns if record.entries else 0)
    names = tuple(record.name for record in newest_first)
    record = next((each for each in newest_first if name in (None, each.name)), None)
    if record is None:
        return RolloutPage(names)
    plan = _plan(record)
    budgets: tuple[ErrorBudget, ...] = ()
    measured: MeasuredTurns | None = None
    # Sums over weeks do not know the services of a plan that names some: of others' turns nothing is shown.
    if plan is not None and not plan.services:
        turns = turns_of_period(connection, objectives, Filter(cohort=plan.candidate), now_unix_ns)
        budgets = budgets_of(objectives, turns)
        measured = _measured(connection, turns, plan.control, now_unix_ns)
    verdicts = logged_verdicts(record.entries)
    stage = record.entries[-1].stage if record.entries else None
    return RolloutPage(
        names=names,
        name=record.name,
        faults=record.faults,
        control=None if plan is None else plan.control,
        candidate=None if plan is None else plan.candidate,
        stage=stage,
        progress=None if stage is None else rollout_progress(plan, verdicts, stage),
        budgets=budgets,
        measured=measured,
    )


def _measured(connection: StoreConnection, of_candidate: PeriodTurns, control: str, now_unix_ns: int) -> MeasuredTurns:
    """Those of the candidate and of the control."""
    of_control = turns_by_run(connection, of_period(Filter(cohort=control), now_unix_ns), of_candidate.source)
    by_run = dict(of_candidate.by_run)
    for run_id, turns in of_control.items():
        by_run[run_id] = by_run.get(run_id, CountedTurns()) + turns
    return measured_turns(connection, by_run, of_candidate.source, now_unix_ns)


def _plan(record: RolloutRecord) -> RolloutPlan | None:
    try:
        return parse_plan(record.plan_text, record.name)
    except ConfigError:
        return None
