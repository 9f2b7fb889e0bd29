"""The figures of the edges benchmark: word error rates, where the VAD ends, and whether the goals are met."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from corpora.manifest.manifest import Utterance

MOST_WER_POINTS: Final = 0.5
VAD_RANGE_MS: Final = (-20.0, 60.0)
LEAST_VAD_SHARE: Final = 0.8
LEAST_CLIPS: Final = 150
_BOOTSTRAPS: Final = 2000


@dataclass(frozen=True, slots=True)
class Judged:
    """One clip as rendered with one kind of edges, and the judgment of the models."""

    utterance: Utterance
    errors: int
    words: int
    vad_end_ms: float | None
    exact_end_ms: float | None  # None: no speech in it is certain, so it was not cut

    @property
    def vad_after_ms(self) -> float | None:
        """How much later than the exact end the VAD ends; None if either has no end."""
        return None if self.vad_end_ms is None or self.exact_end_ms is None else self.vad_end_ms - self.exact_end_ms


def error_rate(rows: Sequence[Judged]) -> float:
    """The word error rate in percent: all errors over all words."""
    return 100.0 * sum(row.errors for row in rows) / sum(row.words for row in rows)


def vad_after_ms(rows: Sequence[Judged]) -> list[float]:
    """How much later than the exact end the VAD ends, of every clip in which both have one."""
    return [after for row in rows if (after := row.vad_after_ms) is not None]


def share_within(rows: Sequence[Judged]) -> float:
    """The share of the cut clips in which the VAD ends within the goal's range; one without an end is not."""
    low, high = VAD_RANGE_MS
    cut = sum(row.exact_end_ms is not None for row in rows)
    return sum(low <= after <= high for after in vad_after_ms(rows)) / cut if cut else 0.0


def missed_goals(recorded: Sequence[Judged], cut: Sequence[Judged]) -> list[str]:
    """A sentence for each goal that is missed."""
    missed: list[str] = []
    if len(cut) < LEAST_CLIPS:
        missed.append(f"{len(cut)} clips were judged, at least {LEAST_CLIPS} are required")
    if (more := error_rate(cut) - error_rate(recorded)) > MOST_WER_POINTS:
        missed.append(f"the word error rate rises by {more:.2f} points, at most {MOST_WER_POINTS} are allowed")
    if (share := share_within(cut)) < LEAST_VAD_SHARE:
        missed.append(f"the VAD ends within the range in {share:.1%}, at least {LEAST_VAD_SHARE:.0%} are required")
    return missed


def table(recorded: Sequence[Judged], cut: Sequence[Judged]) -> Iterator[str]:
    """The lines of the report."""
    whole = sum(row.exact_end_ms is None for row in cut)
    yield f"{len(cut)} clips, {sum(row.words for row in cut)} words; {whole} clips have no certain end and were not cut"
    yield f"{'':14} {'WER':>7}   end of the VAD after the exact end, ms"
    yield f"{'':25}{'p5':>7}{'p25':>7}{'p50':>7}{'p75':>7}{'p95':>7}   within the range"
    for name, rows in (("as recorded", recorded), ("cut", cut)):
        ends = "".join(f"{value:7.0f}" for value in np.percentile(vad_after_ms(rows), (5, 25, 50, 75, 95)))
        yield f"{name:14} {error_rate(rows):6.2f}%  {ends}   {share_within(rows):16.1%}"
    low, high = _difference_interval(recorded, cut)
    more = error_rate(cut) - error_rate(recorded)
    yield f"word error rate of the cut clips: {more:+.2f} points (95 % interval over clips: {low:+.2f} to {high:+.2f})"


def _difference_interval(recorded: Sequence[Judged], cut: Sequence[Judged]) -> tuple[float, float]:
    more = np.array([after.errors - before.errors for before, after in zip(recorded, cut, strict=True)])
    words = np.array([row.words for row in cut])
    drawn = np.random.default_rng(1).integers(0, len(words), (_BOOTSTRAPS, len(words)))
    low, high = np.percentile(100.0 * more[drawn].sum(axis=1) / words[drawn].sum(axis=1), (2.5, 97.5))
    return float(low), float(high)
