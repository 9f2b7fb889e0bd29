"""Current faults of a sidecar: for its health pages, and as events of its log."""

import contextlib
import logging
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.sidecar.logs import log_event
from telemetry.store.writer import StoreWriter

# A disk with less free space than this will be full soon.
ROOM_BYTES_MIN: Final = 32 << 20
_COMMIT: Final = "commit"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreFault:
    """A fault, as one sentence; `stops_storing` if nothing can be acknowledged meanwhile."""

    name: str
    sentence: str
    stops_storing: bool = False


class FaultBoard:
    """Faults by name; thread-safe. The start and the end of each is an event of the log; its sentence may change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, StoreFault] = {}

    def set(self, name: str, sentence: str | None, *, stops_storing: bool = False) -> None:
        """Set a fault, or clear it with None."""
        with self._lock:
            before = self._faults.get(name)
            faults = {**self._faults}
            if sentence is not None:
                faults[name] = StoreFault(name, sentence, stops_storing)
            else:
                faults.pop(name, None)
            self._faults = faults
        if before is None and sentence is not None:
            level = logging.ERROR if stops_storing else logging.WARNING
            log_event(_log, level, "fault_began", sentence, fault=name)
        elif before is not None and sentence is None:
            log_event(_log, logging.INFO, "fault_ended", f"the fault {name} is over", fault=name)

    def all(self) -> tuple[StoreFault, ...]:
        """Every current fault."""
        return tuple(self._faults.values())

    @property
    def is_storing(self) -> bool:
        """Whether data can be acknowledged at the moment."""
        return not any(fault.stops_storing for fault in self.all())


class StoreWatch:
    """Sets the faults of the store's disk at each `refresh`, and clears them even without traffic."""

    def __init__(self, writer: StoreWriter, faults: FaultBoard) -> None:
        self._writer = writer
        self._faults = faults

    def refresh(self) -> None:
        """Set or clear the faults."""
        if self._writer.why_unwritable() is not None:
            self._try()
        else:
            self._faults.set(_COMMIT, None)
        directory: Path = self._writer.directory
        with contextlib.suppress(OSError):
            free_bytes = shutil.disk_usage(directory).free
            short = f"{directory}: the disk has room for {free_bytes >> 20} MiB only; make room"
            self._faults.set("room", short if free_bytes < ROOM_BYTES_MIN else None)

    def failed(self, error: StoreError) -> None:
        """Record that a batch could not be stored."""
        self._faults.set(_COMMIT, str(error), stops_storing=True)

    def _try(self) -> None:
        """Commit an empty transaction, so that the store is known to be writable again before a sender needs it."""
        try:
            self._commit_nothing()
        except StoreError:
            try:
                self._writer.reopen()
                self._commit_nothing()
            except StoreError as error:
                self.failed(error)
                return
        self._faults.set(_COMMIT, None)

    def _commit_nothing(self) -> None:
        with self._writer.change():
            pass
