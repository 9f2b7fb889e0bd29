"""Turns as the columns that a comparison reads of them, and no others: of a rollout's cohort, or of a run."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.metrics import METRICS
from telemetry.objectives.judgment import DECIDED, Judgment
from telemetry.objectives.objective import Objective
from telemetry.rollout import cohort_turns as columns
from telemetry.rollout.cohort_turns import CohortTurns, packed_codes, packed_numbers
from telemetry.rollout.plan import SLICE_DIMENSIONS, AssignmentUnit, SliceDimension
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.objectives import verdicts_by_key
from telemetry.store.questions.filters import Condition

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
_MISSED: Final[dict[Judgment | None, float]] = {Judgment.GOOD: 0.0, Judgment.BAD: 1.0}
_SPOKEN: Final = ("utterance_id", "noise_profile", "channel_profile", "snr_asked_db", "audio_variant")
# A part of the hash, so that a code stays within 32 bits. MD5, because another process may have another DuckDB, whose
# own hash differs.
_AUDIO: Final = (
    "md5_number_lower(concat_ws(chr(31), "
    + ", ".join(f"coalesce({name}::VARCHAR, '')" for name in _SPOKEN)
    + ")) & 2147483647"
)


@dataclass(frozen=True, slots=True)
class TurnColumns:
    """What is read of turns. `metrics` are names of METRICS, `reported` of REPORTED_COLUMNS; `with_audio` asks for what
    was said, to pair turns by; `unit` for who turns belong to: their call, or the user where they name one."""

    metrics: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    slices: tuple[SliceDimension, ...] = ()
    objectives: tuple[Objective, ...] = ()
    with_audio: bool = False
    unit: AssignmentUnit = "call"

    def check(self) -> None:
        """Raises StoreError for a column that a store does not have."""
        _known("metric", self.metrics, METRICS)
        _known("column", self.reported, _REPORTED)
        _known("dimension", self.slices, SLICE_DIMENSIONS)


@dataclass(frozen=True, slots=True)
class ObjectiveRules:
    """What objectives say of turns: the key of a turn as an expression with its values, and the verdict on each key."""

    key: str = ""
    values: list[Any] = field(default_factory=list[Any])
    verdicts: Mapping[str, Mapping[int, Judgment | None]] = field(default_factory=dict[str, dict[int, Judgment | None]])

    def columns(self, keys: Any) -> dict[str, bytes]:
        """Two columns for each objective, from the keys of the turns: which miss it, and which are open."""
        if not self.verdicts:
            return {}
        known, places = np.unique(keys, return_inverse=True)
        found: dict[str, bytes] = {}
        for name, of_key in self.verdicts.items():
            judged = [of_key.get(int(key)) for key in known]
            missed = np.array([_MISSED.get(each, math.nan) for each in judged], dtype=np.float64)
            opened = np.array([each is not None and each not in DECIDED for each in judged], dtype=np.float64)
            found[columns.missed_column(name)] = packed_numbers(missed[places])
            found[columns.open_column(name)] = packed_numbers(opened[places])
        return found


def together(some: Sequence[ObjectiveRules]) -> ObjectiveRules:
    """The same objectives' rules of several parts of the turns as one: what a rule says of a key is the same in all."""
    names = dict.fromkeys(name for each in some for name in each.verdicts)
    verdicts = {name: {key: verdict for each in some for key, verdict in each.verdicts[name].items()} for name in names}
    return replace(some[0], verdicts=verdicts)


def rules_of(
    connection: StoreConnection,
    where: Condition,
    objectives: Sequence[Objective],
    source: semconv.Source,
    table: str = "turns",
) -> ObjectiveRules:
    """What the objectives say of the turns of a condition."""
    if not objectives:
        return ObjectiveRules()
    return ObjectiveRules(*verdicts_by_key(connection, where, objectives, source, table))


def labels_of(connection: StoreConnection, where: Condition, dimension: str) -> tuple[str, ...]:
    """The commonest values of a dimension, in the order of the alphabet."""
    found = rows(
        connection,
        f"""
        SELECT {dimension} AS value FROM turns WHERE {where.sql} AND {dimension} IS NOT NULL
        GROUP BY value ORDER BY count(*) DESC, value LIMIT {MOST_SLICE_VALUES}
        """,
        where.values,
    )
    return tuple(sorted(row["value"] for row in found))


def belongs_to(unit: AssignmentUnit) -> str:
    """Who a turn belongs to, as an expression: its call, or the user where it names one."""
    return "coalesce(user_id, call_id)" if unit == "user" else "call_id"


def columns_of_turns(
    connection: StoreConnection,
    where: Condition,
    name: str,
    asked: TurnColumns,
    of_all: tuple[Mapping[str, tuple[str, ...]], ObjectiveRules],
) -> CohortTurns:
    """The turns of a condition under a name; `of_all` are the labels and rules that hold for all that are compared.
    Raises StoreError for more turns than an answer can carry."""
    labels, rules = of_all
    sql, values = expressions(asked, labels, rules)
    found: dict[str, Any] = connection.execute(
        f"SELECT {sql} FROM turns WHERE {where.sql} LIMIT {MOST_TURNS + 1}", [*values, *where.values]
    ).fetchnumpy()
    return packed_turns(name, found, asked, labels, rules)


def expressions(
    asked: TurnColumns, labels: Mapping[str, tuple[str, ...]], rules: ObjectiveRules
) -> tuple[str, list[Any]]:
    """What `packed_turns` takes, as the expressions of a SELECT with their values."""
    selected = [
        f"list_position(?, outcome) - 1 AS c_{columns.OUTCOME}",
        f"hash({belongs_to(asked.unit)}) AS call",
        "started_unix_ns",
    ]
    selected += [f"coalesce(({sql})::DOUBLE, 'nan'::DOUBLE) AS n_{name}" for name, sql in _numbers(asked).items()]
    selected += [f"coalesce(list_position(?, {name}), 0) - 1 AS c_{name}" for name in labels]
    if asked.with_audio:
        selected.append(f"CASE WHEN utterance_id IS NULL THEN -1 ELSE ({_AUDIO})::BIGINT END AS c_audio")
    if rules.verdicts:
        selected.append(f"{rules.key} AS rule")
    if asked.unit == "user":
        selected.append("user_id IS NULL AS unnamed")
    return ", ".join(selected), [list(semconv.OUTCOMES), *map(list, labels.values()), *rules.values]


def packed_turns(
    name: str,
    found: Mapping[str, Any],
    asked: TurnColumns,
    labels: Mapping[str, tuple[str, ...]],
    rules: ObjectiveRules,
) -> CohortTurns:
    """Turns under a name, from a column for each of `expressions`. Raises StoreError for more of them than an answer
    can carry."""
    turns = int(found["started_unix_ns"].size)
    if turns > MOST_TURNS:
        raise StoreError(f"{name}: more than {MOST_TURNS:,} turns for one answer, narrow the question by its time")
    codes = {columns.OUTCOME: packed_codes(found[f"c_{columns.OUTCOME}"])}
    codes[columns.CALL] = packed_codes(np.unique(found["call"], return_inverse=True)[1])
    codes |= {name: packed_codes(found[f"c_{name}"]) for name in labels}
    if asked.with_audio:
        codes[columns.AUDIO] = packed_codes(found["c_audio"])
    started = found["started_unix_ns"]
    numbers = {name: packed_numbers(found[f"n_{name}"]) for name in _numbers(asked)}
    return CohortTurns(
        cohort=name,
        turns=turns,
        numbers=numbers | rules.columns(found.get("rule")),
        codes=codes,
        labels=dict(labels),
        first_unix_ns=int(started.min()) if started.size else None,
        newest_unix_ns=int(started.max()) if started.size else None,
        unnamed_turns=int(np.count_nonzero(found["unnamed"])) if "unnamed" in found else None,
    )


def _numbers(asked: TurnColumns) -> dict[str, str]:
    """The numbers that are read, and the expression of each."""
    return {name: METRICS[name].column for name in asked.metrics} | {name: _REPORTED[name] for name in asked.reported}


def _known(what: str, names: tuple[str, ...], known: Mapping[str, Any] | tuple[str, ...]) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise StoreError(f"there is no {what} {unknown!r:.60}; known are {', '.join(known)}")
