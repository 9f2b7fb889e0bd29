"""Turns without a value, of which one side of a comparison has more than the other: whether they can change the claim.
Pure.

A turn that was cut, is still pending, or ended without a value that it owes may have had any length. If both sides have
equally many of them, the difference stays as it is; the excess of one side can change a claim, and counts as longer
than any wait.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.model.formatting import count
from telemetry.model.metrics import HEADLINE, METRICS, NOT_OF_AN_ANSWER

Mask = NDArray[np.bool_]


def owes_value(metric: str) -> bool:
    """Return whether every turn with an answer owes a value of a metric; for some metrics it may have none."""
    return METRICS[metric].is_undefined is METRICS[HEADLINE].is_undefined and metric not in NOT_OF_AN_ANSWER


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
