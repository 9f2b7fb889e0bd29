"""Where the pages get their answers: the store's reader, the objectives, and what may be kept between two refreshes.

A store that has not changed gives the same answers, so answers are kept by the manifest's sequence: several viewers and
idle refreshes cost nothing. Nothing here computes a figure.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol, TypeVar

from dashboard.filters import Choice
from dashboard.kept_answers import KeptAnswers
from dashboard.objective_status import ObjectiveStatus, statuses, statuses_of
from dashboard.objectives_in_force import objectives_in_force
from dashboard.open_readers import reader_of
from dashboard.runs_source import chosen_store
from telemetry.model.metrics import HEADLINE
from telemetry.model.turns import Turn
from telemetry.objectives.observable import observed
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.objectives.slo import Objective
from telemetry.store.answers import (
    Filter,
    RunRecord,
    StageStats,
    Summary,
)
from telemetry.store.cohort_pages import CohortsAnswer, CohortsQuestion
from telemetry.store.explanation import Explanation
from telemetry.store.judged_turns import judged_turns, measured_s
from telemetry.store.objectives import ObjectiveCounts
from telemetry.store.objectives_pages import ObjectivesPage
from telemetry.store.questions.pages import CachePage, InstrumentPage, PageAnswer, PageQuestion, ViewQuestion
from telemetry.store.questions.timelines import CohortLines
from telemetry.store.questions.turns import TurnsAnswer, TurnsQuestion, TurnView
from telemetry.store.rollout_pages import RolloutPage

# The parameter of a link that names the store.
STORE: Final = "store"

_Answer = TypeVar("_Answer")


class ReadStore(Protocol):
    """What the pages ask of a store: `StoreReader` of a folder, `RemoteStore` of a sidecar, or a stand-in."""

    def page(self, asked: PageQuestion) -> PageAnswer: ...
    def turn_view(self, trace_id: str, turn_index: int, *, whole_call: bool = False) -> TurnView: ...
    def turns_page(self, asked: TurnsQuestion) -> TurnsAnswer: ...
    def objectives_page(self, objectives: Sequence[Objective], f: Filter = ...) -> ObjectivesPage: ...
    def cohorts_page(self, asked: CohortsQuestion) -> CohortsAnswer: ...
    def rollout_page(self, name: str | None = ..., objectives: Sequence[Objective] = ...) -> RolloutPage: ...
    def cache_page(self, asked: ViewQuestion) -> CachePage: ...
    def instrument_page(self, asked: ViewQuestion) -> InstrumentPage: ...


@dataclass(frozen=True, slots=True)
class NowView:
    """All that the Now page shows, from one state of the store."""

    runs: Sequence[RunRecord]
    run: RunRecord | None
    filter: Filter
    summary: Summary | None
    verdict: RunVerdict | None = None
    lines: CohortLines | None = None
    explained: ObjectiveStatus | None = None
    explanation: Explanation | None = None
    budget: dict[str, StageStats] | None = None
    slowest: Sequence[Turn] = ()
    statuses: Sequence[ObjectiveStatus] = ()
    cohort_statuses: Mapping[str, ObjectiveStatus | None] = field(default_factory=dict[str, ObjectiveStatus | None])
    faults: Sequence[str] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


class Source:
    """A store and one version of the objectives, with the answers of the store's latest states kept."""

    def __init__(
        self,
        reader: ReadStore,
        objectives: Sequence[Objective],
        state: Callable[[], Hashable],
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._reader = reader
        self._answers = KeptAnswers(state, wall_clock_ns)
        self._is_ahead = False
        self.objectives = objectives

    def ahead(self) -> "Source":
        """The source of whoever asks what a page is about to ask: that page is given these answers."""
        found = copy(self)
        found._is_ahead = True  # noqa: SLF001 - of this class
        return found

    def now(self, choice: Choice, metric: str = HEADLINE) -> NowView:
        """The Now page's answers, with a metric over time. Raises StoreError when the store cannot be read."""
        return self._answer(("now", choice, metric), lambda: self._now(choice, metric))

    def cache(self, choice: Choice) -> CachePage:
        """What the page about caches and routing shows. Raises StoreError when the store cannot be read."""
        return self._answer(("cache", choice), lambda: self._reader.cache_page(choice.view()))

    def instrument(self, choice: Choice) -> InstrumentPage:
        """What the page about the instrument shows. Raises StoreError when the store cannot be read."""
        return self._answer(("instrument", choice), lambda: self._reader.instrument_page(choice.view()))

    def turn_view(self, trace_id: str, turn_index: int, *, whole_call: bool = False) -> TurnView:
        """One turn in its call, with its audio. Nothing of it is kept here: audio is large, and is looked at once.

        Raises StoreError when the store cannot be read.
        """
        return self._answers.once(
            ("turn_view", trace_id, turn_index, whole_call),
            lambda: self._reader.turn_view(trace_id, turn_index, whole_call=whole_call),
            is_ahead=self._is_ahead,
        )

    def _now(self, choice: Choice, metric: str) -> NowView:
        answer = self._reader.page(choice.question(self.objectives, metric))
        if answer.run is None or answer.summary is None:
            return NowView(answer.runs, None, Filter(), None, faults=answer.faults)
        objectives = observed(self.objectives, answer.counts.is_withheld)
        lasted_s = measured_s(answer.summary, answer.run)
        found = judged_turns(objectives, answer.counts, answer.summary, answer.cause, measured_s=lasted_s)
        judged = statuses_of(objectives, found.verdicts)
        return NowView(
            verdict=found.verdict,
            lines=answer.lines,
            explained=next((each for each in judged if each.objective == answer.explained), None),
            explanation=answer.explanation,
            runs=answer.runs,
            run=answer.run,
            filter=answer.filter,
            summary=answer.summary,
            budget=answer.budget,
            slowest=answer.slowest,
            statuses=judged,
            cohort_statuses={
                each.cohort: self._headline(answer.counts, each.cohort, found.unjudged)
                for each in answer.summary.cohorts
            },
            faults=answer.faults,
            choices=answer.choices,
        )

    def _headline(self, counts: ObjectiveCounts, cohort: str, unjudged: str | None) -> ObjectiveStatus | None:
        """How a cohort stands on the first objective for voice-to-voice that is about every turn."""
        objective = next((o for o in self.objectives if o.metric == HEADLINE and o.cohort is None), None)
        if objective is None:
            return None
        of_cohort = counts.of_cohort(cohort)
        return statuses([objective], of_cohort.count, unjudged=unjudged)[0]

    def ask(self, question: Hashable, ask: Callable[[ReadStore], _Answer]) -> _Answer:
        """A page's answer, kept for as long as the store stays the same. `question` names the page and all that was
        chosen. Raises StoreError when the store cannot be read."""
        return self._answer(question, lambda: ask(self._reader))

    def _answer(self, question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        return self._answers.kept(question, ask, is_ahead=self._is_ahead)


# Each holds its own DuckDB; those of runs that nobody looks at any more are closed.
@lru_cache(maxsize=16)
def open_source(store: str, objectives: tuple[Objective, ...]) -> Source:
    """The one source of a folder, or of the sidecar at an address, by these objectives, in this process, shared by
    every viewer. Raises StoreError for a bad address."""
    reader = reader_of(store)
    return Source(reader, objectives, reader.state)


def current_source(store: str) -> Source:
    """The source of a store by the objectives that are in force now: to be asked for at each look. Raises ConfigError
    for bad objectives, StoreError for a bad address."""
    return open_source(store, objectives_in_force(store).objectives)


def store_of(link: Mapping[str, str]) -> str:
    """The store that a link asks for, or that the launcher named. Raises ConfigError for a place that is not a folder,
    StoreError for a store that is not shown, KeyError when nothing was named."""
    return chosen_store(link.get(STORE))


def source_of(link: Mapping[str, str]) -> Source:
    """The source of the store that a link asks for, by the objectives that are in force now. Raises as
    `current_source` and `store_of`."""
    return current_source(store_of(link))
