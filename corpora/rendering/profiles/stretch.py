"""Time stretching of speech by WSOLA, with exact bounds.

Waveform-similarity overlap-add (Verhelst and Roelands, 1993) overlaps segments of the speech where their waveforms
match. The search shifts segments by some milliseconds, which would blur the bounds. Here the first segment starts at
the first speech sample and the last one ends at the last, so the bounds are exact wherever the segments between them
lie. The search compares sums of integers, which are the same on every processor.
"""

from dataclasses import dataclass

import numpy as np

from corpora.rendering.profiles.grid import FULL_SCALE, Samples, round_samples

_SEGMENT_S = 0.030
_SEARCH_S = 0.010


def stretch(speech: Samples, length: int, rate_hz: int) -> Samples:
    """Stretch speech to `length` samples at the same pitch; its first and last samples stay the first and last."""
    size = min(round(_SEGMENT_S * rate_hz) // 2 * 2, len(speech), length)
    if length == len(speech) or size < 4:
        return speech[:length]
    last_in, last_out = len(speech) - size, length - size
    segments = _Segments(size, round(_SEARCH_S * rate_hz), last_in)
    steps = max(1, -(-last_out // (size // 2)))
    integers = np.rint(speech * FULL_SCALE)
    # The weights are triangular and never reach zero, so that every sample has some weight.
    weight = np.minimum(np.arange(1, size + 1), np.arange(size, 0, -1)).astype(np.float64)
    mixed, weights = np.zeros(length), np.zeros(length)
    input_position = 0
    for step in range(steps + 1):
        output_position = step * last_out // steps
        if step == steps:
            input_position = last_in
        elif step:
            previous_output = (step - 1) * last_out // steps
            follows = input_position + output_position - previous_output  # where the previous segment would continue
            input_position = _best_match(integers, step * last_in // steps, follows, segments)
        mixed[output_position : output_position + size] += speech[input_position : input_position + size] * weight
        weights[output_position : output_position + size] += weight
    return round_samples(mixed / weights)


@dataclass(frozen=True, slots=True)
class _Segments:
    """The segments of a stretch, in samples: the size of each, the reach of the search, the last position."""

    size: int
    reach: int
    last: int


def _best_match(integers: Samples, near: int, follows: int, segments: _Segments) -> int:
    """The position near `near` where the speech best matches the samples at `follows`, by least squares."""
    size, last = segments.size, segments.last
    low, high = max(0, near - segments.reach), min(last, near + segments.reach)
    follows = min(max(follows, 0), last)
    target = integers[follows : follows + size]
    region = integers[low : high + size]
    squares = np.concatenate(([0.0], np.cumsum(np.square(region))))
    distance = squares[size:] - squares[:-size] - 2.0 * np.correlate(region, target, "valid")
    return low + int(np.argmin(distance))
