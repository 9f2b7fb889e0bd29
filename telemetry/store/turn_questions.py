"""Questions about the turns of a filter, of one snapshot."""

from collections.abc import Sequence
from dataclasses import replace

from telemetry.model.service_runs import service_day
from telemetry.model.turns import Turn
from telemetry.objectives.slo import Objective
from telemetry.store import queries
from telemetry.store.answers import Filter, ProcessInfo, StageStats, Summary, TimelinePoint
from telemetry.store.cache_pages import CacheAnswer, cache_answer
from telemetry.store.calls import unreached
from telemetry.store.cohort_lines import CohortLines, cohort_lines
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.instrument_pages import InstrumentAnswer, instrument_answer
from telemetry.store.joined import join_services, stage_budget
from telemetry.store.objectives import ObjectiveCounts, count_objectives
from telemetry.store.processes import processes
from telemetry.store.queries import Condition, valid
from telemetry.store.run_limit import run_limit
from telemetry.store.run_state import last_heard
from telemetry.store.run_totals import RunTotals
from telemetry.store.summaries import run_totals, summarize
from telemetry.store.timelines import timeline
from telemetry.store.turn_rows import full_turns


class TurnQuestions:
    """The questions about one filter to one snapshot."""

    def __init__(self, connection: StoreConnection, f: Filter) -> None:
        self._connection = connection
        self._filter = f
        self._is_joined = False
        self._processes: Sequence[ProcessInfo] | None = None

    def summary(self, now_unix_ns: int) -> Summary:
        """Everything about the filter."""
        self._is_joined = True
        found = summarize(self._connection, self._filter, now_unix_ns)
        run_id = self._filter.run_id
        known = () if run_id is None or service_day(run_id) is not None else self.processes(run_id)
        limit = run_limit(self._connection, run_id, now_unix_ns, known=known)
        return replace(
            found, limit=limit, unreached=unreached(self._connection, found), heard_unix_ns=last_heard(known)
        )

    def run_totals(self) -> RunTotals:
        """What the list of runs shows of the filter's turns, as the summary has it."""
        return run_totals(self._connection, self._filter)

    def processes(self, run_id: str) -> Sequence[ProcessInfo]:
        """The generator's processes of the filter's run, asked for once."""
        if self._processes is None:
            self._processes = processes(self._connection, run_id)
        return self._processes

    def timeline(self, metric: str, buckets: int) -> list[TimelinePoint]:
        """A metric over time. Raises KeyError for a metric that there is none of."""
        return timeline(self._connection, self._filter, queries.metric_column(metric), buckets)

    def cohort_lines(self, metric: str) -> CohortLines:
        """A metric over time with a line for each cohort. Raises KeyError for a metric that there is none of."""
        return cohort_lines(self._connection, self._filter, metric)

    def slowest(self, metric: str, limit: int) -> list[Turn]:
        """The valid client turns with the largest values of a metric, the largest first; none of a ramp."""
        column = queries.metric_column(metric)
        where = queries.judged(self._filter) & valid(self._filter) & Condition(f"{column} IS NOT NULL")
        return full_turns(self._connection, where, f"{column} DESC, started_unix_ns, span_id", limit)

    def stage_budget(self) -> dict[str, StageStats]:
        """Where voice-to-voice goes, by stage."""
        if not self._is_joined:  # a summary leaves the turns of both sides joined
            join_services(self._connection, self._filter)
            self._is_joined = True
        return stage_budget(self._connection, self._filter)

    def objective_counts(self, objectives: Sequence[Objective]) -> ObjectiveCounts:
        """The turns of every objective, also by cohort, judged one by one."""
        return count_objectives(self._connection, self._filter, objectives)

    def cache(self) -> CacheAnswer:
        """Caches, routes and fallbacks: over time, how long each made callers wait, and what caches save."""
        return cache_answer(self._connection, self._filter)

    def instrument(self, now_unix_ns: int) -> InstrumentAnswer:
        """The load generator's processes over time, what made turns invalid, and what telemetry is missing."""
        return instrument_answer(self._connection, self._filter, now_unix_ns)

    def dimension_values(self) -> dict[str, tuple[str, ...]]:
        """The values that occur among the client turns, by dimension."""
        (row,) = rows(self._connection, *queries.dimension_values(self._filter))
        return {name: tuple(found or ()) for name, found in row.items()}
