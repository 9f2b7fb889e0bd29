"""The roll-up of a segment of spans: its `voice.run` spans, with which the processes of a run declare it.

They are a few among millions, and every page asks for them.
"""

import io
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.store.manifest import Segment
from telemetry.store.rollups import files
from telemetry.store.schema import SCHEMAS

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

_NAME: Final = "span_name"
_COLUMNS: Final = ("timestamp_unix_ns", "duration_ns", "span_attributes")


def write(path: Path, segment: Segment, most_bytes: int) -> str | None:
    """Write the declarations of a segment beside it; the file's name, or None for one that would be larger than that.

    Raises OSError and pyarrow.ArrowException.
    """
    schema = pa.schema([SCHEMAS["spans"].field(name) for name in _COLUMNS])
    sink = io.BytesIO()
    with (
        pq.ParquetFile(path) as file,
        pq.ParquetWriter(sink, schema.with_metadata(files.metadata(segment.crc32)), compression="zstd") as writer,
    ):
        for number in range(file.num_row_groups):
            is_meant = pc.equal(file.read_row_group(number, columns=[_NAME]).column(_NAME), semconv.SPAN_RUN)
            if pc.any(is_meant).as_py():
                found = file.read_row_group(number, columns=list(_COLUMNS)).select(list(_COLUMNS))
                writer.write_table(found.filter(is_meant).cast(schema).replace_schema_metadata(None))
    return files.write_content(path.parent, segment, sink.getvalue(), most_bytes)


def read(folder: Path, segment: Segment) -> list[dict[str, Any]] | None:
    """The declarations of a segment; None when it names no roll-up. Raises StoreError when that is missing or
    damaged."""
    if segment.rollup is None:
        return None
    file = files.opened(files.content_of(folder / segment.rollup), segment.crc32)
    try:
        return file.read().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the roll-up cannot be read ({error})") from error
