"""The pages of the dashboard, each from one consistent read: the head that all have, and the content of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from telemetry.model.formatting import NS_PER_S
from telemetry.model.metrics import HEADLINE
from telemetry.model.turns import Turn
from telemetry.objectives.run_verdict import MissCause, leading_miss
from telemetry.objectives.slo import Objective, judge
from telemetry.store.answers import Filter, RunRecord, StageStats, Summary
from telemetry.store.connection import StoreConnection
from telemetry.store.questions.caches import CacheAnswer, cache_answer
from telemetry.store.questions.explanation import Explanation, ExplanationQuestion, TurnSelection, explanation
from telemetry.store.questions.filters import (
    ManyTurns,
    Natural,
    Objectives,
    dimension_values,
    slowest,
)
from telemetry.store.questions.instrument import InstrumentAnswer, instrument_answer, processes
from telemetry.store.questions.objectives import ObjectiveCounts, count_objectives
from telemetry.store.questions.runs import calls_in_flight_now, newest_run, runs
from telemetry.store.questions.summaries import summed_up
from telemetry.store.questions.timelines import CohortLines, cohort_lines
from telemetry.store.questions.verdicts import cause_of_miss

# What a view shows of a run unless something else is chosen: of a longer one its newest hour, else all of it.
NEWEST: Final = "newest"
NEWEST_NS: Final = 3600 * NS_PER_S
# How long before the end of its run the turns of a view began; None for all of it.
Window = Natural | Literal["newest"] | None


@dataclass(frozen=True, slots=True)
class ViewQuestion:
    """The turns that a page is about. A filter without a run means the newest one."""

    filter: Filter = Filter()  # noqa: RUF009 - immutable
    window_ns: Window = None
    objectives: Objectives = ()


@dataclass(frozen=True, slots=True)
class ViewHead:
    """The head of every page: `run` and `summary` are None when there is no such run. `filter` is the one that was
    applied, with the run that was found. `values` are those of each dimension that occur among all turns of the run."""

    runs: Sequence[RunRecord]
    run: RunRecord | None = None
    filter: Filter = Filter()  # noqa: RUF009 - immutable
    summary: Summary | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class HeadedAnswer:
    """The answer to a page's question: the head of the page, and in each subclass the page's content."""

    head: ViewHead

    @property
    def runs(self) -> Sequence[RunRecord]:
        """Every run of the store."""
        return self.head.runs

    @property
    def run(self) -> RunRecord | None:
        """The run that the page is about."""
        return self.head.run

    @property
    def summary(self) -> Summary | None:
        """The summary of the page's turns, whatever else the question restricts."""
        return self.head.summary

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """The values of each dimension in the page's run, whatever the page is narrowed to."""
        return self.head.values


_VIEW: Final = ViewQuestion()


def open_view(connection: StoreConnection, asked: ViewQuestion) -> ViewHead:
    """Find the run and summarize it; the head has no run if it does not exist."""
    known, f = runs(connection), asked.filter
    run = newest_run(known) if f.run_id is None else next((run for run in known if run.run_id == f.run_id), None)
    if run is None:
        return ViewHead(known)
    window_ns = window_of(run, asked.window_ns)
    since_unix_ns = f.since_unix_ns if window_ns is None else run.reached_unix_ns - window_ns
    f = replace(f, run_id=run.run_id, since_unix_ns=since_unix_ns)
    whole, _ = summed_up(connection, f, may_estimate=True)
    return ViewHead(known, run, f, whole, dimension_values(connection, Filter(run_id=run.run_id)))


def window_of(run: RunRecord, window: Window) -> int | None:
    """Return how long before the end of a run the turns of a view began; None for all of it."""
    if window != NEWEST:
        return window
    return NEWEST_NS if run.reached_unix_ns - run.first_unix_ns > NEWEST_NS else None


@dataclass(frozen=True, slots=True)
class PageQuestion(ViewQuestion):
    """The question of the Now page; `slowest` is the most single turns that are wanted."""

    metric: str = HEADLINE
    slowest: ManyTurns = 5
    with_cause: bool = False  # whether the cause of a miss and what explains it are wanted


_PAGE: Final = PageQuestion()


@dataclass(frozen=True, slots=True)
class PageAnswer(HeadedAnswer):
    """The head of the page, and the figures of a run on one screen."""

    budget: dict[str, StageStats] = field(default_factory=dict[str, StageStats])
    slowest: Sequence[Turn] = ()
    counts: ObjectiveCounts = field(default_factory=lambda: ObjectiveCounts({}))
    lines: CohortLines | None = None
    cause: MissCause | None = None
    explained: Objective | None = None  # the bad turns by it are what `explanation` is about
    explanation: Explanation | None = None
    calls_in_flight: int | None = None  # as `runs.calls_in_flight_now`


def page(connection: StoreConnection, asked: PageQuestion = _PAGE) -> PageAnswer:
    """Answer the Now page. Raises BadQuestionError for an unknown metric."""
    head = open_view(connection, asked)
    run, f = head.run, head.filter
    if run is None:
        return PageAnswer(head)
    whole, budget = summed_up(connection, f, may_estimate=True)
    counts = count_objectives(connection, f, asked.objectives)
    cause, explained = _cause(connection, f, asked, counts) if asked.with_cause else (None, None)
    return PageAnswer(
        head,
        budget,
        slowest(connection, f, asked.metric, asked.slowest),
        counts,
        lines=cohort_lines(connection, f, asked.metric),
        cause=cause,
        explained=explained,
        explanation=None
        if explained is None or whole.is_generator_limited
        else explanation(connection, ExplanationQuestion(TurnSelection(explained), f)),
        calls_in_flight=None if run.service is not None else calls_in_flight_now(processes(connection, run.run_id)),
    )


def _cause(
    connection: StoreConnection, f: Filter, asked: PageQuestion, counts: ObjectiveCounts
) -> tuple[MissCause | None, Objective | None]:
    """Return the likely cause of a missed leading objective, and the objective whose bad turns are to be explained."""
    verdicts = judge(asked.objectives, counts.count)
    missed = leading_miss(asked.objectives, verdicts)
    headline = next((objective for objective in asked.objectives if objective.metric == HEADLINE), None)
    return cause_of_miss(connection, f, asked.objectives, counts), missed or headline


@dataclass(frozen=True, slots=True)
class CachePage(HeadedAnswer):
    """The head of the page, and the figures of caches, routes and fallbacks."""

    cache: CacheAnswer = CacheAnswer()  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True)
class InstrumentPage(HeadedAnswer):
    """The head of the page, and the figures of the instrument."""

    instrument: InstrumentAnswer = InstrumentAnswer()  # noqa: RUF009 - immutable


def cache_page(connection: StoreConnection, asked: ViewQuestion = _VIEW) -> CachePage:
    """Answer the page about caches, routes and fallbacks."""
    head = open_view(connection, asked)
    return CachePage(head) if head.run is None else CachePage(head, cache_answer(connection, head.filter))


def instrument_page(connection: StoreConnection, asked: ViewQuestion = _VIEW) -> InstrumentPage:
    """Answer the page about the instrument."""
    head = open_view(connection, asked)
    if head.run is None:
        return InstrumentPage(head)
    return InstrumentPage(head, instrument_answer(connection, head.filter))
