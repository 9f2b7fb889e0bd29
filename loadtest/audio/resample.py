"""Changes the sample rate of whole clips, or of streams piece by piece, with soxr."""

import numpy as np
import soxr

from loadtest.audio.pcm import Pcm16, from_float, to_float


def resample(pcm: Pcm16, from_hz: int, to_hz: int) -> Pcm16:
    """Resample a whole clip; its duration stays the same. Equal rates return the same array."""
    _check(from_hz, to_hz)
    if from_hz == to_hz:
        return pcm
    # In float: soxr dithers its int16 output, which would make the bytes depend on how a stream was split.
    return from_float(soxr.resample(to_float(pcm), from_hz, to_hz, quality="HQ"))


class StreamResampler:
    """Resamples a stream. The output lags by the filter's delay; `flush` returns the rest, once.

    The total output does not depend on how the stream is split into pieces.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        _check(from_hz, to_hz)
        same = from_hz == to_hz
        self._stream = None if same else soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="HQ")

    def feed(self, pcm: Pcm16) -> Pcm16:
        """Add `pcm` to the input and return the output that is available."""
        return pcm if self._stream is None else from_float(self._stream.resample_chunk(to_float(pcm)))

    def flush(self) -> Pcm16:
        """Return the rest of the output; the stream cannot be fed afterwards."""
        if self._stream is None:
            return np.zeros(0, np.int16)
        return from_float(self._stream.resample_chunk(np.zeros(0, np.float32), last=True))


def _check(from_hz: int, to_hz: int) -> None:
    if from_hz < 1 or to_hz < 1:
        raise ValueError(f"cannot resample from {from_hz} Hz to {to_hz} Hz: both rates must be at least 1 Hz")
