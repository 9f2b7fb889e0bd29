"""Turns of a source, counted by cell: those of a segment that began at about the same time, have the same values of
what a filter asks for, and are judged alike by the rules of some objectives.

A segment never changes: its cells are kept, and what any filter means of it is a sum of them.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.semconv import Source
from telemetry.objectives.objective import Objective
from telemetry.store.answers import Filter
from telemetry.store.rollups.buckets import Ints

# What a filter may ask for, beside a time, and still be answered from cells.
LABELS: Final = ("run_id", "cohort", "target", "noise_profile", "length_class", "channel_profile", "route")
_KEPT_QUESTIONS: Final = 3

Verdicts = dict[str, dict[int, bool | None]]  # by objective and key


@dataclass(frozen=True, slots=True)
class TurnCells:
    """The cells of a segment, as columns of one value per cell: when the first and the last turn of its time began,
    whatever their labels, and when its own last turn began (Unix ns); its turns, the place of its key of the
    objectives' rules among those that occur, whether its turns were asked something and whether they are invalid; and
    by label the place of its value among those that occur."""

    begin_unix_ns: Ints
    end_unix_ns: Ints
    last_unix_ns: Ints
    turns: Ints
    key_codes: NDArray[np.int64]
    keys: NDArray[np.uint64]
    is_asked: NDArray[np.bool_]
    is_invalid: NDArray[np.bool_]
    codes: Mapping[str, NDArray[np.int32]]
    values: Mapping[str, Sequence[str | None]]

    def meant(self, f: Filter) -> NDArray[np.bool_]:
        """Which cells have the values that a filter asks for, at whatever time."""
        found = np.ones(len(self.turns), dtype=np.bool_)
        for name in LABELS:
            asked, known = getattr(f, name), self.values[name]
            if asked is not None:
                found &= self.codes[name] == (known.index(asked) if asked in known else len(known))
        return found

    def only(self, some: NDArray[np.bool_]) -> "TurnCells":
        """Some of them."""
        return TurnCells(
            begin_unix_ns=self.begin_unix_ns[some],
            end_unix_ns=self.end_unix_ns[some],
            last_unix_ns=self.last_unix_ns[some],
            turns=self.turns[some],
            key_codes=self.key_codes[some],
            keys=self.keys,
            is_asked=self.is_asked[some],
            is_invalid=self.is_invalid[some],
            codes={name: codes[some] for name, codes in self.codes.items()},
            values=self.values,
        )


@dataclass(slots=True)
class KnownCells:
    """What is known for some objectives and a source: what the rules say of each key; the cells by file, None of a
    segment that has too many; and by file and row group cells whose time is a single moment."""

    verdicts: Verdicts
    by_file: dict[str, TurnCells | None] = field(default_factory=dict[str, "TurnCells | None"])
    by_group: OrderedDict[tuple[str, int], TurnCells] = field(default_factory=OrderedDict[tuple[str, int], TurnCells])


class CellsOfTurns:
    """The cells that were read for the objectives that were asked for lately. Not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, KnownCells] = OrderedDict()

    def of(self, objectives: Sequence[Objective], source: Source) -> KnownCells:
        """What is known, to be added to."""
        question = tuple(objectives), source
        found = self._known.setdefault(question, KnownCells({each.name: {} for each in objectives}))
        self._known.move_to_end(question)
        while len(self._known) > _KEPT_QUESTIONS:
            self._known.popitem(last=False)
        return found

    def keep_only(self, files: set[str]) -> None:
        """Forget what was read of segments that are not among these."""
        for known in self._known.values():
            known.by_file = {file: cells for file, cells in known.by_file.items() if file in files}
            for key in [key for key in known.by_group if key[0] not in files]:
                del known.by_group[key]

    def forget(self) -> None:
        """Read everything anew when it is asked again."""
        self._known.clear()
