"""The audible span of a stream that is kept as it came and scanned later, many pieces at once.

Once the first audible sample is known, the last one is not needed before the end of the reply, and scanning fifty
pieces of 20 ms at once costs a twentieth of scanning each. So what comes then is only kept, until somebody asks, or a
`ScanQueue` has it scanned in idle time.

How much is scanned at once, and how much is kept, is bounded, however long the stream is: `ScanQueue.scan_slice` scans
at most SLICE_SAMPLES, and so does an arrival, unless MOST_KEPT_SAMPLES are exceeded.
"""

from collections import deque
from typing import Final

import numpy as np

from loadtest.audio.onset import AudibleSpan

# 1 s at 24 kHz: scanned in 35 µs. Larger slices are hardly cheaper by the sample.
SLICE_SAMPLES: Final = 24_000
# Beyond it, an arrival has a slice scanned: pieces of up to a second each cannot accumulate, however fast they come.
_KEPT_SAMPLES: Final = 2 * SLICE_SAMPLES
# Beyond it, an arrival has all scanned that exceeds it: pieces of many seconds each cannot accumulate either.
MOST_KEPT_SAMPLES: Final = 20 * SLICE_SAMPLES
_SAMPLE_BYTES: Final = 2


class ScanQueue:
    """The spans for which it is worth while to scan what they have kept: those that have kept longest come first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[DeferredSpan] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, span: "DeferredSpan") -> None:
        """Queue a span that is not queued."""
        self._waiting.append(span)

    def scan_slice(self) -> int:
        """Scan at most SLICE_SAMPLES of one span; return how many samples that were, 0 where nothing is kept."""
        while self._waiting:
            scanned = self._waiting.popleft().scan_in_turn()
            if scanned:
                return scanned
        return 0


class DeferredSpan:
    """An `AudibleSpan` of bytes, PCM s16le. It has the same results, at any moment and however the stream is split."""

    __slots__ = ("_audible", "_kept", "_last", "_last_is_current", "_queue", "_queued", "_span", "kept_samples")

    def __init__(self, span: AudibleSpan, queue: ScanQueue) -> None:
        self._span = span
        self._queue = queue
        self._queued = False
        self._audible = False  # the first audible sample is settled
        self._kept: list[bytes | memoryview] = []
        self.kept_samples = 0  # that have not been scanned
        self._last: int | None = None
        self._last_is_current = False

    @property
    def is_first_settled(self) -> bool:
        """Whether the first audible sample is known for good."""
        return self._audible

    @property
    def first_sample(self) -> int | None:
        """Index of the first audible sample so far; None if all was silent."""
        return self._span.first_sample

    @property
    def last_sample(self) -> int | None:
        """Index of the last audible sample so far; None if all was silent."""
        self._scan(self.kept_samples)
        if not self._last_is_current:
            self._last, self._last_is_current = self._span.last_sample, True
        return self._last

    def last_before(self, sample: int) -> int | None:
        """Return the index of the last audible sample before `sample`, to within 10 ms; None if silent before it."""
        self._scan(self.kept_samples)
        return self._span.last_before(sample)

    def add(self, audio: bytes) -> None:
        """Add the next samples, which must be whole ones."""
        if not self._audible:
            self._find_first(audio)
            return
        self._kept.append(audio)
        self.kept_samples += len(audio) // _SAMPLE_BYTES
        if self.kept_samples >= SLICE_SAMPLES:
            self._bound_kept()

    def _find_first(self, audio: bytes) -> None:
        """Scan as far as to the slice with the first audible sample, and keep the rest."""
        rest: bytes | memoryview = audio
        while len(rest) and not self._audible:
            if len(rest) > SLICE_SAMPLES * _SAMPLE_BYTES:
                rest = memoryview(rest)
            self._feed(rest[: SLICE_SAMPLES * _SAMPLE_BYTES])
            rest = rest[SLICE_SAMPLES * _SAMPLE_BYTES :]
            self._audible = self._span.is_first_settled
        if len(rest):
            self._kept.append(rest)
            self.kept_samples += len(rest) // _SAMPLE_BYTES
            self._bound_kept()

    def _bound_kept(self) -> None:
        if not self._queued and self.kept_samples >= SLICE_SAMPLES:
            self._queued = True
            self._queue.add(self)
        if self.kept_samples > _KEPT_SAMPLES:
            self._scan(max(SLICE_SAMPLES, self.kept_samples - MOST_KEPT_SAMPLES))

    def scan_in_turn(self) -> int:
        """Scan one slice when the queue says so, and queue again for the next one; return the number of samples."""
        scanned = self._scan(SLICE_SAMPLES)
        self._queued = self.kept_samples >= SLICE_SAMPLES
        if self._queued:
            self._queue.add(self)
        return scanned

    def _scan(self, most_samples: int) -> int:
        """Scan the oldest of what is kept, at most so many samples; return how many."""
        if not self._kept:
            return 0
        left = most_samples * _SAMPLE_BYTES
        whole = 0
        for piece in self._kept:
            if len(piece) > left:
                break
            left -= len(piece)
            whole += 1
        taken = self._kept[:whole]
        del self._kept[:whole]
        if left and self._kept:
            cut = memoryview(self._kept[0])
            taken.append(cut[:left])
            self._kept[0] = cut[left:]
        audio = b"".join(taken)
        self._feed(audio)
        self.kept_samples -= len(audio) // _SAMPLE_BYTES
        return len(audio) // _SAMPLE_BYTES

    def _feed(self, audio: bytes | memoryview) -> None:
        self._span.feed(np.frombuffer(audio, "<i2"))
        self._last_is_current = False
