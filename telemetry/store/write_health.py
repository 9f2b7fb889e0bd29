"""Whether a store can be written now, and what of it is damaged: what health endpoints show."""

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telemetry.store.private_files import write_durably

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_PROBE_NAME: Final = "probe.tmp"
# A commit of a few hundred turns; a disk that has no room for it is full.
_PROBE_BYTES: Final = 1 << 18
_PROBE_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """What is wrong with a store at this moment. `why_unwritable` says why nothing can be stored, None when it can.

    `damaged` names the segments whose rows cannot be read, a sentence each. `quarantined` counts the files that
    no manifest named when the writer started and that may hold rows beside it: `voiceprobe store check` explains them.
    """

    why_unwritable: str | None = None
    damaged: tuple[str, ...] = ()
    quarantined: int = 0


def reason_of(error: OSError) -> str:
    """Why the disk refused something, as part of a sentence."""
    return "the disk is full" if error.errno in _FULL else error.strerror or str(error)


class WriteHealth:
    """Whether the last write succeeded. After one that failed, `why_unwritable` tries a small one, at most once a
    second, so that a store is known to be writable again before somebody writes to it. Thread-safe."""

    def __init__(self, directory: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._path = directory / _PROBE_NAME
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._probe_at_s = 0.0

    def succeeded(self) -> None:
        """A write is on the disk."""
        with self._lock:
            self._reason = None

    def failed(self, error: OSError) -> None:
        """A write was refused."""
        with self._lock:
            self._reason = reason_of(error)
            self._probe_at_s = self._clock_s() + _PROBE_EVERY_S

    def why_unwritable(self) -> str | None:
        """Why nothing can be written, None when it can."""
        with self._lock:
            if self._reason is not None and self._clock_s() >= self._probe_at_s:
                self._reason = self._probe()
                self._probe_at_s = self._clock_s() + _PROBE_EVERY_S
            return self._reason

    def _probe(self) -> str | None:
        try:
            write_durably(self._path, bytes(_PROBE_BYTES))
            self._path.unlink()
        except OSError as error:
            return reason_of(error)
        return None
