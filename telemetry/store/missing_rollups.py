"""Giving large segments that were never merged the roll-ups that merged ones are written with, and those whose roll-up
another version wrote, or cannot be read, one that can.

A store that was filled in large appends has such segments, and so has one whose merges wait for others: without
roll-ups their turns would be rolled up again and again, for every reader that asks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment
from telemetry.store.rollups.files import is_current
from telemetry.store.writer import StoreWriter

# Segments of fewer rows are merged soon, or cost little to read.
FEWEST_ROWS: Final[dict[manifests.Table, int]] = {"turns": 10_000, "spans": 100_000}
# A segment whose roll-up could not be made is left alone for so long.
RETRY_S: Final = 30.0

# Writes the roll-up of a segment that has none; the name of its file, None for a segment without.
RollUp = Callable[[Path, Segment], str | None]


class MissingRollUps:
    """Makes the roll-ups that a writer's segments lack, one at a time. `on_damage` is called with a damaged segment,
    `on_retired` with the file of a roll-up that a segment no longer names."""

    def __init__(
        self,
        writer: StoreWriter,
        roll_up: RollUp,
        *,
        clock_s: Callable[[], float],
        on_damage: Callable[[Segment], None],
        on_retired: Callable[[str], None] = lambda _rollup: None,
        fewest_rows: dict[manifests.Table, int] = FEWEST_ROWS,
    ) -> None:
        self._writer = writer
        self._roll_up = roll_up
        self._clock_s = clock_s
        self._on_damage = on_damage
        self._on_retired = on_retired
        self._is_current: dict[str, bool] = {}  # by the file of a roll-up
        self._fewest_rows = fewest_rows
        self._tried: dict[str, float] = {}  # by file, when to try again

    def make_one(self) -> bool:
        """Give one segment its roll-up, the newest first; False when no segment waits for one.

        Raises OSError when the segment cannot be read or the manifest not be written: then it has none yet.
        """
        segment = self._next()
        if segment is None:
            return False
        self._tried[segment.file] = self._clock_s() + RETRY_S
        directory = self._writer.directory
        if not manifests.is_intact(directory, segment):
            self._on_damage(segment)
            self._tried[segment.file] = float("inf")
            return True
        rollup = self._roll_up(manifests.segment_path(directory, segment), segment)
        if rollup is None:
            self._tried[segment.file] = float("inf")  # it would say no less than the rows
            return True
        try:
            self._writer.name_rollup(segment, rollup)
            if segment.rollup not in (None, rollup):
                self._on_retired(segment.rollup or "")
        finally:
            self._writer.discard_unpublished([rollup])
        return True

    def _next(self) -> Segment | None:
        manifest, now_s = self._writer.manifest, self._clock_s()
        files = {segment.file for segment in manifest.segments}
        self._tried = {file: until_s for file, until_s in self._tried.items() if file in files}
        named = {segment.rollup for segment in manifest.segments}
        self._is_current = {file: known for file, known in self._is_current.items() if file in named}
        for segment in reversed(manifest.segments):
            fewest = self._fewest_rows.get(segment.table)
            if fewest is None or segment.rows < fewest or self._has_current(segment):
                continue
            if self._tried.get(segment.file, now_s) <= now_s:
                return segment
        return None

    def _has_current(self, segment: Segment) -> bool:
        """Whether the segment's roll-up can be read by this version; looked at once."""
        if segment.rollup is None:
            return False
        if segment.rollup not in self._is_current:
            path = manifests.segment_path(self._writer.directory, segment).with_name(segment.rollup)
            self._is_current[segment.rollup] = is_current(path, segment.crc32)
        return self._is_current[segment.rollup]
