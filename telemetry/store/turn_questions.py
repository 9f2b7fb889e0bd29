"""Questions about the turns of a filter: answered from the turns while they are few, from roll-ups when they are many.

Both ways give the same counts. Percentiles from roll-ups are within their buckets' width, and marked approximate.
"""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa

from telemetry.model.metrics import HEADLINE
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
from telemetry.store.latency_bands import TickHistogram
from telemetry.store.objectives import ObjectiveCounts, count_objectives
from telemetry.store.processes import processes
from telemetry.store.queries import Condition, source_of, valid
from telemetry.store.rollups.library import RollupLibrary
from telemetry.store.rollups.view import HeadlineTotals, RolledUp
from telemetry.store.run_limit import run_limit
from telemetry.store.run_state import last_heard
from telemetry.store.run_totals import RunTotals
from telemetry.store.summaries import run_totals, summarize, totals_of_rows
from telemetry.store.timelines import timeline
from telemetry.store.turn_rows import full_turns


class TurnQuestions:
    """The questions about one filter to one snapshot."""

    def __init__(self, connection: StoreConnection, f: Filter, library: RollupLibrary) -> None:
        self._connection = connection
        self._filter = f
        self._library = library
        self._rolled = _rolled_up(connection, f, library)
        self._is_joined = False
        self._processes: Sequence[ProcessInfo] | None = None

    @property
    def is_rolled_up(self) -> bool:
        """Whether the turns are so many that roll-ups answer."""
        return self._rolled is not None

    def summary(self, now_unix_ns: int, skipped_segments: int) -> Summary:
        """Everything about the filter."""
        if self._rolled is not None:
            found = self._rolled.summary(self._connection, now_unix_ns, skipped_segments)
        else:
            self._is_joined = True
            found = summarize(self._connection, self._filter, now_unix_ns, skipped_segments)
        run_id = self._filter.run_id
        known = () if run_id is None or service_day(run_id) is not None else self.processes(run_id)
        limit = run_limit(self._connection, run_id, now_unix_ns, known=known)
        outdated = self._library.outdated_rows(self._connection.segments("turns", self._filter.run_id))
        return replace(
            found,
            limit=limit,
            unreached=unreached(self._connection, found),
            heard_unix_ns=last_heard(known),
            turns_to_roll_up=outdated,
        )

    def run_totals(self) -> RunTotals:
        """What the list of runs shows of the filter's turns, as the summary has it."""
        if self._rolled is not None:
            return totals_of_rows(self._rolled.figures.totals())
        return run_totals(self._connection, self._filter)

    def processes(self, run_id: str) -> Sequence[ProcessInfo]:
        """The generator's processes of the filter's run, asked for once. Turns that are rolled up are not counted."""
        if self._processes is None:
            # Of a view by service and day, the turns of services alone are rolled up.
            is_rolled = self._rolled is not None and source_of(self._filter) == "client"
            emitted = self._rolled.turns_of_processes() if self._rolled is not None and is_rolled else None
            self._processes = processes(self._connection, run_id, emitted)
        return self._processes

    def timeline(self, metric: str, buckets: int) -> list[TimelinePoint]:
        """A metric over time. Raises KeyError for a metric that there is none of."""
        rolled = self._rolled if metric == HEADLINE else None
        found = rolled.timeline(self._connection, buckets) if rolled is not None else None
        if found is not None:
            return found
        return timeline(self._connection, self._filter, queries.metric_column(metric), buckets)

    def ticks(self) -> list[TickHistogram] | None:
        """The headline's histograms over time, of roll-ups; None where the turns are to be read one by one."""
        return None if self._rolled is None else [TickHistogram(*tick) for tick in self._rolled.ticks()]

    def headline_totals(self) -> HeadlineTotals | None:
        """How many turns there are and have the headline, of roll-ups; None where the turns are to be read."""
        return None if self._rolled is None else self._rolled.headline_totals()

    def cohort_lines(self, metric: str) -> CohortLines:
        """A metric over time with a line for each cohort. Raises KeyError for a metric that there is none of."""
        rolled = self._rolled if metric == HEADLINE else None
        return cohort_lines(self._connection, self._filter, metric, rolled)

    def buckets_max(self, metric: str) -> int | None:
        """The most buckets that a timeline may have without the turns being read one by one; None for any number."""
        return self._rolled.buckets_max if self._rolled is not None and metric == HEADLINE else None

    def slowest(self, metric: str, limit: int) -> list[Turn]:
        """The valid client turns with the largest values of a metric, the largest first; none of a ramp."""
        rolled = self._rolled if metric == HEADLINE else None
        found = rolled.slowest(limit) if rolled is not None else None
        if found is not None:
            return found
        column = queries.metric_column(metric)
        where = queries.judged(self._filter) & valid(self._filter) & Condition(f"{column} IS NOT NULL")
        return full_turns(self._connection, where, f"{column} DESC, started_unix_ns, span_id", limit)

    def stage_budget(self) -> dict[str, StageStats]:
        """Where voice-to-voice goes, by stage."""
        if self._rolled is not None:
            return self._rolled.stage_budget()
        if not self._is_joined:  # a summary leaves the turns of both sides joined
            join_services(self._connection, self._filter)
            self._is_joined = True
        return stage_budget(self._connection, self._filter)

    def objective_counts(self, objectives: Sequence[Objective]) -> ObjectiveCounts:
        """The turns of every objective, also by cohort, judged one by one."""
        return count_objectives(self._connection, self._filter, objectives)

    def cache(self) -> CacheAnswer:
        """Caches, routes and fallbacks: over time, how long each made callers wait, and what caches save."""
        return cache_answer(self._connection, self._filter, None if self._rolled is None else self._rolled.figures)

    def instrument(self, now_unix_ns: int) -> InstrumentAnswer:
        """The load generator's processes over time, what made turns invalid, and what telemetry is missing."""
        rolled = None if self._rolled is None else (self._rolled.figures, self._rolled.everything)
        return instrument_answer(self._connection, self._filter, now_unix_ns, rolled)

    def dimension_values(self) -> dict[str, tuple[str, ...]]:
        """The values that occur among the client turns, by dimension."""
        if self._rolled is not None:
            return self._rolled.dimension_values()
        (row,) = rows(self._connection, *queries.dimension_values(self._filter))
        return {name: tuple(found or ()) for name, found in row.items()}


def _rolled_up(connection: StoreConnection, f: Filter, library: RollupLibrary) -> RolledUp | None:
    """The filter's turns in roll-ups; None where they are to be read one by one."""
    try:
        return library.of(connection.segments("turns"), f)
    except FileNotFoundError:
        raise  # a newer manifest has the rows in another file
    except (OSError, pa.ArrowException, duckdb.Error):
        return None  # the statements over turns find out what is damaged, and say so
