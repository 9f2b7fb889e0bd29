"""Turns as columns with the number of their group, ready to be counted."""

# ruff: noqa: S608 - the identifiers in these statements come from our own tables

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from telemetry.model.metrics import METRICS
from telemetry.store.rollups import statements
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.database import Database
from telemetry.store.rollups.pairs import OPEN_COLUMNS
from telemetry.store.rollups.rollup import DIMENSIONS
from telemetry.store.rollups.rows import grouped, numbered
from telemetry.store.schema import ENDED_COLUMN, SCHEMAS, ArrowTable

Bools = npt.NDArray[np.bool_]
# pyarrow ships no types of its own.
pc: Any = pyarrow.compute

_WHOLE: Final = (
    *(name for name in OPEN_COLUMNS if name in SCHEMAS["turns"].names),
    *("turn_kind", "process_id", "sequence", "hangup_perf_ns", "first_audio_perf_ns", "speech_start_perf_ns",
      "started_perf_ns", "speech_start_uncertainty_ns", "speech_end_uncertainty_ns", "wer_errors",
      "wer_reference_words", "wer_reference_characters", "barge_in_at_ns", "barge_in_end", "barge_in_recovered",
      "barge_in_reason", "backchannel_stopped", "reprompted", "expected_intent", "intent", "snr_asked_db",
      "model", "fallback", "cache_tier", "cache_hit", "endpoint_did_not_read", "protocol", "outcome_reason",
      "failure_kind", "failure_code", "retry_after_ns", "retry_wait_ns", "cut_by", "unknown_events",
      "duplicate_events", "service_latency_reports", "receive_stamp", "pacer", "withheld_metrics",
      "withheld_reasons", "invalid_reasons", "unknown_event_names", "llm_chunk_gaps_ns"),
    *statements.EVIDENCE_MOST.values(),
    *statements.EVIDENCE_P99.values(),
    *(metric.column for metric in METRICS.values()),
    ENDED_COLUMN,
)  # fmt: skip
# The columns of `turns` that a roll-up is made of.
NEEDED: Final[tuple[str, ...]] = tuple(dict.fromkeys(_WHOLE))


@dataclass(frozen=True)
class Staged:
    """Turns, of shape (n,) each column. `groups` has the source and the dimensions of each group, `group` the place of
    each turn's, and `kinds` and `kind` likewise how turns ended (`statements.KIND`)."""

    table: ArrowTable
    groups: list[dict[str, str | None]]
    group: Ints
    kinds: list[str]
    kind: Ints

    @cached_property
    def is_valid(self) -> Bools:
        """Of the client, and not blamed on the instrument."""
        return self.is_client & ~self.is_outcome("invalid")

    @cached_property
    def is_client(self) -> Bools:
        """Of the client."""
        return _bools(pc.equal(self.table.column("source"), "client"))

    def is_outcome(self, outcome: str) -> Bools:
        """Of this outcome."""
        return _bools(pc.equal(self.table.column("outcome"), outcome))

    def has(self, column: str) -> bool:
        """Whether a turn has a value in a column, of a list one with an element."""
        found = self.table.column(column)
        if pa.types.is_list(found.type):
            return bool((pc.max(pc.list_value_length(found)).as_py() or 0) > 0)
        return found.null_count < len(found)

    def has_outcome_but(self, *known: str) -> bool:
        """Whether a turn has an outcome other than these."""
        return any(each not in known for each in pc.unique(self.table.column("outcome")).to_pylist())

    def known(self, name: str) -> Bools:
        """Where a column has a value."""
        return _bools(self.table.column(name).is_valid())

    def values(self, name: str) -> Any:
        """A column of numbers; 0 where it has no value."""
        column = self.table.column(name)
        return column.fill_null(0).combine_chunks().to_numpy(zero_copy_only=False)

    def gaps(self) -> tuple[Ints, Ints]:
        """Every gap between pieces of text, and the place of its turn."""
        column = self.table.column("llm_chunk_gaps_ns").combine_chunks()
        return pc.list_flatten(column).to_numpy(zero_copy_only=False), _parents(column)

    def withheld(self, metric: str) -> Bools:
        """Where the wire withholds a metric."""
        flags = np.zeros(self.table.num_rows, dtype=np.bool_)
        names, parents = self._withheld
        if parents.size:
            flags[parents[_bools(pc.equal(names, metric))]] = True
        return flags

    @cached_property
    def _withheld(self) -> tuple[Any, Ints]:
        column = self.table.column("withheld_metrics").combine_chunks()
        return pc.list_flatten(column), _parents(column)


def complete(turns: ArrowTable, names: Sequence[str] = NEEDED) -> ArrowTable:
    """Turns with all of these columns, those that they lack unknown."""
    schema = pa.schema([SCHEMAS["turns"].field(name) for name in names])
    if turns.schema.equals(schema):
        return turns
    columns = [
        turns.column(field.name).cast(field.type)
        if field.name in turns.column_names
        else pa.nulls(turns.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class TurnLabels(Protocol):
    """By what the turns of the client are told apart, beside the dimensions."""

    def names_in(self, turns: ArrowTable) -> Any:
        """What stands in the column `slot` of each turn, as text; null for nothing."""
        ...


def stage(database: Database, turns: ArrowTable, labels: TurnLabels) -> Staged:
    """Turns with the columns of NEEDED, of which some may be missing, grouped; the client's by their label, too."""
    table = complete(turns).combine_chunks()
    database.register("staged", table)
    try:
        kinds = database.sql(f"SELECT {statements.KIND} AS kind FROM staged").to_arrow_table()
    finally:
        database.unregister("staged")
    kind, kind_names = numbered(kinds.column("kind"))
    table = with_labels(table, labels)
    dimensions = ("source", *DIMENSIONS)
    group, groups = grouped(table, dimensions)
    table = table.append_column("grp", pa.array(group)).append_column("kind", kinds.column("kind"))
    table = table.append_column("trace_run", pa.nulls(table.num_rows, pa.string()))
    return Staged(table, groups, group, [name or "" for name in kind_names], kind)


def with_labels(turns: ArrowTable, labels: TurnLabels) -> ArrowTable:
    """Turns with the label of each turn of the client in the column `slot`."""
    named = pc.if_else(pc.equal(turns.column("source"), "client"), labels.names_in(turns), None)
    if "slot" in turns.column_names:
        return turns.set_column(turns.column_names.index("slot"), "slot", named)
    return turns.append_column("slot", named)


def _bools(column: Any) -> Bools:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.fill_null(False).to_numpy(zero_copy_only=False)


def _parents(column: Any) -> Ints:
    return pc.list_parent_indices(column).to_numpy(zero_copy_only=False).astype(np.int64)
