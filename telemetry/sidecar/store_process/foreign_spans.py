"""Finds the spans of voice frameworks, in tables that were just stored and in the segments of a store, and which of
them are turns already."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from telemetry.model import semconv
from telemetry.model.foreign_text import one_line
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import is_foreign
from telemetry.store.manifest import Segment, segment_path
from telemetry.store.schema import ArrowTable, turn_from_row

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

_NAMES: Final = ("scope_name", "span_name")

_log = logging.getLogger(__name__)


def foreign_spans(spans: ArrowTable) -> ArrowTable | None:
    """The rows of a table of spans that an adapter may want; None where there is none.

    Our own spans cost one comparison of a column.
    """
    is_other = pc.not_equal(spans.column("scope_name"), semconv.SCOPE)
    if not spans.num_rows or not pc.any(is_other).as_py():
        return None
    # Each pair of names as two numbers in one: no character is certain not to be in a name.
    scopes, names = (_encoded(spans.column(name)) for name in _NAMES)
    pairs = scopes.indices.to_numpy().astype(np.int64) * max(len(names.dictionary), 1) + names.indices.to_numpy()
    found, of_row = np.unique(pairs, return_inverse=True)
    scope_names, span_names = scopes.dictionary.to_pylist(), names.dictionary.to_pylist()
    wanted = np.array(
        [_is_wanted(scope_names[pair // len(span_names)], span_names[pair % len(span_names)]) for pair in found],
        np.bool_,
    )
    return spans.filter(pa.array(wanted[of_row])) if wanted.any() else None


def _encoded(texts: Any) -> Any:
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return pc.fill_null(whole, "").dictionary_encode()


def _is_wanted(scope_name: str, span_name: str) -> bool:
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


def stored_turns(directory: Path, segments: Sequence[Segment], span_ids: ArrowTable) -> dict[tuple[str, str], Turn]:
    """The turns of services in some segments that have one of the span ids, by trace and span."""
    found: dict[tuple[str, str], Turn] = {}
    for segment in segments:
        try:
            with pq.ParquetFile(segment_path(directory, segment)) as file:
                for number in range(file.num_row_groups):
                    ids = file.read_row_group(number, columns=["source", "span_id"])
                    is_service = pc.equal(ids.column("source"), "service")
                    is_meant = pc.and_(is_service, pc.is_in(ids.column("span_id"), value_set=span_ids))
                    if pc.any(is_meant).as_py():
                        turns = map(turn_from_row, file.read_row_group(number).filter(is_meant).to_pylist())
                        found.update({(turn.trace_id, turn.span_id): turn for turn in turns})
        except (OSError, pa.ArrowException, msgspec.ValidationError) as error:
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
