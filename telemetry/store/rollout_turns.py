"""The turns of a rollout's two cohorts, in the columns that its checks read and no others."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.metrics import METRICS
from telemetry.objectives.objective import Objective
from telemetry.rollout import cohort_turns as columns
from telemetry.rollout.cohort_turns import CohortTurns, packed_codes, packed_numbers
from telemetry.rollout.gate import RolloutEvidence
from telemetry.rollout.plan import SLICE_DIMENSIONS, RolloutPlan, SliceDimension
from telemetry.rollout.samples import columns_of
from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.objectives import verdicts_by_key
from telemetry.store.queries import ASKED, Condition, judged
from telemetry.store.telemetry_loss import EXPORT_GRACE_NS

# A slice of which there are more values says nothing about where a difference is.
MOST_SLICE_VALUES: Final = 50
# More values than an answer can carry.
MOST_TURNS: Final = 4_000_000
_REPORTED: Final = {
    columns.FALLBACK: "CASE WHEN fallback IS NOT NULL THEN 1 WHEN route IS NOT NULL THEN 0 END",
    columns.WER_ERRORS: "wer_errors",
    columns.WER_WORDS: "wer_reference_words",
    columns.TOKENS: "llm_tokens",
    columns.REPLY_AUDIO: "reply_audio_ns",
}
REPORTED_COLUMNS: Final = tuple(_REPORTED)
_MISSED: Final = {True: 0.0, False: 1.0, None: math.nan}
_AUDIO: Final = "utterance_id, noise_profile, channel_profile, snr_asked_db, audio_variant"


@dataclass(frozen=True, slots=True)
class RolloutQuestion:
    """Which cohorts, and what of their turns. `metrics` are names of METRICS, `reported` of REPORTED_COLUMNS;
    `with_audio` asks for what was said, to pair turns by. The filter's cohort is not looked at."""

    candidate: str
    control: str
    filter: Filter = Filter()  # noqa: RUF009 - immutable
    source: semconv.Source = "client"
    metrics: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    slices: tuple[SliceDimension, ...] = ()
    objectives: tuple[Objective, ...] = ()
    with_audio: bool = False


@dataclass(frozen=True, slots=True)
class RolloutTurns:
    """Both cohorts from one consistent read. `telemetry_lost` is the share of turns that are known to be missing, of
    the processes that the turns came from; None where they carry no sequence numbers. `cohorts` are all that occur."""

    candidate: CohortTurns
    control: CohortTurns
    telemetry_lost: float | None
    cohorts: tuple[str, ...]


def rollout_turns(connection: StoreConnection, asked: RolloutQuestion, now_unix_ns: int) -> RolloutTurns:
    """The turns, none of a ramp unless the filter names it, no silent ones. Raises StoreError for a column that the
    store does not have, and for more turns than an answer can carry."""
    _known("metric", asked.metrics, METRICS)
    _known("column", asked.reported, _REPORTED)
    _known("dimension", asked.slices, SLICE_DIMENSIONS)
    f = asked.filter
    everyone = Filter(**{name: getattr(f, name) for name in f.__dataclass_fields__ if name != "cohort"})
    where = judged(everyone) & Condition(f"source = ? AND {ASKED}", (asked.source,))
    of_both = where & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))
    labels = {name: _labels(connection, of_both, name) for name in dict.fromkeys(asked.slices)}
    rules = (
        _Rules(*verdicts_by_key(connection, of_both, asked.objectives, asked.source)) if asked.objectives else _Rules()
    )
    found = {
        name: _cohort(connection, where, name, asked, (labels, rules)) for name in (asked.candidate, asked.control)
    }
    seen = rows(
        connection,
        f"SELECT DISTINCT cohort FROM turns WHERE {where.sql} AND cohort IS NOT NULL ORDER BY cohort LIMIT 20",
        where.values,
    )
    return RolloutTurns(
        found[asked.candidate],
        found[asked.control],
        _lost(connection, of_both, now_unix_ns),
        tuple(row["cohort"] for row in seen),
    )


def question_of(plan: RolloutPlan, since_unix_ns: int | None, objectives: Sequence[Objective] = ()) -> RolloutQuestion:
    """What a plan's checks read of the turns since the beginning of a stage; of `objectives`, those that it names."""
    return RolloutQuestion(
        candidate=plan.candidate,
        control=plan.control,
        filter=Filter(since_unix_ns=since_unix_ns),
        source=plan.source,
        metrics=plan.metrics,
        reported=tuple(dict.fromkeys(name for check in plan.checks for name in columns_of(check))),
        slices=plan.slices,
        objectives=tuple(objective for objective in objectives if objective.name in plan.objectives),
        with_audio=plan.is_paired,
    )


def evidence_of(found: RolloutTurns, other_plans: Sequence[RolloutPlan] = ()) -> RolloutEvidence:
    """The same turns as the gate takes them."""
    return RolloutEvidence(
        candidate=found.candidate,
        control=found.control,
        telemetry_lost=found.telemetry_lost,
        cohorts=found.cohorts,
        other_plans=tuple(other_plans),
    )


def _known(what: str, names: tuple[str, ...], known: Mapping[str, Any] | tuple[str, ...]) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise StoreError(f"there is no {what} {unknown!r:.60}; known are {', '.join(known)}")


def _labels(connection: StoreConnection, where: Condition, dimension: str) -> tuple[str, ...]:
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


def _cohort(
    connection: StoreConnection,
    where: Condition,
    cohort: str,
    asked: RolloutQuestion,
    of_both: tuple[Mapping[str, tuple[str, ...]], "_Rules"],
) -> CohortTurns:
    labels, rules = of_both
    of_it = where & Condition("cohort = ?", (cohort,))
    numbers = {name: METRICS[name].column for name in asked.metrics} | {
        name: _REPORTED[name] for name in asked.reported
    }
    selected = [f"coalesce(({sql})::DOUBLE, 'nan'::DOUBLE) AS n_{name}" for name, sql in numbers.items()]
    selected += [f"coalesce(list_position(?, {name}), 0) - 1 AS c_{name}" for name in labels]
    if asked.with_audio:
        # Half of the hash, so that a code stays within 32 bits once the values are counted out.
        selected.append(f"CASE WHEN utterance_id IS NULL THEN -1 ELSE (hash({_AUDIO}) >> 34)::BIGINT END AS c_audio")
    if rules.verdicts:
        selected.append(f"{rules.key} AS rule")
    always = [f"list_position(?, outcome) - 1 AS c_{columns.OUTCOME}", "hash(call_id) AS call", "started_unix_ns"]
    found: dict[str, Any] = connection.execute(
        f"""
        SELECT {", ".join([*always, *selected])} FROM turns WHERE {of_it.sql} LIMIT {MOST_TURNS + 1}
        """,
        [list(semconv.OUTCOMES), *map(list, labels.values()), *rules.values, *of_it.values],
    ).fetchnumpy()
    turns = int(found["started_unix_ns"].size)
    if turns > MOST_TURNS:
        raise StoreError(f"{cohort}: more than {MOST_TURNS:,} turns for one answer, narrow the question by its time")
    codes = {columns.OUTCOME: packed_codes(found[f"c_{columns.OUTCOME}"])}
    codes[columns.CALL] = packed_codes(np.unique(found["call"], return_inverse=True)[1])
    codes |= {name: packed_codes(found[f"c_{name}"]) for name in labels}
    if asked.with_audio:
        codes[columns.AUDIO] = packed_codes(found["c_audio"])
    started = found["started_unix_ns"]
    return CohortTurns(
        cohort=cohort,
        turns=turns,
        numbers={name: packed_numbers(found[f"n_{name}"]) for name in numbers} | rules.columns(found.get("rule")),
        codes=codes,
        labels=dict(labels),
        first_unix_ns=int(started.min()) if started.size else None,
        newest_unix_ns=int(started.max()) if started.size else None,
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    """What objectives say of turns: the key of a turn as an expression with its values, and the verdict on each key."""

    key: str = ""
    values: list[Any] = field(default_factory=list[Any])
    verdicts: Mapping[str, Mapping[int, bool | None]] = field(default_factory=dict[str, dict[int, bool | None]])

    def columns(self, keys: Any) -> dict[str, bytes]:
        """A column for each objective, from the keys of the turns."""
        if not self.verdicts:
            return {}
        known, places = np.unique(keys, return_inverse=True)
        found: dict[str, bytes] = {}
        for name, of_key in self.verdicts.items():
            missed = [_MISSED[of_key.get(int(key))] for key in known]
            found[columns.missed_column(name)] = packed_numbers(np.array(missed, dtype=np.float64)[places])
        return found


def _lost(connection: StoreConnection, where: Condition, now_unix_ns: int) -> float | None:
    """Missing / (arrived + missing), of the numbers that the turns' processes gave between the first and the last of
    these turns to any turn, and of those behind that they say they gave."""
    (found,) = rows(
        connection,
        f"""
        WITH mine AS (SELECT process_id, min(sequence) AS low, max(sequence) AS high FROM turns
                      WHERE {where.sql} AND sequence IS NOT NULL AND process_id <> '' GROUP BY process_id),
        arrived AS (SELECT m.process_id, any_value(m.low) AS low, any_value(m.high) AS high,
                           count(DISTINCT t.sequence) FILTER (WHERE t.sequence <= m.high) AS arrived,
                           max(t.sequence) AS newest
                    FROM mine m JOIN turns t ON t.process_id = m.process_id AND t.sequence >= m.low
                    GROUP BY m.process_id),
        due AS (SELECT process_id, max(value)::BIGINT AS due FROM points
                WHERE name = ? AND unix_ns <= ? AND process_id IN (SELECT process_id FROM mine) GROUP BY process_id)
        SELECT count(*) AS processes, coalesce(sum(arrived), 0)::BIGINT AS arrived,
               coalesce(sum(high - low + 1 - arrived), 0)::BIGINT AS holes,
               coalesce(sum(greatest(0, coalesce(due, 0) - newest - 1)), 0)::BIGINT AS behind
        FROM arrived LEFT JOIN due USING (process_id)
        """,
        [*where.values, semconv.METRIC_TURNS_EMITTED, now_unix_ns - EXPORT_GRACE_NS],
    )
    if not found["processes"]:
        return None
    missing = found["holes"] + found["behind"]
    return missing / (found["arrived"] + missing)
