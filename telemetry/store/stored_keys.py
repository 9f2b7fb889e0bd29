"""Which rows a store's segments hold already, asked by identity and moment with bounded memory and few reads.

A segment is asked only when its range covers the row's moment, and of its row groups only those whose range does. Of
such a row group, sorted fingerprints of four bytes a row stay in memory for the next question; a match is confirmed in
the file.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from telemetry.store import identity, row_groups
from telemetry.store import manifest as manifests
from telemetry.store.manifest import Segment
from telemetry.store.schema import ArrowTable

FINGERPRINT_BYTES_MAX: Final = 64 << 20
_READ_ROWS: Final = 1 << 16

_Fingerprints = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Group:
    """One row group: its number in the file and the range of its rows' moments."""

    number: int
    first_unix_ns: int
    last_unix_ns: int


class StoredKeys:
    """Asks the segments of a directory; `fingerprint_bytes_max` bounds what it keeps between two questions."""

    def __init__(self, directory: Path, *, fingerprint_bytes_max: int = FINGERPRINT_BYTES_MAX) -> None:
        self._directory = directory
        self._bytes_max = fingerprint_bytes_max
        self._groups: dict[str, tuple[_Group, ...]] = {}
        self._fingerprints: OrderedDict[tuple[str, int], _Fingerprints] = OrderedDict()
        self._bytes = 0

    @property
    def fingerprint_bytes(self) -> int:
        """How much memory the fingerprints take now."""
        return self._bytes

    def present(self, segments: Sequence[Segment], keys: Sequence[bytes], starts: NDArray[np.int64]) -> set[bytes]:
        """Those of the keys that one of the segments holds with the same moment.

        A segment that is damaged or missing holds nothing that could be told: its rows are taken again. Raises OSError
        when the segments cannot be asked now (too many open files).
        """
        first, last = int(starts.min()), int(starts.max())
        covering = [
            (segment, group)
            for segment in segments
            if _overlaps(segment.first_unix_ns, segment.last_unix_ns, first, last)
            for group in self._groups_of(segment)
            if _overlaps(group.first_unix_ns, group.last_unix_ns, first, last)
        ]
        if not covering:
            return set()
        order = np.argsort(starts, kind="stable")
        moments = starts[order]
        hashes = _fingerprints(keys)[order]
        found: set[bytes] = set()
        for segment, group in covering:
            begin = int(np.searchsorted(moments, group.first_unix_ns, "left"))
            end = int(np.searchsorted(moments, group.last_unix_ns, "right"))
            if begin < end:
                places = order[begin:end][self._matching(segment, group, hashes[begin:end])].tolist()
                found |= self._confirmed(segment, group, {keys[place]: int(starts[place]) for place in places})
        return found

    def forget(self, files: Sequence[str]) -> None:
        """Keep nothing of segments that are no longer part of the store."""
        gone = set(files)
        for name in gone:
            self._groups.pop(name, None)
        for place in [place for place in self._fingerprints if place[0] in gone]:
            self._bytes -= self._fingerprints.pop(place).nbytes

    def _matching(self, segment: Segment, group: _Group, hashes: _Fingerprints) -> NDArray[np.bool_]:
        known = self._fingerprints_of(segment, group)
        if not known.size:
            return np.zeros(hashes.size, np.bool_)
        at = np.minimum(np.searchsorted(known, hashes), known.size - 1)
        return known[at] == hashes

    def _confirmed(self, segment: Segment, group: _Group, wanted: dict[bytes, int]) -> set[bytes]:
        found: set[bytes] = set()
        if wanted:
            for part in self._key_columns(segment, group):
                moments = identity.starts(segment.table, part).tolist()
                stored = zip(identity.keys(segment.table, part), moments, strict=True)
                found.update(key for key, moment in stored if wanted.get(key) == moment)
        return found

    def _groups_of(self, segment: Segment) -> tuple[_Group, ...]:
        groups = self._groups.get(segment.file)
        if groups is None:
            groups = self._groups[segment.file] = self._read_groups(segment)
        return groups

    def _read_groups(self, segment: Segment) -> tuple[_Group, ...]:
        try:
            with self._path(segment).open("rb") as file:
                metadata: Any = pq.read_metadata(file)
        except (FileNotFoundError, pa.ArrowException):
            return ()
        except OSError as error:
            if error.errno is None:  # pyarrow's way to say that the content is not Parquet
                return ()
            raise
        ranges = row_groups.ranges(metadata, segment)
        return tuple(_Group(number, first, last) for number, (first, last) in enumerate(ranges))

    def _fingerprints_of(self, segment: Segment, group: _Group) -> _Fingerprints:
        place = (segment.file, group.number)
        known = self._fingerprints.get(place)
        if known is not None:
            self._fingerprints.move_to_end(place)
            return known
        parts = [_fingerprints(identity.keys(segment.table, part)) for part in self._key_columns(segment, group)]
        made = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.uint32)
        self._fingerprints[place] = made
        self._bytes += made.nbytes
        while self._bytes > self._bytes_max and len(self._fingerprints) > 1:
            _, oldest = self._fingerprints.popitem(last=False)
            self._bytes -= oldest.nbytes
        return made

    def _key_columns(self, segment: Segment, group: _Group) -> Iterator[ArrowTable]:
        columns = list(identity.KEY_COLUMNS[segment.table])
        try:
            with self._path(segment).open("rb") as source:
                file: Any = pq.ParquetFile(source)
                yield from file.iter_batches(_READ_ROWS, [group.number], columns, use_threads=False)
        except (FileNotFoundError, pa.ArrowException):
            return
        except OSError as error:
            if error.errno is not None:
                raise

    def _path(self, segment: Segment) -> Path:
        return manifests.segment_path(self._directory, segment)


def _fingerprints(keys: Sequence[bytes]) -> _Fingerprints:
    # The interpreter's hash is seeded anew in each process: a sender cannot choose identities that collide.
    return np.fromiter(map(hash, keys), np.int64, len(keys)).astype(np.uint32)


def _overlaps(first: int | None, last: int | None, least: int, greatest: int) -> bool:
    return first is not None and last is not None and first <= greatest and last >= least
