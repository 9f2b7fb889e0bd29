"""Looks after what can fail while nobody sends, so that the health pages say it, and take it back."""

import contextlib
import shutil
from pathlib import Path
from typing import Final

from telemetry.model.errors import StoreError
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.store.compaction import Compactor
from telemetry.store.ingest_log import IngestLog
from telemetry.store.writer import StoreWriter

LOG_FAULT: Final = "ingest_log"
# A disk with less room than this will be full soon.
ROOM_BYTES_MIN: Final = 32 << 20
# A disk is asked to write something so often while nothing is wrong with it, and at every look otherwise.
_LOOKS_PER_PROBE: Final = 10
# A fault names so many causes at most.
_NAMED_MAX: Final = 3


class Watch:
    """Sets the faults of the log, the segments, their merging and the disk, once for each `look`."""

    def __init__(self, log: IngestLog, writer: StoreWriter, compactor: Compactor, faults: FaultBoard) -> None:
        self._log = log
        self._writer = writer
        self._compactor = compactor
        self._faults = faults
        self._directory: Path = writer.directory
        self._looks = 0

    def look(self) -> None:
        """Set or take back every fault that is looked for."""
        if self._looks % _LOOKS_PER_PROBE == 0 or self._faults.has(LOG_FAULT):
            self._probe()
        self._looks += 1
        self._faults.set("ingest_log_damage", _listed(self._log.damage))
        store = self._writer.faults()
        unwritable = store.why_unwritable
        self._faults.set(
            "segments", f"{self._directory}: no segment can be written ({unwritable})" if unwritable else None
        )
        self._faults.set("damage", _listed(store.damaged))
        self._faults.set(
            "quarantine",
            f"{self._directory}: {store.quarantined} files that the manifest did not name are in quarantine; "
            f"`voiceprobe store check {self._directory}` explains them"
            if store.quarantined
            else None,
        )
        merging = self._compactor.health
        self._faults.set("compaction", merging.last_failure if merging.running else "segments are not merged any more")
        with contextlib.suppress(OSError):
            free_bytes = shutil.disk_usage(self._directory).free
            short = f"{self._directory}: the disk has room for {free_bytes >> 20} MiB only; make room"
            self._faults.set("room", short if free_bytes < ROOM_BYTES_MIN else None)

    def _probe(self) -> None:
        try:
            self._log.probe()
            self._faults.set(LOG_FAULT, None)
        except StoreError as error:
            self._faults.set(LOG_FAULT, str(error), stops_storing=True)


def _listed(sentences: tuple[str, ...]) -> str | None:
    more = len(sentences) - _NAMED_MAX
    return "; ".join((*sentences[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else []))) or None
