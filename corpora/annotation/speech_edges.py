"""One reading of where the speech in a clip ends: a threshold, and rules for what is heard after a pause.

A reading asks for the end; the start is the end of the clip with its time running backward. No single reading is right
for all voices and rooms: `bounds` takes many and says how far they are apart.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.annotation.speech_levels import Level, Levels, hops_in, mean_db

# A run of sound is the body of the speech when it is as long as this and reaches as near to the loudest parts.
_BODY_S: Final = 0.030
_BODY_UNDER_LOUD_DB: Final = 25.0
_BRIDGED_S: Final = 0.005  # between two pulses of a low voice
_WEAK_FRICTION_GAP_S: Final = 0.015
_VOICELESS_DB: Final = -1.5  # above 1 kHz, against all: friction and not hum
_CLICK_S: Final = 0.006  # what is shorter is a click, smeared by the window
_CLICK_PEAK_DB: Final = 3.5  # all of it within 2 ms: 4 dB more in a window of 2 ms than in one of 5
_LEFTOVER_S: Final = 0.200
_LEFTOVER_PAUSE_S: Final = 0.060
_FRICTION_DIP_S: Final = 0.005

Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """How one reading tells speech from what is not: above 70, 100 or 150 Hz, so far under the loudest parts and so far
    over the floor."""

    corner_hz: float
    under_loud_db: float
    over_floor_db: float
    friction_under_loud_db: float | None = 50.0  # friction is followed down to there; None: it is not
    friction_over_floor_db: float = 9.0
    release_under_loud_db: float = 27.0  # a sound after a pause is a release down to there, and breath below
    strong_clicks_count: bool = True  # the release of an unaspirated stop may be as short as a click of editing


@dataclass(frozen=True, slots=True)
class Side:
    """What differs between the two ends: after how long a pause a release still counts to the word, and whether what
    lies farthest out may be breath or a swing that follows the voice."""

    longest_closure_s: float
    tail_is_judged: bool = False


def outer_edge(levels: Levels, reading: Reading, side: Side) -> int | None:
    """The hop before which the speech ends, by one reading; None where the reading finds no speech."""
    level = levels.speech[reading.corner_hz]
    threshold_db = max(level.loud_db - reading.under_loud_db, level.floor_db + reading.over_floor_db)
    found = sounds(level, threshold_db)
    body = _last_body(found, level)
    if body is None:
        return None
    end = found[body][1]
    release_db = level.loud_db - reading.release_under_loud_db
    end = _after(levels, level, found[body:], release_db, side, strong_clicks_count=reading.strong_clicks_count)
    end = narrowed(level, end, threshold_db)
    if reading.friction_under_loud_db is None:
        return end
    friction = levels.friction
    lowest_db = max(level.loud_db - reading.friction_under_loud_db, friction.floor_db + reading.friction_over_floor_db)
    followed = _followed(friction, end, lowest_db)
    return max(end, narrowed(friction, followed, lowest_db)) if followed > end else end


def runs(active: NDArray[np.bool_]) -> list[Run]:
    """Runs of true values as (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], active, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def sounds(level: Level, threshold_db: float) -> list[Run]:
    """What reaches the threshold, joined over gaps of 5 ms, without what an end of the file cuts off."""
    joined: list[Run] = []
    for start, stop in runs(level.wide >= threshold_db):
        if joined and start - joined[-1][1] <= hops_in(_BRIDGED_S):
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return _without_leftovers(joined, len(level.wide))


def _without_leftovers(found: list[Run], hops: int) -> list[Run]:
    """Without what is cut off by an end of the file, is short, and parted from the rest: a piece of something else."""
    short, pause = hops_in(_LEFTOVER_S), hops_in(_LEFTOVER_PAUSE_S)
    if len(found) > 1 and found[0][0] == 0 and found[0][1] < short and found[1][0] - found[0][1] >= pause:
        found = found[1:]
    if len(found) > 1 and found[-1][1] == hops and hops - found[-1][0] < short and found[-1][0] - found[-2][1] >= pause:
        found = found[:-1]
    return found


def _last_body(found: list[Run], level: Level) -> int | None:
    for number in range(len(found) - 1, -1, -1):
        start, stop = found[number]
        loudest_db = float(np.max(level.wide[start:stop]))
        if stop - start >= hops_in(_BODY_S) and loudest_db >= level.loud_db - _BODY_UNDER_LOUD_DB:
            return number
    return None


def _after(
    levels: Levels, level: Level, found: list[Run], release_db: float, side: Side, *, strong_clicks_count: bool
) -> int:
    """Where the speech ends when what follows its body is judged, sound by sound."""
    end = last = found[0][1]
    for start, stop in found[1:]:
        gap = start - last
        if gap > hops_in(side.longest_closure_s):
            break
        if stop - start < hops_in(_CLICK_S) or (not strong_clicks_count and _is_click(level, (start, stop))):
            continue
        if _counts(levels, level, (start, stop), gap, release_db):
            end = stop
        last = stop
    return end


def _is_click(level: Level, run: Run) -> bool:
    within = slice(*run)
    return float(np.max(level.narrow[within]) - np.max(level.wide[within])) >= _CLICK_PEAK_DB


def _counts(levels: Levels, level: Level, run: Run, gap: int, release_db: float) -> bool:
    """Whether a sound after the body is of the word: the release of a stop or affricate, or friction that only just
    dipped. Breath is neither: it is weaker than a release, and comes after a longer dip than friction has."""
    within = slice(*run)
    if float(np.max(level.wide[within])) >= release_db:
        return True
    voiceless_db = mean_db(levels.voiceless.wide[within]) - mean_db(level.wide[within])
    return gap <= hops_in(_WEAK_FRICTION_GAP_S) and voiceless_db >= _VOICELESS_DB


def narrowed(level: Level, end: int, threshold_db: float) -> int:
    """A window of 5 ms reaches the threshold up to 2.5 ms outside of a sharp edge: one of 2 ms places it."""
    begin = max(0, end - hops_in(0.003))
    reached = np.flatnonzero(level.narrow[begin:end] >= threshold_db)
    return begin + int(reached[-1]) + 1 if len(reached) else end


def _followed(friction: Level, end: int, lowest_db: float) -> int:
    """How far friction goes on from where the reading ended, without a dip of more than 5 ms."""
    dip = hops_in(_FRICTION_DIP_S)
    begin = max(0, end - dip)
    over = friction.wide[begin:] >= lowest_db
    last = begin + dip
    for start, stop in runs(over):
        if begin + start - last > dip:
            break
        last = max(last, begin + stop)
    return last
