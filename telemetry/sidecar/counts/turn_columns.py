"""Columns of a turns table as numpy arrays, for counting."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.model.metrics import METRICS, Metric
from telemetry.model.validity import NOT_AS_RECORDED
from telemetry.sidecar.counts.histograms import TRACE_ID_CHARS, Array
from telemetry.sidecar.counts.label_values import Combination, LabelValues, Vocabulary
from telemetry.store.schema import ArrowTable

# pyarrow ships no types of its own.
compute: Final[Any] = pc

LABEL_COLUMNS: Final = ("cohort", "route", "cache_tier", "model")
_METRIC_COLUMNS: Final = tuple(metric.column for metric in METRICS.values())
# What counting reads of a turn that a client heard.
_READ: Final = tuple(
    dict.fromkeys(
        (
            *LABEL_COLUMNS,
            *("trace_id", "outcome", "invalid_reasons", "cache_hit", "fallback", "withheld_metrics"),
            *_METRIC_COLUMNS,
        )
    )
)


def heard(turns: ArrowTable) -> ArrowTable:
    """The turns that clients heard, without the silent ones: those ask nothing, and are no part of the figures."""
    asks = compute.fill_null(compute.not_equal(turns.column("turn_kind"), "silence"), fill_value=True)
    found = turns.select(_READ).filter(compute.and_(compute.equal(turns.column("source"), "client"), asks))
    return found.combine_chunks()


def encoded(table: ArrowTable, column: str) -> tuple[list[str], Array]:
    """The distinct texts of a column ("" for null), and the index among them of each row."""
    return _encoded(compute.fill_null(compute.cast(table.column(column), pa.string()), ""))


def _encoded(texts: ArrowTable) -> tuple[list[str], Array]:
    found = (texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts).dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def items(table: ArrowTable, column: str) -> tuple[list[str], Array, Array]:
    """The distinct texts in a column of lists; of each item, its index among them and the row of its list."""
    lists = table.column(column).combine_chunks()
    texts, of_item = _encoded(compute.fill_null(lists.flatten(), ""))
    return texts, of_item, compute.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)


def combinations(
    table: ArrowTable, labels: Sequence[LabelValues | Vocabulary], now_s: float
) -> tuple[list[Combination], Array, list[list[str]]]:
    """The combinations of label values, the index among them of each row, and by label the values given up."""
    shown: list[list[str]] = []
    given_up: list[list[str]] = []
    code = np.zeros(table.num_rows, np.int64)
    for column, label in zip(LABEL_COLUMNS, labels, strict=True):
        texts, of_row = encoded(table, column)
        taken, gone = label.take(texts, now_s)
        distinct = list(dict.fromkeys(taken))
        places = {value: place for place, value in enumerate(distinct)}
        # There are few values to show, so the product of their numbers is small.
        code = code * max(1, len(distinct)) + np.array([places[value] for value in taken], np.int64)[of_row]
        shown.append(distinct)
        given_up.append(gone)
    codes, of_row = np.unique(code, return_inverse=True)
    found: list[Combination] = []
    for each in codes.tolist():
        values: list[str] = []
        for distinct in reversed(shown):
            each, place = divmod(each, len(distinct))  # noqa: PLW2901 - digits, from the last one
            values.append(distinct[place])
        cohort, route, tier, model = reversed(values)
        found.append((cohort, route, tier, model))
    return found, of_row.astype(np.int64), given_up


def withheld(table: ArrowTable, column: str = "withheld_metrics") -> dict[str, Array]:
    """By metric, the rows on which the wire cannot show it, or on which another column of lists names it."""
    names, of_item, rows = items(table, column)
    return {name: rows[of_item == place] for place, name in enumerate(names) if name in METRICS}


def values(table: ArrowTable, metric: Metric, hidden: Array | None) -> tuple[Array, Array]:
    """The rows on which a metric was measured, and its values, in its unit; not those of `hidden` rows."""
    column = table.column(metric.column).combine_chunks()
    known = column.is_valid().to_numpy(zero_copy_only=False).copy()
    if hidden is not None:
        known[hidden] = False
    found = compute.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if found.dtype.kind == "f":
        known &= np.isfinite(found)
    rows = np.flatnonzero(known)
    return rows, found[rows]


def is_invalid(table: ArrowTable) -> Array:
    """Whether the instrument was not to be trusted, of each turn."""
    return compute.equal(table.column("outcome"), "invalid").to_numpy()


def not_as_recorded(invalid: ArrowTable) -> int:
    """How many of the invalid turns were not said as recorded."""
    texts, of_item, rows = items(invalid, "invalid_reasons")
    places = [place for place, reason in enumerate(texts) if reason in NOT_AS_RECORDED]
    return int(np.unique(rows[np.isin(of_item, places)]).size)


def trace_ids(table: ArrowTable, rows: Array) -> dict[int, bytes]:
    """The trace ids of rows, as ASCII; b"" for what is not a trace id."""
    texts: list[str | None] = table.column("trace_id").take(pa.array(rows)).to_pylist()
    return {row: _trace_id(text or "") for row, text in zip(rows.tolist(), texts, strict=True)}


def _trace_id(text: str) -> bytes:
    return text.encode() if len(text) == TRACE_ID_CHARS and text.isascii() and text.isalnum() else b""
