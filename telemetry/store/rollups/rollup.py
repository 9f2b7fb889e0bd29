"""A roll-up: what summaries, timelines and objectives need of many turns, added up so that it can be added again.

It is made of cells. A cell counts the turns of one kind (`part`) that agree in the dimensions and in its labels, and
adds to another by one rule: counts and totals add up, bounds widen, histograms add up, and of two texts the later one
stays. So roll-ups may be added in any order and in any grouping, and the figures are the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from telemetry.store.answers import Filter
from telemetry.store.rollups.buckets import Ints
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.schema import ArrowTable

# What a filter may ask for and still be answered from roll-ups; the kind of the phase tells ramps apart, and the slot
# is the stretch of time in which a turn began (telemetry.store.rollups.slots).
DIMENSIONS: Final = ("run_id", "cohort", "target", "phase", "phase_kind", "slot")
# What else a filter may ask for: a segment's roll-up has cells of combinations (telemetry.store.rollups.by_value).
OTHER_DIMENSIONS: Final = ("noise_profile", "length_class", "channel_profile", "route")
_LABELS: Final = 1 + len(DIMENSIONS)
KEPT_SLOWEST: Final = 10
SLOWEST: Final = "slowest"


class Key(NamedTuple):
    """Which turns a cell counts."""

    part: str
    run_id: str | None
    cohort: str | None
    target: str | None
    phase: str | None
    phase_kind: str | None
    slot: str | None
    labels: tuple[str | None, ...]


@dataclass(slots=True)
class RollupCell:
    """What was counted: `n` turns or values, the `total`, `least` and `most` of some quantity, the `first` and `last`
    moment in Unix ns, a `text` that the largest `text_at` decides, and a histogram."""

    n: int = 0
    total: float = 0.0
    least: float | None = None
    most: float | None = None
    first: int | None = None
    last: int | None = None
    text_at: int | None = None
    text: str | None = None
    histogram: Histogram | None = None


@dataclass(slots=True)
class Rollup:
    """Cells by key; the sequence numbers that arrived, by run and process, as ranges `[first, last]` of shape (n, 2);
    and the turns whose counterpart of the other source has not been met (columns of OPEN_COLUMNS), beside what is kept
    of responses whose two sides met (source `met`)."""

    cells: dict[Key, RollupCell] = field(default_factory=dict[Key, RollupCell])
    sequences: dict[tuple[str, str], Ints] = field(default_factory=dict[tuple[str, str], Ints])
    open_turns: ArrowTable | None = None

    def of(self, *parts: str) -> Iterator[tuple[Key, RollupCell]]:
        """The cells of some parts."""
        return ((key, cell) for key, cell in self.cells.items() if key.part in parts)


@dataclass(slots=True)
class SegmentRollup:
    """The roll-up of a segment: `by_slot` with the cells of each slot apart; `by_value` with those of the client's
    turns by the combination of the other dimensions in place of the slot, and no sequence numbers, None where that is
    not known. Both have the same open turns."""

    by_slot: Rollup
    by_value: Rollup | None = None


def matches(key: Key, f: Filter) -> bool:
    """Whether the filter means a cell's turns, by the dimensions."""
    return (
        (f.run_id is None or key.run_id == f.run_id)
        and (f.cohort is None or key.cohort == f.cohort)
        and (f.target is None or key.target == f.target)
        and (f.phase is None or key.phase == f.phase)
    )


def added(rollups: Iterable[Rollup]) -> Rollup:
    """The sum of roll-ups; turns whose counterpart is in another one stay open (`pairs.pair` brings them together).

    What the first one holds and no other does is not looked at: a large one comes first.
    """
    known = list(rollups)
    if len(known) == 1:
        return known[0]
    cells: dict[Key, RollupCell] = dict(known[0].cells) if known else {}
    sequences: dict[tuple[str, str], Ints] = dict(known[0].sequences) if known else {}
    by_key: dict[Key, list[RollupCell]] = {}
    ranges: dict[tuple[str, str], list[Ints]] = {}
    for rollup in known[1:]:
        for key, cell in rollup.cells.items():
            by_key.setdefault(key, [cells[key]] if key in cells else []).append(cell)
        for process, found in rollup.sequences.items():
            ranges.setdefault(process, [sequences[process]] if process in sequences else []).append(found)
    cells |= {key: added_cells(same) for key, same in by_key.items()}
    sequences |= {process: union_of_ranges(found) for process, found in ranges.items()}
    open_turns = [rollup.open_turns for rollup in known if rollup.open_turns is not None]
    return Rollup(without_faster(cells), sequences, pa.concat_tables(open_turns) if open_turns else None)


def added_cells(cells: list[RollupCell]) -> RollupCell:
    """The sum of cells of one key."""
    if len(cells) == 1:
        return cells[0]
    texts = [(cell.text_at, cell.text) for cell in cells if cell.text_at is not None and cell.text is not None]
    text_at, text = max(texts) if texts else (None, None)
    return RollupCell(
        n=sum(cell.n for cell in cells),
        total=sum(cell.total for cell in cells),
        least=min((cell.least for cell in cells if cell.least is not None), default=None),
        most=max((cell.most for cell in cells if cell.most is not None), default=None),
        first=min((cell.first for cell in cells if cell.first is not None), default=None),
        last=max((cell.last for cell in cells if cell.last is not None), default=None),
        text_at=text_at,
        text=text,
        histogram=_added_histograms(cells),
    )


def _added_histograms(cells: list[RollupCell]) -> Histogram | None:
    known = [cell.histogram for cell in cells if cell.histogram is not None]
    return Histogram.added(known) if known else None


def without_faster(cells: dict[Key, RollupCell]) -> dict[Key, RollupCell]:
    """The cells with the KEPT_SLOWEST slowest turns of each run, cohort and phase, and no more."""
    slow = sorted(
        (item for item in cells.items() if item[0].part == SLOWEST),
        key=lambda item: (tuple(str(each) for each in item[0][1:_LABELS]), *order_of_slowest(item)),
    )
    for _, of_one in groupby(slow, key=lambda item: item[0][1:_LABELS]):
        for key, _ in list(of_one)[KEPT_SLOWEST:]:
            del cells[key]
    return cells


def order_of_slowest(item: tuple[Key, RollupCell]) -> tuple[float, int, str]:
    """By which the slowest turns are sorted: their value, their beginning, their span's id."""
    key, cell = item
    return -(cell.most or 0.0), cell.first or 0, key.labels[1] or ""


def union_of_ranges(parts: Iterable[Ints]) -> Ints:
    """Ranges `[first, last]` of whole numbers, ascending and as few as possible, that hold what the parts hold."""
    every = np.concatenate(list(parts))
    every = every[np.argsort(every[:, 0], kind="stable")]
    if not len(every):
        return every
    reached = np.maximum.accumulate(every[:, 1])
    begins = np.concatenate([[True], every[1:, 0] > reached[:-1] + 1])
    ends = np.concatenate([begins[1:], [True]])
    return np.stack([every[begins, 0], reached[ends]], axis=1)


def sorted_cells(rollup: Rollup) -> list[tuple[Key, RollupCell]]:
    """The cells in an order that depends on nothing but their keys."""

    def order(item: tuple[Key, RollupCell]) -> Any:
        key, _ = item
        return [(part is not None, part or "") for part in (*key[:_LABELS], *key.labels)]

    return sorted(rollup.cells.items(), key=order)
