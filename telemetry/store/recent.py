"""Which items were stored lately, so that a batch an exporter sends twice is stored once."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from telemetry.store.manifest import Table
from telemetry.store.schema import ArrowTable

# A retry follows within seconds, a spool within the hour: some 200,000 items cover either at any rate we can take in.
RECENT_LIMIT: Final = 200_000
# A turn without a span is known by its place in the call.
KEY_COLUMNS: Final[dict[Table, tuple[str, ...]]] = {
    "turns": ("trace_id", "span_id", "run_id", "call_id", "turn_index", "source"),
    "spans": ("trace_id", "span_id"),
    "points": ("name", "unix_ns", "service", "attributes"),
}


class RecentKeys:
    """A bounded set which forgets its oldest members."""

    def __init__(self, limit: int = RECENT_LIMIT) -> None:
        self._limit = limit
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def limit(self) -> int:
        """How many keys it remembers."""
        return self._limit

    def add(self, keys: Iterable[bytes]) -> None:
        """Remember keys, the latest last."""
        for key in keys:
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._limit:
            self._keys.popitem(last=False)


def row_keys(table: Table, content: ArrowTable) -> list[bytes]:
    """The identity of each row; `content` has at least the columns of `KEY_COLUMNS`."""
    columns: list[list[Any]] = [content.column(name).to_pylist() for name in KEY_COLUMNS[table]]
    if table == "turns":
        return [_digest(*(row[:2] if row[0] or row[1] else row[2:])) for row in zip(*columns, strict=True)]
    return [_digest(*row) for row in zip(*columns, strict=True)]


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
