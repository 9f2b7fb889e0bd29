"""What was worked out of samples of turns, kept: the same sample gives the same answer, and of a store that is written
to it seldom becomes another one."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar, cast

# A page asks two questions of a sample, and is looked at with a dozen filters.
_KEPT_ANSWERS: Final = 64

# A row group of a segment: the segment's file, and the number of the group.
GroupPlace = tuple[str, int]
_Answer = TypeVar("_Answer")


class SampleAnswers:
    """Answers by the row groups of a sample and the question. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[tuple[GroupPlace, ...], Hashable], object] = OrderedDict()

    def of(self, places: Sequence[GroupPlace], question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """The answer to a question about a sample, from `ask` where it is not known. The question says all that the
        answer depends on besides the sample."""
        key = tuple(places), question
        if key not in self._kept:
            self._kept[key] = ask()
            while len(self._kept) > _KEPT_ANSWERS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return cast("_Answer", self._kept[key])

    def keep_only(self, files: set[str]) -> None:
        """Forget samples with segments that are not among these."""
        for key in [key for key in self._kept if any(file not in files for file, _ in key[0])]:
            del self._kept[key]

    def forget(self) -> None:
        """Work everything out anew when it is asked again."""
        self._kept.clear()
