"""The audio that a caller heard, as its player placed it: chunks of replies on the samples of the call. Pure."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from loadtest.audio.pcm import Pcm16
from telemetry.store.recordings.kept_call import NS_PER_S, MissingAudio

TOO_SLOW: Final = "the disk was too slow"
TOO_FAR_AHEAD: Final = "the endpoint sent too far ahead"
_MOST_MISSING: Final = 10_000
# No endpoint may make the process keep more of one call than this, however far ahead of its playing it sends.
MOST_AHEAD_S: Final = 600


@dataclass(slots=True)
class _Chunk:
    playback: int
    first: int
    pcm: Pcm16

    @property
    def end(self) -> int:
        return self.first + len(self.pcm)


class HeardAudio:
    """The second channel of a call, at `rate_hz`; sample 0 is played at `began_perf_ns`."""

    def __init__(self, rate_hz: int, began_perf_ns: int) -> None:
        self._rate_hz = rate_hz
        self._began_perf_ns = began_perf_ns
        self._chunks: list[_Chunk] = []
        self._ahead = 0  # samples that have not been taken
        self.missing: list[MissingAudio] = []

    def sample_at(self, perf_ns: int) -> int:
        """The sample that is played at a moment; negative before the call."""
        return ((perf_ns - self._began_perf_ns) * self._rate_hz + NS_PER_S // 2) // NS_PER_S

    def played(self, playback: int, rate_hz: int, start_perf_ns: int, pcm: Pcm16) -> None:
        """A chunk of a playback is played from a moment."""
        first = self.sample_at(start_perf_ns)
        last = self._chunks[-1] if self._chunks else None
        if last is not None and last.playback == playback and abs(last.end - first) <= 1:
            first = last.end  # moments are whole nanoseconds, so a chunk may seem to begin a sample early or late
        placed = pcm if rate_hz == self._rate_hz else _resampled(pcm, rate_hz, self._rate_hz)
        if first < 0:
            placed, first = placed[-first:], 0
        if self._ahead + len(placed) > MOST_AHEAD_S * self._rate_hz:
            self._miss(MissingAudio(first, first + len(placed), TOO_FAR_AHEAD))
        elif len(placed):
            self._chunks.append(_Chunk(playback, first, placed))
            self._ahead += len(placed)

    def lost(self, start_perf_ns: int, length_ns: int) -> None:
        """Audio that would have been played from a moment was dropped."""
        first = max(0, self.sample_at(start_perf_ns))
        self._miss(MissingAudio(first, first + length_ns * self._rate_hz // NS_PER_S, TOO_SLOW))

    def _miss(self, gap: MissingAudio) -> None:
        last = self.missing[-1] if self.missing else None
        if last is not None and last.reason == gap.reason and gap.first_sample <= last.end_sample + 1:
            first, end = min(last.first_sample, gap.first_sample), max(last.end_sample, gap.end_sample)
            self.missing[-1] = MissingAudio(first, end, gap.reason)
        elif len(self.missing) < _MOST_MISSING:
            self.missing.append(gap)

    def stopped(self, playback: int, now_perf_ns: int) -> None:
        """Nothing of a playback is heard from a moment."""
        cut = max(0, self.sample_at(now_perf_ns))
        kept: list[_Chunk] = []
        for chunk in self._chunks:
            if chunk.playback == playback and chunk.end > cut:
                self._ahead -= chunk.end - max(chunk.first, cut)
                chunk.pcm = chunk.pcm[: max(0, cut - chunk.first)]
            if len(chunk.pcm):
                kept.append(chunk)
        self._chunks = kept

    def taken(self, first: int, end: int) -> Pcm16:
        """These samples, silence where nothing was played; samples are taken once, in their order."""
        out = np.zeros(end - first, np.int16)
        kept: list[_Chunk] = []
        for chunk in self._chunks:
            low, high = max(chunk.first, first), min(chunk.end, end)
            if low < high:
                out[low - first : high - first] = chunk.pcm[low - chunk.first : high - chunk.first]
                self._ahead -= high - low
            if chunk.end > end:
                kept.append(chunk)
            elif low >= high:
                self._ahead -= len(chunk.pcm)  # placed before what had been taken: it comes too late
        self._chunks = kept
        return out


def _resampled(pcm: Pcm16, from_hz: int, to_hz: int) -> Pcm16:
    """A chunk at another rate than the file's, by straight lines between its samples: replies seldom change theirs."""
    count = len(pcm) * to_hz // max(1, from_hz)
    moments = np.arange(count, dtype=np.float64) * from_hz / to_hz
    return np.rint(np.interp(moments, np.arange(len(pcm)), pcm)).astype(np.int16)
