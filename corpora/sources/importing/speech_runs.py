"""Detection of speech on a channel of a call by energy, with levels that fit into memory for calls of any length."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

STEP_S = 0.010

_SILENCE_DB = -75.0  # anything quieter is silence, whatever the noise floor of the line
_OVER_FLOOR_DB = 9.0
_UNDER_LOUD_DB = 32.0
_SHORTEST_RUN_STEPS = 4
_CROSSTALK_DB = 15.0

Levels = NDArray[np.float32]
Runs = list[tuple[int, int]]


def step_levels_db(blocks: Iterable[NDArray[np.float32]], rate_hz: int) -> Levels:
    """The level of every 10 ms of each channel in dBov, shape (steps, channels), from blocks of (frames, channels)."""
    step = round(rate_hz * STEP_S)
    rows: list[Levels] = []
    leftover: NDArray[np.float32] | None = None
    for block in blocks:
        available = block if leftover is None else np.concatenate((leftover, block))
        steps = len(available) // step
        leftover = available[steps * step :].copy()
        if steps:
            parts = available[: steps * step].reshape(steps, step, available.shape[1])
            # The variance excludes a DC offset, which is not speech.
            power = np.var(parts, axis=1, dtype=np.float64)
            rows.append((10.0 * np.log10(np.maximum(power, 1e-12))).astype(np.float32))
    return np.concatenate(rows) if rows else np.zeros((0, 1), dtype=np.float32)


def speech_steps(levels: Levels, others: Levels | None = None) -> Runs:
    """Find speech on one channel, as (first, end) in steps; both arrays have shape (steps,).

    A step in which the `others` are more than 15 dB louder is taken for their crosstalk.
    """
    if not len(levels):
        return []
    floor_db, loud_db = (float(value) for value in np.percentile(levels, (5, 99)))
    threshold_db = max(floor_db + _OVER_FLOOR_DB, loud_db - _UNDER_LOUD_DB, _SILENCE_DB)
    active = levels >= threshold_db
    if others is not None:
        active &= levels >= others - _CROSSTALK_DB
    edges = np.flatnonzero(np.diff(np.concatenate(([False], active, [False])).astype(np.int8)))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(first, end) for first, end in runs if end - first >= _SHORTEST_RUN_STEPS]


def joined(runs: Runs, pause_steps: int) -> Runs:
    """Join runs that are less than a pause apart."""
    joined_runs: Runs = []
    for first, end in runs:
        if joined_runs and first - joined_runs[-1][1] < pause_steps:
            joined_runs[-1] = (joined_runs[-1][0], end)
        else:
            joined_runs.append((first, end))
    return joined_runs
