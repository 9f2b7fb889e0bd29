"""Error budgets and burn rates of objectives over windows that end at the current time, and the Objectives page.

The budget period, which ends at the current time, is counted in parts: the intervals between the windows of the newest
day, and each day before. Every window is a sum of parts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from telemetry.model.semconv import Source
from telemetry.model.turns import fields_for
from telemetry.objectives.error_budgets import (
    DAY_NS,
    PERIOD_DAYS,
    SHORT_WINDOWS,
    SHOWN_WINDOWS,
    ErrorBudget,
    error_budget,
    missed_first,
    window_ns,
)
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter, RunRecord, TelemetryLoss
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.filters import ANY, ASKED, Condition, Objectives, judged, turns_of
from telemetry.store.questions.instrument import generator_limits, loss_of_runs
from telemetry.store.questions.objectives import counts_by
from telemetry.store.questions.runs import runs

# Ends of the parts within the newest day, ns ago; behind them come whole days.
_RINGS: Final = tuple(
    sorted(length for name in (*SHORT_WINDOWS, *SHOWN_WINDOWS) if (length := window_ns(name)) <= DAY_NS)
)
# Ends of all parts, ns ago, the newest first.
_ENDS: Final = (*_RINGS, *(age * DAY_NS for age in range(2, PERIOD_DAYS + 1)))
# A selector of more is no help, and a store may keep thousands.
MOST_RUNS: Final = 100
_CHOSEN_BY: Final = fields_for("choice", "objective")


@dataclass(frozen=True, slots=True)
class CountedTurns:
    """Turns with a question, outside ramps."""

    total: int = 0
    invalid: int = 0

    @property
    def valid(self) -> int:
        """The turns that say something about the service."""
        return self.total - self.invalid

    def __add__(self, other: "CountedTurns") -> "CountedTurns":
        return CountedTurns(self.total + other.total, self.invalid + other.invalid)


@dataclass(frozen=True, slots=True)
class LimitedTurns:
    """The valid turns of runs that say nothing about the service, and the number of these runs."""

    runs: int = 0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class RunsEvidence:
    """Evidence on the measurement of the counted turns. `calibrated_to_ms` is the widest declared bound of the
    calibrated ones."""

    runs: int = 0
    calibrated: int = 0
    calibrated_to_ms: str | None = None
    loss: TelemetryLoss | None = None  # None where there is no run


@dataclass(frozen=True, slots=True)
class MeasuredTurns:
    """The turns behind figures and their source: all of them with the invalid ones, which no figure counts, the valid
    ones of generator-limited runs, and the evidence of their runs."""

    source: Source = "client"
    counted: CountedTurns = field(default_factory=CountedTurns)
    limited: LimitedTurns = field(default_factory=LimitedTurns)
    evidence: RunsEvidence = field(default_factory=RunsEvidence)


@dataclass(frozen=True, slots=True)
class BurnRateAnswer:
    """The budgets, missed ones first, at a moment; `source` says whose turns count. `newest_unix_ns` is when the newest
    of them began, None without one. `counted` are all of them and the invalid ones, which no budget counts; `limited`
    are those of the valid ones whose run says nothing about the service by itself."""

    at_unix_ns: int
    source: Source
    budgets: tuple[ErrorBudget, ...]
    newest_unix_ns: int | None = None
    counted: CountedTurns = field(default_factory=CountedTurns)
    limited: LimitedTurns = field(default_factory=LimitedTurns)

    @property
    def claims_nothing(self) -> bool:
        """Whether every valid turn is of a run that says nothing about the service."""
        return 0 < self.counted.valid <= self.limited.turns


@dataclass(frozen=True, slots=True)
class ObjectivesPage:
    """`runs` are the newest runs with turns in the period; `run` is the one that was asked for, None where none was or
    the store has no such run. `choices` are the values of each dimension among the turns of the period, of the run that
    was asked for if it has any."""

    burn: BurnRateAnswer
    runs: Sequence[RunRecord] = ()
    run: RunRecord | None = None
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    evidence: RunsEvidence = field(default_factory=RunsEvidence)

    @property
    def measured(self) -> MeasuredTurns:
        """The measurement quality of the turns that are counted."""
        return MeasuredTurns(self.burn.source, self.burn.counted, self.burn.limited, self.evidence)


@dataclass(frozen=True, slots=True)
class PeriodTurns:
    """Turns of a `source`, none of a ramp: those of each objective by `parts` of the period, which are counted from the
    newest, by run all that were asked something, and when the newest valid one began (Unix ns), None without one."""

    source: Source
    parts: Mapping[int, Mapping[str, EligibleTurns]]
    by_run: Mapping[str, CountedTurns] = field(default_factory=dict[str, CountedTurns])
    newest_unix_ns: int | None = None


def objectives_page(connection: StoreConnection, objectives: Objectives, f: Filter = ANY) -> ObjectivesPage:
    """Answer the page about the turns of a filter, at whatever time of the period they began."""
    burn, turns = _burn_rates(connection, objectives, f)
    known, period = runs(connection), of_period(f, connection.now_unix_ns)
    begin, end = period.since_unix_ns or 0, period.until_unix_ns or 0
    choices = values_of_turns(connection, period, burn.source)
    if f.run_id is not None and not any(choices.values()):
        choices = values_of_turns(connection, replace(period, run_id=None), burn.source)
    return ObjectivesPage(
        burn=burn,
        runs=[
            record for record in known if record.turns and begin <= record.last_unix_ns and record.first_unix_ns < end
        ][:MOST_RUNS],
        run=next((record for record in known if record.run_id == f.run_id), None),
        choices=choices,
        evidence=runs_evidence(connection, turns.by_run),
    )


def burn_rates(connection: StoreConnection, objectives: Objectives, f: Filter = ANY) -> BurnRateAnswer:
    """Error budgets and burn rates of objectives over windows that end at the current time."""
    return _burn_rates(connection, objectives, f)[0]


def _burn_rates(
    connection: StoreConnection, objectives: Sequence[Objective], f: Filter
) -> tuple[BurnRateAnswer, PeriodTurns]:
    """Evaluate the objectives over their windows for the filter's run, cohort, target and dimensions, and return the
    turns counted; the filter's time is ignored. The turns are those that callers heard, if there are any within the
    longest window, else those that services report."""
    turns = turns_of_period(connection, objectives, f)
    answer = BurnRateAnswer(
        at_unix_ns=connection.now_unix_ns,
        source=turns.source,
        budgets=budgets_of(objectives, turns),
        newest_unix_ns=turns.newest_unix_ns,
        counted=sum(turns.by_run.values(), CountedTurns()),
        limited=_limited_turns(connection, turns.by_run, turns.source),
    )
    return answer, turns


def budgets_of(objectives: Sequence[Objective], turns: PeriodTurns) -> tuple[ErrorBudget, ...]:
    """The budget of each objective, missed ones first."""
    return tuple(missed_first([_budget(objective, turns) for objective in objectives]))


def _budget(objective: Objective, turns: PeriodTurns) -> ErrorBudget:
    parts = {part: counts[objective.name] for part, counts in turns.parts.items() if counts[objective.name].eligible}
    days: dict[int, EligibleTurns] = {}
    for part, counts in parts.items():
        day = max(0, part - len(_RINGS) + 1)
        days[day] = days.get(day, EligibleTurns()) + counts

    def within(length_ns: int) -> EligibleTurns:
        return sum((counts for part, counts in parts.items() if _ENDS[part] <= length_ns), EligibleTurns())

    return error_budget(objective, within, days)


def turns_of_period(connection: StoreConnection, objectives: Sequence[Objective], f: Filter) -> PeriodTurns:
    """The turns of the filter's run, cohort, target, phase and dimensions; its time is ignored. Turns that callers
    heard if a valid one is among them, else those that services report."""
    f = of_period(f, connection.now_unix_ns)
    where = judged(f)
    newest: dict[Source, int] = {
        row["source"]: row["newest"]
        for row in rows(
            connection,
            f"SELECT source, max(started_unix_ns) AS newest FROM turns WHERE ({where.sql}) AND outcome <> 'invalid'"
            " GROUP BY source",
            where.values,
        )
    }
    source: Source = "service" if "service" in newest and "client" not in newest else "client"
    asked = where & Condition("source = ?", (source,))
    counted = counts_by(connection, asked, objectives, source, Condition(_part_column(connection.now_unix_ns)))
    parts = {part: counts for (part,), counts in counted.items()}
    return PeriodTurns(source, parts, turns_by_run(connection, f, source), newest.get(source))


def turns_by_run(connection: StoreConnection, f: Filter, source: Source) -> dict[str, CountedTurns]:
    """Count a source's turns in the filter by run."""
    where = judged(f) & Condition(f"{ASKED} AND source = ?", (source,))
    statement = f"""
        SELECT run_id, count(*) AS total, count(*) FILTER (outcome = 'invalid') AS invalid
        FROM turns WHERE {where.sql} GROUP BY run_id
        """
    counts = rows(connection, statement, list(where.values))
    return {row["run_id"]: CountedTurns(row["total"], row["invalid"]) for row in counts}


def values_of_turns(connection: StoreConnection, f: Filter, source: Source) -> dict[str, tuple[str, ...]]:
    """The values of each dimension that a page may be narrowed by, among the turns of a source of the filter's run and
    time, whatever else it asks for."""
    where = turns_of(Filter(f.run_id, since_unix_ns=f.since_unix_ns, until_unix_ns=f.until_unix_ns))
    lists = ", ".join(f"list_sort(array_agg(DISTINCT {name})) AS {name}" for name in _CHOSEN_BY)
    statement = f"SELECT {lists} FROM turns WHERE {where.sql} AND source = ?"
    (row,) = rows(connection, statement, [*where.values, source])
    return {name: tuple(value for value in row[name] or () if value) for name in _CHOSEN_BY}


def _limited_turns(connection: StoreConnection, counted: Mapping[str, CountedTurns], source: Source) -> LimitedTurns:
    """Return those of the counted turns, by run, whose run says nothing about the service: a run is judged by all of
    its turns, whichever are counted. Turns that services report are never among them."""
    if source == "service":
        return LimitedTurns()
    limits = generator_limits(connection, tuple(counted))
    return LimitedTurns(len(limits), sum(counted[run_id].valid for run_id in limits))


def measured_turns(connection: StoreConnection, by_run: Mapping[str, CountedTurns], source: Source) -> MeasuredTurns:
    """Return how well the counted turns of a source, by run, were measured."""
    return MeasuredTurns(
        source,
        sum(by_run.values(), CountedTurns()),
        _limited_turns(connection, by_run, source),
        runs_evidence(connection, by_run),
    )


def runs_evidence(connection: StoreConnection, run_ids: Collection[str]) -> RunsEvidence:
    """Return how well some of the runs of a store were measured."""
    counted = [record for record in runs(connection) if record.run_id in run_ids]
    if not counted:
        return RunsEvidence()
    bounds = [record.calibrated_to_ms for record in counted if record.calibrated_to_ms is not None]
    return RunsEvidence(
        runs=len(counted),
        calibrated=len(bounds),
        calibrated_to_ms=max(bounds, key=float, default=None),
        loss=loss_of_runs(connection, frozenset(record.run_id for record in counted)),
    )


def of_period(f: Filter, now_unix_ns: int) -> Filter:
    """The filter over the longest window, whatever its own time."""
    return replace(f, since_unix_ns=now_unix_ns - PERIOD_DAYS * DAY_NS + 1, until_unix_ns=now_unix_ns + 1)


def _part_column(now_unix_ns: int) -> str:
    """The part of the period in which a turn began, as an expression."""
    age = f"({now_unix_ns:d} - started_unix_ns)"
    cases = " ".join(f"WHEN {age} < {end} THEN {place}" for place, end in enumerate(_RINGS))
    return f"CASE {cases} ELSE {len(_RINGS) - 1} + {age} // {DAY_NS} END"
