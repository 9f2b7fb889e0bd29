"""Which calls of the run's one seeded sequence a process plans: what is said does not depend on how many there are."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Process `index` of `of` plans call k where k mod `of` == `index`.

    One that joined when the calls were dealt out already has a sequence of its own, named by `late`.
    """

    index: int = 0
    of: int = 1
    late: str = ""

    def next_from(self, number: int) -> int:
        """The first call of this share that is not before `number`."""
        return number + (self.index - number) % self.of

    def count(self, calls: int) -> int:
        """Return how many of the first `calls` calls of the sequence are in this share; none for one that came late."""
        return 0 if self.late else len(range(self.index, calls, self.of))


WHOLE = Share()


def deal(present: Sequence[int], worker: int) -> Share:
    """The share of a worker, given the numbers of those that were there when the run began."""
    if worker in present:
        return Share(sorted(present).index(worker), len(present))
    return Share(late=f"late-{worker}")
