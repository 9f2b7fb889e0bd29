"""Which segments can be trusted: a missing file or one of another size at once, its content before it is first read.

The checksum of a large store takes as long as reading all of it; a question reads little of it, often nothing but
roll-ups, which carry checksums of their own.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment, StoreManifest
from telemetry.store.schema import SCHEMAS

# When a file was changed, which one it is, and its size: they change whenever a file is replaced.
_Stamp = tuple[int, int, int]
# Segments whose checksums are computed side by side.
_CHECKED_AT_ONCE: Final = 2
_NOT_AS_WRITTEN: Final = "its content is not what was written"
_MISSING: Final = "the file is missing"


class UnsoundSegmentsError(Exception):
    """What a question was about to read is not what was written: it is to be asked again without it."""


class SegmentChecks:
    """The state of the segments of one store, as far as it is known. Not thread-safe: one question at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sequence: int | None = None
        self._stamps: dict[str, _Stamp | None] = {}
        self._intact: set[str] = set()
        self._incomplete: set[str] = set()
        self._damaged: dict[str, str] = {}
        self._passing: dict[str, str] = {}

    def begin(self) -> None:
        """A new question: what could not be opened for the last one is tried again."""
        self._passing.clear()

    def look(self, manifest: StoreManifest) -> bool:
        """Look for the files that a manifest names, reading none; True when one has changed since the last look.

        Raises FileNotFoundError when one is gone that a newer manifest no longer names.
        """
        self._sequence = manifest.sequence
        self._forget_others({segment.file for segment in manifest.segments})
        has_changed = False
        for segment in manifest.segments:
            path = manifests.segment_path(self._directory, segment)
            try:
                stamp = _stamp_of(path)
            except FileNotFoundError:
                stamp = None
            except OSError as error:
                self._passing[segment.file] = _fault(path, segment, error.strerror or str(error))
                continue
            if segment.file in self._stamps and self._stamps[segment.file] == stamp:
                continue
            has_changed |= segment.file in self._stamps
            if stamp is None and self._is_outdated():
                raise FileNotFoundError(path)
            self._forget(segment.file)
            self._stamps[segment.file] = stamp
            if stamp is None or stamp[2] != segment.size_bytes:
                why = _MISSING if stamp is None else _NOT_AS_WRITTEN
                self._damaged[segment.file] = _fault(path, segment, why)
        return has_changed

    def fault(self, segment: Segment) -> str | None:
        """Why a segment cannot be used, as far as that is known."""
        return self._damaged.get(segment.file) or self._passing.get(segment.file)

    def is_incomplete(self, segment: Segment) -> bool:
        """Whether a segment that was verified lacks columns or has others."""
        return segment.file in self._incomplete

    def verify(self, segments: Iterable[Segment]) -> None:
        """Make sure of the content of segments before they are read.

        Raises UnsoundSegmentsError when one cannot be used, and FileNotFoundError when one is gone that a newer
        manifest no longer names. Damage is remembered; that a file cannot be opened at this moment is not.
        """
        new = [segment for segment in segments if segment.file not in self._intact]
        if not new:
            return
        with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
            are_sound = list(pool.map(self._is_sound, new))
        if not all(are_sound):
            raise UnsoundSegmentsError

    def recheck(self, segments: Sequence[Segment]) -> bool:
        """Verify again those that were sound once; True when one of them cannot be used any more."""
        found = False
        for segment in segments:
            if segment.file not in self._intact:
                continue
            path = manifests.segment_path(self._directory, segment)
            try:
                pq.read_metadata(path)
                is_intact = manifests.is_intact(self._directory, segment)
            except FileNotFoundError:
                is_intact = False
            except (OSError, ValueError) as error:
                # A file that cannot be opened at this moment may be sound; Arrow's own errors have no number.
                is_intact = isinstance(error, OSError) and error.errno is not None
            if not is_intact:
                self._intact.discard(segment.file)
                self._damaged[segment.file] = _fault(path, segment, "it was damaged")
                found = True
        return found

    def _is_sound(self, segment: Segment) -> bool:
        path = manifests.segment_path(self._directory, segment)
        try:
            if manifests.is_intact(self._directory, segment):
                if not pq.read_schema(path).equals(SCHEMAS[segment.table]):
                    self._incomplete.add(segment.file)
                self._intact.add(segment.file)
                return True
            self._damaged[segment.file] = _fault(path, segment, _NOT_AS_WRITTEN)
        except FileNotFoundError:
            if self._is_outdated():
                raise
            self._damaged[segment.file] = _fault(path, segment, _MISSING)
        except (OSError, pa.ArrowException) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._passing[segment.file] = _fault(path, segment, why)
        return False

    def _is_outdated(self) -> bool:
        return manifests.load(self._directory).sequence != self._sequence

    def _forget(self, file: str) -> None:
        self._intact.discard(file)
        self._incomplete.discard(file)
        self._damaged.pop(file, None)

    def _forget_others(self, named: set[str]) -> None:
        for file in [file for file in self._stamps if file not in named]:
            del self._stamps[file]
            self._forget(file)


def _stamp_of(path: Path) -> _Stamp:
    stat = os.stat(path)  # noqa: PTH116 - called for each segment at each question
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _fault(path: Path, segment: Segment, why: str) -> str:
    return f"{path}: {segment.rows} rows of {segment.table} left out, {why}"
