"""Faults that begin and end, as events of the log: what the health pages show of this moment."""

import logging
from collections.abc import Iterable

from telemetry.sidecar.logs import log_event
from telemetry.sidecar.messages import StoreFault

_log = logging.getLogger(__name__)


class FaultEvents:
    """Writes an event for each fault that begins or ends. A fault is known by its name; its sentence may change."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def note(self, faults: Iterable[StoreFault]) -> None:
        """Compare the faults of this moment with those before."""
        now = {fault.name: fault for fault in faults}
        for name in sorted(now.keys() - self._known):
            level = logging.ERROR if now[name].stops_storing else logging.WARNING
            log_event(_log, level, "fault_began", now[name].sentence, fault=name)
        for name in sorted(self._known - now.keys()):
            log_event(_log, logging.INFO, "fault_ended", f"the fault {name} is over", fault=name)
        self._known = set(now)
