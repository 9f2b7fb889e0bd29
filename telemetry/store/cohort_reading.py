"""The turns of two cohorts as a page compares them: their sizes exactly, their columns of at most so many turns.

Of more turns than a page can read while somebody waits, those of whole callers are drawn, by their ids. Bounds of the
differences are taken over what was read, so that they are as wide as the draw makes them.
"""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables, every value is bound

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from telemetry.rollout.cohort_comparison import CohortSize
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.store.cohort_pieces import Callers, CohortPiece, DrawnTurns, distinct
from telemetry.store.connection import StoreConnection, rows
from telemetry.store.manifest import Segment
from telemetry.store.queries import Condition
from telemetry.store.rollout_turns import RolloutQuestion, asked_turns
from telemetry.store.turn_columns import (
    MOST_SLICE_VALUES,
    MOST_TURNS,
    TurnColumns,
    belongs_to,
    expressions,
    packed_turns,
    rules_of,
    together,
)

# To read and sort more takes longer than a page may.
MOST_READ: Final = 200_000
# The callers of more turns are counted anew each time: to keep them would take more memory than they are worth.
MOST_KEPT: Final = 20_000_000
_PIECE: Final = "compared_turns"


@dataclass(frozen=True, slots=True)
class ReadCohorts:
    """Both cohorts from one consistent read. `one_in` callers of how many the turns are; the sizes are of all."""

    candidate: CohortTurns
    control: CohortTurns
    sizes: tuple[CohortSize, CohortSize]  # of the candidate and of the control
    one_in: int


def read_cohorts(
    connection: StoreConnection, asked: RolloutQuestion, most_read: int = MOST_READ, most_kept: int = MOST_KEPT
) -> ReadCohorts:
    """The turns that a question asks for, at most about `most_read`. Raises StoreError for a column that the store does
    not have."""
    read = TurnColumns(asked.metrics, asked.reported, asked.slices, asked.objectives, asked.with_audio, asked.unit)
    read.check()
    reading = _Reading(connection, asked, read)
    segments = connection.segments("turns", asked.filter.run_id)
    pieces = connection.cohort_pieces.of(asked, segments, reading.counted) or [reading.counted(())]
    turns = sum(piece.outcomes.total() for piece in pieces)
    one_in = 1
    while turns > most_read * one_in:
        one_in *= 2  # so that more turns narrow the same draw
    labels = _labels(pieces, asked.slices)
    for piece in pieces:
        reading.draw(piece, one_in, labels)
    callers = reading.callers(pieces, turns <= most_kept)
    drawn = [piece.drawn for piece in pieces if piece.drawn is not None]
    candidate, control = (_together(name, drawn, one_in, asked, read) for name in (asked.candidate, asked.control))
    sizes = _size(asked.candidate, pieces, callers), _size(asked.control, pieces, callers)
    return ReadCohorts(candidate, control, sizes, one_in)


class _Reading:
    """Reads segments for a question."""

    def __init__(self, connection: StoreConnection, asked: RolloutQuestion, read: TurnColumns) -> None:
        self._connection = connection
        self._asked = asked
        self._read = read
        self._caller = belongs_to(asked.unit)
        self._where = asked_turns(asked) & Condition("cohort IN (?, ?)", (asked.candidate, asked.control))

    def counted(self, segments: Sequence[Segment]) -> CohortPiece:
        """How many turns there are in segments by cohort and outcome, and by the values of every dimension."""
        self._connection.give_way()
        dimensions = tuple(dict.fromkeys(self._asked.slices))
        sets = ", ".join(["(cohort, outcome)", *(f"({name})" for name in dimensions)])
        names = ("cohort", "outcome", *dimensions)
        self._connection.view(_PIECE, "turns", segments)
        found = rows(
            self._connection,
            f"""
            SELECT {", ".join(f"{name}, grouping({name}) = 0 AS by_{name}" for name in names)}, count(*) AS turns
            FROM {_PIECE} WHERE {self._where.sql} GROUP BY GROUPING SETS ({sets})
            """,
            self._where.values,
        )
        return CohortPiece(
            segments=tuple(segments),
            outcomes=Counter({(row["cohort"], row["outcome"]): row["turns"] for row in found if row["by_cohort"]}),
            values={
                name: Counter({row[name]: row["turns"] for row in found if row[f"by_{name}"] and row[name] is not None})
                for name in dimensions
            },
        )

    def draw(self, piece: CohortPiece, one_in: int, labels: Mapping[str, tuple[str, ...]]) -> None:
        """Read the turns of one in so many callers of a piece, unless they are known by these labels."""
        if piece.drawn is not None and piece.drawn.one_in <= one_in and piece.drawn.labels == labels:
            return
        self._connection.give_way()
        self._connection.view(_PIECE, "turns", piece.segments)
        rules = rules_of(self._connection, self._where, self._asked.objectives, self._asked.source, _PIECE)
        sql, values = expressions(self._read, labels, rules)
        where = self._where
        if one_in > 1:
            where &= Condition(f"hash({self._caller}) % {one_in:d} = 0")
        found = self._connection.execute(
            f"SELECT {sql}, cohort = ? AS is_candidate FROM {_PIECE} WHERE {where.sql} LIMIT {MOST_TURNS + 1}",
            [*values, self._asked.candidate, *where.values],
        ).fetchnumpy()
        piece.drawn = DrawnTurns(one_in, labels, {name: np.asarray(each) for name, each in found.items()}, rules)

    def callers(self, pieces: Sequence[CohortPiece], are_kept: bool) -> Mapping[str, int]:
        """How many callers the turns of each cohort belong to."""
        if not are_kept:
            return self._callers_of_all()
        for piece in pieces:
            if piece.callers is None:
                piece.callers = self._callers_of(piece)
        known = self._connection.cohort_pieces
        return {name: known.callers(self._asked, name, pieces) for name in (self._asked.candidate, self._asked.control)}

    def _callers_of(self, piece: CohortPiece) -> Mapping[str, Callers]:
        self._connection.give_way()
        self._connection.view(_PIECE, "turns", piece.segments)
        found = self._connection.execute(
            f"""
            SELECT hash({self._caller}) AS caller, cohort = ? AS is_candidate FROM {_PIECE}
            WHERE {self._where.sql} AND {self._caller} IS NOT NULL
            """,
            [self._asked.candidate, *self._where.values],
        ).fetchnumpy()
        callers, is_candidate = np.asarray(found["caller"]), np.asarray(found["is_candidate"])
        return {
            self._asked.candidate: distinct(callers[is_candidate]),
            self._asked.control: distinct(callers[~is_candidate]),
        }

    def _callers_of_all(self) -> Mapping[str, int]:
        found = rows(
            self._connection,
            f"""
            SELECT cohort, count(DISTINCT {self._caller}) AS callers FROM turns WHERE {self._where.sql} GROUP BY cohort
            """,
            self._where.values,
        )
        return {row["cohort"]: row["callers"] for row in found}


def _size(cohort: str, pieces: Sequence[CohortPiece], callers: Mapping[str, int]) -> CohortSize:
    by_outcome = Counter[str]()
    for piece in pieces:
        by_outcome.update({outcome: n for (name, outcome), n in piece.outcomes.items() if name == cohort})
    turns, invalid = by_outcome.total(), by_outcome["invalid"]
    return CohortSize(cohort, turns, turns - invalid - by_outcome["cut"], invalid, callers.get(cohort, 0))


def _labels(pieces: Sequence[CohortPiece], dimensions: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The commonest values of every dimension, in the order of the alphabet."""
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(dimensions):
        turns = Counter[str]()
        for piece in pieces:
            turns.update(piece.values[name])
        commonest = sorted(turns, key=lambda value: (-turns[value], value))
        found[name] = tuple(sorted(commonest[:MOST_SLICE_VALUES]))
    return found


def _together(
    cohort: str, drawn: Sequence[DrawnTurns], one_in: int, asked: RolloutQuestion, read: TurnColumns
) -> CohortTurns:
    """The turns of one cohort in all pieces."""
    parts: list[dict[str, NDArray[Any]]] = []
    for each in drawn:
        of_one = each.narrowed(one_in)
        mine = of_one["is_candidate"] if cohort == asked.candidate else ~of_one["is_candidate"]
        parts.append({name: values[mine] for name, values in of_one.items()})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return packed_turns(cohort, columns, read, drawn[0].labels, together([each.rules for each in drawn]))
