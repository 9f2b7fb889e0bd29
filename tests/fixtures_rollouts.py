"""Verdicts for tests of what keeps and shows them: made by the gate, over simulated cohorts."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.plan import RolloutHistory, RolloutPlan, Stage
from telemetry.rollout.verdict import rollout_verdict
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_rows import RolloutRecord
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, fill_store
from tests.rollout_cohorts import SAME, Regression, cohort, latencies_ms, plan

AT_UNIX_NS = 1_790_000_000_000_000_000
MINUTE = 60_000_000_000
PLAN_TEXT = "# a plan\n"
SLOWER = Regression(shift_ms=800)


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


def as_object(of: RolloutPlan, verdict: GateVerdict) -> Any:
    """The verdict as files and answers have it."""
    return msgspec.json.decode(msgspec.json.encode(rollout_verdict(of, verdict)))


def read_rollouts(store: Path) -> tuple[RolloutRecord, ...]:
    """Read the rollouts of a store."""
    return StoreReader(store).rollouts()


def keep_verdicts(store: Path, number: int, of: RolloutPlan | None = None) -> RolloutPlan:
    """Begin a log, and keep as many looks that hold, a minute apart."""
    kept = of or two_stages()
    with RolloutLog(store, kept, PLAN_TEXT, AT_UNIX_NS) as log:
        for place in range(number):
            at = AT_UNIX_NS + place * MINUTE
            log.append(kept, verdict_of(kept, log.history, turns=300 + place, at_unix_ns=at))
    return kept


PLAN_FILE = """
name = "streaming"
unit = "call"
begins = 2026-09-21T14:13:20Z
slices = ["route"]
[cohorts]
control = "stable"
candidate = "streaming"
[primary]
margin = "400ms"
[[stages]]
name = "canary"
share = 0.25
shortest = "0s"
[[stages]]
name = "half"
share = 0.5
shortest = "0s"
[[guardrails]]
check = "no_reply"
margin = 0.1
[[guardrails]]
check = "tail"
margin = 0.1
"""


def turns_of(
    cohort_name: str, count: int, begin: int, *, shift_ms: float = 0.0, start_unix_ns: int = START_UNIX_NS
) -> Run:
    """Turns of a cohort, a second apart, none of them lost; `begin` makes their ids and their values."""
    values, calls = latencies_ms(np.random.default_rng(begin), count)
    return Run(
        turns=[
            msgspec.structs.replace(
                client_turn(begin + index, voice_to_voice_ms=float(value) + shift_ms),
                call_id=f"{cohort_name}-{begin}-{call}",
                cohort=cohort_name,
                route="cloud",
                process_id=f"{cohort_name}-{begin}",
                sequence=index,
                started_unix_ns=start_unix_ns + index * SECOND,
            )
            for index, (value, call) in enumerate(zip(values, calls, strict=True))
        ]
    )


def fill_rollout_store(folder: Path, kind: str) -> Path:
    """A store by which the rollout of PLAN_FILE is to be promoted (`equal`), rolled back (`worse`) or held (`few`)."""
    candidate = {"equal": (600, 0.0), "worse": (600, 900.0), "few": (90, 0.0)}[kind]
    control = turns_of("stable", 1800, 10_000)
    return fill_store(folder, control, turns_of("streaming", candidate[0], 0, shift_ms=candidate[1]))


def edited(of: RolloutPlan) -> RolloutPlan:
    """The same plan with a wider margin."""
    return replace(of, primary=replace(of.primary, margin=2 * of.primary.margin))
