"""All runs of a store with their figures and verdicts, in a few statements, whatever their number."""

from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import RunVerdict
from telemetry.store.answers import RunRecord, TelemetryLoss
from telemetry.store.connection import StoreConnection
from telemetry.store.questions.runs import runs
from telemetry.store.run_figures import run_figures


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as the list of runs shows it: how many turns it has and how many of them are invalid, percentiles of
    voice-to-voice, in ns, and the cohorts that occur. Of a run that goes on nothing is said of its objectives
    (`verdict`), nor of which telemetry is missing (`loss`) and whether its load generator was the limit."""

    run: RunRecord
    turns: int = 0
    invalid: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    cohorts: tuple[str, ...] = ()
    verdict: RunVerdict | None = None
    loss: TelemetryLoss | None = None
    is_generator_limited: bool = False


def run_list(connection: StoreConnection, objectives: Sequence[Objective], now_unix_ns: int) -> list[ListedRun]:
    """Every run that has turns or was declared, the newest first."""
    found: list[ListedRun] = []
    for run in runs(connection):
        if run.turns or run.declared:
            each = run_figures(connection, run.run_id, objectives, now_unix_ns=now_unix_ns)
            totals = each.totals
            found.append(
                ListedRun(
                    run,
                    totals.turns,
                    totals.invalid,
                    totals.p50,
                    totals.p95,
                    totals.p99,
                    totals.cohorts or (),
                    each.verdict,
                    each.loss,
                    each.is_generator_limited,
                )
            )
    return found
