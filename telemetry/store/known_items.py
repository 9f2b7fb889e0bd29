"""Which rows are stored already, so that a batch an exporter sends twice is stored once, however late it comes again.

The identities of the newest commits stay in memory. What is not among them is looked up in the segments they do not
cover, by its moment: rows that begin now lie in none of those, so that only late ones cost a read.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from telemetry.store import identity
from telemetry.store.manifest import TABLES, Segment, Table
from telemetry.store.schema import ArrowTable
from telemetry.store.stored_keys import StoredKeys

# About 150 bytes each. Exporters retry within seconds, and what they retry later is looked up.
RECENT_ROWS_MAX: Final = 200_000


@dataclass(frozen=True, slots=True)
class NewRows:
    """The rows of a table that are not stored yet, in their order, and their identities."""

    content: ArrowTable
    keys: list[bytes]


@dataclass(slots=True)
class _Commit:
    file: str
    keys: list[bytes]


@dataclass(slots=True)
class _Recent:
    """The newest commits of one table: `files` are the segments whose rows are all among `keys`."""

    keys: set[bytes] = field(default_factory=set[bytes])
    commits: deque[_Commit] = field(default_factory=deque[_Commit])
    files: set[str] = field(default_factory=set[str])
    rows: int = 0


class KnownItems:
    """The rows of a store by identity. `stored` answers for the segments that `recent_rows_max` rows do not cover.

    An identity (`identity.keys`) names one row, which has one moment: the same ids at another moment are found only
    while they are in memory. Not thread-safe.
    """

    def __init__(self, stored: StoredKeys, *, recent_rows_max: int = RECENT_ROWS_MAX) -> None:
        self._stored = stored
        self._rows_max = recent_rows_max
        self._recent: dict[Table, _Recent] = {table: _Recent() for table in TABLES}

    @property
    def recent_rows(self) -> int:
        """How many identities are in memory."""
        return sum(len(recent.keys) for recent in self._recent.values())

    def new_rows(self, table: Table, content: ArrowTable, segments: Sequence[Segment]) -> NewRows:
        """The rows that neither the table's segments nor earlier rows of the same content hold.

        Raises OSError when a segment that may hold them cannot be asked now.
        """
        if not content.num_rows:
            return NewRows(content, [])
        recent = self._recent[table]
        keys = identity.keys(table, content)
        distinct = set(keys)
        if len(distinct) < len(keys) or not recent.keys.isdisjoint(distinct):
            content, keys = _kept(content, keys, recent.keys)
        older = [segment for segment in segments if segment.file not in recent.files]
        if older and keys:
            known = self._stored.present(older, keys, identity.starts(table, content))
            if known:
                content, keys = _kept(content, keys, known)
        return NewRows(content, keys)

    def add(self, segment: Segment, keys: list[bytes]) -> None:
        """Remember the rows of a segment that has become part of the store; the oldest are left to the segments."""
        recent = self._recent[segment.table]
        recent.keys.update(keys)
        recent.commits.append(_Commit(segment.file, keys))
        recent.files.add(segment.file)
        recent.rows += len(keys)
        while recent.rows > self._rows_max:
            oldest = recent.commits.popleft()
            recent.keys.difference_update(oldest.keys)
            recent.files.discard(oldest.file)
            recent.rows -= len(oldest.keys)

    def replace(self, old: Sequence[Segment], new: Segment | None) -> None:
        """A segment has taken the place of others, or none has: what was known of them by name is known of it."""
        recent = self._recent[old[0].table]
        names = {segment.file for segment in old}
        if new is not None:
            if names <= recent.files:
                recent.files.add(new.file)
            for commit in recent.commits:
                if commit.file in names:
                    commit.file = new.file
        recent.files -= names
        self._stored.forget(list(names))


def _kept(content: ArrowTable, keys: list[bytes], known: set[bytes]) -> tuple[ArrowTable, list[bytes]]:
    """The rows whose key is not known, each key once."""
    seen: set[bytes] = set()
    places: list[int] = []
    for place, key in enumerate(keys):
        if key not in known and key not in seen:
            seen.add(key)
            places.append(place)
    taken: Any = content.take(pa.array(np.array(places, np.int64)))
    return taken, [keys[place] for place in places]
