"""When somebody speaks on a channel of a call, by energy, from levels that fit into memory for a call of any length."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

STEP_S = 0.010

_SILENCE_DB = -75.0  # quieter is nobody, whatever the floor of the line
_OVER_FLOOR_DB = 9.0
_UNDER_LOUD_DB = 32.0
_SHORTEST_RUN_STEPS = 4
_CROSSTALK_DB = 15.0

Levels = NDArray[np.float32]
Runs = list[tuple[int, int]]


def step_levels_db(blocks: Iterable[NDArray[np.float32]], rate_hz: int) -> Levels:
    """Level of each 10 ms of each channel in dBov, shape (steps, channels), from blocks of (frames, channels)."""
    step = round(rate_hz * STEP_S)
    rows: list[Levels] = []
    rest: NDArray[np.float32] | None = None
    for block in blocks:
        whole = block if rest is None else np.concatenate((rest, block))
        steps = len(whole) // step
        rest = whole[steps * step :].copy()
        if steps:
            parts = whole[: steps * step].reshape(steps, step, whole.shape[1])
            # Without what is constant: a channel with an offset is not a channel with speech.
            power = np.var(parts, axis=1, dtype=np.float64)
            rows.append((10.0 * np.log10(np.maximum(power, 1e-12))).astype(np.float32))
    return np.concatenate(rows) if rows else np.zeros((0, 1), dtype=np.float32)


def speech_steps(levels: Levels, others: Levels | None = None) -> Runs:
    """Where speech stands out on one channel, as (first, end) in steps; shape of both arrays: (steps,).

    What is at the same time more than 15 dB louder among the `others` is taken for their echo.
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
    """Runs that are less than a pause apart, as one."""
    whole: Runs = []
    for first, end in runs:
        if whole and first - whole[-1][1] < pause_steps:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((first, end))
    return whole
