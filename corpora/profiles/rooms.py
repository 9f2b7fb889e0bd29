"""Rooms: impulse responses, made from a reverberation time or measured by the user, applied without moving anything.

The direct path stays at its sample: what a response has before its direct path comes before the speech, and the tail
after it. The end of the speech is that of the clean speech; the tail belongs to the room.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from corpora.noise import derive_seed, white
from corpora.profiles.files import FILE_PREFIX, read_sounds
from corpora.profiles.grid import Samples, convolve, settle, settle_taps
from corpora.profiles.profile import FAR_FIELD, rt60_s

FAR_FIELD_RT60_S: Final = 0.6
FAR_FIELD_DIRECT_DB: Final = -6.0  # beyond the critical distance: more comes from the walls than from the mouth
NEAR_DIRECT_DB: Final = 6.0
_FIRST_REFLECTION_S: Final = 0.005
_TAIL_DB: Final = 60.0
_MAX_RESPONSE_S: Final = 5.0


def reverberate(samples: Samples, room: str, rate_hz: int) -> Samples:
    """Speech as it arrives at the microphone, shape (samples + tail,): the direct path at its sample."""
    response, direct = impulse_response(room, rate_hz)
    return convolve(settle(samples), response)[direct:]


@lru_cache(maxsize=16)
def impulse_response(room: str, rate_hz: int) -> tuple[Samples, int]:
    """The settled taps of a room and which of them is the direct path, at gain 1. Raises CorpusError for a bad file."""
    if room.startswith(FILE_PREFIX):
        return _measured(room, rate_hz)
    rt60, direct_db = (FAR_FIELD_RT60_S, FAR_FIELD_DIRECT_DB) if room == FAR_FIELD else (rt60_s(room), NEAR_DIRECT_DB)
    return _made(rt60 or FAR_FIELD_RT60_S, direct_db, rate_hz), 0


def _made(rt60: float, direct_db: float, rate_hz: int) -> Samples:
    """A direct path, a gap, and noise that falls by 60 dB in the reverberation time.

    The noise is drawn once for each reverberation time: it is the room, not a part of the run.
    """
    length, gap = round(rt60 * rate_hz), round(_FIRST_REFLECTION_S * rate_hz)
    taps = np.zeros(gap + length)
    fall = np.exp(np.arange(length) * (-np.log(10.0) * 3.0 / (rt60 * rate_hz)))
    tail = white(length, derive_seed("room", f"{rt60:g}", rate_hz)) * fall
    tail *= np.sqrt(10.0 ** (-direct_db / 10.0) / np.sum(np.square(tail)))
    taps[gap:] = tail
    taps[0] = 1.0
    return np.trim_zeros(settle_taps(taps), "b")


def _measured(room: str, rate_hz: int) -> tuple[Samples, int]:
    """A response from a file: its largest sample is the direct path; what lies 60 dB below it at the end is cut."""
    response = np.array(read_sounds(room, rate_hz)[: round(_MAX_RESPONSE_S * rate_hz)])
    direct = int(np.argmax(np.abs(response)))
    response /= response[direct]
    heard = np.flatnonzero(np.abs(response) >= 10.0 ** (-_TAIL_DB / 20.0))
    first, last = int(heard[0]), int(heard[-1])
    return settle_taps(response[first : last + 1]), direct - first
