"""The store's questions and their answers: the one port through which reports, the dashboard and the gate read."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from telemetry.comparison.runs import ComparedRun
from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.metrics import ITL, METRIC_NAMES
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import Objective
from telemetry.store import manifest, queries
from telemetry.store.answers import (
    CallCounts,
    Filter,
    GeneratorPoint,
    ProcessInfo,
    RunRecord,
    StageStats,
    Summary,
    TimelinePoint,
)
from telemetry.store.both_sides import both_sides
from telemetry.store.burn_rates import BurnRateAnswer, burn_rates
from telemetry.store.calls import call_counts
from telemetry.store.cohort_pages import CohortsAnswer, CohortsQuestion, cohorts_page
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.explanation import Explanation, ExplanationQuestion, explanation
from telemetry.store.model_servers import ModelServer, model_servers
from telemetry.store.objectives import ObjectiveCounts, sampling_intervals
from telemetry.store.objectives_pages import ObjectivesPage, objectives_page
from telemetry.store.pages import PageAnswer, PageQuestion, page
from telemetry.store.processes import processes
from telemetry.store.queries import Condition, valid
from telemetry.store.recordings.expiry import remove_expired
from telemetry.store.rollout_log import MOST_ENTRIES, RolloutRecord, read_rollouts
from telemetry.store.rollout_memory import RolloutMemory
from telemetry.store.rollout_pages import RolloutPage, rollout_page
from telemetry.store.rollout_turns import RolloutQuestion, RolloutTurns, rollout_turns
from telemetry.store.rollups.library import FEWEST_TURNS, RollupLibrary
from telemetry.store.run_details import RunDetails, run_details
from telemetry.store.run_figures import RunFigures, run_figures
from telemetry.store.run_turns import RunTurnsQuestion, run_turns
from telemetry.store.run_verdict import RunVerdictEvidence, run_verdict_evidence
from telemetry.store.runs import RunsOfStore, runs, runs_and_sources
from telemetry.store.schema import span_from_row, turn_from_row, with_turn
from telemetry.store.snapshot import Snapshots
from telemetry.store.system_pages import CachePage, InstrumentPage, cache_page, instrument_page
from telemetry.store.timelines import generator_points
from telemetry.store.traces import rows_of_trace
from telemetry.store.turn_pages import ORDERS, StoreMoment, TurnsAnswer, TurnsQuestion, turns_page
from telemetry.store.turn_questions import TurnQuestions
from telemetry.store.turn_rows import TURN_COLUMNS, full_turns
from telemetry.store.turn_views import TurnView, turn_view
from telemetry.store.views import ViewQuestion

ANY: Final = Filter()


class StoreReader:
    """Reads a store directory, also while a sidecar writes it; thread-safe.

    Every question is one consistent read of what is committed at that moment: there is nothing to refresh. Raises
    StoreError from any question when the directory is missing or its manifest cannot be understood; segments that are
    damaged are left out and named in `faults`.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
        fewest_rolled_up: int = FEWEST_TURNS,
    ) -> None:
        self.directory = Path(directory)
        self._snapshots = Snapshots(self.directory)
        self._library = RollupLibrary(self.directory, self._snapshots.checks, fewest_turns=fewest_rolled_up)
        self._rollouts = RolloutMemory(self.directory)
        self._wall_clock_ns = wall_clock_ns
        # Where no sidecar runs any more, whoever looks at the store removes what was kept of calls and is due.
        remove_expired(self.directory, wall_clock_ns())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release DuckDB."""
        self._snapshots.close()
        self._library.close()

    def patiently(self) -> AbstractContextManager[None]:
        """Let the questions of this thread give way to those of other threads, and be asked again after them."""
        return self._snapshots.patiently()

    @property
    def faults(self) -> tuple[str, ...]:
        """The segments that the last question had to leave out, a sentence each."""
        return tuple(self._snapshots.faults)

    def state(self) -> int:
        """A number that changes with what is committed, turns or verdicts: answers may be kept as long as it stays the
        same."""
        sequence, stamp = manifest.load(self.directory).sequence, self._rollouts.stamp()
        # The same number in every process that answers for this folder.
        return int.from_bytes(sha256(repr((sequence, stamp)).encode()).digest()[:7]) if stamp else sequence

    def runs(self) -> list[RunRecord]:
        """Every run in the store, from what its generator declared or from its turns; the newest first."""
        return self._snapshots.ask(runs)

    def runs_and_sources(self) -> RunsOfStore:
        """As `runs`, with what tells which segments belong to each of them, from one consistent read."""
        return self._snapshots.ask(lambda connection: runs_and_sources(connection, self.faults))

    def summary(self, f: Filter = ANY) -> Summary:
        """Everything about a filter from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: self._about(connection, f).summary(now_unix_ns, self._snapshots.skipped), f.run_id
        )

    def page(self, asked: PageQuestion) -> PageAnswer:
        """All that a page shows, from one consistent read."""
        _column(asked.metric)
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(lambda connection: page(connection, asked, self._library, now_unix_ns, self.faults))

    def cache_page(self, asked: ViewQuestion) -> CachePage:
        """All that the page about caches, routes and fallbacks shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: cache_page(connection, asked, self._library, now_unix_ns, self.faults)
        )

    def instrument_page(self, asked: ViewQuestion) -> InstrumentPage:
        """All that the page about the instrument shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: instrument_page(connection, asked, self._library, now_unix_ns, self.faults)
        )

    def timeline(self, f: Filter = ANY, metric: str = "voice_to_voice", buckets: int = 60) -> list[TimelinePoint]:
        """The metric over time in at most `buckets` buckets of one round width; empty ones in between are given too."""
        _column(metric)
        return self._snapshots.ask(
            lambda connection: self._about(connection, f).timeline(metric, max(1, buckets)), f.run_id
        )

    def generator_points(self, f: Filter = ANY) -> list[GeneratorPoint]:
        """What the load generator's processes reported of themselves over time, the oldest first."""
        return self._snapshots.ask(lambda connection: generator_points(connection, f), f.run_id)

    def slowest(self, f: Filter = ANY, metric: str = "voice_to_voice", limit: int = 10) -> list[Turn]:
        """The valid client turns with the largest values of a metric, the largest first."""
        _column(metric)
        return self._snapshots.ask(lambda connection: self._about(connection, f).slowest(metric, limit), f.run_id)

    def turn(self, trace_id: str, turn_index: int) -> tuple[Turn | None, Turn | None]:
        """One turn as the client heard it and as the service reported it."""
        return self._snapshots.ask(lambda connection: both_sides(connection, trace_id, turn_index))

    def turns(
        self,
        f: Filter = ANY,
        limit: int = 1000,
        offset: int = 0,
        *,
        source: semconv.Source | None = None,
        outcome: semconv.Outcome | None = None,
    ) -> list[Turn]:
        """Turns of a filter in the order of their beginning, of either source unless one is named."""
        where = queries.turns_of(f)
        if source is not None:
            where &= Condition("source = ?", (source,))
        if outcome is not None:
            where &= Condition("outcome = ?", (outcome,))
        return self._snapshots.ask(
            lambda connection: full_turns(connection, where, "started_unix_ns, span_id", limit, offset), f.run_id
        )

    def dimension_values(self, f: Filter = ANY) -> dict[str, tuple[str, ...]]:
        """The values that occur among the client turns of a filter, for each dimension that a filter can ask for."""
        return self._snapshots.ask(lambda connection: self._about(connection, f).dimension_values(), f.run_id)

    def spans(self, trace_id: str) -> list[SpanRow]:
        """The spans of a trace in the order of their beginning, each with every attribute that it came with."""
        order = "timestamp_unix_ns, duration_ns DESC, span_id"

        def question(connection: StoreConnection) -> list[SpanRow]:
            spans = rows_of_trace(connection, "spans", trace_id, columns="*", order=order)
            found = [span_from_row(row) for row in spans]
            if not any(span.name == semconv.SPAN_TURN for span in found):
                return found
            turns = rows_of_trace(connection, "turns", trace_id, columns=TURN_COLUMNS, order="span_id")
            of_turns = {row["span_id"]: turn_from_row(row) for row in turns}
            return [with_turn(span, of_turns.get(span.span_id)) for span in found]

        return self._snapshots.ask(question)

    def calls(self, f: Filter = ANY) -> CallCounts:
        """How many calls the client began and how many reached a session: their first turn carries the connect time."""
        return self._snapshots.ask(lambda connection: call_counts(connection, f), f.run_id)

    def processes(self, run_id: str) -> list[ProcessInfo]:
        """The generator's processes of a run; at its end, one that has not announced its end was lost."""
        return self._snapshots.ask(lambda connection: processes(connection, run_id), run_id)

    def model_servers(self, since_unix_ns: int, until_unix_ns: int) -> tuple[ModelServer, ...]:
        """What model servers reported of themselves between two moments, as context of the turns of that time."""
        return self._snapshots.ask(lambda connection: model_servers(connection, since_unix_ns, until_unix_ns))

    def objective_counts(self, f: Filter, objectives: Sequence[Objective]) -> ObjectiveCounts:
        """What `objectives.slo.judge` asks of all the objectives, over the filter's turns and over each cohort's, from
        one consistent read."""
        return self._snapshots.ask(lambda connection: self._about(connection, f).objective_counts(objectives), f.run_id)

    def run_verdict(self, f: Filter, objectives: Sequence[Objective]) -> RunVerdictEvidence:
        """What `objectives.run_verdict` makes a verdict of: the counts as `objective_counts`, the cause of a miss as
        far as it is shown, and the sampling intervals of the shares, from one consistent read."""

        def question(connection: StoreConnection) -> RunVerdictEvidence:
            counts = self._about(connection, f).objective_counts(objectives)
            evidence = run_verdict_evidence(connection, f, objectives, counts)
            return replace(evidence, sampling=sampling_intervals(connection, f, objectives))

        return self._snapshots.ask(question, f.run_id)

    def explanation(self, asked: ExplanationQuestion) -> Explanation:
        """Which dimensions set a selection of turns apart from the others of its filter, the one that does most
        first."""
        if asked.selection.metric is not None:
            _column(asked.selection.metric)
        return self._snapshots.ask(lambda connection: explanation(connection, asked), asked.filter.run_id)

    def count(self, f: Filter = ANY) -> Callable[[Objective], EligibleTurns]:
        """Good and eligible turns of one objective after another. The function raises NotObservable when the wire
        withholds the metric on all of them."""
        return lambda objective: self.objective_counts(f, [objective]).count(objective)

    def metric_values(self, f: Filter, metric: str) -> list[float]:
        """The raw values of a metric over the valid client turns in the order of the turns, in the metric's unit."""
        column = "unnest(llm_chunk_gaps_ns)" if metric == ITL else _column(metric)
        where = queries.judged(f) & valid(f)
        statement = f"""
            SELECT value FROM (
                SELECT {column} AS value, started_unix_ns, span_id FROM turns WHERE {where.sql}
            ) WHERE value IS NOT NULL ORDER BY started_unix_ns, span_id
            """
        return self._snapshots.ask(
            lambda connection: [float(row["value"]) for row in rows(connection, statement, list(where.values))],
            f.run_id,
        )

    def stage_budget(self, f: Filter = ANY) -> dict[str, StageStats]:
        """Where voice-to-voice goes: endpointing, asr, llm, tts, leading_silence, and what none of them explains
        (`unexplained`: network, playout). Stages that no turn shows are left out."""
        return self._snapshots.ask(lambda connection: self._about(connection, f).stage_budget(), f.run_id)

    def rollout_turns(self, asked: RolloutQuestion) -> RolloutTurns:
        """The turns of a rollout's two cohorts, as the gate reads them."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: rollout_turns(connection, asked, now_unix_ns), asked.filter.run_id
        )

    def rollouts(self, most_entries: int = MOST_ENTRIES) -> tuple[RolloutRecord, ...]:
        """The rollouts whose verdicts the store keeps, by name; of each at most about `most_entries` entries."""
        return read_rollouts(self.directory, most_entries)

    def burn_rates(self, objectives: Sequence[Objective], f: Filter = ANY) -> BurnRateAnswer:
        """Error budgets and burn rates of objectives over windows that end now, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: burn_rates(connection, objectives, f, now_unix_ns, faults=self.faults)[0],
            f.run_id,
        )

    def objectives_page(self, objectives: Sequence[Objective], f: Filter = ANY) -> ObjectivesPage:
        """What the page of objectives shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: objectives_page(connection, objectives, f, now_unix_ns, faults=self.faults)
        )

    def cohorts_page(self, asked: CohortsQuestion) -> CohortsAnswer:
        """What the page of cohorts shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        records = self._rollouts.read()
        return self._snapshots.ask(
            lambda connection: cohorts_page(connection, asked, records, self._library, now_unix_ns, faults=self.faults)
        )

    def rollout_page(self, name: str | None = None, objectives: Sequence[Objective] = ()) -> RolloutPage:
        """What the page of rollouts shows: one of them, else the newest, and the names of all."""
        now_unix_ns = self._wall_clock_ns()
        records = self._rollouts.read()
        return self._snapshots.ask(
            lambda connection: rollout_page(connection, records, name, objectives, now_unix_ns=now_unix_ns)
        )

    def run_turns(self, asked: RunTurnsQuestion) -> ComparedRun | None:
        """The turns of a run, as a comparison of runs reads them; None where there is no such run."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(lambda connection: run_turns(connection, asked, now_unix_ns), asked.run_id)

    def run_figures(self, run_id: str, objectives: Sequence[Objective], now_unix_ns: int | None = None) -> RunFigures:
        """A run as the list of runs needs it: of the `summary` what it shows, and unless the run goes on the verdict
        that `run_verdict` comes to. `now_unix_ns` is the moment that decides whether it goes on, None for this one."""
        at_unix_ns = self._wall_clock_ns() if now_unix_ns is None else now_unix_ns
        f = Filter(run_id=run_id)

        def question(connection: StoreConnection) -> RunFigures:
            about, faults = self._about(connection, f), self.faults
            return run_figures(connection, about, run_id, objectives, now_unix_ns=at_unix_ns, faults=faults)

        return self._snapshots.ask(question, run_id)

    def run_details(self, run_id: str) -> RunDetails:
        """A run by its calls in flight, its profiles and its callers' behavior."""
        now_unix_ns = self._wall_clock_ns()
        return self._snapshots.ask(
            lambda connection: run_details(connection, run_id, self._library, now_unix_ns, self._snapshots.skipped),
            run_id,
        )

    def turns_page(self, asked: TurnsQuestion) -> TurnsAnswer:
        """All that the Turns page shows, from one consistent read."""
        _column(asked.metric)
        if asked.order not in ORDERS:
            raise StoreError(f"there is no order {asked.order!r:.60}; known are {', '.join(ORDERS)}")
        moment = StoreMoment(self.directory, self._wall_clock_ns(), self.faults)
        return self._snapshots.ask(lambda connection: turns_page(connection, asked, self._library, moment))

    def turn_view(self, trace_id: str, turn_index: int, *, whole_call: bool = False) -> TurnView:
        """All that the page of one turn shows, from one consistent read."""
        moment = StoreMoment(self.directory, self._wall_clock_ns())
        return self._snapshots.ask(
            lambda connection: turn_view(connection, trace_id, turn_index, moment, whole_call=whole_call)
        )

    def _about(self, connection: StoreConnection, f: Filter) -> TurnQuestions:
        return TurnQuestions(connection, f, self._library)


def _column(metric: str) -> str:
    if metric not in METRIC_NAMES:
        raise StoreError(f"there is no metric {metric!r}; known are {', '.join(METRIC_NAMES)}")
    return queries.metric_column(metric)
