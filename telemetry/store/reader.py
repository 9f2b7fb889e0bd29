"""The store's questions and their answers: the one port through which reports, the dashboard and the gate read.

Each question is a method of `StoreReader`, declared once: its parameters and its answer are those of the method, and
so are its parameters on the wire (telemetry.store.wire). What a question answers stands in telemetry.store.questions.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Self, TypeVar

import duckdb
import msgspec

from telemetry.comparison.runs import ComparedRun
from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.metrics import HEADLINE, ITL, METRIC_NAMES
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import Objective
from telemetry.store.answers import CallCounts, Filter, ProcessInfo, RunRecord, StageStats, Summary
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.database import first_line, owned_here, read_only
from telemetry.store.questions.burn_rates import BurnRateAnswer, ObjectivesPage, burn_rates, objectives_page
from telemetry.store.questions.cohorts import CohortsAnswer, CohortsQuestion, cohorts_page
from telemetry.store.questions.comparisons import RunTurnsQuestion, run_turns
from telemetry.store.questions.conversations import call_counts
from telemetry.store.questions.explanation import Explanation, ExplanationQuestion, explanation
from telemetry.store.questions.filters import (
    Condition,
    ManyBuckets,
    ManyTurns,
    Natural,
    Objectives,
    dimension_values,
    full_turns,
    judged,
    metric_column,
    slowest,
    turns_of,
    valid,
)
from telemetry.store.questions.instrument import processes
from telemetry.store.questions.model_servers import ModelServer, model_servers
from telemetry.store.questions.objectives import ObjectiveCounts, count_objectives, sampling_intervals
from telemetry.store.questions.pages import (
    CachePage,
    InstrumentPage,
    PageAnswer,
    PageQuestion,
    ViewQuestion,
    cache_page,
    instrument_page,
    page,
)
from telemetry.store.questions.pairs import PairedTurns, both_sides
from telemetry.store.questions.rollouts import RolloutPage, RolloutQuestion, RolloutTurns, rollout_page, rollout_turns
from telemetry.store.questions.run_figures import ListedRun, RunDetails, run_details, run_list
from telemetry.store.questions.runs import runs
from telemetry.store.questions.summaries import summary
from telemetry.store.questions.timelines import GeneratorPoint, TimelinePoint, generator_points, timeline
from telemetry.store.questions.turns import (
    ORDERS,
    StoreMoment,
    TurnsAnswer,
    TurnsQuestion,
    TurnView,
    spans_of_trace,
    turn_view,
    turns_page,
)
from telemetry.store.questions.verdicts import RunVerdictEvidence, run_verdict_evidence
from telemetry.store.recordings.expiry import remove_expired
from telemetry.store.rollout_log import MOST_ENTRIES, RolloutRecord, read_rollouts, rollouts_stamp
from telemetry.store.wire import AskedSidecar, owner_of, question

ANY: Final = Filter()

_PAGE: Final = PageQuestion()
_VIEW: Final = ViewQuestion()
_COHORTS: Final = CohortsQuestion()
_TURNS: Final = TurnsQuestion()

# Who owns the store is looked at again after this.
_LOCKED_WITHIN_S: Final = 0.2
_Answer = TypeVar("_Answer")
_Entries = Annotated[int, msgspec.Meta(ge=1, le=MOST_ENTRIES)]


class StoreReader:
    """Reads a store's folder; thread-safe.

    While a sidecar owns the store, the questions are asked of it; otherwise the file is opened for each question and
    closed again, as nobody can write to it meanwhile. Every question is one consistent read of what is committed at
    that moment: there is nothing to refresh. Raises StoreError from any question when the store cannot be read.
    """

    def __init__(self, directory: Path | str, *, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.directory = Path(directory)
        self._wall_clock_ns = wall_clock_ns
        # Where no sidecar runs any more, whoever looks at the store removes what was kept of calls and is due.
        remove_expired(self.directory, wall_clock_ns())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held between two questions."""

    def elsewhere(self) -> AskedSidecar | None:
        """The sidecar that answers in the place of this process, None where this process reads the store itself."""
        return None if owned_here(self.directory) is not None else owner_of(self.directory)

    @question
    def state(self) -> int:
        """A number that changes with what is committed, turns or verdicts."""
        commits = self._ask(lambda connection: int(rows(connection, "SELECT commits FROM store_state")[0]["commits"]))
        stamp = rollouts_stamp(self.directory)
        # The same number in every process that answers for this folder.
        return int.from_bytes(sha256(repr((commits, stamp)).encode()).digest()[:7]) if stamp else commits

    def _ask(self, asked: Callable[[StoreConnection], _Answer]) -> _Answer:
        """Answer from one consistent read. Raises StoreError when the store cannot be read, or the question needs more
        memory than it may take."""
        here = owned_here(self.directory)
        try:
            with ExitStack() as stack:
                database = (
                    here
                    if here is not None
                    else stack.enter_context(read_only(self.directory, within_s=_LOCKED_WITHIN_S))
                )
                return asked(StoreConnection(stack.enter_context(database.snapshot()), self.directory))
        except msgspec.ValidationError as error:
            # The ingest takes no turn that this version could not read again.
            raise StoreError(
                f"{self.directory}: a turn cannot be read ({error}); update voiceprobe to the version that wrote it"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise StoreError(
                f"{self.directory}: too many turns for one answer, narrow it by time or a dimension "
                f"({first_line(error)})"
            ) from error
        except (duckdb.IOException, duckdb.InternalException, duckdb.FatalException) as error:
            raise StoreError(f"{self.directory}: the store cannot be read ({error})") from error

    @question
    def runs(self) -> list[RunRecord]:
        """Every run in the store, from what its generator declared or from its turns; the newest first."""
        return self._ask(runs)

    @question
    def summary(self, f: Filter = ANY) -> Summary:
        """Everything about a filter from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: summary(connection, f, now_unix_ns))

    @question
    def page(self, asked: PageQuestion = _PAGE) -> PageAnswer:
        """All that a page shows, from one consistent read."""
        _column(asked.metric)
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: page(connection, asked, now_unix_ns))

    @question
    def cache_page(self, asked: ViewQuestion = _VIEW) -> CachePage:
        """All that the page about caches, routes and fallbacks shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: cache_page(connection, asked, now_unix_ns))

    @question
    def instrument_page(self, asked: ViewQuestion = _VIEW) -> InstrumentPage:
        """All that the page about the instrument shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: instrument_page(connection, asked, now_unix_ns))

    @question
    def timeline(self, f: Filter = ANY, metric: str = HEADLINE, buckets: ManyBuckets = 60) -> list[TimelinePoint]:
        """The metric over time in at most `buckets` buckets of one round width; empty ones in between are given too."""
        _column(metric)
        return self._ask(lambda connection: timeline(connection, f, metric, buckets))

    @question
    def generator_points(self, f: Filter = ANY) -> list[GeneratorPoint]:
        """What the load generator's processes reported of themselves over time, the oldest first."""
        return self._ask(lambda connection: generator_points(connection, f))

    @question
    def slowest(self, f: Filter = ANY, metric: str = HEADLINE, limit: ManyTurns = 10) -> list[Turn]:
        """The valid client turns with the largest values of a metric, the largest first."""
        _column(metric)
        return self._ask(lambda connection: slowest(connection, f, metric, limit))

    @question
    def turn(self, trace_id: str, turn_index: Natural) -> tuple[Turn | None, Turn | None]:
        """One turn as the client heard it and as the service reported it."""
        return self._ask(lambda connection: both_sides(connection, trace_id, turn_index))

    @question
    def turns(
        self,
        f: Filter = ANY,
        limit: ManyTurns = 1000,
        offset: Natural = 0,
        *,
        source: semconv.Source | None = None,
        outcome: semconv.Outcome | None = None,
    ) -> list[Turn]:
        """Turns of a filter in the order of their beginning, of either source unless one is named."""
        where = turns_of(f)
        if source is not None:
            where &= Condition("source = ?", (source,))
        if outcome is not None:
            where &= Condition("outcome = ?", (outcome,))
        return self._ask(lambda connection: full_turns(connection, where, "started_unix_ns, span_id", limit, offset))

    @question
    def dimension_values(self, f: Filter = ANY) -> dict[str, tuple[str, ...]]:
        """The values that occur among the client turns of a filter, for each dimension that a filter can ask for."""
        return self._ask(lambda connection: dimension_values(connection, f))

    @question
    def spans(self, trace_id: str) -> list[SpanRow]:
        """The spans of a trace in the order of their beginning, each with every attribute that it came with."""
        return self._ask(lambda connection: spans_of_trace(connection, trace_id))

    @question
    def calls(self, f: Filter = ANY) -> CallCounts:
        """How many calls the client began and how many reached a session: their first turn carries the connect time."""
        return self._ask(lambda connection: call_counts(connection, f))

    @question
    def processes(self, run_id: str) -> list[ProcessInfo]:
        """The generator's processes of a run; at its end, one that has not announced its end was lost."""
        return self._ask(lambda connection: processes(connection, run_id))

    @question
    def model_servers(self, since_unix_ns: Natural, until_unix_ns: Natural) -> tuple[ModelServer, ...]:
        """What model servers reported of themselves between two moments, as context of the turns of that time."""
        return self._ask(lambda connection: model_servers(connection, since_unix_ns, until_unix_ns))

    @question
    def objective_counts(self, f: Filter, objectives: Objectives) -> ObjectiveCounts:
        """What `objectives.slo.judge` asks of all the objectives, over the filter's turns and over each cohort's, from
        one consistent read."""
        return self._ask(lambda connection: count_objectives(connection, f, objectives))

    @question
    def run_verdict(self, f: Filter, objectives: Objectives) -> RunVerdictEvidence:
        """What `objectives.run_verdict` makes a verdict of: the counts as `objective_counts`, the cause of a miss as
        far as it is shown, and the sampling intervals of the shares, from one consistent read."""

        def answer(connection: StoreConnection) -> RunVerdictEvidence:
            counts = count_objectives(connection, f, objectives)
            evidence = run_verdict_evidence(connection, f, objectives, counts)
            return replace(evidence, sampling=sampling_intervals(connection, f, objectives))

        return self._ask(answer)

    @question
    def explanation(self, asked: ExplanationQuestion) -> Explanation:
        """Which dimensions set a selection of turns apart from the others of its filter, the one that does most
        first."""
        if asked.selection.metric is not None:
            _column(asked.selection.metric)
        return self._ask(lambda connection: explanation(connection, asked))

    def count(self, f: Filter = ANY) -> Callable[[Objective], EligibleTurns]:
        """Good and eligible turns of one objective after another. The function raises NotObservable when the wire
        withholds the metric on all of them."""
        return lambda objective: self.objective_counts(f, (objective,)).count(objective)

    @question
    def metric_values(self, f: Filter, metric: str) -> list[float]:
        """The raw values of a metric over the valid client turns in the order of the turns, in the metric's unit."""
        column = "unnest(llm_chunk_gaps_ns)" if metric == ITL else _column(metric)
        where = judged(f) & valid(f)
        statement = f"""
            SELECT value FROM (
                SELECT {column} AS value, started_unix_ns, span_id FROM turns WHERE {where.sql}
            ) WHERE value IS NOT NULL ORDER BY started_unix_ns, span_id
            """
        return self._ask(
            lambda connection: [float(row["value"]) for row in rows(connection, statement, list(where.values))]
        )

    @question
    def stage_budget(self, f: Filter = ANY) -> dict[str, StageStats]:
        """Where voice-to-voice goes: endpointing, asr, llm, tts, leading_silence, and what none of them explains
        (`unexplained`: network, playout). Stages that no turn shows are left out."""
        return self._ask(lambda connection: PairedTurns(connection, f).stage_budget())

    @question
    def rollout_turns(self, asked: RolloutQuestion) -> RolloutTurns:
        """The turns of a rollout's two cohorts, as the gate reads them."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: rollout_turns(connection, asked, now_unix_ns))

    @question
    def rollouts(self, most_entries: _Entries = MOST_ENTRIES) -> tuple[RolloutRecord, ...]:
        """The rollouts whose verdicts the store keeps, by name; of each at most about `most_entries` entries."""
        return read_rollouts(self.directory, most_entries)

    @question
    def burn_rates(self, objectives: Objectives, f: Filter = ANY) -> BurnRateAnswer:
        """Error budgets and burn rates of objectives over windows that end now, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: burn_rates(connection, objectives, f, now_unix_ns)[0])

    @question
    def objectives_page(self, objectives: Objectives, f: Filter = ANY) -> ObjectivesPage:
        """What the page of objectives shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: objectives_page(connection, objectives, f, now_unix_ns))

    @question
    def cohorts_page(self, asked: CohortsQuestion = _COHORTS) -> CohortsAnswer:
        """What the page of cohorts shows, from one consistent read."""
        now_unix_ns = self._wall_clock_ns()
        records = read_rollouts(self.directory)
        return self._ask(lambda connection: cohorts_page(connection, asked, records, now_unix_ns))

    @question
    def rollout_page(self, name: str | None = None, objectives: Objectives = ()) -> RolloutPage:
        """What the page of rollouts shows: one of them, else the newest, and the names of all."""
        now_unix_ns = self._wall_clock_ns()
        records = read_rollouts(self.directory)
        return self._ask(
            lambda connection: rollout_page(connection, records, name, objectives, now_unix_ns=now_unix_ns)
        )

    @question
    def run_turns(self, asked: RunTurnsQuestion) -> ComparedRun | None:
        """The turns of a run, as a comparison of runs reads them; None where there is no such run."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: run_turns(connection, asked, now_unix_ns))

    @question
    def run_list(self, objectives: Objectives, now_unix_ns: Natural | None = None) -> list[ListedRun]:
        """Every run that has turns or was declared as the list of runs shows it, the newest first: of its figures what
        is shown, and unless it goes on the verdict that `run_verdict` comes to, without the cause of a miss.
        `now_unix_ns` is the moment that decides whether a run goes on, None for this one."""
        at_unix_ns = self._wall_clock_ns() if now_unix_ns is None else now_unix_ns
        return self._ask(lambda connection: run_list(connection, objectives, at_unix_ns))

    @question
    def run_details(self, run_id: str) -> RunDetails:
        """A run by its calls in flight, its profiles and its callers' behavior."""
        now_unix_ns = self._wall_clock_ns()
        return self._ask(lambda connection: run_details(connection, run_id, now_unix_ns))

    @question
    def turns_page(self, asked: TurnsQuestion = _TURNS) -> TurnsAnswer:
        """All that the Turns page shows, from one consistent read."""
        _column(asked.metric)
        if asked.order not in ORDERS:
            raise StoreError(f"there is no order {asked.order!r:.60}; known are {', '.join(ORDERS)}")
        moment = StoreMoment(self.directory, self._wall_clock_ns())
        return self._ask(lambda connection: turns_page(connection, asked, moment))

    @question
    def turn_view(self, trace_id: str, turn_index: Natural, *, whole_call: bool = False) -> TurnView:
        """All that the page of one turn shows, from one consistent read."""
        moment = StoreMoment(self.directory, self._wall_clock_ns())
        return self._ask(lambda connection: turn_view(connection, trace_id, turn_index, moment, whole_call=whole_call))


def _column(metric: str) -> str:
    if metric not in METRIC_NAMES:
        raise StoreError(f"there is no metric {metric!r}; known are {', '.join(METRIC_NAMES)}")
    return metric_column(metric)
