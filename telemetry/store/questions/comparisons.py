"""Turns as the columns that a comparison reads, and no others: of a rollout's cohorts, and of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from telemetry.comparison.runs import ComparedRun
from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.formatting import count, declared_percent, number
from telemetry.model.metrics import CONNECT, METRICS
from telemetry.model.turns import SLICES
from telemetry.rollout import cohort_turns as columns
from telemetry.rollout.cohort_turns import CohortTurns, packed_codes, packed_numbers
from telemetry.rollout.plan import AssignmentUnit
from telemetry.store.answers import SHARE_LIMIT, Filter, ProcessInfo, RunRecord, StartCounts, TelemetryLoss
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.questions import filters
from telemetry.store.questions.conversations import unreached_run
from telemetry.store.questions.filters import ASKED, Condition, ManyObjectives, Names, judged, viewed
from telemetry.store.questions.instrument import (
    EXPORT_GRACE_NS,
    IS_CUT,
    generator_limits,
    loss_by_process,
    lost_share,
    processes,
    starts_by_phase,
    total_loss,
    total_starts,
)
from telemetry.store.questions.objectives import BAD, GOOD, column_of, with_judgments
from telemetry.store.questions.runs import (
    KEPT_OUTCOMES,
    calls_not_begun,
    is_service_slow,
    is_under_way,
    runs,
)
from telemetry.store.questions.summaries import IS_UNANSWERED

# A slice of which there are more values says nothing about where a difference is.
MOST_SLICE_VALUES: Final = 50
# More values than an answer can carry.
MOST_TURNS: Final = 4_000_000
_REPORTED: Final = {
    columns.FALLBACK: "CASE WHEN fallback IS NOT NULL THEN 1 WHEN route IS NOT NULL THEN 0 END",
    columns.CACHE_HIT: "CASE WHEN cache_hit THEN 1 WHEN cache_hit IS NOT NULL THEN 0 END",
    columns.WER_ERRORS: "wer_errors",
    columns.WER_WORDS: "wer_reference_words",
    columns.TOKENS: "llm_tokens",
    columns.REPLY_AUDIO: "reply_audio_ns",
}
REPORTED_COLUMNS: Final = tuple(_REPORTED)
# A call that could not be connected took longer than any other, as the rule of objectives says.
_UNCONNECTED: Final = f"""CASE WHEN {METRICS[CONNECT].column} IS NULL AND turn_index = 0
    AND outcome IN {semconv.UNANSWERED} THEN 'inf' ELSE {METRICS[CONNECT].column}::DOUBLE END"""
_SPOKEN: Final = ("utterance_id", "noise_profile", "channel_profile", "snr_asked_db", "audio_variant")
# A caller whose answer was broken off before a sound of it came has none, as the rule of objectives says.
_OUTCOME: Final = f"CASE WHEN outcome = 'interrupted' AND {IS_UNANSWERED} THEN 'no_reply' ELSE outcome END"
# A part of the hash, so that a code stays within 32 bits. MD5, because another process may have another DuckDB, whose
# own hash differs.
_AUDIO: Final = (
    "md5_number_lower(concat_ws(chr(31), "
    + ", ".join(f"coalesce({name}::VARCHAR, '')" for name in _SPOKEN)
    + ")) & 2147483647"
)
# In a short run one pause of a busy machine is more than 1 % of the turns already.
_INVALID_TURNS_LIMIT: Final = 2
# What of a run's declaration can make its figures differ from another's, in the order of a sentence.
_DECLARED: Final = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnColumns:
    """The columns to read of turns. `metrics` are names of METRICS, `reported` of REPORTED_COLUMNS; `with_audio` asks
    for what was said, to pair turns by; `unit` for who turns belong to: their call, or the user where they name one."""

    metrics: Names = ()
    reported: Names = ()
    slices: Names = ()
    objectives: ManyObjectives = ()
    with_audio: bool = False
    unit: AssignmentUnit = "call"

    def check(self) -> None:
        """Raise StoreError for a column that a store does not have."""
        _known("metric", self.metrics, METRICS)
        _known("column", self.reported, _REPORTED)
        _known("dimension", self.slices, SLICES)

    def numbers(self) -> dict[str, str]:
        """The numbers that are read, and the expression of each on the turns of `with_judgments`: of each objective
        which turns miss it, and which are open."""
        numbers = {name: _UNCONNECTED if name == CONNECT else METRICS[name].column for name in self.metrics} | {
            name: _REPORTED[name] for name in self.reported
        }
        for place, objective in enumerate(self.objectives):
            judgment = column_of(place)
            numbers[columns.missed_column(objective.name)] = f"CASE {judgment} WHEN {GOOD} THEN 0 WHEN {BAD} THEN 1 END"
            numbers[columns.open_column(objective.name)] = f"coalesce({judgment} > {BAD}, false)::INTEGER"
        return numbers

    def labels(self, connection: StoreConnection, where: Condition) -> dict[str, tuple[str, ...]]:
        """The values of each slice that get a code: the commonest among the turns of a condition, in the order of the
        alphabet."""
        names = tuple(dict.fromkeys(self.slices))
        if not names:
            return {}
        counted = rows(
            connection,
            f"""
            SELECT {", ".join(names)}, {", ".join(f"grouping({name}) = 0 AS by_{name}" for name in names)},
                   count(*) AS turns
            FROM turns WHERE {where.sql} GROUP BY GROUPING SETS ({", ".join(f"({name})" for name in names)})
            """,
            where.values,
        )
        labels: dict[str, tuple[str, ...]] = {}
        for name in names:
            turns = {row[name]: row["turns"] for row in counted if row[f"by_{name}"] and row[name] is not None}
            commonest = sorted(turns, key=lambda value: (-turns[value], value))
            labels[name] = tuple(sorted(commonest[:MOST_SLICE_VALUES]))
        return labels


@dataclass(frozen=True, slots=True)
class RunTurnsQuestion:
    """The run, and the columns of its turns: names of METRICS, of REPORTED_COLUMNS, and objectives."""

    run_id: str
    metrics: Names = ()
    reported: Names = ()
    objectives: ManyObjectives = ()


def belongs_to(unit: AssignmentUnit) -> str:
    """Return the owner of a turn, as an expression: its call, or the user if it names one."""
    return "coalesce(user_id, call_id)" if unit == "user" else "call_id"


def columns_of_turns(
    connection: StoreConnection,
    where: Condition,
    name: str,
    asked: TurnColumns,
    source: semconv.Source,
    *,
    labels: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    mine: Condition = Condition("true"),  # noqa: B008 - immutable
) -> CohortTurns:
    """Return the compared turns of a source that meet `mine`, under a name, with codes for the `labels` of
    slices. Whether a run shows a stage is asked of all that are compared. Raises StoreError for more turns than an
    answer can carry."""
    table = with_judgments(where, asked.objectives, source)
    numbers = asked.numbers()
    selected = [
        f"list_position(?, {_OUTCOME}) - 1 AS c_{columns.OUTCOME}",
        f"hash({belongs_to(asked.unit)}) AS call",
        "started_unix_ns",
        *(f"coalesce(({sql})::DOUBLE, 'nan'::DOUBLE) AS n_{place}" for place, sql in enumerate(numbers.values())),
        *(f"coalesce(list_position(?, {slice_name}), 0) - 1 AS c_{slice_name}" for slice_name in labels),
    ]
    if asked.with_audio:
        selected.append(f"CASE WHEN utterance_id IS NULL THEN -1 ELSE ({_AUDIO})::BIGINT END AS c_audio")
    if asked.unit == "user":
        selected.append("user_id IS NULL AS unnamed")
    values = [list(semconv.OUTCOMES), *map(list, labels.values()), *table.values, *mine.values]
    arrays: dict[str, Any] = connection.execute(
        f"SELECT {', '.join(selected)} FROM {table.sql} WHERE {mine.sql} LIMIT {MOST_TURNS + 1}", values
    ).fetchnumpy()
    started = arrays["started_unix_ns"]
    if started.size > MOST_TURNS:
        raise StoreError(f"{name}: more than {MOST_TURNS:,} turns for one answer, narrow the question by its time")
    codes = {label: packed_codes(arrays[f"c_{label}"]) for label in (columns.OUTCOME, *labels)}
    codes[columns.CALL] = packed_codes(np.unique(arrays["call"], return_inverse=True)[1])
    if asked.with_audio:
        codes[columns.AUDIO] = packed_codes(arrays["c_audio"])
    return CohortTurns(
        cohort=name,
        turns=int(started.size),
        numbers={key: packed_numbers(arrays[f"n_{place}"]) for place, key in enumerate(numbers)},
        codes=codes,
        labels=dict(labels),
        first_unix_ns=int(started.min()) if started.size else None,
        newest_unix_ns=int(started.max()) if started.size else None,
        unnamed_turns=int(np.count_nonzero(arrays["unnamed"])) if "unnamed" in arrays else None,
    )


def telemetry_lost(connection: StoreConnection, where: Condition, f: Filter) -> float | None:
    """Missing / (arrived + missing), of the numbers that the processes of these turns gave to any turn, from the first
    of these turns, or of the first that a process says it emitted since the filter's beginning, to the last. A process
    of their runs that emitted turns since then, of which none arrived, counts too."""
    now_unix_ns = connection.now_unix_ns
    (counts,) = rows(
        connection,
        f"""
        WITH mine AS (SELECT process_id, min(sequence) AS low, max(sequence) AS high, bool_or({IS_CUT}) AS is_cut
                      FROM turns WHERE {where.sql} AND sequence IS NOT NULL AND process_id <> '' GROUP BY process_id),
        counters AS (SELECT process_id, run_id, coalesce(max(value) FILTER (unix_ns < ?), 0) AS before,
                            max(value) FILTER (unix_ns <= ?) AS due
                     FROM points WHERE name = ? AND process_id <> '' GROUP BY process_id, run_id),
        -- A process numbers its turns whatever runs they are of.
        emitted AS (SELECT process_id, sum(before)::BIGINT AS before, sum(due)::BIGINT AS due FROM counters
                    GROUP BY process_id HAVING process_id IN (SELECT process_id FROM mine) OR (
                        sum(due) > sum(before) AND NOT bool_or({IS_CUT})
                        AND bool_or(run_id IN (SELECT run_id FROM turns WHERE {where.sql})))),
        numbered AS (SELECT process_id, mine.process_id IS NOT NULL AS is_mine,
                            CASE WHEN is_cut THEN low ELSE least(low, before) END AS low,
                            greatest(high, due - 1) AS high
                     FROM mine FULL JOIN emitted USING (process_id)),
        arrived AS (SELECT any_value(n.is_mine) AS is_mine, any_value(n.high - n.low + 1) AS given,
                           count(DISTINCT t.sequence) AS arrived
                    FROM numbered n LEFT JOIN turns t
                    ON t.process_id = n.process_id AND t.sequence BETWEEN n.low AND n.high GROUP BY n.process_id)
        SELECT count(*) FILTER (is_mine) AS processes, coalesce(sum(arrived), 0)::BIGINT AS arrived,
               coalesce(sum(given - arrived), 0)::BIGINT AS missing
        FROM arrived WHERE is_mine OR arrived = 0
        """,
        [
            *where.values,
            *(f.since_unix_ns, min(now_unix_ns - EXPORT_GRACE_NS, f.until_unix_ns or now_unix_ns)),
            *(semconv.METRIC_TURNS_EMITTED, *where.values),
        ],
    )
    loss = TelemetryLoss(counts["processes"], None, counts["arrived"], counts["missing"])
    return lost_share(loss) if loss.processes else None


def run_turns(connection: StoreConnection, asked: RunTurnsQuestion) -> ComparedRun | None:
    """The turns of a run, none of a ramp, no silent ones; None where the store has no such run. Raises StoreError for a
    column that the store does not have, and for more turns than an answer can carry."""
    read = TurnColumns(metrics=asked.metrics, reported=asked.reported, objectives=asked.objectives, with_audio=True)
    read.check()
    record = next((record for record in runs(connection) if record.run_id == asked.run_id), None)
    if record is None:
        return None
    f = Filter(run_id=asked.run_id)
    where = judged(f) & viewed(f) & Condition(ASKED)
    turns = columns_of_turns(connection, where, asked.run_id, read, filters.source_of(f))
    invalid = int(turns.has_outcome("invalid").sum())
    known = processes(connection, asked.run_id)
    by_outcome, did_not_read = _kept(connection, where)
    is_slow = is_service_slow(turns.turns, by_outcome, did_not_read)
    limit = generator_limits(connection, (asked.run_id,)).get(asked.run_id)
    starts, loss = total_starts(starts_by_phase(connection, f)), _loss(connection, f, known)
    return ComparedRun(
        run_id=asked.run_id,
        asked=asked_of(record),
        turns=turns,
        telemetry_lost=lost_share(loss),
        unmeasured=loss.missing + (0 if starts is None else starts.dropped),
        generator_limit=None if limit is None else limit.reason,
        left_out=_left_out(None if is_slow else starts, invalid, turns.turns),
        unreached=unreached_run(connection, asked.run_id, answered=int(turns.has_outcome("ok").sum())),
        is_under_way=is_under_way(known, connection.now_unix_ns),
        lacks_old_turns=record.lacks_old_turns,
    )


def _loss(connection: StoreConnection, f: Filter, generators: Sequence[ProcessInfo]) -> TelemetryLoss:
    """Return the missing turns of the processes that called, as the report of the run counts them."""
    names = {process.process_id for process in generators}
    return total_loss([loss for loss in loss_by_process(connection, f) if loss.process_id in names])


def asked_of(record: RunRecord) -> dict[str, str]:
    """Return the settings of a run, by name, in a fixed order."""
    known = {**record.declared, "target": record.target, "protocol": record.protocol}
    return {name: str(value) for name in _DECLARED if (value := known.get(name)) is not None}


def _kept(connection: StoreConnection, where: Condition) -> tuple[dict[str, int], int]:
    """Return how many of the turns ended in each of KEPT_OUTCOMES, and in how many the endpoint did not take the
    caller's audio."""
    counts = ", ".join(f"count(*) FILTER (outcome = '{outcome}') AS {outcome}" for outcome in KEPT_OUTCOMES)
    (row,) = rows(connection, f"SELECT {counts}, {filters.UNREAD} AS unread FROM turns WHERE {where.sql}", where.values)
    return {outcome: row[outcome] for outcome in KEPT_OUTCOMES}, row["unread"]


def _left_out(starts: StartCounts | None, invalid: int, total: int) -> str | None:
    """Return which turns or calls the percentiles lack, if too many for percentiles to be compared: calls that
    never began, and invalid turns."""
    if starts is not None and starts.dropped > SHARE_LIMIT * starts.planned:
        return calls_not_begun(starts)
    if invalid <= _INVALID_TURNS_LIMIT or invalid <= SHARE_LIMIT * total:
        return None
    return f"{number(invalid)} of {count(total, 'turn')} are invalid, more than {declared_percent(SHARE_LIMIT)}"


def _known(what: str, names: tuple[str, ...], known: Mapping[str, Any] | tuple[str, ...]) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise StoreError(f"there is no {what} {unknown!r:.60}; known are {', '.join(known)}")
