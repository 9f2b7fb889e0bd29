"""Turns without a value, of which one side of a comparison has more than the other: whether they can change the claim.
Pure.

A turn that was cut, is still pending, is invalid, was lost in telemetry, is of a call that never began, or ended
without a value that it owes may have had any length. If both sides have equally many of them, the difference stays as
it is; the excess of one side can change a claim, and counts as longer than any wait.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.model.formatting import count
from telemetry.model.metrics import NOT_OF_AN_ANSWER
from telemetry.model.semconv import OUTCOMES
from telemetry.rollout.cohort_turns import OUTCOME, CohortTurns, packed_codes, packed_numbers

Mask = NDArray[np.bool_]


def owes_value(metric: str) -> bool:
    """Return whether every turn with an answer owes a value of a metric; a turn owes none of what only the first one of
    a call has, or only one that interrupts."""
    return metric not in NOT_OF_AN_ANSWER


def with_unmeasured(turns: CohortTurns, unmeasured: int) -> CohortTurns:
    """The turns followed by so many that nobody measured: invalid, without any value, spread over the calls and
    utterances of the others. Without others there is no call to put them in, and nothing is added."""
    if not unmeasured or not turns.turns:
        return turns
    places = np.arange(unmeasured) * turns.turns // unmeasured
    codes = {name: turns.code(name) for name in turns.codes}
    codes = {name: np.concatenate([column, column[places]]) for name, column in codes.items()}
    codes[OUTCOME][turns.turns :] = OUTCOMES.index("invalid")
    nothing = packed_numbers(np.full(unmeasured, np.nan))
    return replace(
        turns,
        turns=turns.turns + unmeasured,
        numbers={name: column + nothing for name, column in turns.numbers.items()},
        codes={name: packed_codes(column) for name, column in codes.items()},
    )


def more_missing(lacking: Mask, other_lacking: Mask, turns: tuple[int, int], groups: NDArray[Any]) -> NDArray[np.int64]:
    """The indices of the turns without a value by which one side exceeds the other, by the share of its turns, spread
    over the groups (calls or utterances) of those without a value."""
    shares = [float(mask.sum()) / max(1, total) for mask, total in zip((lacking, other_lacking), turns, strict=True)]
    missing = round(max(0.0, shares[0] - shares[1]) * turns[0])
    places = np.flatnonzero(lacking)
    places = places[np.argsort(groups[places], kind="stable")]
    return places[np.arange(missing) * places.size // max(1, missing)]


def could_turn(missing: int, of: str, other: str) -> str:
    """Explain in half a sentence why a claim is undecided that one side's missing turns could change."""
    has = "has" if missing == 1 else "have"
    return (
        f"{count(missing, 'turn')} of {of} more than of {other} {has} no value, and as waits longer than any they "
        "could turn it"
    )
