"""Giving large segments that were never merged the roll-ups that merged ones are written with.

A store that was filled in large appends has such segments, and so has one whose merges wait for others: without
roll-ups their turns would be rolled up again and again, for every reader that asks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment
from telemetry.store.writer import StoreWriter

# Segments of fewer rows are merged soon, or cost little to read.
FEWEST_ROWS: Final[dict[manifests.Table, int]] = {"turns": 10_000, "spans": 100_000}
# A segment whose roll-up could not be made is left alone for so long.
RETRY_S: Final = 30.0

# Writes the roll-up of a segment that has none; the name of its file, None for a segment without.
RollUp = Callable[[Path, Segment], str | None]


class MissingRollUps:
    """Makes the roll-ups that a writer's segments lack, one at a time. `on_damage` is told of a damaged segment."""

    def __init__(
        self,
        writer: StoreWriter,
        roll_up: RollUp,
        *,
        clock_s: Callable[[], float],
        on_damage: Callable[[Segment], None],
        fewest_rows: dict[manifests.Table, int] = FEWEST_ROWS,
    ) -> None:
        self._writer = writer
        self._roll_up = roll_up
        self._clock_s = clock_s
        self._on_damage = on_damage
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
        finally:
            self._writer.discard_unpublished([rollup])
        return True

    def _next(self) -> Segment | None:
        manifest, now_s = self._writer.manifest, self._clock_s()
        files = {segment.file for segment in manifest.segments}
        self._tried = {file: until_s for file, until_s in self._tried.items() if file in files}
        for segment in reversed(manifest.segments):
            fewest = self._fewest_rows.get(segment.table)
            if segment.rollup is not None or fewest is None or segment.rows < fewest:
                continue
            if self._tried.get(segment.file, now_s) <= now_s:
                return segment
        return None
