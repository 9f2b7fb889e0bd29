"""Finds the spans of voice frameworks, in tables that were just stored and in the segments of a store, and which of
them are turns already."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line
from telemetry.sidecar.adapters.turn_assembly import is_foreign
from telemetry.store.manifest import Segment, segment_path
from telemetry.store.schema import ArrowTable

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

_NAMES: Final = ("scope_name", "span_name")
_SEPARATOR: Final = "\0"

_log = logging.getLogger(__name__)


def foreign_spans(spans: ArrowTable) -> ArrowTable | None:
    """The rows of a table of spans that an adapter may want; None where there is none.

    Our own spans cost one comparison of a column.
    """
    is_other = pc.not_equal(spans.column("scope_name"), semconv.SCOPE)
    if not spans.num_rows or not pc.any(is_other).as_py():
        return None
    names = pc.binary_join_element_wise(*(spans.column(name) for name in _NAMES), _SEPARATOR)
    wanted = [each for each in pc.unique(names).to_pylist() if _is_wanted(each)]
    return spans.filter(pc.is_in(names, pa.array(wanted, pa.string()))) if wanted else None


def _is_wanted(names: str) -> bool:
    scope_name, _, span_name = names.partition(_SEPARATOR)
    return scope_name != semconv.SCOPE and is_foreign(one_line(scope_name), one_line(span_name))


def stored_foreign_spans(directory: Path, segments: Sequence[Segment]) -> Iterator[ArrowTable]:
    """As `foreign_spans`, of each row group of some segments; one that cannot be read is left out, with a log line."""
    for segment in segments:
        try:
            with pq.ParquetFile(segment_path(directory, segment)) as file:
                for number in range(file.num_row_groups):
                    if not _is_ours(file.metadata.row_group(number)):
                        found = _of_group(file, number)
                        if found is not None:
                            yield found
        except (OSError, pa.ArrowException) as error:
            _log.warning("%s: its spans cannot become turns (%s)", segment.file, error)


def stored_turns(directory: Path, segments: Sequence[Segment], span_ids: ArrowTable) -> set[tuple[str, str]]:
    """The trace and span of each turn of a service in some segments that has one of the span ids."""
    found: set[tuple[str, str]] = set()
    for segment in segments:
        try:
            with pq.ParquetFile(segment_path(directory, segment)) as file:
                for number in range(file.num_row_groups):
                    turns = file.read_row_group(number, columns=["source", "trace_id", "span_id"])
                    is_service = pc.equal(turns.column("source"), "service")
                    is_meant = pc.and_(is_service, pc.is_in(turns.column("span_id"), value_set=span_ids))
                    meant = turns.filter(is_meant)
                    ids = (meant.column(name).to_pylist() for name in ("trace_id", "span_id"))
                    found.update(zip(*ids, strict=True))
        except (OSError, pa.ArrowException) as error:
            _log.warning("%s: its turns cannot be recognized (%s)", segment.file, error)
    return found


def _of_group(file: Any, number: int) -> ArrowTable | None:
    names = file.read_row_group(number, columns=list(_NAMES))
    return foreign_spans(file.read_row_group(number)) if foreign_spans(names) is not None else None


def _is_ours(group: Any) -> bool:
    """Whether the statistics of a row group say that all of its spans are ours."""
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == "scope_name":
            found = column.statistics
            return found is not None and found.has_min_max and found.min == found.max == semconv.SCOPE
    return False
