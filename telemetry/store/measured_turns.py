"""How the turns of many runs were measured: what tells how far figures over them can be trusted."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from telemetry.model.semconv import Source
from telemetry.store.answers import RunRecord, TelemetryLoss
from telemetry.store.connection import StoreConnection
from telemetry.store.limited_runs import LimitedTurns, limited_turns
from telemetry.store.questions.instrument import loss_of_runs
from telemetry.store.questions.runs import runs
from telemetry.store.turns_of_runs import CountedTurns


@dataclass(frozen=True, slots=True)
class RunsEvidence:
    """What the runs of the counted turns say of how they were measured. `calibrated_to_ms` is the widest bound of those
    that are calibrated, as its run declares it."""

    runs: int = 0
    calibrated: int = 0
    calibrated_to_ms: str | None = None
    loss: TelemetryLoss | None = None  # None where there is no run


@dataclass(frozen=True, slots=True)
class MeasuredTurns:
    """The turns that figures are of, and whose they are: all of them with the invalid ones, which no figure counts, the
    valid ones of generator-limited runs, and what their runs say."""

    source: Source = "client"
    counted: CountedTurns = field(default_factory=CountedTurns)
    limited: LimitedTurns = field(default_factory=LimitedTurns)
    evidence: RunsEvidence = field(default_factory=RunsEvidence)


def measured_turns(
    connection: StoreConnection, by_run: Mapping[str, CountedTurns], source: Source, now_unix_ns: int
) -> MeasuredTurns:
    """How the turns of a source that are counted, by run, were measured."""
    return MeasuredTurns(
        source,
        sum(by_run.values(), CountedTurns()),
        limited_turns(connection, by_run, source, now_unix_ns),
        runs_evidence(connection, runs(connection), by_run, now_unix_ns),
    )


def runs_evidence(
    connection: StoreConnection, known: Iterable[RunRecord], run_ids: Collection[str], now_unix_ns: int
) -> RunsEvidence:
    """What some of the runs of a store say of how they were measured."""
    counted = [each for each in known if each.run_id in run_ids]
    if not counted:
        return RunsEvidence()
    bounds = [each.calibrated_to_ms for each in counted if each.calibrated_to_ms is not None]
    return RunsEvidence(
        runs=len(counted),
        calibrated=len(bounds),
        calibrated_to_ms=max(bounds, key=float, default=None),
        loss=loss_of_runs(connection, frozenset(each.run_id for each in counted), now_unix_ns),
    )
