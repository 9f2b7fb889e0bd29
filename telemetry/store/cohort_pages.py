"""What the page of cohorts shows: two cohorts of the turns that were chosen, compared, from one snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from telemetry.rollout.cohort_comparison import CohortComparison, compare_cohorts, default_plan
from telemetry.store.answers import CohortSummary, RunRecord, Summary
from telemetry.store.connection import StoreConnection
from telemetry.store.queries import source_of
from telemetry.store.rollout_turns import question_of, rollout_turns
from telemetry.store.rollups.library import RollupLibrary
from telemetry.store.views import OpenView, ViewHead, ViewQuestion, open_view

# What a control is called, where nothing says which one it is.
_CONTROLS: Final = ("control", "stable", "baseline", "a")


@dataclass(frozen=True, slots=True)
class CohortsAnswer:
    """The head of the page, and the comparison; None with fewer than two cohorts. `others` are cohorts that are not
    compared."""

    head: ViewHead
    comparison: CohortComparison | None = None
    others: tuple[str, ...] = ()

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
        """The figures of its turns."""
        return self.head.summary

    @property
    def faults(self) -> Sequence[str]:
        """Damaged files that were left out."""
        return self.head.faults


def cohorts_page(
    connection: StoreConnection,
    asked: ViewQuestion,
    library: RollupLibrary,
    now_unix_ns: int,
    faults: Sequence[str],
) -> CohortsAnswer:
    """Compare the two cohorts with the most turns, whatever cohort the filter names."""
    opened = open_view(
        connection, replace(asked, filter=replace(asked.filter, cohort=None)), library, now_unix_ns, faults
    )
    if not isinstance(opened, OpenView):
        return CohortsAnswer(opened)
    head = opened.head
    known = sorted(head.summary.cohorts if head.summary else (), key=lambda each: (-each.turns.total, each.cohort))
    if len(known) < 2:
        return CohortsAnswer(head, others=tuple(each.cohort for each in known))
    control, candidate = _roles(known[0], known[1])
    plan = replace(default_plan(control, candidate), source=source_of(head.filter))
    found = rollout_turns(connection, replace(question_of(plan, None), filter=head.filter), now_unix_ns)
    others = tuple(each.cohort for each in known[2:])
    return CohortsAnswer(head, compare_cohorts(plan, found.candidate, found.control), others)


def _roles(most: CohortSummary, second: CohortSummary) -> tuple[str, str]:
    """The control and the candidate."""
    if second.cohort.lower() in _CONTROLS and most.cohort.lower() not in _CONTROLS:
        return second.cohort, most.cohort
    return most.cohort, second.cohort
