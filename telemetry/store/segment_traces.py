"""Which segments may hold a trace, asked of their Bloom filters; the ids of small segments, which have none, are kept.

DuckDB reads from the file for the filter of each row group, and plans a statement over all files before. Here a few
bytes for each trace are kept in memory, and asked without a statement.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from telemetry.store.manifest import Segment, segment_path
from telemetry.store.trace_filters import TRACE_COLUMN

# Parquet's split block Bloom filter: blocks of eight words, in each of which a value sets one bit.
_WORDS: Final = 8
_BLOCK_BYTES: Final = 4 * _WORDS
_SALT: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
# Of a segment without filters that has more rows, nothing is kept.
_KEPT_IDS_MAX: Final = 100_000
# In Thrift's compact protocol: the size; then that blocks, xxHash and no compression were chosen.
_SIZE_FIELD: Final = b"\x15"
_CHOICES: Final = b"\x1c\x1c\x00\x00" * 3 + b"\x00"


@dataclass(frozen=True, slots=True)
class SoughtTrace:
    """The id of a trace, the upper half of its hash, and the bits that it sets in a block (8 words)."""

    trace_id: str
    upper: int
    bits: NDArray[np.uint32]

    @classmethod
    def of(cls, trace_id: str) -> Self:
        """What filters are asked of a trace."""
        hashed = xxhash.xxh64_intdigest(trace_id.encode(errors="surrogatepass"))
        lower = np.uint32(hashed & 0xFFFFFFFF)
        return cls(trace_id, hashed >> 32, np.uint32(1) << (lower * _SALT >> np.uint32(27)))


@dataclass(frozen=True, slots=True)
class _Filters:
    """The filters of a segment's row groups: their blocks one after the other, and where the blocks of each begin."""

    blocks: NDArray[np.uint32]
    begins: NDArray[np.uint64]
    counts: NDArray[np.uint64]

    @classmethod
    def of(cls, filters: list[NDArray[np.uint32]]) -> Self:
        counts = np.array([len(each) for each in filters], np.uint64)
        return cls(np.concatenate(filters), np.cumsum(counts) - counts, counts)

    def may_hold(self, trace: SoughtTrace) -> bool:
        chosen = self.blocks[self.begins + (np.uint64(trace.upper) * self.counts >> np.uint64(32))]
        return bool(np.any(np.all(chosen & trace.bits == trace.bits, axis=1)))


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of the traces of a small segment."""

    ids: Any

    def may_hold(self, trace: SoughtTrace) -> bool:
        return pc.call_function("index", [self.ids], pc.IndexOptions(pa.scalar(trace.trace_id))).as_py() >= 0


class TracesOfSegments:
    """What is known of the traces of each segment of a store, read when it is first asked. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, _Filters | _Ids | None] = {}

    def may_hold(self, segment: Segment, trace: SoughtTrace) -> bool:
        """Whether a segment may hold a row of a trace: False is certain as far as the segment is intact, and so is
        True for a small one. Raises FileNotFoundError when the segment is gone."""
        if segment.file not in self._known:
            self._known[segment.file] = _read(segment_path(self._directory, segment))
        known = self._known[segment.file]
        return known is None or known.may_hold(trace)

    def keep_only(self, files: set[str]) -> None:
        """Forget the segments that are not among these."""
        for file in self._known.keys() - files:
            del self._known[file]

    def forget(self) -> None:
        """Read everything anew when it is asked again."""
        self._known.clear()


def _read(path: Path) -> _Filters | _Ids | None:
    """The filters of all row groups, else the ids; None when they cannot be read."""
    try:
        metadata = pq.read_metadata(path)
        places = _places(metadata)
        with path.open("rb") as file:
            found = [_filter(file.read(size)) for at, size in places if file.seek(at) == at]
            whole = [each for each in found if each is not None]
            if places and len(whole) == len(places):
                return _Filters.of(whole)
            if metadata.num_rows > _KEPT_IDS_MAX:
                return None
            column = pq.ParquetFile(file, metadata=metadata).read([TRACE_COLUMN]).column(0)
            return _Ids(pc.call_function("unique", [column]))
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException):
        return None  # what is wrong with it is found out where its rows are read


def _places(metadata: Any) -> list[tuple[int, int]]:
    """Where the filter of each row group lies, as offset and size; empty when one has none."""
    names = [metadata.schema.column(place).path for place in range(len(metadata.schema))]
    columns = [metadata.row_group(each).column(names.index(TRACE_COLUMN)) for each in range(metadata.num_row_groups)]
    places = [(column.bloom_filter_offset, column.bloom_filter_length) for column in columns]
    return [] if any(None in place for place in places) else places


def _filter(content: bytes) -> NDArray[np.uint32] | None:
    """The blocks of a filter, which stand behind its header; None for another kind of filter."""
    size = 1 << max(0, len(content).bit_length() - 1)
    header = _SIZE_FIELD + _varint(size * 2) + _CHOICES  # a signed number: twice its value
    if size < _BLOCK_BYTES or len(content) != len(header) + size or not content.startswith(header):
        return None
    return np.frombuffer(content, "<u4", offset=len(header)).reshape(-1, _WORDS)


def _varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])
