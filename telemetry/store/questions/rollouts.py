"""The turns of a rollout's two cohorts, as the gate reads them, and the page of rollouts."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from telemetry.model import semconv
from telemetry.model.errors import ConfigError
from telemetry.model.semconv import RAMP
from telemetry.model.services import SERVICE_RUN_PREFIX
from telemetry.objectives.error_budgets import ErrorBudget
from telemetry.objectives.objective import Objective
from telemetry.rollout.checks import columns_of as columns_of_check
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.completeness import AssignedUnits, UnitCounts
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide
from telemetry.rollout.plan import RolloutHistory, RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.progress import RolloutProgress, rollout_progress
from telemetry.store.answers import Filter, ProcessInfo
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.burn_rates import (
    CountedTurns,
    MeasuredTurns,
    PeriodTurns,
    budgets_of,
    measured_turns,
    of_period,
    turns_by_run,
    turns_of_period,
)
from telemetry.store.questions.comparisons import TurnColumns, columns_of_turns, telemetry_lost
from telemetry.store.questions.filters import ASKED, Condition, Names, Objectives, judged
from telemetry.store.questions.instrument import processes_of_runs, starts_by_run
from telemetry.store.questions.runs import is_at_work
from telemetry.store.rollout_rows import RolloutRecord, kept_rollouts

_MOST_SERVICES: Final = 100
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]+)")
# Whose a turn is, as an expression: a service by its name, an endpoint that callers heard by HOST:PORT. A turn that a
# service reports of a caller's run does not name it.
SERVICE: Final[dict[semconv.Source, str]] = {
    "service": rf"nullif(regexp_extract(run_id, '^{SERVICE_RUN_PREFIX}(.+):\d{{4}}-\d{{2}}-\d{{2}}$', 1, 's'), '')",
    "client": f"coalesce(nullif(lower(regexp_extract(target, '^{_ADDRESS.pattern}', 1)), ''), target)",
}


# Of the objectives of checks of good turns, whose share is compared and held against nothing.
_ANY_TARGET: Final = 0.5


@dataclass(frozen=True, slots=True)
class RolloutQuestion(TurnColumns):
    """The cohorts, and the columns of their turns; `services` restricts whose turns are used. The cohort of the filter
    is ignored."""

    candidate: str
    control: str
    filter: Filter = Filter()  # noqa: RUF009 - immutable
    source: semconv.Source = "client"
    services: Names = ()


@dataclass(frozen=True, slots=True)
class RolloutTurns:
    """The turns of both cohorts from one consistent read. `telemetry_lost` is the share of turns that are known to be
    missing, of the processes that the turns came from; None where they carry no sequence numbers. `cohorts` are all
    that occur, `units` those of both cohorts, `unassigned_turns` those of their runs without an answer whose calls name
    none, `services` those of the candidate's turns and of the control's, also
    where the question names some."""

    candidate: CohortTurns
    control: CohortTurns
    telemetry_lost: float | None
    cohorts: tuple[str, ...]
    units: UnitCounts = UnitCounts()  # noqa: RUF009 - immutable
    services: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    unassigned_turns: int = 0


def rollout_turns(connection: StoreConnection, asked: RolloutQuestion) -> RolloutTurns:
    """The turns, outside ramps unless the filter names one, without silent ones. Raises StoreError for a column that
    the store does not have, and for more turns than an answer can carry."""
    asked.check()
    where = asked_turns(asked)
    in_cohorts = where & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    labels = asked.labels(connection, in_cohorts)
    by_cohort = {
        name: columns_of_turns(
            connection, in_cohorts, name, asked, asked.source, labels=labels, mine=Condition("cohort = ?", (name,))
        )
        for name in (asked.candidate, asked.control)
    }
    seen = rows(
        connection,
        f"SELECT DISTINCT cohort FROM turns WHERE {where.sql} AND cohort IS NOT NULL ORDER BY cohort LIMIT 20",
        where.values,
    )
    nameless, unbegun = _nameless(connection, where, asked), unbegun_turns(connection, asked)
    candidate, control = (
        replace(of, nameless_turns=nameless.get(name, 0), unbegun_turns=round(unbegun[name]))
        for name, of in by_cohort.items()
    )
    return RolloutTurns(
        candidate,
        control,
        telemetry_lost(connection, in_cohorts, asked.filter),
        tuple(row["cohort"] for row in seen),
        unit_counts(connection, asked, in_cohorts),
        _services(connection, asked),
        _unassigned(connection, where, in_cohorts, asked.source),
    )


def _unassigned(connection: StoreConnection, where: Condition, in_cohorts: Condition, source: semconv.Source) -> int:
    """Count the turns without an answer of calls that never named a cohort, of the runs of both cohorts."""
    (counts,) = rows(
        connection,
        f"""
        WITH failed AS (SELECT call_id FROM turns
                        WHERE {where.sql} AND cohort IS NULL AND outcome IN {semconv.UNANSWERED}
                        AND run_id IN (SELECT run_id FROM turns WHERE {in_cohorts.sql}))
        SELECT count(*) AS turns FROM failed
        WHERE call_id NOT IN (SELECT call_id FROM turns WHERE source = ? AND cohort IS NOT NULL)
        """,
        [*where.values, *in_cohorts.values, source],
    )
    return counts["turns"]


def _nameless(connection: StoreConnection, where: Condition, asked: RolloutQuestion) -> dict[str, int]:
    """Count by cohort the turns without a cohort of calls whose other turns name it, also those before a stage."""
    counts = rows(
        connection,
        f"""
        WITH others AS (SELECT call_id FROM turns WHERE {where.sql} AND cohort IS NULL),
        named AS (SELECT call_id, min(cohort) AS name FROM turns
                  WHERE source = ? AND cohort IN (?, ?) AND call_id IN (SELECT call_id FROM others)
                  GROUP BY call_id HAVING min(cohort) = max(cohort))
        SELECT name, count(*) AS turns FROM others JOIN named USING (call_id) GROUP BY name
        """,
        [*where.values, asked.source, asked.candidate, asked.control],
    )
    return {row["name"]: row["turns"] for row in counts}


def unbegun_turns(connection: StoreConnection, asked: RolloutQuestion) -> Mapping[str | None, float]:
    """Count by cohort the calls that were due and never began outside ramps, and those in flight in a process that was
    lost. Which cohort a call would have met is not known: those of a run count in proportion to the run's turns."""
    unbegun: defaultdict[str | None, float] = defaultdict(float)
    if asked.source != "client":
        return unbegun
    where = asked_turns(asked)
    turns: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
    for row in rows(
        connection,
        f"SELECT run_id, cohort, count(*) AS turns FROM turns WHERE {where.sql} GROUP BY run_id, cohort",
        where.values,
    ):
        turns[row["run_id"]][row["cohort"]] = row["turns"]
    starts, known = starts_by_run(connection, asked.filter), processes_of_runs(connection, tuple(turns))
    for run_id, by_cohort in turns.items():
        dropped = sum(of.counts["dropped"] for of in starts.get(run_id, {}).values() if of.kind != RAMP)
        missing = dropped + _calls_lost(known[run_id], asked.filter, connection.now_unix_ns)
        for cohort, count in by_cohort.items():
            unbegun[cohort] += missing * count / sum(by_cohort.values())
    return unbegun


def _calls_lost(known: Sequence[ProcessInfo], f: Filter, now_unix_ns: int) -> int:
    """Count the calls in flight in processes that were lost within the time of a filter: of a turn that was under way
    nothing says that there was one."""
    since, until = f.since_unix_ns or 0, f.until_unix_ns or now_unix_ns
    return sum(
        process.calls_in_flight or 0
        for process in known
        if not process.ended and not is_at_work(process, now_unix_ns) and since <= process.last_seen_unix_ns < until
    )


def asked_turns(asked: RolloutQuestion) -> Condition:
    """The turns of every cohort, of which a question compares two."""
    f = asked.filter
    everyone = Filter(**{name: getattr(f, name) for name in f.__dataclass_fields__ if name != "cohort"})
    condition = judged(everyone) & Condition(f"source = ? AND {ASKED}", (asked.source,))
    if not asked.services:
        return condition
    places = ", ".join("?" for _ in asked.services)
    return condition & Condition(f"{SERVICE[asked.source]} IN ({places})", tuple(map(_named, asked.services)))


def _named(service: str) -> str:
    """A service in the form of `SERVICE`: for an address, HOST:PORT."""
    match = _ADDRESS.match(service)
    return service if match is None else match[1].lower()


def unit_counts(connection: StoreConnection, asked: RolloutQuestion, in_cohorts: Condition) -> UnitCounts:
    """Return how many units the turns of both cohorts are of, each cohort's by itself, and how many met both. Where
    users are asked for, a turn without one is of the user that its call names in another turn, else of none that is
    known."""
    owner = {
        "call": "call_id",
        "user": "coalesce(user_id, max(user_id) OVER (PARTITION BY call_id))",
    }[asked.unit]
    (counts,) = rows(
        connection,
        f"""
        WITH seen AS (SELECT DISTINCT call_id, user_id, cohort FROM turns WHERE {in_cohorts.sql}),
        owned AS (SELECT call_id, cohort, {owner} AS owner FROM seen),
        units AS (SELECT owner IS NOT NULL AS is_known, count(DISTINCT cohort) > 1 AS is_of_both,
                         any_value(cohort) = ? AS is_candidate
                  FROM owned GROUP BY owner IS NOT NULL, coalesce(owner, call_id))
        SELECT count(*) AS units, count(*) FILTER (is_of_both) AS contaminated,
               count(*) FILTER (NOT is_known) AS unnamed,
               count(*) FILTER (is_known AND NOT is_of_both AND is_candidate) AS candidates,
               count(*) FILTER (NOT is_known AND NOT is_of_both AND is_candidate) AS unnamed_candidates,
               count(*) FILTER (is_known AND NOT is_of_both AND NOT is_candidate) AS controls,
               count(*) FILTER (NOT is_known AND NOT is_of_both AND NOT is_candidate) AS unnamed_controls
        FROM units
        """,
        [*in_cohorts.values, asked.candidate],
    )
    return UnitCounts(
        counts["units"],
        counts["contaminated"],
        AssignedUnits(counts["candidates"], counts["unnamed_candidates"]),
        AssignedUnits(counts["controls"], counts["unnamed_controls"]),
        counts["unnamed"],
    )


def _services(connection: StoreConnection, asked: RolloutQuestion) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the services whose turns name the candidate, and those whose turns name the control."""
    where = asked_turns(replace(asked, services=())) & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    pairs = rows(
        connection,
        f"""
        SELECT DISTINCT cohort, {SERVICE[asked.source]} AS service FROM turns WHERE {where.sql}
        AND {SERVICE[asked.source]} IS NOT NULL ORDER BY cohort, service LIMIT {_MOST_SERVICES}
        """,
        where.values,
    )
    candidate, control = (
        tuple(row["service"] for row in pairs if row["cohort"] == name) for name in (asked.candidate, asked.control)
    )
    return candidate, control


def question_of(plan: RolloutPlan, since_unix_ns: int | None, objectives: Sequence[Objective] = ()) -> RolloutQuestion:
    """Return what a plan's checks read of the turns since the beginning of a stage; of `objectives`, those that it
    names. Good turns are counted as those of an objective with the check's threshold are."""
    own = [
        Objective(check.counted_by, "metric", _ANY_TARGET, check.metric, check.within)
        for check in plan.checks
        if check.kind == "good_turns" and check.counted_by is not None
    ]
    return RolloutQuestion(
        candidate=plan.candidate,
        control=plan.control,
        filter=Filter(since_unix_ns=since_unix_ns),
        source=plan.source,
        metrics=plan.metrics,
        reported=tuple(dict.fromkeys(name for check in plan.checks for name in columns_of_check(check))),
        slices=plan.slices,
        objectives=(*(objective for objective in objectives if objective.name in plan.objectives), *dict.fromkeys(own)),
        with_audio=plan.is_paired,
        unit=plan.unit,
        services=plan.services,
    )


def evidence_of(turns: RolloutTurns, other_plans: Sequence[RolloutPlan] = ()) -> RolloutEvidence:
    """Convert the turns to the gate's input."""
    return RolloutEvidence(
        candidate=turns.candidate,
        control=turns.control,
        telemetry_lost=turns.telemetry_lost,
        cohorts=turns.cohorts,
        other_plans=tuple(other_plans),
        units=turns.units,
        services=turns.services,
        unassigned_turns=turns.unassigned_turns,
    )


def look(
    turns: Callable[[RolloutQuestion], RolloutTurns],
    plan: RolloutPlan,
    history: RolloutHistory,
    now_unix_ns: int,
    *,
    objectives: Sequence[Objective] = (),
    others: Sequence[RolloutPlan] = (),
) -> GateVerdict:
    """Look at the current stage of a rollout, with the turns of a reader. `others` are plans that are evaluated at the
    same time. Raises StoreError, and ConfigError if the plan has no such stage."""
    seen = turns(question_of(plan, history.stage_since_unix_ns, objectives))
    return decide(plan, evidence_of(seen, others), history, now_unix_ns)


@dataclass(frozen=True, slots=True)
class RolloutPage:
    """`names` are all rollouts, the one with the newest entry first. Of the one that is shown: `control` and
    `candidate` are None where its plan cannot be read; `progress` is None before its first verdict; `budgets` are those
    of the candidate's turns. `measured` are the turns of both cohorts within the period of a budget, None where the
    plan cannot be read. Of a plan that names services there are neither budgets nor `measured`."""

    names: tuple[str, ...] = ()
    name: str | None = None
    control: str | None = None
    candidate: str | None = None
    stage: str | None = None
    progress: RolloutProgress | None = None
    budgets: tuple[ErrorBudget, ...] = ()
    measured: MeasuredTurns | None = None


def rollout_page(connection: StoreConnection, name: str | None = None, objectives: Objectives = ()) -> RolloutPage:
    """The rollout of this name, else the one with the newest entry; for an unknown name, only the names."""
    newest_first = sorted(kept_rollouts(connection), key=lambda record: -record.entries[-1].at_unix_ns)
    names = tuple(record.name for record in newest_first)
    record = next((record for record in newest_first if name in (None, record.name)), None)
    if record is None:
        return RolloutPage(names)
    plan = _plan(record)
    budgets: tuple[ErrorBudget, ...] = ()
    measured: MeasuredTurns | None = None
    # Sums over weeks do not know the services of a plan that names some: of others' turns nothing is shown.
    if plan is not None and not plan.services:
        turns = turns_of_period(connection, objectives, Filter(cohort=plan.candidate))
        budgets = budgets_of(objectives, turns)
        measured = _measured(connection, turns, plan.control)
    stage = record.entries[-1].stage
    return RolloutPage(
        names=names,
        name=record.name,
        control=None if plan is None else plan.control,
        candidate=None if plan is None else plan.candidate,
        stage=stage,
        progress=rollout_progress(plan, record.verdicts, stage),
        budgets=budgets,
        measured=measured,
    )


def _measured(connection: StoreConnection, candidate_turns: PeriodTurns, control: str) -> MeasuredTurns:
    """Return the figures of the candidate and of the control."""
    period = of_period(Filter(cohort=control), connection.now_unix_ns)
    control_turns = turns_by_run(connection, period, candidate_turns.source)
    by_run = dict(candidate_turns.by_run)
    for run_id, turns in control_turns.items():
        by_run[run_id] = by_run.get(run_id, CountedTurns()) + turns
    return measured_turns(connection, by_run, candidate_turns.source)


def _plan(record: RolloutRecord) -> RolloutPlan | None:
    try:
        return parse_plan(record.plan_text, record.name)
    except ConfigError:
        return None
