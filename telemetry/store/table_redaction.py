"""The rules of `redaction` on the store's tables, inside the writer, so that no way in can store text."""

from typing import Any, cast

import orjson
import pyarrow as pa

from telemetry.store.manifest import Table
from telemetry.store.redaction import span_without_text, without_text
from telemetry.store.schema import ArrowTable, span_from_row, spans_table

_WORDS = "transcript_pii"
_ATTRIBUTES = "attributes"


def table_without_text(table: Table, content: ArrowTable) -> ArrowTable:
    """The table without what people said."""
    if table == "turns":
        if _WORDS not in content.schema.names:
            return content
        place = content.schema.get_field_index(_WORDS)
        return content.set_column(place, content.schema.field(place), pa.nulls(content.num_rows, pa.string()))
    if table == "spans":
        return spans_table([span_without_text(span_from_row(row)) for row in content.to_pylist()])
    place = content.schema.get_field_index(_ATTRIBUTES)
    kept = [_without_text(text) for text in content.column(_ATTRIBUTES).to_pylist()]
    return content.set_column(place, content.schema.field(place), pa.array(kept, pa.string()))


def _without_text(attributes: str) -> str:
    return orjson.dumps(without_text(cast("dict[str, Any]", orjson.loads(attributes)))).decode()
