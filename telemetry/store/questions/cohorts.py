"""The Cohorts page: two cohorts compared, from one snapshot, and the verdict of the rollout about them.

If a rollout's log has a verdict on the two cohorts, and no filter narrows the turns, they are the turns of that
verdict: of its stage, up to its time, in every run. Otherwise they are the selected turns. If these are more than a
page can read in time, the turns of a sample of callers are read, chosen by their ids; bounds of the differences are
computed over the sample, so that they include its uncertainty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from telemetry.model.errors import ConfigError
from telemetry.model.metrics import HEADLINE
from telemetry.objectives.objective import Objective
from telemetry.rollout.cohort_comparison import (
    CohortComparison,
    CohortSize,
    ComparedCohorts,
    ComparisonSentence,
    compare_cohorts,
    comparison_sentence,
    default_plan,
    with_shown,
    without_claims,
)
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.completeness import UnitCounts
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.rollout.progress import LoggedVerdict, cause_of
from telemetry.rollout.verdict import RolloutVerdict
from telemetry.store.answers import GENERATOR_LIMITED, CohortSummary, Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions.comparisons import belongs_to, columns_of_turns, telemetry_lost
from telemetry.store.questions.explanation import drawn
from telemetry.store.questions.filters import Condition, source_of
from telemetry.store.questions.instrument import lost_share
from telemetry.store.questions.pages import NEWEST, HeadedAnswer, ViewQuestion, open_view
from telemetry.store.questions.rollouts import RolloutQuestion, asked_turns, question_of, unbegun_turns, unit_counts
from telemetry.store.rollout_rows import RolloutRecord, kept_rollouts

# To read and sort more takes longer than a page may.
MOST_READ: Final = 200_000
# Which turns are compared: those of the rollout's newest verdict, or those of the run that were chosen.
ComparedTurns = Literal["verdict", "chosen"]
# What a control is called, where nothing says which one it is.
_CONTROLS: Final = ("control", "stable", "baseline", "a")


@dataclass(frozen=True, slots=True)
class CohortsQuestion:
    """The cohorts to compare, and their turns; None: those of a rollout, else those with most turns, and the turns of
    its verdict, unless the view narrows them."""

    view: ViewQuestion = ViewQuestion()  # noqa: RUF009 - immutable
    control: str | None = None
    candidate: str | None = None
    turns: ComparedTurns | None = None


_THESE: Final = CohortsQuestion()


@dataclass(frozen=True, slots=True)
class CoveringRollout:
    """The rollout whose plan is about the two cohorts. `verdict` is its newest, None before the first. `late_turns`
    began before the verdict and arrived after it; `cause` is the
    verdict that rolled back, where the newest only says that it did."""

    name: str
    stage: str
    verdict: LoggedVerdict | None
    late_turns: int = 0
    cause: LoggedVerdict | None = None


@dataclass(frozen=True, slots=True)
class CohortsAnswer(HeadedAnswer):
    """The head of the page, and the comparison; None where there are no two cohorts. `cohorts` are all that the chosen
    turns name, the ones with most turns first. `turns` says which are compared, `sentence` what that comes to: None
    where the rollout's verdict is over the same turns."""

    cohorts: tuple[str, ...] = ()
    comparison: CohortComparison | None = None
    sentence: ComparisonSentence | None = None
    rollout: CoveringRollout | None = None
    turns: ComparedTurns = "chosen"


@dataclass(frozen=True, slots=True)
class ReadCohorts:
    """The turns of both cohorts from one consistent read, of one in `one_in` callers; the sizes are of all."""

    candidate: CohortTurns
    control: CohortTurns
    sizes: tuple[CohortSize, CohortSize]  # of the candidate and of the control
    one_in: int


@dataclass(frozen=True, slots=True)
class _Covering:
    """A rollout's rows with the plan that it was started with."""

    record: RolloutRecord
    plan: RolloutPlan

    @property
    def judged(self) -> LoggedVerdict | None:
        """The newest verdict."""
        verdicts = self.record.verdicts
        return verdicts[-1] if verdicts else None


def cohorts_page(connection: StoreConnection, asked: CohortsQuestion = _THESE) -> CohortsAnswer:
    """Compare two cohorts, whatever single cohort the filter names."""
    view = replace(asked.view, filter=replace(asked.view.filter, cohort=None))
    head = open_view(connection, view)
    if head.run is None:
        return CohortsAnswer(head)
    known = sorted(
        head.summary.cohorts if head.summary else (), key=lambda summary: (-summary.turns.total, summary.cohort)
    )
    names = tuple(summary.cohort for summary in known)
    covering = _covering(kept_rollouts(connection), names, asked)
    if covering is None:
        pair = _pair(known, asked)
        if pair is None:
            return CohortsAnswer(head, names)
        plan = replace(default_plan(*pair, _good_within_ns(view.objectives)), source=source_of(head.filter))
    else:
        plan = covering.plan
    narrows = view.filter != Filter() or view.window_ns not in (None, NEWEST)
    entry = None if covering is None else covering.judged
    turns = asked.turns or ("chosen" if narrows else "verdict")
    if turns == "verdict" and entry is not None:
        f, logged = Filter(since_unix_ns=entry.since_unix_ns, until_unix_ns=entry.at_unix_ns), entry
    else:
        turns, f, logged = "chosen", head.filter, None
        plan = replace(plan, source=source_of(head.filter))
    lost = None if head.summary is None else lost_share(head.summary.loss)
    compared = _compared(
        connection, plan, f, view.objectives, is_planned=covering is not None, logged=logged, lost=lost
    )
    # A plan limits the invalid turns; without one, a run limited by its load generator has no verdict.
    limited = covering is None and head.summary is not None and head.summary.is_generator_limited
    sentence = None if logged else comparison_sentence(compared, GENERATOR_LIMITED if limited else None)
    return CohortsAnswer(
        head=head,
        cohorts=names,
        comparison=without_claims(compared) if sentence is not None and sentence.is_incomplete else compared,
        sentence=sentence,
        rollout=None if covering is None else _rollout(covering, compared, logged),
        turns=turns,
    )


def _compared(
    connection: StoreConnection,
    plan: RolloutPlan,
    f: Filter,
    objectives: Sequence[Objective],
    *,
    is_planned: bool,
    logged: LoggedVerdict | None,
    lost: float | None,
) -> CohortComparison:
    """The comparison over the turns of a filter: those of the `logged` verdict, if any. `lost` is the share of lost
    telemetry of the run."""
    within_ns = _good_within_ns(objectives)
    question = replace(question_of(with_shown(plan, within_ns), None, objectives), filter=f)
    cohorts = read_cohorts(connection, question)
    verdict = None if logged is None else logged.verdict
    return compare_cohorts(
        ComparedCohorts(
            plan=plan,
            candidate=cohorts.candidate,
            control=cohorts.control,
            sizes=cohorts.sizes,
            telemetry_lost=_telemetry_lost(connection, question) if logged else lost,
            is_planned=is_planned,
            stage=None if verdict is None else plan.stage(verdict.stage),
            units=_units(connection, question, verdict),
            logged=() if verdict is None else verdict.checks,
            one_in=cohorts.one_in,
            good_within_ns=within_ns,
        )
    )


def _units(connection: StoreConnection, asked: RolloutQuestion, verdict: RolloutVerdict | None) -> UnitCounts:
    """Return the units as counted by the verdict over the same turns, else count them."""
    if verdict is not None and verdict.units is not None:
        return verdict.units.counts
    in_cohorts = Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    return unit_counts(connection, asked, asked_turns(asked) & in_cohorts)


def _telemetry_lost(connection: StoreConnection, asked: RolloutQuestion) -> float | None:
    """Return the share of lost telemetry as the gate counts it."""
    in_cohorts = Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    return telemetry_lost(connection, asked_turns(asked) & in_cohorts, asked.filter)


def _covering(records: Sequence[RolloutRecord], names: Sequence[str], asked: CohortsQuestion) -> _Covering | None:
    """The rollout about the two cohorts, of several the one with the newest entry; where no cohorts are asked for, one
    that is about any of those that are there."""
    wanted = {name for name in (asked.control, asked.candidate) if name is not None}
    for record in sorted(records, key=lambda record: -record.entries[-1].at_unix_ns):
        try:
            plan = parse_plan(record.plan_text, record.name)
        except ConfigError:
            continue
        both = {plan.control, plan.candidate}
        if wanted <= both and (wanted or both & set(names)):
            return _Covering(record, plan)
    return None


def _rollout(covering: _Covering, compared: CohortComparison, logged: LoggedVerdict | None) -> CoveringRollout:
    record, verdicts = covering.record, covering.record.verdicts
    late = 0
    if logged is not None:
        judged_turns = logged.look.candidate_turns + logged.look.control_turns
        late = max(0, compared.candidate.eligible + compared.control.eligible - judged_turns)
    return CoveringRollout(
        name=record.name,
        stage=record.entries[-1].stage,
        verdict=covering.judged,
        late_turns=late,
        cause=cause_of(verdicts),
    )


def _good_within_ns(objectives: Sequence[Objective]) -> float | None:
    """The time within which a turn is good by the objective on the headline over all turns; None without one."""
    overall = (objective for objective in objectives if objective.metric == HEADLINE and not objective.is_of_a_part)
    return next((objective.threshold for objective in overall), None)


def _pair(known: Sequence[CohortSummary], asked: CohortsQuestion) -> tuple[str, str] | None:
    """The control and the candidate: as asked for, the others by their names and their turns."""
    names = [summary.cohort for summary in known]
    left = [name for name in names if name not in (asked.control, asked.candidate)]
    if asked.control is not None and asked.candidate is not None:
        return None if asked.control == asked.candidate else (asked.control, asked.candidate)
    if asked.control is not None or asked.candidate is not None:
        if not left:
            return None
        return (asked.control, left[0]) if asked.control is not None else (left[0], asked.candidate or "")
    if len(left) < 2:
        return None
    control = next((name for name in left if name.lower() in _CONTROLS), left[0])
    return control, next(name for name in left if name != control)


def read_cohorts(connection: StoreConnection, asked: RolloutQuestion, most_read: int = MOST_READ) -> ReadCohorts:
    """The turns that a question asks for, at most about `most_read`. Raises StoreError for a column that the store does
    not have."""
    asked.check()
    where = asked_turns(asked) & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    caller = belongs_to(asked.unit)
    counted = rows(
        connection,
        f"""
        SELECT cohort, count(*) AS turns, count(*) FILTER (outcome = 'invalid') AS invalid,
               count(*) FILTER (outcome IN ('invalid', 'cut', 'pending')) AS not_eligible,
               count(DISTINCT {caller}) AS callers
        FROM turns WHERE {where.sql} GROUP BY cohort
        """,
        where.values,
    )
    sizes = {
        row["cohort"]: CohortSize(
            row["cohort"], row["turns"], row["turns"] - row["not_eligible"], row["invalid"], row["callers"]
        )
        for row in counted
    }
    turns = drawn(where, sum(row["turns"] for row in counted), most_read, caller)
    labels, unbegun = asked.labels(connection, where), unbegun_turns(connection, asked)
    candidate, control = (
        replace(
            columns_of_turns(
                connection, turns.where, name, asked, asked.source, labels=labels, mine=Condition("cohort = ?", (name,))
            ),
            # Of all turns, while those that were read may be a sample.
            unbegun_turns=round(unbegun[name] / turns.one_in),
        )
        for name in (asked.candidate, asked.control)
    )
    candidate_size, control_size = (
        sizes.get(name, CohortSize(name, 0, 0, 0, 0)) for name in (asked.candidate, asked.control)
    )
    return ReadCohorts(candidate, control, (candidate_size, control_size), turns.one_in)
