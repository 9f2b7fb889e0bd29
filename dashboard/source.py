"""Where the pages get their answers: the store's reader and the objectives. Nothing here computes a figure, or keeps
an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

from dashboard.filters import Choice
from dashboard.objective_status import ObjectiveStatus, statuses, statuses_of
from dashboard.objectives_in_force import objectives_in_force
from dashboard.runs_source import chosen_store
from telemetry.client_tls import sidecar_token
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
from telemetry.store.questions.burn_rates import ObjectivesPage
from telemetry.store.questions.cohorts import CohortsAnswer, CohortsQuestion
from telemetry.store.questions.explanation import Explanation
from telemetry.store.questions.objectives import ObjectiveCounts
from telemetry.store.questions.pages import CachePage, InstrumentPage, PageAnswer, PageQuestion, ViewQuestion
from telemetry.store.questions.rollouts import RolloutPage
from telemetry.store.questions.timelines import CohortLines
from telemetry.store.questions.turns import TurnsAnswer, TurnsQuestion, TurnView
from telemetry.store.questions.verdicts import judged_turns, measured_s
from telemetry.store.remote import open_store

# The parameter of a link that names the store.
STORE: Final = "store"


class ReadStore(Protocol):
    """What the pages ask of a store: `StoreReader` of a folder, `RemoteStore` of a sidecar, or a stand-in."""

    def runs(self) -> Sequence[RunRecord]: ...
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
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class Source:
    """A store and one version of the objectives."""

    reader: ReadStore
    objectives: tuple[Objective, ...]

    def now(self, choice: Choice, metric: str = HEADLINE) -> NowView:
        """The Now page's answers, with a metric over time. Raises StoreError when the store cannot be read."""
        answer = self.reader.page(choice.question(self.objectives, metric))
        if answer.run is None or answer.summary is None:
            return NowView(answer.runs, None, Filter(), None)
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
            choices=answer.choices,
        )

    def _headline(self, counts: ObjectiveCounts, cohort: str, unjudged: str | None) -> ObjectiveStatus | None:
        """How a cohort stands on the first objective for voice-to-voice that is about every turn."""
        objective = next((o for o in self.objectives if o.metric == HEADLINE and o.cohort is None), None)
        if objective is None:
            return None
        of_cohort = counts.of_cohort(cohort)
        return statuses([objective], of_cohort.count, unjudged=unjudged)[0]


# Each holds its own DuckDB; those of runs that nobody looks at any more are closed.
@lru_cache(maxsize=16)
def open_source(store: str, objectives: tuple[Objective, ...]) -> Source:
    """The one source of a folder, or of the sidecar at an address, by these objectives, in this process, shared by
    every viewer. Raises StoreError for a bad address."""
    return Source(open_store(store, sidecar_token()), objectives)


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
