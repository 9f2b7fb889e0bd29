"""Rooms: impulse responses, synthesized from a reverberation time or measured by the user, applied without delay.

The direct path keeps its sample: the part of a response before its direct path precedes the speech, and the tail
follows it. The end of the speech is that of the clean speech; the tail belongs to the room.
"""

from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from corpora.manifest.errors import CorpusError
from corpora.rendering.noise import derive_seed, white
from corpora.rendering.profiles.files import FILE_PREFIX, read_sound
from corpora.rendering.profiles.grid import Samples, convolve, round_samples, round_taps
from corpora.rendering.profiles.profile import FAR_FIELD, rt60_s

FAR_FIELD_RT60_S: Final = 0.6
FAR_FIELD_DIRECT_DB: Final = -6.0  # beyond the critical distance, reflections are louder than the direct sound
NEAR_DIRECT_DB: Final = 6.0
_FIRST_REFLECTION_S: Final = 0.005
_TAIL_DB: Final = 60.0
_MAX_RESPONSE_S: Final = 5.0
_ARRIVAL_DB: Final = 20.0  # below the peak: the start of the response, as in ISO 3382
_ARRIVAL_S: Final = 0.002
_RINGING_S: Final = 0.005


def reverberate(samples: Samples, room: str, rate_hz: int) -> Samples:
    """Speech at the microphone, shape (samples + tail,), with the direct path at its original sample."""
    response, direct = impulse_response(room, rate_hz)
    return convolve(round_samples(samples), response)[direct:]


def impulse_response(room: str, rate_hz: int) -> tuple[Samples, int]:
    """The taps of a room, on the grid, and the index of the direct path, which has gain 1. Raises CorpusError."""
    if room.startswith(FILE_PREFIX):
        file = Path(room.removeprefix(FILE_PREFIX)).expanduser()
        return _measured(file, file.stat().st_mtime_ns, rate_hz)
    rt60, direct_db = (FAR_FIELD_RT60_S, FAR_FIELD_DIRECT_DB) if room == FAR_FIELD else (rt60_s(room), NEAR_DIRECT_DB)
    return _synthetic(rt60 or FAR_FIELD_RT60_S, direct_db, rate_hz), 0


@lru_cache(maxsize=16)
def _synthetic(rt60: float, direct_db: float, rate_hz: int) -> Samples:
    """A direct path, a gap, and noise that falls by 60 dB in the reverberation time.

    The noise depends only on the reverberation time and the rate: it defines the room and is not random per rendering.
    """
    length, gap = round(rt60 * rate_hz), round(_FIRST_REFLECTION_S * rate_hz)
    taps = np.zeros(gap + length)
    decay = np.exp(np.arange(length) * (-np.log(10.0) * 3.0 / (rt60 * rate_hz)))
    tail = white(length, derive_seed("room", f"{rt60:g}", rate_hz)) * decay
    tail *= np.sqrt(10.0 ** (-direct_db / 10.0) / np.sum(np.square(tail)))
    taps[gap:] = tail
    taps[0] = 1.0
    return np.trim_zeros(round_taps(taps), "b")


@lru_cache(maxsize=64)
def _measured(file: Path, mtime_ns: int, rate_hz: int) -> tuple[Samples, int]:
    """A response from a file: its first channel, from shortly before the direct path to where it has fallen by 60 dB.

    The direct path is the peak of the first arrival, which is not always the loudest: far from the mouth, a reflection
    may be louder. Only the ringing of filters precedes the direct path; noise and sweep distortion before that are cut.
    """
    del mtime_ns  # part of the cache key, so that a changed file is read again
    response = np.array(read_sound(file, rate_hz)[: round(_MAX_RESPONSE_S * rate_hz)])
    magnitude = np.abs(response)
    if not magnitude.any():
        raise CorpusError(f"{file}: is silent for its first {_MAX_RESPONSE_S:g} s; use an impulse response.")
    arrival = int(np.flatnonzero(magnitude >= np.max(magnitude) * 10.0 ** (-_ARRIVAL_DB / 20.0))[0])
    direct = arrival + int(np.argmax(magnitude[arrival : arrival + round(_ARRIVAL_S * rate_hz) + 1]))
    response /= response[direct]
    audible = np.flatnonzero(np.abs(response) >= 10.0 ** (-_TAIL_DB / 20.0))
    first, last = max(int(audible[0]), direct - round(_RINGING_S * rate_hz)), int(audible[-1])
    return round_taps(response[first : last + 1]), direct - first
