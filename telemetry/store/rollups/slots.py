"""Slots of time, into which a roll-up divides its turns: any window is whole slots and a part of the one on each edge.

A slot is `2**level` ns long and begins at a multiple of that, so two slots are apart or one lies in the other. Those of
a roll-up are apart, and so long that each holds about as many turns, few enough to be read for one question.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from telemetry.store.rollups.buckets import Ints
from telemetry.store.schema import ArrowTable

# Slots of fewer turns are put together where they are neighbors.
SLOT_TURNS: Final = 16_384
# Shorter slots tell nothing apart: about a second.
FINEST_LEVEL: Final = 30
_COARSEST_LEVEL: Final = 62
# How much finer than slots of SLOT_TURNS turns are on average the turns are counted first.
_FINER: Final = 6
_SPARE_SLOTS: Final = 16
# The bulk of turns, without the earliest and the latest ones: a few may have strange moments.
_BULK: Final = (0.05, 0.95)


class Slot(NamedTuple):
    """A stretch of time: `place` is how many slots of its level lie between it and 1970."""

    level: int
    place: int

    @property
    def begin_unix_ns(self) -> int:
        """Its first moment."""
        return self.place << self.level

    @property
    def end_unix_ns(self) -> int:
        """The moment after its last one."""
        return (self.place + 1) << self.level

    @property
    def name(self) -> str:
        """Its name in the cells of a roll-up."""
        return f"{self.level}:{self.place}"

    @classmethod
    def named(cls, name: str) -> Self:
        """The slot of a name. Raises ValueError."""
        level, _, place = name.partition(":")
        return cls(int(level), int(place))


@dataclass(frozen=True, slots=True)
class SlotGrid:
    """Slots that are apart, in the order of time."""

    slots: Sequence[Slot]

    @classmethod
    def of_moments(cls, moments: Ints, slot_turns: int = SLOT_TURNS) -> Self:
        """The slots of turns that began at these moments (Unix ns)."""
        if not len(moments):
            return cls(())
        first, last = np.quantile(moments, _BULK, method="nearest").tolist()
        widest = _widest(last - first, len(moments), slot_turns)
        level = max(FINEST_LEVEL, widest - _FINER)
        places, counts = np.unique(moments >> level, return_counts=True)
        rows = {Slot(level, place): n for place, n in zip(places.tolist(), counts.tolist(), strict=True)}
        return cls(tuple(sorted(set(folded(rows, slot_turns).values()), key=lambda slot: slot.begin_unix_ns)))

    def names_in(self, turns: ArrowTable) -> Any:
        """The name of the slot of each turn, as text."""
        return pa.array(self.names_of(turns.column("started_unix_ns").fill_null(0).to_numpy()), pa.string())

    def names_of(self, moments: Ints) -> list[str | None]:
        """The name of the slot of each moment; None for one outside of all."""
        if not self.slots:
            return [None] * len(moments)
        begins = np.array([slot.begin_unix_ns for slot in self.slots], dtype=np.int64)
        ends = np.array([slot.end_unix_ns for slot in self.slots], dtype=np.int64)
        places = np.searchsorted(begins, moments, side="right") - 1
        is_within = (places >= 0) & (moments < ends[np.maximum(places, 0)])
        names: Any = np.array([*(slot.name for slot in self.slots), None], dtype=object)
        return names[np.where(is_within, places, len(self.slots))].tolist()


NO_SLOTS: Final = SlotGrid(())


@dataclass(slots=True)
class _Pile:
    """Slots whose turns are counted together, and how many they are."""

    rows: int = 0
    slots: list[Slot] = field(default_factory=list[Slot])

    def take(self, rows: int, slots: Iterable[Slot]) -> None:
        self.rows += rows
        self.slots.extend(slots)


def folded(rows: Mapping[Slot, int], slot_turns: int = SLOT_TURNS) -> dict[Slot, Slot]:
    """For each slot with so many turns the one that its turns belong to: neighbors of few turns become one slot, and
    slots within another one become that."""
    ordered = sorted(rows, key=lambda slot: slot.begin_unix_ns)
    reached = np.cumsum([rows[slot] for slot in ordered])
    first, last = (ordered[int(np.searchsorted(reached, reached[-1] * share))] for share in _BULK)
    widest = _widest(last.end_unix_ns - first.begin_unix_ns, int(reached[-1]), slot_turns)
    while True:
        found = _folded(rows, slot_turns, widest)
        # Turns that are strewn over a long time would have a slot each.
        if len(set(found.values())) <= 4 * sum(rows.values()) // slot_turns + _SPARE_SLOTS or widest == _COARSEST_LEVEL:
            return found
        widest += 1


def _folded(rows: Mapping[Slot, int], slot_turns: int, widest: int) -> dict[Slot, Slot]:
    by_level: dict[int, list[Slot]] = {}
    for slot in rows:
        by_level.setdefault(slot.level, []).append(slot)
    growing: dict[int, _Pile] = {}
    settled: dict[int, list[tuple[Slot, _Pile]]] = {}  # by the place, at this level, that they lie in
    for level in range(min(by_level), max(*by_level, widest) + 1):
        for slot in by_level.get(level, ()):
            pile = growing.setdefault(slot.place, _Pile())
            pile.take(rows[slot], [slot])
            for _, finer in settled.pop(slot.place, ()):
                pile.take(finer.rows, finer.slots)
        above: dict[int, _Pile] = {}
        full = {place >> 1 for place in settled}
        sums: dict[int, int] = {}
        for place, pile in growing.items():
            sums[place >> 1] = sums.get(place >> 1, 0) + pile.rows
        settled_above: dict[int, list[tuple[Slot, _Pile]]] = {}
        for place, those in settled.items():
            settled_above.setdefault(place >> 1, []).extend(those)
        for place, pile in growing.items():
            if level < widest and place >> 1 not in full and sums[place >> 1] <= slot_turns:
                above.setdefault(place >> 1, _Pile()).take(pile.rows, pile.slots)
            else:
                settled_above.setdefault(place >> 1, []).append((Slot(level, place), pile))
        growing, settled = above, settled_above
    return {slot: whole for those in settled.values() for whole, pile in those for slot in pile.slots}


def _widest(bulk_ns: int, turns: int, slot_turns: int) -> int:
    """The level of slots that hold `slot_turns` turns on average, where the bulk of so many turns takes so long."""
    length_ns = bulk_ns * slot_turns // max(1, turns * 9 // 10)
    return min(_COARSEST_LEVEL, max(FINEST_LEVEL, length_ns.bit_length()))
