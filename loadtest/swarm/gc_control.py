"""The garbage collector of a process that has audio to send: short rounds only while callers speak, and timed.

A full round walks every object there is, for tens of milliseconds with some hundred callers, and each of their turns is
invalid by it. What a call leaves behind is freed without a round: objects of a call do not hold each other in rings.
"""

import gc
import time
from typing import Any, Final

# Young objects are walked often and therefore shortly; old ones never of the collector's own accord.
_YOUNG: Final = 2000
_YOUNG_ROUNDS: Final = 1
_NEVER: Final = 2**31 - 1


class GcControl:
    """Times every round of the collector that can hold up a call, from the beginning on."""

    def __init__(self) -> None:
        self._began_perf_ns = 0
        self._worst_ns = 0
        self._thresholds = gc.get_threshold()
        gc.callbacks.append(self._note)

    def tame(self) -> None:
        """From now on there are no full rounds. What is loaded now stays: nothing of it is walked again."""
        self.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG, _YOUNG_ROUNDS, _NEVER)

    def collect(self) -> None:
        """Run a full collection while nobody calls: it delays no call and is not one of those that are reported."""
        worst_ns = self._worst_ns
        gc.collect()
        self._worst_ns = worst_ns

    def take_worst_ns(self) -> int:
        """The longest round since the last look; it starts anew."""
        worst, self._worst_ns = self._worst_ns, 0
        return worst

    def close(self) -> None:
        """Leave the collector as it was."""
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        del info
        now = time.perf_counter_ns()
        if phase == "start":
            self._began_perf_ns = now
        elif self._began_perf_ns:
            self._worst_ns = max(self._worst_ns, now - self._began_perf_ns)
