"""The turns of one run in the columns that a comparison of runs reads, and what the run was asked to do."""

from dataclasses import dataclass
from typing import Final

from telemetry.comparison.runs import ComparedRun
from telemetry.model.formatting import count, declared_percent, number
from telemetry.objectives.objective import Objective
from telemetry.store.answers import SHARE_LIMIT, Filter, RunRecord, StartCounts
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions import filters
from telemetry.store.questions.conversations import unreached_run
from telemetry.store.questions.filters import ASKED, Condition, judged, viewed
from telemetry.store.questions.instrument import processes, run_limit, starts_by_phase, total_starts
from telemetry.store.questions.runs import runs
from telemetry.store.rollout_turns import telemetry_lost
from telemetry.store.run_state import (
    KEPT_OUTCOMES,
    LimitTurns,
    calls_not_begun,
    is_under_way,
    kept_turns,
)
from telemetry.store.turn_columns import TurnColumns, columns_of_turns, rules_of

# In a short run one pause of a busy machine is more than 1 % of the turns already.
_INVALID_TURNS_LIMIT: Final = 2


@dataclass(frozen=True, slots=True)
class RunTurnsQuestion:
    """Which run, and what of its turns: names of METRICS, of turn_columns.REPORTED_COLUMNS, and objectives."""

    run_id: str
    metrics: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    objectives: tuple[Objective, ...] = ()


def run_turns(connection: StoreConnection, asked: RunTurnsQuestion, now_unix_ns: int) -> ComparedRun | None:
    """The turns of a run, none of a ramp, no silent ones; None where the store has no such run. Raises StoreError for a
    column that the store does not have, and for more turns than an answer can carry."""
    read = TurnColumns(asked.metrics, asked.reported, objectives=asked.objectives, with_audio=True)
    read.check()
    record = next((each for each in runs(connection) if each.run_id == asked.run_id), None)
    if record is None:
        return None
    f = Filter(run_id=asked.run_id)
    where = judged(f) & viewed(f) & Condition(ASKED)
    turns = columns_of_turns(
        connection,
        where,
        asked.run_id,
        read,
        ({}, rules_of(connection, where, asked.objectives, filters.source_of(f))),
    )
    invalid = int(turns.has_outcome("invalid").sum())
    known = processes(connection, asked.run_id)
    by_outcome = {outcome: int(turns.has_outcome(outcome).sum()) for outcome in KEPT_OUTCOMES}
    counted = LimitTurns(turns.turns, kept_turns(by_outcome, _did_not_read(connection, where)))
    limit = run_limit(connection, asked.run_id, now_unix_ns)
    starts = None if counted.is_service_slow else total_starts(starts_by_phase(connection, f))
    return ComparedRun(
        run_id=asked.run_id,
        asked=asked_of(record),
        turns=turns,
        telemetry_lost=telemetry_lost(connection, where, now_unix_ns),
        generator_limit=None if limit is None else limit.reason,
        left_out=_left_out(starts, invalid, turns.turns),
        unreached=unreached_run(connection, asked.run_id, answered=int(turns.has_outcome("ok").sum())),
        is_under_way=is_under_way(known, now_unix_ns),
        lacks_old_turns=record.lacks_old_turns,
    )


# What of a run's declaration can make its figures differ from another's, in the order of a sentence.
_DECLARED = (
    "target",
    "protocol",
    "users",
    "arrivals",
    "rate_per_s",
    "max_calls",
    "corpus",
    "utterances",
    "length",
    "profile",
    "scenario",
    "seed",
    "run_time_s",
)


def asked_of(record: RunRecord) -> dict[str, str]:
    """What a run was asked to do, by name, in one order."""
    known = {**record.declared, "target": record.target, "protocol": record.protocol}
    return {name: str(value) for name in _DECLARED if (value := known.get(name)) is not None}


def _did_not_read(connection: StoreConnection, where: Condition) -> int:
    """In how many of the turns the endpoint did not take the caller's audio."""
    statement = f"SELECT {filters.UNREAD} AS unread FROM turns WHERE {where.sql}"  # noqa: S608 - our own identifiers
    (row,) = rows(connection, statement, list(where.values))
    return row["unread"]


def _left_out(starts: StartCounts | None, invalid: int, total: int) -> str | None:
    """Which turns or calls percentiles have not, where these are too many for percentiles to be compared: calls that
    never began, and invalid turns."""
    if starts is not None and starts.dropped > SHARE_LIMIT * starts.planned:
        return calls_not_begun(starts)
    if invalid <= _INVALID_TURNS_LIMIT or invalid <= SHARE_LIMIT * total:
        return None
    return f"{number(invalid)} of {count(total, 'turn')} are invalid, more than {declared_percent(SHARE_LIMIT)}"
