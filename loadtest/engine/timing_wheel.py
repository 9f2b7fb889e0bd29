"""The schedule of audio frames: a timing wheel. Pure: the clock is a parameter, nothing is sent here.

Callers are spread over the ticks of one frame. All callers of a slot are due at the same times: their next frames make
a row, and the sender works through a row without calling into each caller.

Deadlines are absolute: a late row is sent at once and the schedule stays the same. Frames are never sent early, and a
slot that fell behind catches up one row per tick, never in a burst.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final, Generic, TypeVar

TICK_NS: Final = 1_000_000
# Up to so many callers share a slot before callers are spread over all ticks.
CALLERS_TOGETHER: Final = 25
_NO_FRAMES: Final[Iterator[bytes]] = iter(())

T = TypeVar("T")
C = TypeVar("C")
Write = Callable[[bytes], int]


class WheelEntry(Generic[T]):
    """One stream's entry in a slot. Without a slot, none of its frames are due. `write` sends its frames."""

    __slots__ = ("_scheduled", "_scheduled_row", "joined_perf_ns", "position", "slot", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.slot: WheelSlot[T] | None = None
        self.position = -1
        self.joined_perf_ns = 0  # frames due before this are not sent
        self._scheduled = 0
        self._scheduled_row = 0

    @property
    def first_due_perf_ns(self) -> int:
        """When the stream's first frame is due; to be asked when it has just been added."""
        slot = self.slot
        if slot is None:
            return self.joined_perf_ns
        skipped = max(0, -((slot.due_perf_ns - self.joined_perf_ns) // slot.frame_ns))
        return slot.due_perf_ns + skipped * slot.frame_ns

    def schedule(self, frames: Sequence[bytes]) -> None:
        """Schedule the next frames; earlier ones must have been taken or cleared."""
        slot = self.slot
        if slot is None:
            return
        self._scheduled, self._scheduled_row = len(frames), slot.row
        slot.upcoming[self.position] = iter(frames)

    @property
    def ahead(self) -> int:
        """How many frames are scheduled and have not been taken."""
        return 0 if self.slot is None else max(0, self._scheduled_row + self._scheduled - self.slot.row)

    def overdue(self, now_perf_ns: int) -> int:
        """Return how many frames of the stream were due before now and have not been taken."""
        late_ns = 0 if self.slot is None else now_perf_ns - self.slot.due_perf_ns
        return 0 if self.slot is None or late_ns <= 0 else -(-late_ns // self.slot.frame_ns)

    def taken(self) -> int:
        """Return how many scheduled frames have been taken since the last call."""
        taken = self._scheduled - self.ahead
        self._scheduled -= taken
        self._scheduled_row += taken
        return taken

    def clear(self) -> None:
        """Remove all scheduled frames."""
        if self.slot is not None:
            self.slot.upcoming[self.position] = _NO_FRAMES
        self._scheduled = 0

    def count(self, lateness_ns: list[int] | None) -> None:
        """Set where the lateness of the scheduled frames is noted; None: nowhere."""
        if self.slot is not None:
            self.slot.counted[self.position] = lateness_ns


class WheelSlot(Generic[T]):
    """Streams that are due at the same times.

    `upcoming` holds their scheduled frames; where there are none, the owner must supply the frame. `row` is the number
    of the next row, which is due at `due_perf_ns`. As from a microphone, a frame is due when its last sample has been
    spoken.
    """

    __slots__ = ("counted", "due_perf_ns", "entries", "frame_ns", "owners", "row", "upcoming", "writes")

    def __init__(self, due_perf_ns: int, frame_ns: int) -> None:
        self.due_perf_ns = due_perf_ns
        self.frame_ns = frame_ns
        self.row = 0
        # A stream may join or leave while a row is being sent, which is then the row of those lists that were there
        # before: lists are replaced, not changed, when their length changes.
        self.entries: list[WheelEntry[T]] = []
        self.owners: list[T] = []
        self.writes: list[Write] = []
        self.counted: list[list[int] | None] = []
        self.upcoming: list[Iterator[bytes]] = []

    def add(self, entry: WheelEntry[T], owner: T, now_perf_ns: int) -> None:
        """Add a stream of `owner`."""
        entry.slot, entry.position, entry.joined_perf_ns = self, len(self.entries), now_perf_ns
        self.entries = [*self.entries, entry]
        self.owners = [*self.owners, owner]
        self.writes = [*self.writes, entry.write]
        self.counted = [*self.counted, None]
        self.upcoming = [*self.upcoming, _NO_FRAMES]

    def remove(self, entry: WheelEntry[T]) -> None:
        """Remove a stream; the last one moves into its position."""
        entry.clear()
        at = entry.position
        self.entries[-1].position = at
        self.entries = _with_last_at(at, self.entries)
        self.owners = _with_last_at(at, self.owners)
        self.writes = _with_last_at(at, self.writes)
        self.counted = _with_last_at(at, self.counted)
        self.upcoming = _with_last_at(at, self.upcoming)
        entry.slot, entry.position = None, -1

    def take_row(self, now_perf_ns: int) -> Iterator[tuple[T, Write, bytes | None, list[int] | None]]:
        """Take the row that is due: for each stream its owner, write function, frame and where its lateness is noted.

        A frame of None must be supplied by the owner. Raises ValueError if the row is not due yet.
        """
        if now_perf_ns < self.due_perf_ns:
            raise ValueError(f"the row is not due yet: taken {self.due_perf_ns - now_perf_ns} ns early")
        row: list[bytes | None] = list(map(next, self.upcoming, repeat(None)))
        self.row += 1
        self.due_perf_ns += self.frame_ns
        return zip(self.owners, self.writes, row, self.counted, strict=True)


def _with_last_at(at: int, column: list[C]) -> list[C]:
    """A copy in which the last item has taken the place of another."""
    shorter = column[:-1]
    if at < len(shorter):
        shorter[at] = column[-1]
    return shorter


class TimingWheel(Generic[T]):
    """The slots of one frame, one tick apart, each with its share of the callers.

    A tick costs about as much as two frames, so few callers do not get all of the slots: with up to CALLERS_TOGETHER
    callers a slot, only every second one is used, and `spacing_ticks` is 2. Callers are then spread over half as many
    moments of a frame, twice as far apart, and a frame waits no longer for those before it than among more callers.
    """

    def __init__(self, base_perf_ns: int, frame_ns: int) -> None:
        if frame_ns % TICK_NS:
            raise ValueError(f"a frame of {frame_ns} ns is not a whole number of {TICK_NS} ns ticks")
        self.base_perf_ns = base_perf_ns
        self.frame_ns = frame_ns
        size = frame_ns // TICK_NS
        self._slots = [WheelSlot[T](base_perf_ns + tick * TICK_NS, frame_ns) for tick in range(size)]
        self._twice = self._slots * 2  # any run of ticks that is no longer than a frame
        self._seldom = self._slots[1::2] if size % 2 == 0 else []  # used only by many callers
        self._behind: list[WheelSlot[T]] = []  # in the order in which they fell behind
        self._next_tick = 0
        # How many ticks apart, counted from `base_perf_ns`, the slots with callers are at least.
        self.spacing_ticks = self._spacing_ticks()

    def __len__(self) -> int:
        return sum(len(slot.entries) for slot in self._slots)

    def add(self, entry: WheelEntry[T], owner: T, now_perf_ns: int) -> None:
        """Add a stream of `owner` to the slot with the fewest streams; its first frame is the slot's next one."""
        for slot in self._slots:
            if not slot.entries:
                self._skip(slot, now_perf_ns)
        slots = self._slots[::2] if self._seldom else self._slots
        slot = min(slots, key=_fewest_first)
        if self._seldom and len(slot.entries) >= CALLERS_TOGETHER:
            slot = min(self._slots, key=_fewest_first)
        slot.add(entry, owner, now_perf_ns)
        self.spacing_ticks = self._spacing_ticks()

    def remove(self, entry: WheelEntry[T]) -> None:
        """Remove a stream: no more of its frames are due. Unknown streams are ignored."""
        if entry.slot is not None:
            entry.slot.remove(entry)
            self.spacing_ticks = self._spacing_ticks()

    def due(self, now_perf_ns: int) -> list[WheelSlot[T]]:
        """Return the slots with a row due now, each once. The caller takes that row of each, in this order."""
        last = (now_perf_ns - self.base_perf_ns) // TICK_NS
        count = min(last + 1 - self._next_tick, len(self._slots))
        self._next_tick = last + 1
        at = (last + 1 - count) % len(self._slots)
        reached = self._twice[at : at + count]
        if self._behind:
            reached = [*self._behind, *(slot for slot in reached if slot not in self._behind)]
            self._behind = []
        due: list[WheelSlot[T]] = []
        for slot in reached:
            if slot.entries and slot.due_perf_ns <= now_perf_ns:
                due.append(slot)
                if slot.due_perf_ns + self.frame_ns <= now_perf_ns:
                    self._behind.append(slot)
        return due

    def _spacing_ticks(self) -> int:
        return 1 if not self._seldom or any(slot.entries for slot in self._seldom) else 2

    def _skip(self, slot: WheelSlot[T], now_perf_ns: int) -> None:
        """Skip the missed rows of an empty slot, so that a stream added now does not start behind."""
        missed = (now_perf_ns - slot.due_perf_ns) // self.frame_ns + 1
        slot.due_perf_ns += max(0, missed) * self.frame_ns


def _fewest_first(slot: WheelSlot[T]) -> tuple[int, int]:
    return len(slot.entries), slot.due_perf_ns
