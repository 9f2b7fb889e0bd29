"""The cells of tables as files of roll-ups have them, added up without making each.

A narrowed page has tens of thousands of them, one for each combination of values, and asks for few sums.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.histogram import Histogram, summed_counts
from telemetry.store.rollups.rollup import DIMENSIONS, Key, RollupCell, without_faster
from telemetry.store.rollups.rows import grouped
from telemetry.store.schema import ArrowTable

pc: Any = pyarrow.compute  # pyarrow ships no types of its own

_NAMES: Final = ("part", *(name for name in DIMENSIONS if name != "slot"))
_LABELS: Final = "labels_number"
_INT64: Final = np.iinfo(np.int64)


def summed(tables: Sequence[ArrowTable]) -> dict[Key, RollupCell]:
    """The cells of all rows without regard to their slots, those of one key added, and no more of the slowest turns
    than a roll-up keeps."""
    table = pa.concat_tables(tables).combine_chunks() if tables else None
    if table is None or not table.num_rows:
        return {}
    labels: dict[tuple[str | None, ...], int] = {}
    numbers = [labels.setdefault(tuple(each), len(labels)) for each in table.column("labels").to_pylist()]
    table = table.append_column(_LABELS, pa.array(numbers, pa.int64()))
    group, keys = grouped(table, [*_NAMES, _LABELS])
    order = np.argsort(group, kind="stable")
    begins = np.searchsorted(group[order], np.arange(len(keys)))
    cells = _measured(table.take(pa.array(order)), begins)
    named = list(labels)
    return without_faster(
        {
            Key(
                key["part"] or "",
                *(None if name == "slot" else key[name] for name in DIMENSIONS),
                labels=named[int(key[_LABELS] or 0)],
            ): cell
            for key, cell in zip(keys, cells, strict=True)
        }
    )


def _measured(table: ArrowTable, begins: Ints) -> list[RollupCell]:
    """The cell of each group of rows; a group begins where the one before it ends."""
    n = np.add.reduceat(_filled(table, "n", 0), begins).tolist()
    total = np.add.reduceat(_filled(table, "total", 0.0), begins).tolist()
    # NaN stands for a value that is missing: fmin and fmax give it only where all are.
    least, low = (np.fmin.reduceat(_filled(table, name, np.nan), begins).tolist() for name in ("least", "low"))
    most, high = (np.fmax.reduceat(_filled(table, name, np.nan), begins).tolist() for name in ("most", "high"))
    first = np.minimum.reduceat(_filled(table, "first", _INT64.max), begins).tolist()
    last = np.maximum.reduceat(_filled(table, "last", _INT64.min), begins).tolist()
    cells = [
        RollupCell(
            n=n[place],
            total=total[place],
            least=_known(least[place]),
            most=_known(most[place]),
            first=None if first[place] == _INT64.max else first[place],
            last=None if last[place] == _INT64.min else last[place],
        )
        for place in range(len(begins))
    ]
    for place, histogram in _histograms(table, begins):
        cells[place].histogram = Histogram(*histogram, _known(low[place]), _known(high[place]))
    for place, text_at, text in _texts(table, begins):
        cells[place].text_at, cells[place].text = text_at, text
    return cells


def _histograms(table: ArrowTable, begins: Ints) -> list[tuple[int, tuple[Ints, Ints]]]:
    """The buckets of each group that has a histogram, and the counts in them."""
    lists = {name: table.column(name).combine_chunks() for name in ("buckets", "counts")}
    is_known = lists["buckets"].is_valid().to_numpy(zero_copy_only=False)
    ends = lists["buckets"].offsets.to_numpy()
    buckets, counts = (each.values.to_numpy() for each in lists.values())
    found: list[tuple[int, tuple[Ints, Ints]]] = []
    for place, (begin, end) in enumerate(pairwise([*begins.tolist(), table.num_rows])):
        if not is_known[begin:end].any():
            continue
        of_group = slice(int(ends[begin]), int(ends[end]))
        found.append((place, summed_counts(buckets[of_group], counts[of_group])))
    return found


def _texts(table: ArrowTable, begins: Ints) -> list[tuple[int, int, str]]:
    """The text of each group that has one: the one that its `text_at` decides."""
    has_text = pc.and_(table.column("text_at").is_valid(), table.column("text").is_valid())
    rows = np.flatnonzero(has_text.to_numpy(zero_copy_only=False))
    of_rows = table.select(["text_at", "text"]).take(pa.array(rows))
    known: dict[int, tuple[int, str]] = {}
    places = (np.searchsorted(begins, rows, side="right") - 1).tolist()
    texts = zip(of_rows.column("text_at").to_pylist(), of_rows.column("text").to_pylist(), strict=True)
    for place, text in zip(places, texts, strict=True):
        known[place] = max(known.get(place, text), text)
    return [(place, text_at, text) for place, (text_at, text) in known.items()]


def _filled(table: ArrowTable, name: str, value: float) -> Any:
    return pc.fill_null(table.column(name), value).to_numpy()


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
