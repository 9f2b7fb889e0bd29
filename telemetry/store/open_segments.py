"""Segments' files opened again and again: what the end of a file says of it is decoded once.

The metadata of a file with a hundred columns in many row groups takes longer to decode than a row group to read.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from telemetry.store.manifest import Segment
from telemetry.store.row_groups import ranges

# Files of fewer rows are decoded quickly, and soon merged.
_FEWEST_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its number, its rows, and the least and the greatest moment (Unix ns) of these."""

    number: int
    rows: int
    first_unix_ns: int
    last_unix_ns: int


class OpenSegments:
    """Opens the files of a folder of segments. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Any] = {}
        self._groups: dict[str, tuple[RowGroup, ...]] = {}

    @contextlib.contextmanager
    def opened(self, segment: Segment) -> Generator[Any]:
        """A segment's Parquet file. Raises OSError and pyarrow.ArrowException when it cannot be read."""
        with pq.ParquetFile(self._folder / segment.file, metadata=self._metadata(segment)) as file:
            yield file

    def row_groups(self, segment: Segment) -> tuple[RowGroup, ...]:
        """The row groups of a segment. Raises as `opened`."""
        found = self._groups.get(segment.file)
        if found is None:
            metadata = self._metadata(segment)
            found = self._groups[segment.file] = tuple(
                RowGroup(number, metadata.row_group(number).num_rows, *bounds)
                for number, bounds in enumerate(ranges(metadata, segment))
            )
        return found

    def keep_only(self, files: set[str]) -> None:
        """Forget the segments that are not among these."""
        for known in (self._known, self._groups):
            for file in known.keys() - files:
                del known[file]

    def forget(self) -> None:
        """Read everything anew when it is asked again."""
        self._known.clear()
        self._groups.clear()

    def _metadata(self, segment: Segment) -> Any:
        known = self._known.get(segment.file)
        if known is None:
            known = pq.read_metadata(self._folder / segment.file)
            if segment.rows >= _FEWEST_ROWS:
                self._known[segment.file] = known
        return known
