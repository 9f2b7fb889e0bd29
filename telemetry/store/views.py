"""The head of a page: which run and turns it is about, from the same snapshot as every figure on the page.

A page's question opens its view first and asks the rest of the same connection, so that no two figures of a page
disagree while the store is being written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter, RunRecord, Summary
from telemetry.store.connection import StoreConnection
from telemetry.store.runs import newest_run, runs
from telemetry.store.turn_questions import TurnQuestions


@dataclass(frozen=True, slots=True)
class ViewQuestion:
    """Which turns a page is about. A filter without a run means the newest one; `window_ns` is how long before the end
    of its run the turns began, None for all of it."""

    filter: Filter = Filter()  # noqa: RUF009 - immutable
    window_ns: int | None = None
    objectives: tuple[Objective, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewHead:
    """What every page says above its figures: `run` and `summary` are None when there is no such run. `filter` is the
    one that was applied, with the run that was found. `values` are those of each dimension which occur among all turns
    of the run."""

    runs: Sequence[RunRecord]
    run: RunRecord | None = None
    filter: Filter = Filter()  # noqa: RUF009 - immutable
    summary: Summary | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class HeadedAnswer:
    """What a page's question answers: the head of the page, and in each subclass what else the page shows."""

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
        """The summary of the page's turns, whatever else is asked of them."""
        return self.head.summary

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """The values of each dimension which occur in the page's run, whatever it is narrowed to."""
        return self.head.values


@dataclass(frozen=True, slots=True)
class OpenView:
    """A head and, for the rest of the page, the questions about the same turns of the same snapshot."""

    head: ViewHead
    about: TurnQuestions


def open_view(connection: StoreConnection, asked: ViewQuestion, now_unix_ns: int) -> OpenView | ViewHead:
    """Find the run and sum it up; the head alone where there is no such run."""
    known = runs(connection)
    wanted = asked.filter.run_id
    run = newest_run(known) if wanted is None else next((each for each in known if each.run_id == wanted), None)
    if run is None:
        return ViewHead(known)
    f = replace(asked.filter, run_id=run.run_id)
    if asked.window_ns is not None:
        f = replace(f, since_unix_ns=run.reached_unix_ns - asked.window_ns)
    about = TurnQuestions(connection, f)
    summary = about.summary(now_unix_ns)
    values = values_of_run(connection, f)
    return OpenView(ViewHead(known, run, f, summary, values), about)


def values_of_run(connection: StoreConnection, f: Filter) -> dict[str, tuple[str, ...]]:
    """The values of each dimension which occur among all turns of a filter's run."""
    return TurnQuestions(connection, Filter(run_id=f.run_id)).dimension_values()
