"""Verdicts for tests of what keeps and shows them: made by the gate, over simulated cohorts."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.history import RolloutHistory
from telemetry.rollout.plan import RolloutPlan, Stage
from telemetry.store.rollout_log import RolloutLog
from tests.rollout_cohorts import SAME, Regression, cohort, plan

AT_UNIX_NS = 1_790_000_000_000_000_000
MINUTE = 60_000_000_000
PLAN_TEXT = "# a plan\n"
SLOWER = Regression(shift_ms=400)


def two_stages() -> RolloutPlan:
    """A plan of two stages."""
    first = plan().stages[0]
    return plan(stages=(first, Stage("half", 0.5, 0.5, first.shortest, 100)))


@cache
def _evidence(turns: int, regression: Regression, lost: float) -> RolloutEvidence:
    rng = np.random.default_rng(1)
    return RolloutEvidence(cohort("streaming", turns, rng, regression), cohort("stable", 3 * turns, rng), lost)


def verdict_of(
    of: RolloutPlan,
    history: RolloutHistory | None = None,
    *,
    turns: int = 300,
    regression: Regression = SAME,
    lost: float = 0.0,
    at_unix_ns: int = AT_UNIX_NS,
) -> GateVerdict:
    """A look at cohorts of a size: 300 turns hold, 4,000 promote, and `SLOWER` is rolled back."""
    return decide(of, _evidence(turns, regression, lost), history or first_history(of), at_unix_ns)


def keep_verdicts(store: Path, number: int, of: RolloutPlan | None = None) -> RolloutPlan:
    """Begin a log, and keep as many looks that hold, a minute apart."""
    kept = of or two_stages()
    with RolloutLog(store, kept, PLAN_TEXT, AT_UNIX_NS) as log:
        for place in range(number):
            at = AT_UNIX_NS + place * MINUTE
            log.append(kept, verdict_of(kept, log.history, turns=300 + place, at_unix_ns=at))
    return kept


def edited(of: RolloutPlan) -> RolloutPlan:
    """The same plan with a wider margin."""
    return replace(of, primary=replace(of.primary, margin=2 * of.primary.margin))
