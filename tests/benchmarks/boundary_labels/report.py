"""Comparison of a detector with the labels, and of its errors with the uncertainty that it states."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from corpora.annotation.boundary_uncertainty import SURE_MS
from corpora.annotation.bounds import SpeechBounds, find_speech_bounds
from corpora.manifest.clips import Samples
from tests.benchmarks.boundary_labels.labels import Labeled, Mark

SIDES: Final = ("end", "start")
_HEAD: Final = (
    f"{'':24} {'clips':>5} {'<=10':>5} {'own':>5} {'>30':>4}   {'sure':>4} {'<=10':>5} {'own':>5} {'worst':>6}"
    f"   {'unsure':>6} {'ok':>5} {'median':>6}"
)


@dataclass(frozen=True, slots=True)
class BoundError:
    """One bound of one clip: the detector's error (positive: later than the label) and stated uncertainty, in ms."""

    clip: Labeled
    side: str
    error_ms: float
    stated_ms: float

    @property
    def mark(self) -> Mark:
        """The label."""
        return self.clip.end if self.side == "end" else self.clip.start

    @property
    def is_sure(self) -> bool:
        """Whether the detector states that the bound is sure."""
        return self.stated_ms <= SURE_MS

    @property
    def tolerance_ms(self) -> float:
        """10 ms, or the label's own uncertainty if that is larger."""
        return max(10.0, self.mark.sure_ms)


def measure(
    clips: Iterable[tuple[Labeled, Samples]],
    detect: Callable[[Samples, int], SpeechBounds] = find_speech_bounds,
) -> list[BoundError]:
    """Run a detector on clips; returns two results per clip."""
    results: list[BoundError] = []
    for clip, samples in clips:
        bounds = detect(samples, clip.rate_hz)
        ms = 1000.0 / clip.rate_hz
        results += [
            BoundError(clip, "end", (bounds.end_sample + 1) * ms - clip.end.at_ms, bounds.end_uncertainty_s * 1000.0),
            BoundError(clip, "start", bounds.start_sample * ms - clip.start.at_ms, bounds.start_uncertainty_s * 1000.0),
        ]
    return results


def table(results: list[BoundError]) -> Iterator[str]:
    """The lines of the report: for each bound all clips, strata, largest errors, and the agreement of labelers."""
    for side in SIDES:
        rows = [row for row in results if row.side == side]
        yield f"{side} of speech; ms from the label; own: within max(10 ms, the label's own uncertainty)"
        yield _HEAD
        yield _line("all", rows)
        for stratum in (_source, _rate, _final_class):
            for name in sorted({stratum(row) for row in rows}):
                yield _line(name, [row for row in rows if stratum(row) == name])
        yield from _worst(rows)
        yield _label_agreement(rows)
        yield ""


def _source(row: BoundError) -> str:
    return row.clip.source.removesuffix("-8k").removesuffix("-16k")


def _rate(row: BoundError) -> str:
    return f"{row.clip.rate_hz:6} Hz"


def _final_class(row: BoundError) -> str:
    return f"last phone: {row.clip.final_class}"


def _line(name: str, rows: list[BoundError]) -> str:
    sure, unsure = ([row for row in rows if row.is_sure is expected] for expected in (True, False))
    errors = np.array([abs(row.error_ms) for row in rows])
    worst = f"{max(abs(row.error_ms) for row in sure):6.1f}" if sure else f"{'-':>6}"
    stated = f"{np.median([row.stated_ms for row in unsure]):6.1f}" if unsure else f"{'-':>6}"
    within_stated = share(unsure, lambda row: abs(row.error_ms) <= row.stated_ms)
    return (
        f"{name:24} {len(rows):5} {_percent(share(rows, within_10))} {_percent(share(rows, within_own))} "
        f"{int(np.sum(errors > 30.0)):4}   {len(sure):4} {_percent(share(sure, within_10))} "
        f"{_percent(share(sure, within_own))} {worst}   {len(unsure):6} {_percent(within_stated)} {stated}"
    )


def within_10(row: BoundError) -> bool:
    """Whether a bound is within 10 ms of its label."""
    return abs(row.error_ms) <= 10.0


def within_own(row: BoundError) -> bool:
    """Whether a bound is within 10 ms of its label, or within the label's own uncertainty."""
    return abs(row.error_ms) <= row.tolerance_ms


def share(rows: list[BoundError], holds: Callable[[BoundError], bool]) -> float | None:
    """The share of rows for which a condition holds; None without rows."""
    return sum(map(holds, rows)) / len(rows) if rows else None


def _percent(value: float | None) -> str:
    return f"{'-':>5}" if value is None else f"{value * 100:4.0f}%"


def _worst(rows: list[BoundError]) -> Iterator[str]:
    for row in sorted(rows, key=lambda row: -abs(row.error_ms))[:8]:
        if not within_own(row):
            yield (
                f"  {row.error_ms:+7.1f} {row.clip.id:32} states ±{row.stated_ms:.1f}, label ±{row.mark.sure_ms:g}"
                f"{'' if abs(row.error_ms) <= row.stated_ms else '   EXCEEDED'}"
            )


def _label_agreement(rows: list[BoundError]) -> str:
    apart = [row.mark.apart_ms for row in rows if row.mark.apart_ms is not None]
    return (
        f"  labelers of {len(apart)} clips: {np.median(apart):.1f} ms apart in the median, {max(apart):g} at most"
        if apart
        else "  no clip has two labelers"
    )
