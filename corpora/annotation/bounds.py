"""Detection of where speech begins and ends in a clean clip, with the uncertainty of both bounds.

It runs once, when a clip is annotated, and the result is stored in the manifest. Its accuracy against hand labels is
in docs/explanation/speech-boundaries.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.annotation.boundary_uncertainty import SURE_END_S, SURE_START_S, boundary_uncertainty_s
from corpora.annotation.speech_edges import Reading, Side, outer_edge
from corpora.annotation.speech_levels import (
    HOP_S,
    REFERENCE_HZ,
    SILENCE_DB,
    SPEECH_BANDS_HZ,
    Levels,
    hops_in,
    mean_db,
    measure_levels,
)
from corpora.annotation.speech_tail import classify_tail
from corpora.manifest.errors import CorpusError

_SHORTEST_S: Final = 0.010
# At the end of a word a stop may be released as late as this. At its start there is no closure to wait for: a sound
# that precedes the word by more than a moment is breath, a lip smack or a click.
_END: Final = Side(longest_closure_s=0.150, tail_is_judged=True)
_START: Final = Side(longest_closure_s=0.040)
# The bound is the median of these readings, each of which has little bias of its own.
_CENTRAL: Final = tuple(
    Reading(corner_hz, under_loud_db, over_floor_db, friction_under_loud_db, friction_over_floor_db)
    for corner_hz, under_loud_db, over_floor_db, (friction_under_loud_db, friction_over_floor_db) in product(
        SPEECH_BANDS_HZ, (43.0, 45.0, 47.0), (6.0, 8.0, 10.0), ((46.0, 12.0), (50.0, 9.0))
    )
)
# Its uncertainty comes from the spread of all readings that are still plausible. They do not follow friction, so a
# bound found only by following friction is not sure. They span 15 dB, so a shallow fade is uncertain.
_PLAUSIBLE: Final = tuple(
    Reading(corner_hz, under_loud_db, over_floor_db, friction_under_loud_db=None)
    for corner_hz, under_loud_db, over_floor_db in product(
        SPEECH_BANDS_HZ, (38.0, 41.0, 45.0, 50.0, 53.0), (4.0, 6.0, 8.0, 12.0, 18.0)
    )
)
# A sound after a pause that may or may not be a release: one that is barely strong enough, one that is too weak but
# audible, or one as short as a click. The uncertainty covers the distance to it.
_DISPUTED: Final = (
    Reading(100.0, 45.0, 8.0, release_under_loud_db=24.0),
    Reading(100.0, 45.0, 8.0, release_under_loud_db=45.0),
    Reading(100.0, 45.0, 8.0, strong_clicks_count=False),
)
# At an edge of the file there is no pause that would separate speech from hum or an echo, so the bound is sure only if
# louder sounds end there too.
_AT_THE_EDGE: Final = tuple(
    Reading(corner_hz, under_db, 12.0, None) for corner_hz, under_db in product(SPEECH_BANDS_HZ, (34.0, 38.0))
)
_EDGE_S: Final = 0.010
_SPREAD_PERCENTILE: Final = 10.0
_SPEECH_UNDER_LOUD_DB: Final = 40.0


@dataclass(frozen=True, slots=True)
class SpeechBounds:
    """The bounds of the speech in a clip, with their uncertainty.

    `start_sample` and `end_sample` are the first and the last sample of speech, `confidence_db` is the level of the
    speech above the clip's noise floor, and the uncertainties are half-widths of 95 % intervals.
    """

    start_sample: int
    end_sample: int
    confidence_db: float
    start_uncertainty_s: float
    end_uncertainty_s: float


def find_speech_bounds(samples: NDArray[np.float64], rate_hz: int) -> SpeechBounds:
    """Find the outer bounds of the speech in a clean mono clip, shape (samples,), full scale ±1.0.

    Each bound is the median of many readings (`speech_edges`): above 70, 100 or 150 Hz, 43 to 47 dB below the loudest
    parts and 6 to 10 dB above the noise floor, with weak friction followed further down. Its uncertainty is the spread
    of stricter and looser readings. The end of the speech also depends on what its last part consists of
    (`speech_tail`): a soft hum after the last formants does not count, and the uncertainty covers everything after the
    last voiced sound or strong friction. A sound that touches the edge of the clip, lasts less than 200 ms and is
    separated from the rest by a pause of at least 60 ms does not count: it remained when the clip was cut out of a
    longer recording.

    Raises CorpusError if the clip contains no speech.
    """
    if len(samples) < _SHORTEST_S * rate_hz:
        raise CorpusError("The clip is shorter than 10 ms, too short to detect speech; record it again.")
    levels = measure_levels(samples, rate_hz)
    nonzero = np.flatnonzero(samples)
    hops = len(levels.friction.wide)
    if not len(nonzero) or levels.speech[REFERENCE_HZ].loud_db <= SILENCE_DB:
        raise _no_speech_error()
    # Filters ring into the digital silence around the recording, which contains no speech.
    outermost = [(nonzero[-1] + 1) / rate_hz, hops * HOP_S - nonzero[0] / rate_hz]
    end_s, end_uncertainty_s = _bound(levels, _END, SURE_END_S, float(outermost[0]))
    reversed_end_s, start_uncertainty_s = _bound(levels.backward(), _START, SURE_START_S, float(outermost[1]))
    start = max(round((hops * HOP_S - reversed_end_s) * rate_hz), int(nonzero[0]))
    end = min(round(end_s * rate_hz), int(nonzero[-1]) + 1) - 1
    if end <= start:
        raise _no_speech_error()
    return SpeechBounds(
        start, end, _speech_above_floor_db(levels, start, end, rate_hz), start_uncertainty_s, end_uncertainty_s
    )


def _no_speech_error() -> CorpusError:
    return CorpusError("The clip contains no speech above its noise floor; record it again.")


def _bound(levels: Levels, side: Side, sure_s: float, outermost_s: float) -> tuple[float, float]:
    """The end of the speech and its uncertainty, both in seconds."""
    central = _ends_s(levels, _CENTRAL, side, outermost_s)
    if 2 * len(central) <= len(_CENTRAL):
        raise _no_speech_error()
    end_s = float(np.median(central))
    plausible = _ends_s(levels, _PLAUSIBLE, side, outermost_s)
    early_s, late_s = np.percentile(plausible, (_SPREAD_PERCENTILE, 100.0 - _SPREAD_PERCENTILE))
    at_the_edge = len(levels.friction.wide) * HOP_S - end_s < _EDGE_S
    disputed_ends_s = _ends_s(levels, _DISPUTED + (_AT_THE_EDGE if at_the_edge else ()), side, outermost_s)
    disputed = max((abs(disputed_end_s - end_s) for disputed_end_s in disputed_ends_s), default=0.0)
    spread_s = max(end_s - float(early_s), float(late_s) - end_s, disputed)
    if side.tail_is_judged:
        tail = classify_tail(levels, round(end_s / HOP_S))
        end_s, spread_s = min(end_s, tail.end * HOP_S), max(spread_s, tail.disputed_s)
    return end_s, boundary_uncertainty_s(spread_s, levels.speech[REFERENCE_HZ].range_db, sure_s)


def _ends_s(levels: Levels, readings: Sequence[Reading], side: Side, outermost_s: float) -> list[float]:
    ends = (outer_edge(levels, reading, side) for reading in readings)
    return [min(end * HOP_S, outermost_s) for end in ends if end is not None]


def _speech_above_floor_db(levels: Levels, start: int, end: int, rate_hz: int) -> float:
    """The mean power of the speech, without its pauses, above the noise floor."""
    level = levels.speech[REFERENCE_HZ]
    within = level.wide[hops_in(start / rate_hz) : max(hops_in((end + 1) / rate_hz), hops_in(start / rate_hz) + 1)]
    speech = within[within >= min(level.loud_db - _SPEECH_UNDER_LOUD_DB, float(np.max(within)))]
    return round(mean_db(speech) - level.floor_db, 1)
