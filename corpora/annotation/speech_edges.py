"""One reading of where the speech in a clip ends: a threshold, and rules for sound_runs after a pause.

A reading finds the end of the speech; its start is the end in the time-reversed clip. No single reading is right for
all voices and rooms, so `bounds` combines many and derives the uncertainty from their spread.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.annotation.speech_levels import Level, Levels, hops_in, mean_db

# A run of sound belongs to the body of the speech if it is at least this long and this close to the loudest parts.
_BODY_S: Final = 0.030
_BODY_UNDER_LOUD_DB: Final = 25.0
_BRIDGED_GAP_S: Final = 0.005  # between two pulses of a low voice
_WEAK_FRICTION_GAP_S: Final = 0.015
_VOICELESS_DB: Final = -1.5  # the level above 1 kHz over the level of all bands: friction, not hum
_CLICK_S: Final = 0.006  # a shorter sound is a click, smeared by the window
_CLICK_PEAK_DB: Final = 3.5  # a click within 2 ms is 4 dB louder in a window of 2 ms than in one of 5 ms
_LEFTOVER_S: Final = 0.200
_LEFTOVER_PAUSE_S: Final = 0.060
_FRICTION_DIP_S: Final = 0.005

Run = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """The thresholds of one reading: a lower frequency, a level below the loudest parts and one above the floor."""

    corner_hz: float
    under_loud_db: float
    over_floor_db: float
    friction_under_loud_db: float | None = 50.0  # friction is followed down to this level; None: not at all
    friction_over_floor_db: float = 9.0
    release_under_loud_db: float = 27.0  # a sound after a pause is a release above this level and breath below it
    strong_clicks_count: bool = True  # the release of an unaspirated stop may be as short as a click of editing


@dataclass(frozen=True, slots=True)
class Side:
    """The differences between the two bounds of the speech.

    `longest_closure_s` is the longest pause after which a release still belongs to the word; `tail_is_judged` says
    whether the outermost sound may be breath or a decay (`speech_tail`).
    """

    longest_closure_s: float
    tail_is_judged: bool = False


def outer_edge(levels: Levels, reading: Reading, side: Side) -> int | None:
    """The hop at which the speech ends according to one reading; None if the reading finds no speech."""
    level = levels.speech[reading.corner_hz]
    threshold_db = max(level.loud_db - reading.under_loud_db, level.floor_db + reading.over_floor_db)
    loud_runs = sound_runs(level, threshold_db)
    body = _last_body(loud_runs, level)
    if body is None:
        return None
    end = loud_runs[body][1]
    release_db = level.loud_db - reading.release_under_loud_db
    end = _end_after_body(
        levels, level, loud_runs[body:], release_db, side, strong_clicks_count=reading.strong_clicks_count
    )
    end = refined_end(level, end, threshold_db)
    if reading.friction_under_loud_db is None:
        return end
    friction = levels.friction
    lowest_db = max(level.loud_db - reading.friction_under_loud_db, friction.floor_db + reading.friction_over_floor_db)
    followed = _friction_end(friction, end, lowest_db)
    return max(end, refined_end(friction, followed, lowest_db)) if followed > end else end


def runs(active: NDArray[np.bool_]) -> list[Run]:
    """The runs of true values as (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], active, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def sound_runs(level: Level, threshold_db: float) -> list[Run]:
    """The runs at or above the threshold, joined over gaps of 5 ms, without leftovers at the edges of the file."""
    bridged: list[Run] = []
    for start, stop in runs(level.wide >= threshold_db):
        if bridged and start - bridged[-1][1] <= hops_in(_BRIDGED_GAP_S):
            bridged[-1] = (bridged[-1][0], stop)
        else:
            bridged.append((start, stop))
    return _without_leftovers(bridged, len(level.wide))


def _without_leftovers(loud_runs: list[Run], hops: int) -> list[Run]:
    """Drop a short run that touches an edge of the file after a pause: it belongs to a neighboring recording."""
    short, pause = hops_in(_LEFTOVER_S), hops_in(_LEFTOVER_PAUSE_S)
    if (
        len(loud_runs) > 1
        and loud_runs[0][0] == 0
        and loud_runs[0][1] < short
        and loud_runs[1][0] - loud_runs[0][1] >= pause
    ):
        loud_runs = loud_runs[1:]
    if (
        len(loud_runs) > 1
        and loud_runs[-1][1] == hops
        and hops - loud_runs[-1][0] < short
        and loud_runs[-1][0] - loud_runs[-2][1] >= pause
    ):
        loud_runs = loud_runs[:-1]
    return loud_runs


def _last_body(loud_runs: list[Run], level: Level) -> int | None:
    for number in range(len(loud_runs) - 1, -1, -1):
        start, stop = loud_runs[number]
        loudest_db = float(np.max(level.wide[start:stop]))
        if stop - start >= hops_in(_BODY_S) and loudest_db >= level.loud_db - _BODY_UNDER_LOUD_DB:
            return number
    return None


def _end_after_body(
    levels: Levels, level: Level, loud_runs: list[Run], release_db: float, side: Side, *, strong_clicks_count: bool
) -> int:
    """The hop at which the speech ends, including the sound_runs after its body that belong to the word."""
    end = last = loud_runs[0][1]
    for start, stop in loud_runs[1:]:
        gap = start - last
        if gap > hops_in(side.longest_closure_s):
            break
        if stop - start < hops_in(_CLICK_S) or (not strong_clicks_count and _is_click(level, (start, stop))):
            continue
        if _belongs_to_word(levels, level, (start, stop), gap, release_db):
            end = stop
        last = stop
    return end


def _is_click(level: Level, run: Run) -> bool:
    within = slice(*run)
    return float(np.max(level.narrow[within]) - np.max(level.wide[within])) >= _CLICK_PEAK_DB


def _belongs_to_word(levels: Levels, level: Level, run: Run, gap: int, release_db: float) -> bool:
    """Return whether a sound after the body belongs to the word: a stop's or affricate's release, or friction after a
    dip.

    Breath is weaker than a release and comes after a longer dip than those within friction.
    """
    within = slice(*run)
    if float(np.max(level.wide[within])) >= release_db:
        return True
    voiceless_db = mean_db(levels.voiceless.wide[within]) - mean_db(level.wide[within])
    return gap <= hops_in(_WEAK_FRICTION_GAP_S) and voiceless_db >= _VOICELESS_DB


def refined_end(level: Level, end: int, threshold_db: float) -> int:
    """Refine an end with the narrow window: the wide one reaches the threshold up to 2.5 ms outside a sharp edge."""
    begin = max(0, end - hops_in(0.003))
    reached = np.flatnonzero(level.narrow[begin:end] >= threshold_db)
    return begin + int(reached[-1]) + 1 if len(reached) else end


def _friction_end(friction: Level, end: int, lowest_db: float) -> int:
    """The hop up to which friction continues from `end` without a dip of more than 5 ms."""
    dip = hops_in(_FRICTION_DIP_S)
    begin = max(0, end - dip)
    over = friction.wide[begin:] >= lowest_db
    last = begin + dip
    for start, stop in runs(over):
        if begin + start - last > dip:
            break
        last = max(last, begin + stop)
    return last
