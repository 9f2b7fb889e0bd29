"""Error budgets and burn rates of objectives over windows that end now: each is a sum of parts of the period."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from telemetry.model.semconv import Source
from telemetry.objectives.error_budgets import ErrorBudget, error_budget, missed_first
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.budget_period import day_of, end_ns
from telemetry.store.connection import StoreConnection
from telemetry.store.limited_runs import LimitedTurns, limited_turns
from telemetry.store.period_turns import PeriodTurns, turns_of_period
from telemetry.store.turns_of_runs import CountedTurns


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


def burn_rates(
    connection: StoreConnection,
    objectives: Sequence[Objective],
    f: Filter,
    now_unix_ns: int,
) -> tuple[BurnRateAnswer, PeriodTurns]:
    """The objectives over their windows, of the filter's run, cohort, target and dimensions, and the turns that they
    are of; the filter's time is not looked at. The turns are those that callers heard, where there are any within the
    longest window, else those that services report."""
    turns = turns_of_period(connection, objectives, f, now_unix_ns)
    answer = BurnRateAnswer(
        at_unix_ns=now_unix_ns,
        source=turns.source,
        budgets=budgets_of(objectives, turns),
        newest_unix_ns=turns.newest_unix_ns,
        counted=sum(turns.by_run.values(), CountedTurns()),
        limited=limited_turns(connection, turns.by_run, turns.source, now_unix_ns),
    )
    return answer, turns


def budgets_of(objectives: Sequence[Objective], turns: PeriodTurns) -> tuple[ErrorBudget, ...]:
    """The budget of each objective, missed ones first."""
    return tuple(missed_first([_budget(objective, turns.counts.get(objective.name, {})) for objective in objectives]))


def _budget(objective: Objective, parts: Mapping[int, EligibleTurns]) -> ErrorBudget:
    def within(length_ns: int) -> EligibleTurns:
        taken = (counts for part, counts in parts.items() if end_ns(part) <= length_ns)
        return sum(taken, EligibleTurns())

    days: dict[int, EligibleTurns] = {}
    for part, counts in parts.items():
        days[day_of(part)] = days.get(day_of(part), EligibleTurns()) + counts
    return error_budget(objective, within, days)
