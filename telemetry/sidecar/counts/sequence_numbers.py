"""How many turns are missing: the holes in the sequence numbers of the processes that wrote them.

A process numbers its turns without gaps, so a hole is a turn lost on the way. A number farther than `GAP_MAX` from
those known is not believed, because one wild number would be a figure of 4 × 10^18 missing turns: it is counted as
implausible and kept apart. When more numbers lie near it than near the first ones, it was the first ones that were
wild, and they change places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

GAP_MAX: Final = 100_000
PROCESSES_MAX: Final = 10_000
_ID_CHARS_MAX: Final = 128

Integers = np.ndarray[Any, np.dtype[np.int64]]


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
    """The ranges of numbers seen, by process. At most `PROCESSES_MAX` are known; of the one that was silent for
    longest, only its missing turns are kept when there are more. Not thread-safe."""

    def __init__(self) -> None:
        self.missing = 0
        self.implausible = 0
        self._ranges: dict[str, tuple[_Range, _Range | None]] = {}  # believed, and the rival; the last seen stands last

    def observe(self, processes: Sequence[str], of_process: Integers, numbers: Integers) -> None:
        """Note the numbers of turns; `of_process` says for each number which of the processes wrote it."""
        plausible = numbers >= 0
        self.implausible += int(numbers.size - np.count_nonzero(plausible))
        of_process, numbers = of_process[plausible], numbers[plausible]
        order = np.lexsort((numbers, of_process))
        of_process, numbers = of_process[order], numbers[order]
        firsts = np.flatnonzero((np.diff(of_process, prepend=-1) != 0) | (np.diff(numbers, prepend=0) > GAP_MAX))
        for first, last in pairwise([*firsts.tolist(), numbers.size]):
            name = processes[int(of_process[first])][:_ID_CHARS_MAX]
            if name:
                self._note(name, _Range(int(numbers[first]), int(numbers[last - 1]), last - first))

    def _note(self, name: str, found: _Range) -> None:
        known = self._ranges.pop(name, None)
        if known is None:
            if len(self._ranges) >= PROCESSES_MAX:
                del self._ranges[next(iter(self._ranges))]  # what it lacks stays in `missing`
            self._ranges[name] = (found, None)
            self.missing += found.missing
            return
        believed, rival = known
        self.missing -= believed.missing
        if believed.is_near(found):
            believed.add(found)
        else:
            self.implausible += found.seen
            if rival is not None and rival.is_near(found):
                rival.add(found)
            else:
                rival = found
            if rival.seen > believed.seen:
                believed, rival = rival, believed
        self.missing += believed.missing
        self._ranges[name] = (believed, rival)
