"""The turns of two cohorts as they were read of some segments, and kept: a segment never changes, so a question that is
asked again reads only the segments that came since."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from telemetry.store.manifest import Segment

# Callers by a hash of 64 bits: among ten million, two share one with a chance of less than one in 300,000.
Callers = NDArray[np.uint64]

# Smaller segments are soon merged: those that are new are read together.
FEWEST_ROWS: Final = 10_000
_MOST_PIECES: Final = 24
_KEPT_QUESTIONS: Final = 3


@dataclass(frozen=True, slots=True)
class DrawnTurns:
    """Turns of one in so many callers, in columns; `labels` are those that their codes mean, `rules` what is known of
    the keys of their objectives."""

    one_in: int
    labels: Mapping[str, tuple[str, ...]]
    columns: Mapping[str, NDArray[Any]]
    rules: Any

    def narrowed(self, one_in: int) -> Mapping[str, NDArray[Any]]:
        """The columns of the turns of one in so many callers, a multiple of `one_in`."""
        if one_in == self.one_in:
            return self.columns
        stay = self.columns["call"] % np.uint64(one_in) == 0
        return {name: values[stay] for name, values in self.columns.items()}


@dataclass(slots=True)
class CohortPiece:
    """What is known of both cohorts in some segments: their turns by cohort and outcome, and by the values of each
    dimension; their callers by cohort, sorted, and turns that were drawn, once they were asked for."""

    segments: tuple[Segment, ...]
    outcomes: Counter[tuple[str, str]]
    values: Mapping[str, Counter[str]]
    callers: Mapping[str, Callers] | None = None
    drawn: DrawnTurns | None = None

    @property
    def files(self) -> frozenset[str]:
        """The files of its segments."""
        return frozenset(segment.file for segment in self.segments)

    @property
    def is_small(self) -> bool:
        """Whether its segments are small ones."""
        return all(segment.rows < FEWEST_ROWS for segment in self.segments)


class CohortPieces:
    """What was read for the questions that were asked lately, by segment. Not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, list[CohortPiece]] = OrderedDict()
        self._unions: dict[tuple[Hashable, str], tuple[frozenset[str], Callers]] = {}

    def of(
        self, question: Hashable, segments: Sequence[Segment], ask: Callable[[Sequence[Segment]], CohortPiece]
    ) -> list[CohortPiece]:
        """The pieces that these segments make up; `ask` reads one of some segments."""
        files = {segment.file for segment in segments}
        pieces = _fewer([piece for piece in self._known.pop(question, []) if piece.files <= files])
        covered = frozenset[str]().union(*(piece.files for piece in pieces))
        new = [segment for segment in segments if segment.file not in covered]
        self._known[question] = pieces  # what is read stays, also when the rest has to wait
        for segment in new:
            if segment.rows >= FEWEST_ROWS:
                pieces.append(ask([segment]))
        if small := [segment for segment in new if segment.rows < FEWEST_ROWS]:
            pieces.append(ask(small))
        while len(self._known) > _KEPT_QUESTIONS:
            self._known.popitem(last=False)
        self._unions = {key: each for key, each in self._unions.items() if key[0] in self._known}
        return pieces

    def callers(self, question: Hashable, cohort: str, pieces: Sequence[CohortPiece]) -> int:
        """How many callers a cohort has in the pieces of a question, all of which know theirs."""
        by_piece = [
            (piece.files, piece.callers[cohort], piece.is_small) for piece in pieces if piece.callers is not None
        ]
        settled = [(files, callers) for files, callers, is_small in by_piece if not is_small]
        files = frozenset[str]().union(*(files for files, _ in settled))
        known = self._unions.get((question, cohort))
        if known is None or known[0] != files:
            known = files, _union([callers for _, callers in settled])
            self._unions[question, cohort] = known
        new = _union([callers for _, callers, is_small in by_piece if is_small])
        return int(known[1].size + new.size - _shared(known[1], new))

    def keep_only(self, files: set[str]) -> None:
        """Forget what was read of segments that are not among these."""
        for question, pieces in self._known.items():
            self._known[question] = [piece for piece in pieces if piece.files <= files]

    def forget(self) -> None:
        """Read everything anew when it is asked again."""
        self._known.clear()
        self._unions.clear()


def distinct(callers: Callers) -> Callers:
    """Each of them once, sorted. Of callers that are nearly all different, numpy's own `unique` takes many times as
    long."""
    found = np.sort(callers)
    return found[np.concatenate(([True], found[1:] != found[:-1]))] if found.size else found


def _union(some: Sequence[Callers]) -> Callers:
    return distinct(np.concatenate(some)) if some else np.empty(0, np.uint64)


def _shared(known: Callers, new: Callers) -> int:
    """How many of the new ones are known; both are sorted."""
    if not known.size or not new.size:
        return 0
    places = np.minimum(np.searchsorted(known, new), known.size - 1)
    return int(np.count_nonzero(known[places] == new))


def _fewer(pieces: list[CohortPiece]) -> list[CohortPiece]:
    """The same without the small ones where they are many: their segments are read again, together."""
    small = sum(piece.is_small for piece in pieces)
    return pieces if small <= _MOST_PIECES else [piece for piece in pieces if not piece.is_small]
