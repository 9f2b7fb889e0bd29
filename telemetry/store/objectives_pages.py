"""What the page of objectives shows, from one snapshot: error budgets and burn rates, what can be chosen of the turns,
and what tells how far the figures can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter, RunRecord
from telemetry.store.budget_period import of_period
from telemetry.store.burn_rates import BurnRateAnswer, burn_rates
from telemetry.store.connection import StoreConnection
from telemetry.store.measured_turns import MeasuredTurns, RunsEvidence, runs_evidence
from telemetry.store.questions.runs import runs
from telemetry.store.turns_of_runs import values_of_turns

# A selector of more is no help, and a store may keep thousands.
MOST_RUNS: Final = 100


@dataclass(frozen=True, slots=True)
class ObjectivesPage:
    """`runs` are the newest runs with turns in the period; `run` is the one that was asked for, None where none was or
    the store has no such run. `choices` are the values of each dimension among the turns of the period, of the run that
    was asked for if it has any."""

    burn: BurnRateAnswer
    runs: Sequence[RunRecord] = ()
    run: RunRecord | None = None
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    evidence: RunsEvidence = field(default_factory=RunsEvidence)

    @property
    def measured(self) -> MeasuredTurns:
        """How the turns that are counted were measured."""
        return MeasuredTurns(self.burn.source, self.burn.counted, self.burn.limited, self.evidence)


def objectives_page(
    connection: StoreConnection,
    objectives: Sequence[Objective],
    f: Filter,
    now_unix_ns: int,
) -> ObjectivesPage:
    """Answer the page about the turns of a filter, at whatever time of the period they began."""
    burn, turns = burn_rates(connection, objectives, f, now_unix_ns)
    known, period = runs(connection), of_period(f, now_unix_ns)
    begin, end = period.since_unix_ns or 0, period.until_unix_ns or 0
    choices = values_of_turns(connection, period, burn.source)
    if f.run_id is not None and not any(choices.values()):
        choices = values_of_turns(connection, replace(period, run_id=None), burn.source)
    return ObjectivesPage(
        burn=burn,
        runs=[each for each in known if each.turns and begin <= each.last_unix_ns and each.first_unix_ns < end][
            :MOST_RUNS
        ],
        run=next((each for each in known if each.run_id == f.run_id), None),
        choices=choices,
        evidence=runs_evidence(connection, known, turns.by_run, now_unix_ns),
    )
