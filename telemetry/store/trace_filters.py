"""Bloom filters by which DuckDB leaves out the row groups that hold nothing of a trace.

Trace ids are random, so the least and the greatest of a row group exclude nothing. The filter of a row group takes a
few bytes for each trace in it and is read in place of the ids.
"""

from typing import Any, Final

import pyarrow.compute as pc

from telemetry.store.row_groups import GROUP_BYTES
from telemetry.store.schema import ArrowTable

TRACE_COLUMN: Final = "trace_id"
FILTER_ROWS_MIN: Final = 10_000
# A segment is read for nothing for this share of the row groups without a trace, of which a large store has thousands.
_FALSE_POSITIVES: Final = 1e-5
# The first row group says how large the filters of a file become. Those that follow may hold more traces: unless they
# hold this many times fewer rows to a trace, their filters still exclude.
_ROWS_OF_A_TRACE_MAX: Final = 32


def trace_filters(first_group: ArrowTable, rows_min: int = FILTER_ROWS_MIN) -> dict[str, Any] | None:
    """The Bloom filters of a segment as pyarrow's writer takes them, judged by its first row group; None for none.

    A segment gets them when this row group has `rows_min` rows, or so many bytes that it is one of several.
    """
    if TRACE_COLUMN not in first_group.schema.names:
        return None
    if first_group.num_rows < rows_min and first_group.nbytes < GROUP_BYTES // 2:
        return None
    traces = pc.call_function("count_distinct", [first_group.column(TRACE_COLUMN)]).as_py()
    expected = max(1, traces, first_group.num_rows // _ROWS_OF_A_TRACE_MAX)
    return {TRACE_COLUMN: {"ndv": expected, "fpp": _FALSE_POSITIVES}}
