"""Changing the sample rate, with soxr: whole clips, and streams piece by piece."""

import numpy as np
import soxr

from loadtest.audio.pcm import Pcm16, from_float, to_float


def resample(pcm: Pcm16, from_hz: int, to_hz: int) -> Pcm16:
    """A whole clip at another rate, as long as before to the nearest sample; the same array if nothing changes."""
    _check(from_hz, to_hz)
    if from_hz == to_hz:
        return pcm
    # In float: soxr dithers its int16 output, which would make the bytes depend on how a stream was cut.
    return from_float(soxr.resample(to_float(pcm), from_hz, to_hz, quality="HQ"))


class StreamResampler:
    """A stream at another rate. Pieces come out late by the filter's delay; `flush` gives the rest, once.

    However the stream is cut into pieces, what comes out in all is the same.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        _check(from_hz, to_hz)
        same = from_hz == to_hz
        self._stream = None if same else soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="HQ")

    def feed(self, pcm: Pcm16) -> Pcm16:
        """What can be had of the output once `pcm` was added to the input."""
        return pcm if self._stream is None else from_float(self._stream.resample_chunk(to_float(pcm)))

    def flush(self) -> Pcm16:
        """The end of the output; the stream cannot be fed afterwards."""
        if self._stream is None:
            return np.zeros(0, np.int16)
        return from_float(self._stream.resample_chunk(np.zeros(0, np.float32), last=True))


def _check(from_hz: int, to_hz: int) -> None:
    if from_hz < 1 or to_hz < 1:
        raise ValueError(f"cannot resample from {from_hz} Hz to {to_hz} Hz")
