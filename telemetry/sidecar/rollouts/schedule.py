"""When each rollout is looked at next. Pure: the time is a parameter."""

from collections.abc import Sequence
from dataclasses import dataclass, field

# What could not be evaluated is tried again soon.
AGAIN_S = 5.0


@dataclass(slots=True)
class LookSchedule:
    """Every rollout at once in the beginning, then every `every_s` after its last look."""

    names: Sequence[str]
    every_s: float
    _due: dict[str, float] = field(default_factory=dict[str, float])

    def wait_s(self, now_s: float) -> float:
        """How long nothing is due; 0 where something is."""
        return max(0.0, self._due.get(self.next(), now_s) - now_s)

    def next(self) -> str:
        """The rollout whose look is due first."""
        return min(self.names, key=lambda name: self._due.get(name, float("-inf")))

    def looked(self, name: str, now_s: float, *, is_kept: bool) -> None:
        """Note that a look ended now; `is_kept` says whether its verdict could be kept."""
        self._due[name] = now_s + (self.every_s if is_kept else min(self.every_s, AGAIN_S))
