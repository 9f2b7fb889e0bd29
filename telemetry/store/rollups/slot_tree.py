"""The slots of a roll-up as a tree: neighbors are added up, and so are the sums, so that a long window is few sums.

The children of one sum are a family. A window takes the members of a family that lie in it as they are, and looks into
the families of those on its edges; a slot on an edge is left over, to be read turn by turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from telemetry.store.rollups.rollup import Key, RollupCell, without_faster
from telemetry.store.rollups.rows import gathered
from telemetry.store.rollups.slots import Slot

FAN_OUT: Final = 8

Cells = dict[Key, RollupCell]


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A slot, or the sum of the members of the family of this number: the turns that began within its time."""

    begin_unix_ns: int
    end_unix_ns: int
    family: int | None = None

    @property
    def slot(self) -> Slot:
        """The slot, of a member without a family."""
        level = (self.end_unix_ns - self.begin_unix_ns).bit_length() - 1
        return Slot(level, self.begin_unix_ns >> level)


@dataclass(frozen=True, slots=True)
class TakenMembers:
    """What a window takes: members by family and place; `left_over` are slots on its edges, as `[begin, end)`."""

    members: dict[int, list[int]]
    left_over: list[tuple[int, int]]


def families(cells: Cells) -> Iterator[list[tuple[Member, Cells]]]:
    """The families of the cells that are of a slot, each member with its cells (of no slot); the last has no parent."""
    by_slot: dict[str, Cells] = {}
    for key, cell in cells.items():
        if key.slot is not None:
            by_slot.setdefault(key.slot, {})[key._replace(slot=None)] = cell
    slots = {Slot.named(name): of_slot for name, of_slot in by_slot.items()}
    members = [
        (Member(slot.begin_unix_ns, slot.end_unix_ns), slots[slot])
        for slot in sorted(slots, key=lambda slot: slot.begin_unix_ns)
    ]
    number = 0
    while len(members) > FAN_OUT:
        sums: list[tuple[Member, Cells]] = []
        for first in range(0, len(members), FAN_OUT):
            family = members[first : first + FAN_OUT]
            yield family
            sums.append((Member(family[0][0].begin_unix_ns, family[-1][0].end_unix_ns, number), _sum(family)))
            number += 1
        members = sums
    if members:
        yield members


def taken(known: Sequence[Sequence[Member]], since_unix_ns: int | None, until_unix_ns: int | None) -> TakenMembers:
    """What a window takes of these families. `since_unix_ns` is inclusive, `until_unix_ns` exclusive."""
    found = TakenMembers({}, [])
    waiting = [len(known) - 1] if known else []
    while waiting:
        number = waiting.pop()
        for place, member in enumerate(known[number]):
            if (since_unix_ns is not None and member.end_unix_ns <= since_unix_ns) or (
                until_unix_ns is not None and member.begin_unix_ns >= until_unix_ns
            ):
                continue
            if (since_unix_ns is None or member.begin_unix_ns >= since_unix_ns) and (
                until_unix_ns is None or member.end_unix_ns <= until_unix_ns
            ):
                found.members.setdefault(number, []).append(place)
            elif member.family is None:
                found.left_over.append((member.begin_unix_ns, member.end_unix_ns))
            else:
                waiting.append(member.family)
    return found


def whole(cells: Mapping[Key, RollupCell]) -> Cells:
    """The cells without regard to slots."""
    return without_faster(gathered((key._replace(slot=None), cell) for key, cell in cells.items()))


def _sum(family: Sequence[tuple[Member, Cells]]) -> Cells:
    return without_faster(gathered(item for _, cells in family for item in cells.items()))
