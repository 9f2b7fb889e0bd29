"""The count of missing turns: the gaps in the sequence numbers of the processes that wrote them.

A process numbers its turns without gaps, so a gap is a turn lost on the way. A number farther than `GAP_MAX` from the
known ones is not trusted, because one wild number would report 4 × 10^18 missing turns: it is counted as implausible
and kept separately. If more numbers are near it than near the first ones, the first ones were wild, and the two ranges
swap.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

GAP_MAX: Final = 100_000
PROCESSES_MAX: Final = 10_000
_ID_CHARS_MAX: Final = 128


@dataclass(slots=True)
class _Range:
    least: int
    most: int
    seen: int

    @property
    def missing(self) -> int:
        return max(0, self.most - self.least + 1 - self.seen)

    def is_near(self, other: "_Range") -> bool:
        return other.least - self.most <= GAP_MAX and self.least - other.most <= GAP_MAX

    def add(self, other: "_Range") -> None:
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.seen += other.seen


class SequenceNumbers:
    """The ranges of numbers seen, by process. At most `PROCESSES_MAX` are known; beyond that, of the process silent for
    longest only the count of missing turns is kept. Not thread-safe."""

    def __init__(self) -> None:
        self.missing = 0
        self.implausible = 0
        self._ranges: dict[str, tuple[_Range, _Range | None]] = {}  # believed, and the rival; the last seen is last

    def observe(self, numbers: Iterable[tuple[str, int]]) -> None:
        """Record the numbers of turns, each with the process that wrote it; numbers without a process are ignored."""
        numbers_by_process: dict[str, list[int]] = {}
        for process, number in numbers:
            if number < 0:
                self.implausible += 1
            elif process:
                numbers_by_process.setdefault(process[:_ID_CHARS_MAX], []).append(number)
        for process, seen in numbers_by_process.items():
            seen.sort()
            ends = [place for place in range(1, len(seen)) if seen[place] - seen[place - 1] > GAP_MAX]
            for first, end in pairwise([0, *ends, len(seen)]):
                self._note(process, _Range(seen[first], seen[end - 1], end - first))

    def _note(self, name: str, observed: _Range) -> None:
        known = self._ranges.pop(name, None)
        if known is None:
            if len(self._ranges) >= PROCESSES_MAX:
                del self._ranges[next(iter(self._ranges))]  # its gaps stay in `missing`
            self._ranges[name] = (observed, None)
            self.missing += observed.missing
            return
        believed, rival = known
        self.missing -= believed.missing
        if believed.is_near(observed):
            believed.add(observed)
        else:
            self.implausible += observed.seen
            if rival is not None and rival.is_near(observed):
                rival.add(observed)
            else:
                rival = observed
            if rival.seen > believed.seen:
                believed, rival = rival, believed
        self.missing += believed.missing
        self._ranges[name] = (believed, rival)
