"""What is wrong with the store at this moment, for the health pages of the front."""

import threading
from collections.abc import Callable

from telemetry.sidecar.messages import Faults, StoreFault


class FaultBoard:
    """Faults by name; thread-safe. `tell` is called with all of them whenever they change."""

    def __init__(self, tell: Callable[[Faults], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._faults: dict[str, StoreFault] = {}

    def set(self, name: str, sentence: str | None, *, stops_storing: bool = False) -> None:
        """Name a fault, or take it back with None."""
        fault = None if sentence is None else StoreFault(name, sentence, stops_storing)
        with self._lock:
            if self._faults.get(name) == fault:
                return
            if fault is None:
                del self._faults[name]
            else:
                self._faults[name] = fault
            self._tell(Faults(tuple(self._faults.values())))

    def has(self, name: str) -> bool:
        """Whether a fault is named at this moment."""
        return name in self._faults
