"""Files that the manifest no longer names: readers of an older one keep them for a while, then they go."""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final

from telemetry.store.manifest import SEGMENTS_FOLDER, Segment, files_of
from telemetry.store.writer import StoreWriter

GRACE_S: Final = 30.0


class RetiredFiles:
    """Removes the files of segments that left the store `grace_s` ago."""

    def __init__(
        self, writer: StoreWriter, *, grace_s: float = GRACE_S, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._writer = writer
        self._grace_s = grace_s
        self._clock_s = clock_s
        self._waiting: list[tuple[float, str]] = []

    def add(self, segments: Iterable[Segment]) -> None:
        """Segments that the manifest has just ceased to name, with their roll-ups."""
        now = self._clock_s()
        self._waiting += [(now, file) for file in files_of(segments)]

    def add_rollup(self, rollup: str) -> None:
        """The file of a roll-up that another one has just replaced."""
        self._waiting.append((self._clock_s(), rollup))

    def remove_due(self, *, everything: bool = False) -> None:
        """Remove what is due, or everything. What cannot be removed now is tried again the next time."""
        until = self._clock_s() - self._grace_s
        due = [(at, file) for at, file in self._waiting if everything or at <= until]
        if not due:
            return
        with contextlib.suppress(OSError):
            # Until the newer manifest is durable, a crash may bring back one that names these files.
            self._writer.sync()
            for entry in due:
                (self._writer.directory / SEGMENTS_FOLDER / entry[1]).unlink(missing_ok=True)
                self._waiting.remove(entry)
                self._writer.deleted([entry[1]])
