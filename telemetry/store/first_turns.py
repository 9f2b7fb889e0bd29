"""The first turns of row groups, of which samples are made; what was read is kept, as a segment never changes."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from telemetry.store.manifest import Segment
from telemetry.store.open_segments import OpenSegments
from telemetry.store.schema import ArrowTable

# Of so many row groups: those of a sample, and those that new segments moved it to.
_KEPT_GROUPS: Final = 72


class FirstTurns:
    """Reads the first turns of row groups column by column, and keeps them. Not thread-safe."""

    def __init__(self, files: OpenSegments) -> None:
        self.files = files
        self._kept: OrderedDict[tuple[str, int, int], dict[str, Any]] = OrderedDict()

    def of(self, segment: Segment, group: int, schema: Any, most: int) -> ArrowTable:
        """At most so many turns with the columns of a schema; those that the segment does not have are empty.

        Raises OSError and pyarrow.ArrowException when the segment cannot be read.
        """
        known = self._kept.setdefault((segment.file, group, most), {})
        self._kept.move_to_end((segment.file, group, most))
        if lacking := [field for field in schema if field.name not in known]:
            known.update(self._read(segment, group, lacking, most))
            while len(self._kept) > _KEPT_GROUPS:
                self._kept.popitem(last=False)
        return pa.table([known[name] for name in schema.names], schema=schema)

    def keep_only(self, files: set[str]) -> None:
        """Forget the segments that are not among these."""
        for key in [key for key in self._kept if key[0] not in files]:
            del self._kept[key]

    def forget(self) -> None:
        """Read everything anew when it is asked again."""
        self._kept.clear()

    def _read(self, segment: Segment, group: int, fields: Sequence[Any], most: int) -> dict[str, Any]:
        with self.files.opened(segment) as file:
            of_file = frozenset(file.schema_arrow.names)
            names = [field.name for field in fields if field.name in of_file]
            batches = file.iter_batches(most, row_groups=[group], columns=names, use_threads=False)
            batch = next(batches, None)
        rows = 0 if batch is None else batch.num_rows
        return {
            field.name: batch.column(field.name).cast(field.type)
            if batch is not None and field.name in of_file
            else pa.nulls(rows, field.type)
            for field in fields
        }
