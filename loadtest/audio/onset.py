"""Finds where a stream of audio becomes audible and where it ends being audible.

The level is measured in a window of 10 ms that moves in hops of 1 ms; a window is loud if its RMS is above 0.01 of full
scale (-40 dBFS). Silence is assumed before the stream. Adjacent loud windows form a segment, which runs from the first
sample above the level (in magnitude) in its first window to the last such sample in its last window, so that a tone is
found where it begins and ends rather than where the window does. A click is audible if its energy fills a window; noise
below the level is not, but a single sample above the level, up to 10 ms before a tone, counts as the beginning of the
tone.

- `rms-10ms`: the first sample of the first segment, the last sample of the last one.
- `sustained-50ms`: only segments of at least 50 ms count, from first to last sample.

A hop is a millisecond to the nearest sample (22 samples at 22.05 kHz, where the window is therefore 9.98 ms). An
incomplete hop is evaluated as if silence followed, which can hide a segment but never move one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.audio.pcm import FULL_SCALE, Pcm16

LEVEL: Final = 0.01
WINDOW_HOPS: Final = 10
MIN_SEGMENT_MS: Final = {"rms-10ms": 0, "sustained-50ms": 50}
PRESETS: Final = tuple(MIN_SEGMENT_MS)
DEFAULT_PRESET: Final = "rms-10ms"

_THRESHOLD: Final = LEVEL * FULL_SCALE
_LEVEL_SAMPLE: Final = int(_THRESHOLD)  # an integer sample above this is above the level
_BLOCK_SAMPLES: Final = 2**20  # so that running sums of squares stay exact


@dataclass(slots=True)
class _AudibleSegment:
    """Adjacent loud windows: absolute indices of the first and last sample above the level."""

    first: int
    last: int


class AudibleSpan:
    """The audible part of one PCM16 stream, fed in pieces; the result does not depend on how the stream is split."""

    def __init__(self, preset: str, rate_hz: int) -> None:
        """Raises ValueError for an unknown preset, or a rate below 1 kHz."""
        if preset not in MIN_SEGMENT_MS:
            raise ValueError(f"unknown onset preset {preset!r}; known: {', '.join(PRESETS)}")
        if rate_hz < 1000:
            raise ValueError(f"audible onset needs at least 1000 Hz, not {rate_hz}")
        self._hop = round(rate_hz / 1000)
        self._power = _THRESHOLD**2 * self._hop * WINDOW_HOPS  # energy of a window exactly at the level
        self._min_samples = MIN_SEGMENT_MS[preset] * rate_hz / 1000
        self._history = np.zeros((WINDOW_HOPS - 1) * self._hop, np.int16)  # whole hops before `_rest`
        self._history_energy = np.zeros(WINDOW_HOPS - 1)
        self._rest = np.zeros(0, np.int16)  # the incomplete hop
        self._done = 0  # samples fed, without `_rest`
        self._open: _AudibleSegment | None = None  # the segment that the last whole hop still belongs to
        self._first: int | None = None
        self._last: int | None = None
        self._runs: list[tuple[int, int]] = []  # loud ranges [first, end) in samples, rounded to hops
        self._run_continues = False

    @property
    def is_first_settled(self) -> bool:
        """Whether the first audible sample is known and found by whole hops: nothing that follows is needed for it."""
        return self._first is not None

    @property
    def first_sample(self) -> int | None:
        """Index of the first audible sample so far; None if all was silent."""
        if self._first is None and len(self._rest):
            partial = self._incomplete_hop()
            return partial.first if partial is not None and self._counts(partial) else None
        return self._first

    @property
    def last_sample(self) -> int | None:
        """Index of the last audible sample so far; None if all was silent."""
        if len(self._rest):
            partial = self._incomplete_hop()
            if partial is not None and self._counts(partial):
                return partial.last
        return self._last

    def last_before(self, sample: int) -> int | None:
        """Return the index of the last audible sample before `sample`, to within 10 ms; None if silent before it."""
        last = self.last_sample
        if last is None or last < sample:
            return last
        for first, end in reversed(self._runs):
            if first < sample and end - first >= self._min_samples:
                return min(end, sample) - 1
        return None

    def feed(self, pcm: Pcm16) -> None:
        """Add the next samples of the stream."""
        for start in range(0, len(pcm), _BLOCK_SAMPLES):
            self._feed_block(pcm[start : start + _BLOCK_SAMPLES])

    def _feed_block(self, pcm: Pcm16) -> None:
        if len(self._rest):
            pcm = np.concatenate((self._rest, pcm))
        hops = len(pcm) // self._hop
        whole = hops * self._hop
        self._rest = pcm[whole:].copy()
        if not hops:
            return
        samples = np.concatenate((self._history, pcm[:whole]))
        energy = np.concatenate((self._history_energy, _energies(pcm[:whole].reshape(hops, self._hop))))
        self._scan(samples, energy)
        self._history = samples[whole:].copy()
        self._history_energy = energy[hops:]
        self._done += whole

    def _scan(self, samples: Pcm16, energy: NDArray[np.float64]) -> None:
        """Evaluate the windows that end with each new hop; window k covers the hops k to k + 9 of `samples`."""
        total = energy.cumsum()
        window = total[WINDOW_HOPS - 1 :].copy()
        window[1:] -= total[:-WINDOW_HOPS]
        ranges = _ranges((window > self._power).tobytes())
        if not ranges:
            self._open = None
            self._run_continues = False
            return
        self._note_runs(ranges, len(window))
        still_open: _AudibleSegment | None = None
        for begin, end in ranges:
            if end == ranges[-1][1] or self._matters(begin, end):
                segment = self._segment(samples, begin, end)
                still_open = segment if end == len(window) else None
        self._open = still_open

    def _note_runs(self, ranges: list[tuple[int, int]], windows: int) -> None:
        """Record the loud ranges, reduced to the hops that belong to every window of a range."""
        base = self._done - len(self._history)
        for begin, end in ranges:
            first, up_to = base + (begin + WINDOW_HOPS - 1) * self._hop, base + end * self._hop
            if begin == 0 and self._run_continues:
                first, _ = self._runs.pop()
            self._runs.append((first, max(up_to, first + self._hop)))
        self._run_continues = ranges[-1][1] == windows

    def _matters(self, begin: int, end: int) -> bool:
        """Return whether a segment that another one follows can change the result; examining its samples costs the
        most."""
        if self._min_samples == 0:
            return self._first is None
        continues = begin == 0 and self._open is not None
        return continues or (end - begin + WINDOW_HOPS - 1) * self._hop >= self._min_samples

    def _segment(self, samples: Pcm16, begin: int, end: int) -> _AudibleSegment:
        """Return the segment of the loud windows [begin, end), and update the result."""
        _, last = self._above(samples, end - 1)
        if begin == 0 and self._open is not None:
            segment = _AudibleSegment(self._open.first, max(self._open.last, last))
        else:
            segment = _AudibleSegment(self._above(samples, begin)[0], last)
        if self._counts(segment):
            self._first = segment.first if self._first is None else self._first
            self._last = segment.last
        return segment

    def _incomplete_hop(self) -> _AudibleSegment | None:
        """Return the segment of the window that ends in the incomplete hop, if that window is loud."""
        samples = np.concatenate((self._history, self._rest))
        energy = self._history_energy.sum() + _energies(self._rest.reshape(1, -1))[0]
        if energy <= self._power:
            return None
        first, last = self._above(samples, 0)
        if self._open is not None:
            return _AudibleSegment(self._open.first, max(self._open.last, last))
        return _AudibleSegment(first, last)

    def _above(self, samples: Pcm16, window: int) -> tuple[int, int]:
        """Return the absolute indices of the first and the last sample above the level in one loud window."""
        start = window * self._hop
        inside = samples[start : start + WINDOW_HOPS * self._hop]
        offset = self._done - len(self._history) + start
        above = ((inside > _LEVEL_SAMPLE) | (inside < -_LEVEL_SAMPLE)).nonzero()[0]
        return offset + int(above[0]), offset + int(above[-1])

    def _counts(self, segment: _AudibleSegment) -> bool:
        return segment.last - segment.first + 1 >= self._min_samples


def _ranges(loud: bytes) -> list[tuple[int, int]]:
    """Return where the ranges of ones begin and end: of short arrays, by fewer calls than numpy needs."""
    ranges: list[tuple[int, int]] = []
    end = 0
    while (begin := loud.find(1, end)) >= 0:
        end = loud.find(0, begin)
        end = len(loud) if end < 0 else end
        ranges.append((begin, end))
    return ranges


def _energies(hops: NDArray[np.int16]) -> NDArray[np.float64]:
    """Return each row's sum of squares: integers below 2**53, so exact however the stream is split."""
    values = hops.astype(np.float64)
    return np.vecdot(values, values)
