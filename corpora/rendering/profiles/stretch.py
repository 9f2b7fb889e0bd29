"""Speaking faster, slower, higher or lower: WSOLA, with both ends of the speech held where they belong.

Waveform-similarity overlap-add (Verhelst and Roelands, 1993) lays pieces of the speech over one another so that the
waves fit. Its pieces move by some milliseconds as they please, which would blur the bounds. Here the first piece is
laid at the first speech sample and the last one ends with the last speech sample, both unmoved: the bounds are exact,
however the pieces between them lie. The search compares sums of whole numbers, which every processor gets the same.
"""

from dataclasses import dataclass

import numpy as np

from corpora.rendering.profiles.grid import FULL_SCALE, Samples, settle

_PIECE_S = 0.030
_SEARCH_S = 0.010


def stretch(speech: Samples, length: int, rate_hz: int) -> Samples:
    """The same voice saying the same in `length` samples: the first and last samples stay the first and last."""
    size = min(round(_PIECE_S * rate_hz) // 2 * 2, len(speech), length)
    if length == len(speech) or size < 4:
        return speech[:length]
    last_in, last_out = len(speech) - size, length - size
    pieces = _Pieces(size, round(_SEARCH_S * rate_hz), last_in)
    steps = max(1, -(-last_out // (size // 2)))
    whole = np.rint(speech * FULL_SCALE)
    # Weights rise and fall in a straight line and never reach zero, so that every sample has some.
    rise = np.minimum(np.arange(1, size + 1), np.arange(size, 0, -1)).astype(np.float64)
    mixed, weights = np.zeros(length), np.zeros(length)
    place_in = 0
    for step in range(steps + 1):
        place_out = step * last_out // steps
        if step == steps:
            place_in = last_in
        elif step:
            before_out = (step - 1) * last_out // steps
            follows = place_in + place_out - before_out  # where the previous piece would go on
            place_in = _best(whole, step * last_in // steps, follows, pieces)
        mixed[place_out : place_out + size] += speech[place_in : place_in + size] * rise
        weights[place_out : place_out + size] += rise
    return settle(mixed / weights)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The pieces of a stretch, in samples: how long each is, how far from its place it may be taken, the last place."""

    size: int
    reach: int
    last: int


def _best(whole: Samples, near: int, follows: int, pieces: _Pieces) -> int:
    """Where near a place the speech is most like what would follow: the least sum of squared differences."""
    size, last = pieces.size, pieces.last
    low, high = max(0, near - pieces.reach), min(last, near + pieces.reach)
    follows = min(max(follows, 0), last)
    wanted = whole[follows : follows + size]
    region = whole[low : high + size]
    squares = np.concatenate(([0.0], np.cumsum(np.square(region))))
    distance = squares[size:] - squares[:-size] - 2.0 * np.correlate(region, wanted, "valid")
    return low + int(np.argmin(distance))
