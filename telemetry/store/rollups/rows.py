"""Rows of the statements → cells."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.rollup import DIMENSIONS, Key, RollupCell, added_cells
from telemetry.store.schema import ArrowTable

Row = Mapping[str, Any]


def key_of(part: str, row: Row, labels: Iterable[str | None]) -> Key:
    """The key of a row that has the columns of DIMENSIONS."""
    return Key(part, *(row[name] for name in DIMENSIONS), labels=tuple(labels))


def gathered(cells: Iterable[tuple[Key, RollupCell]]) -> dict[Key, RollupCell]:
    """Cells by key, those of one key added."""
    found: dict[Key, list[RollupCell]] = {}
    for key, cell in cells:
        found.setdefault(key, []).append(cell)
    return {key: added_cells(same) for key, same in found.items()}


def cells_of_rows(found: Iterable[Row]) -> dict[Key, RollupCell]:
    """Cells of rows with the columns `part` and `labels`, the dimensions, and what of a cell they fill."""
    return gathered(
        (
            key_of(row["part"], row, row["labels"]),
            RollupCell(
                n=row["n"],
                total=row.get("total") or 0.0,
                first=row.get("first"),
                last=row.get("last"),
                text_at=row.get("text_at"),
                text=row.get("text"),
            ),
        )
        for row in found
    )


def grouped(table: ArrowTable, names: Iterable[str]) -> tuple[Ints, list[dict[str, str | None]]]:
    """The group of each row by some columns of text, and what each group has in them."""
    names = list(names)
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    values: list[list[str | None]] = []
    for name in names:
        codes, known = numbered(table.column(name))
        values.append(known)
        _, numbers = np.unique(numbers * len(known) + codes, return_inverse=True)
        numbers = numbers.astype(np.int64).reshape(-1)
    _, firsts = np.unique(numbers, return_index=True)
    one_each = table.select(names).take(pa.array(firsts))
    return numbers, one_each.to_pylist()


def numbered(column: Any) -> tuple[Ints, list[str | None]]:
    """Each text's number and the texts by number; a missing one has a number, too."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()
