"""The first turns of an order, kept by segment: a segment never changes, so a question that is asked again reads only
the segments that came since."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from telemetry.store.manifest import Segment

# The column by which each order goes, None for the metric's, and whether the greatest comes first. Turns without a
# value of it come last, turns of one value in the order in which they began.
ORDERS: Final[dict[str, tuple[str | None, bool]]] = {
    "slowest": (None, True),
    "fastest": (None, False),
    "newest": ("started_unix_ns", True),
    "oldest": ("started_unix_ns", False),
}
# Smaller segments are soon merged: those that are new are read together.
_FEWEST_ROWS: Final = 10_000
_MOST_PIECES: Final = 24
_KEPT_QUESTIONS: Final = 8

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Foremost:
    """Some segments, and the first of their turns."""

    files: frozenset[str]
    rows: Sequence[Row]
    is_small: bool


class ForemostTurns:
    """The first turns of each order that was asked for lately, by segment. Not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, list[_Foremost]] = OrderedDict()

    def of(
        self,
        question: tuple[Hashable, str, int],
        segments: Sequence[Segment],
        ask: Callable[[Sequence[Segment]], list[Row]],
    ) -> list[Row]:
        """The first turns of these segments together. `question` is what is asked of them, the order, and how many;
        `ask` answers it of some segments, in rows with `value_ns`, `started_unix_ns` and `span_id`."""
        _, order, most = question
        files = {segment.file for segment in segments}
        pieces = [piece for piece in self._known.pop(question, []) if piece.files <= files]
        covered = frozenset[str]().union(*(piece.files for piece in pieces))
        new = [segment for segment in segments if segment.file not in covered]
        small = [segment for segment in new if segment.rows < _FEWEST_ROWS]
        pieces += [_Foremost(frozenset({each.file}), ask([each]), is_small=False) for each in new if each not in small]
        if small:
            pieces.append(_Foremost(frozenset(each.file for each in small), ask(small), is_small=True))
        self._known[question] = _fewer(pieces, order, most)
        while len(self._known) > _KEPT_QUESTIONS:
            self._known.popitem(last=False)
        return _first([row for piece in pieces for row in piece.rows], order, most)

    def keep_only(self, files: set[str]) -> None:
        """Forget what was read of segments that are not among these."""
        for question, pieces in self._known.items():
            self._known[question] = [piece for piece in pieces if piece.files <= files]

    def forget(self) -> None:
        """Read everything anew when it is asked again."""
        self._known.clear()


def _fewer(pieces: list[_Foremost], order: str, most: int) -> list[_Foremost]:
    """The same with the small ones as one, where they are many."""
    small = [piece for piece in pieces if piece.is_small]
    if len(small) <= _MOST_PIECES:
        return pieces
    files = frozenset[str]().union(*(piece.files for piece in small))
    together = _Foremost(files, _first([row for piece in small for row in piece.rows], order, most), is_small=True)
    return [*(piece for piece in pieces if not piece.is_small), together]


def _first(found: list[Row], order: str, most: int) -> list[Row]:
    column, is_falling = ORDERS[order]
    name = column or "value_ns"

    def place(row: Row) -> tuple[bool, int, int, str]:
        value = row[name]
        if value is None:
            return True, 0, row["started_unix_ns"], row["span_id"]
        return False, -value if is_falling else value, row["started_unix_ns"], row["span_id"]

    return sorted(found, key=place)[:most]
