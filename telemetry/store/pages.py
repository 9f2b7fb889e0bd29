"""All that one page of the dashboard shows, from one consistent read of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from telemetry.model.metrics import HEADLINE
from telemetry.model.turns import Turn
from telemetry.objectives.run_verdict import MissCause, leading_miss
from telemetry.objectives.slo import Objective, judge
from telemetry.store import queries
from telemetry.store.answers import Filter, RunRecord, StageStats, Summary, TimelinePoint
from telemetry.store.cohort_lines import CohortLines
from telemetry.store.connection import StoreConnection
from telemetry.store.explanation import Explanation, ExplanationQuestion, TurnSelection, explanation
from telemetry.store.objectives import ObjectiveCounts
from telemetry.store.queries import viewed
from telemetry.store.run_state import calls_in_flight_now
from telemetry.store.run_verdict import run_verdict_evidence
from telemetry.store.runs import newest_run, runs
from telemetry.store.turn_questions import TurnQuestions
from telemetry.store.turn_rows import full_turns
from telemetry.store.views import values_of_run


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """What a page asks. A filter without a run means the newest one; `window_ns` is how long before the end of its run
    the turns began, None for all of it. `dots` and `slowest` are the most single turns that are wanted."""

    filter: Filter = Filter()  # noqa: RUF009 - immutable
    window_ns: int | None = None
    metric: str = HEADLINE
    objectives: tuple[Objective, ...] = ()
    slowest: int = 5
    # Whether the timeline with all cohorts in one, and whether the cause of a miss and what explains it are wanted.
    with_timeline: bool = True
    with_cause: bool = False
    dots: int = 800
    # A timeline has so many buckets that each holds enough turns for its percentiles.
    turns_per_bucket: int = 30
    fewest_buckets: int = 10
    most_buckets: int = 90


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What the store answers: `run` is None, and nothing of it is known, when there is no such run. `dots` are all
    client turns while they are few. `choices` are the values of each dimension which occur among all turns of the
    run."""

    runs: Sequence[RunRecord]
    run: RunRecord | None = None
    filter: Filter = Filter()  # noqa: RUF009 - immutable
    summary: Summary | None = None
    timeline: Sequence[TimelinePoint] = ()
    dots: Sequence[Turn] = ()
    budget: dict[str, StageStats] = field(default_factory=dict[str, StageStats])
    slowest: Sequence[Turn] = ()
    counts: ObjectiveCounts = field(default_factory=lambda: ObjectiveCounts({}))
    lines: CohortLines | None = None
    cause: MissCause | None = None
    explained: Objective | None = None  # the bad turns by it are what `explanation` is about
    explanation: Explanation | None = None
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    calls_in_flight: int | None = None  # as `run_state.calls_in_flight_now`


def page(connection: StoreConnection, asked: PageQuestion, now_unix_ns: int) -> PageAnswer:
    """Answer all of it. Raises KeyError for a metric that there is none of."""
    known = runs(connection)
    wanted = asked.filter.run_id
    run = newest_run(known) if wanted is None else next((each for each in known if each.run_id == wanted), None)
    if run is None:
        return PageAnswer(known)
    f = replace(asked.filter, run_id=run.run_id)
    if asked.window_ns is not None:
        f = replace(f, since_unix_ns=run.reached_unix_ns - asked.window_ns)
    about = TurnQuestions(connection, f)
    choices = values_of_run(connection, f)
    summary = about.summary(now_unix_ns)
    counts = about.objective_counts(asked.objectives)
    cause, explained = _cause(connection, f, asked, counts) if asked.with_cause else (None, None)
    return PageAnswer(
        lines=about.cohort_lines(asked.metric),
        cause=cause,
        explained=explained,
        explanation=None
        if explained is None or summary.is_generator_limited
        else explanation(connection, ExplanationQuestion(TurnSelection(explained), f)),
        runs=known,
        run=run,
        filter=f,
        summary=summary,
        timeline=about.timeline(asked.metric, buckets_for(summary.turns.eligible, asked))
        if asked.with_timeline
        else (),
        dots=_dots(connection, f, asked.dots) if asked.with_timeline and summary.turns.total <= asked.dots else (),
        budget=about.stage_budget(),
        slowest=about.slowest(asked.metric, asked.slowest),
        counts=counts,
        choices=choices,
        calls_in_flight=None if run.service is not None else calls_in_flight_now(about.processes(run.run_id)),
    )


def _cause(
    connection: StoreConnection, f: Filter, asked: PageQuestion, counts: ObjectiveCounts
) -> tuple[MissCause | None, Objective | None]:
    """What is shown of why the leading objective is missed, and the objective whose bad turns are to be explained."""
    verdicts = judge(asked.objectives, counts.count)
    missed = leading_miss(asked.objectives, verdicts)
    headline = next((objective for objective in asked.objectives if objective.metric == HEADLINE), None)
    return run_verdict_evidence(connection, f, asked.objectives, counts).cause, missed or headline


def buckets_for(turns: int, asked: PageQuestion) -> int:
    """How many buckets a timeline may have so that each holds enough turns for a percentile worth drawing."""
    return min(asked.most_buckets, max(asked.fewest_buckets, turns // asked.turns_per_bucket))


def _dots(connection: StoreConnection, f: Filter, limit: int) -> list[Turn]:
    where = queries.turns_of(f) & viewed(f)
    return full_turns(connection, where, "started_unix_ns, span_id", limit)
