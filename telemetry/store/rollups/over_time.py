"""What is counted over time and by what answered, of staged turns: caches, fallbacks, routes, models, what made turns
invalid.

Counts over time are histograms over the numbers of ticks, so that a run of an hour is one cell of each name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.store.rollups.buckets import DURATIONS, Floats, Ints
from telemetry.store.rollups.histogram import Histogram, counted_by_group
from telemetry.store.rollups.rollup import Key, RollupCell
from telemetry.store.rollups.rows import key_of, numbered
from telemetry.store.rollups.staged import Bools, Staged
from telemetry.store.rollups.statements import SILENT

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

# Divides every width of a timeline that is not shorter.
COUNT_TICK_NS: Final = 5_000_000_000
OVER_TIME: Final = "over_time"
ANSWERED_BY: Final = "answered_by"
# What of a turn says who answered, by the name under which answers have it.
ANSWERING: Final = {"tier": "cache_tier", "route": "route", "model": "model", "fallback": "fallback"}
_NO_VALUE: Final = Histogram.empty()


@dataclass(frozen=True)
class TickScale:
    """The numbers of ticks, each a bucket of its own."""

    def buckets(self, values: Any) -> Ints:
        """The numbers as they are."""
        return np.asarray(values, dtype=np.int64)

    def edges(self, buckets: Ints) -> tuple[Floats, Floats]:
        """Each number is the only value of its bucket."""
        return buckets.astype(np.float64), buckets.astype(np.float64)


TICKS: Final = TickScale()


def over_time(staged: Staged) -> Iterator[tuple[Key, RollupCell]]:
    """Cells of the parts OVER_TIME (labels what, value, whether a cache answered) and ANSWERED_BY (likewise; the turns,
    with the sum and the histogram of how long those waited that got an answer)."""
    if not staged.table.num_rows:
        return
    is_asked = np.array([not kind.startswith(SILENT) for kind in staged.kinds], dtype=np.bool_)[staged.kind]
    ticks = np.asarray(staged.values("started_unix_ns")) // COUNT_TICK_NS
    valid = np.flatnonzero(staged.is_valid & is_asked)
    for what, column in ANSWERING.items():
        rows = valid[staged.known("cache_hit")[valid]] if what == "tier" else valid
        by = _Labeled.of(staged, column, rows)
        if what in ("tier", "fallback"):
            yield from _counted(staged, what, by, ticks[rows])
        yield from _waited(staged, what, by)
    reasons = staged.table.column("invalid_reasons").combine_chunks()
    parents = pc.list_parent_indices(reasons).to_numpy(zero_copy_only=False).astype(np.int64)
    which = (staged.is_client & staged.is_outcome("invalid") & is_asked)[parents]
    codes, names = numbered(pa.chunked_array([pc.list_flatten(reasons)]))
    of_reasons = _Labeled(parents[which], codes[which], [(name, None) for name in names])
    yield from _counted(staged, "invalid", of_reasons, ticks[parents[which]])


@dataclass(frozen=True)
class _Labeled:
    """Some rows, the code of each, and the two labels of every code."""

    rows: Ints
    code: Ints
    labels: Sequence[tuple[str | None, str | None]]

    @classmethod
    def of(cls, staged: Staged, column: str, rows: Ints) -> "_Labeled":
        """By the value of a column, and by whether a cache answered."""
        codes, names = numbered(staged.table.column(column))
        hits, hit_names = numbered(pc.cast(staged.table.column("cache_hit"), pa.string()))
        labels = [(name, hit) for name in names for hit in hit_names]
        return cls(rows, (codes * len(hit_names) + hits)[rows], labels)

    def groups(self, staged: Staged) -> Ints:
        """The number of each row's group and code together."""
        return staged.group[self.rows] * max(1, len(self.labels)) + self.code


def _counted(staged: Staged, what: str, by: _Labeled, ticks: Ints) -> Iterator[tuple[Key, RollupCell]]:
    for number, histogram in counted_by_group(by.groups(staged), ticks, TICKS):
        grp, code = divmod(number, len(by.labels))
        yield (
            key_of(OVER_TIME, staged.groups[grp], (what, *by.labels[code])),
            RollupCell(n=histogram.n, histogram=histogram),
        )


def _waited(staged: Staged, what: str, by: _Labeled) -> Iterator[tuple[Key, RollupCell]]:
    column = METRICS[HEADLINE].column
    groups = by.groups(staged)
    is_known: Bools = staged.known(column)[by.rows]
    values = staged.values(column)[by.rows][is_known]
    histograms = dict(counted_by_group(groups[is_known], values, DURATIONS))
    known, turns = np.unique(groups, return_counts=True)
    sums = np.bincount(np.searchsorted(known, groups[is_known]), values.astype(np.float64), len(known))
    for number, n, total in zip(known.tolist(), turns.tolist(), sums.tolist(), strict=True):
        grp, code = divmod(number, len(by.labels))
        cell = RollupCell(n=n, total=total, histogram=histograms.get(number, _NO_VALUE))
        yield key_of(ANSWERED_BY, staged.groups[grp], (what, *by.labels[code])), cell
