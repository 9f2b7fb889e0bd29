"""When each audio frame is due. Pure: the clock is a parameter, nothing is sent here.

Callers are spread over the ticks of one frame. Those of one slot are due at the same moments, so a slot keeps their
next frames row by row, and whoever sends goes through a row without asking anybody.

Deadlines are absolute: a late row is sent at once and the schedule is kept. Frames are never sent early, and a slot
that fell behind catches up one row a tick, never in a burst.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from loadtest.conversation.evidence import Evidence

TICK_NS: Final = 1_000_000
# How far rows are laid out. Thousands of callers lay them out at the same time, so each holds little.
ROWS_AHEAD: Final = 16

T = TypeVar("T")
C = TypeVar("C")
Write = Callable[[bytes], int]


class WheelEntry(Generic[T]):
    """One stream's place in a slot. Without a slot nothing is due of it. `write` is how its frames are sent."""

    __slots__ = ("_laid", "_laid_in_row", "joined_perf_ns", "position", "slot", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.slot: WheelSlot[T] | None = None
        self.position = -1
        self.joined_perf_ns = 0  # frames that were due before are nobody's
        self._laid = 0
        self._laid_in_row = 0

    def schedule(self, frames: Sequence[bytes]) -> None:
        """Lay out the next frames, ROWS_AHEAD at the most; what lay there before must be cleared or taken."""
        slot = self.slot
        if slot is None:
            return
        self._laid, self._laid_in_row = len(frames), slot.row
        for row, frame in enumerate(frames, slot.row):
            slot.rows[row % ROWS_AHEAD][self.position] = frame

    @property
    def ahead(self) -> int:
        """How many frames are laid out and have not been taken."""
        return 0 if self.slot is None else max(0, self._laid_in_row + self._laid - self.slot.row)

    def taken(self) -> int:
        """How many of the frames that were laid out have been taken since this was asked before."""
        taken = self._laid - self.ahead
        self._laid -= taken
        self._laid_in_row += taken
        return taken

    def clear(self) -> None:
        """Take back what is laid out."""
        if self.slot is not None:
            for row in range(self.slot.row, self._laid_in_row + self._laid):
                self.slot.rows[row % ROWS_AHEAD][self.position] = None
        self._laid = 0

    def count(self, evidence: Evidence | None) -> None:
        """Whose evidence the lateness of the frames is that are laid out."""
        if self.slot is not None:
            self.slot.counted[self.position] = evidence


class WheelSlot(Generic[T]):
    """Streams that are due at the same moments: `rows` holds their next frames, None for one that its owner must be
    asked for. `row` is the number of the next row, which is due at `due_perf_ns`.

    As from a microphone, a frame is due when its last sample has been spoken.
    """

    __slots__ = ("counted", "due_perf_ns", "entries", "frame_ns", "owners", "row", "rows", "writes")

    def __init__(self, due_perf_ns: int, frame_ns: int) -> None:
        self.due_perf_ns = due_perf_ns
        self.frame_ns = frame_ns
        self.row = 0
        self.entries: list[WheelEntry[T]] = []
        self.owners: list[T] = []
        self.writes: list[Write] = []
        self.counted: list[Evidence | None] = []
        self.rows: list[list[bytes | None]] = [[] for _ in range(ROWS_AHEAD)]

    def add(self, entry: WheelEntry[T], owner: T, now_perf_ns: int) -> None:
        """Serve a stream of `owner`."""
        entry.slot, entry.position, entry.joined_perf_ns = self, len(self.entries), now_perf_ns
        self.entries.append(entry)
        self.owners.append(owner)
        self.writes.append(entry.write)
        self.counted.append(None)
        for row in self.rows:
            row.append(None)

    def remove(self, entry: WheelEntry[T]) -> None:
        """Serve a stream no longer; the last one takes its place."""
        entry.clear()
        at = entry.position
        self.entries[-1].position = at
        _move_last_to(at, self.entries)
        _move_last_to(at, self.owners)
        _move_last_to(at, self.writes)
        _move_last_to(at, self.counted)
        for row in self.rows:
            _move_last_to(at, row)
        entry.slot, entry.position = None, -1

    def take_row(self, now_perf_ns: int) -> Iterator[tuple[T, Write, bytes | None, Evidence | None]]:
        """The row that is due: whose stream, how to send, what (None: ask the owner) and what it is evidence for.
        Raises ValueError when it is not due yet."""
        if now_perf_ns < self.due_perf_ns:
            raise ValueError(f"a frame is sent {self.due_perf_ns - now_perf_ns} ns early")
        at = self.row % ROWS_AHEAD
        row = self.rows[at]
        self.rows[at] = [None for _ in row]
        self.row += 1
        self.due_perf_ns += self.frame_ns
        # Copies: who is served may leave.
        return zip(tuple(self.owners), tuple(self.writes), row, tuple(self.counted), strict=True)


def _move_last_to(at: int, column: list[C]) -> None:
    column[at] = column[-1]
    column.pop()


class TimingWheel(Generic[T]):
    """The slots of one frame, a tick apart, each serving its share of the callers."""

    def __init__(self, base_perf_ns: int, frame_ns: int) -> None:
        if frame_ns % TICK_NS:
            raise ValueError(f"a frame of {frame_ns} ns is no whole number of {TICK_NS} ns ticks")
        self.base_perf_ns = base_perf_ns
        self.frame_ns = frame_ns
        size = frame_ns // TICK_NS
        self._slots = [WheelSlot[T](base_perf_ns + tick * TICK_NS, frame_ns) for tick in range(size)]
        self._behind: list[WheelSlot[T]] = []  # in the order in which they fell behind
        self._next_tick = 0

    def __len__(self) -> int:
        return sum(len(slot.entries) for slot in self._slots)

    def add(self, entry: WheelEntry[T], owner: T, now_perf_ns: int) -> None:
        """Serve a stream of `owner` from its next moment on, in the slot that serves the fewest."""
        self._catch_up(now_perf_ns)
        min(self._slots, key=lambda slot: (len(slot.entries), slot.due_perf_ns)).add(entry, owner, now_perf_ns)

    def remove(self, entry: WheelEntry[T]) -> None:
        """Stop serving a stream: no frame of it is due any more. Unknown streams are ignored."""
        if entry.slot is not None:
            entry.slot.remove(entry)

    def due(self, now_perf_ns: int) -> Iterator[WheelSlot[T]]:
        """The slots that owe a row now, each at most once. Whoever asks takes that one row before the next slot."""
        before, self._behind = self._behind, []
        last = (now_perf_ns - self.base_perf_ns) // TICK_NS
        size = len(self._slots)
        first = max(self._next_tick, last - size + 1)
        self._next_tick = last + 1
        reached = [self._slots[tick % size] for tick in range(first, last + 1)]
        for slot in (*before, *(slot for slot in reached if slot not in before)):
            if slot.due_perf_ns > now_perf_ns:
                continue
            if slot.entries:
                yield slot
            else:
                self._skip(slot, now_perf_ns)
            if slot.due_perf_ns <= now_perf_ns:
                self._behind.append(slot)

    def _catch_up(self, now_perf_ns: int) -> None:
        """Nobody was there to be late for a slot that was empty."""
        for slot in self._slots:
            if not slot.entries:
                self._skip(slot, now_perf_ns)

    def _skip(self, slot: WheelSlot[T], now_perf_ns: int) -> None:
        owed = (now_perf_ns - slot.due_perf_ns) // self.frame_ns + 1
        slot.due_perf_ns += max(0, owed) * self.frame_ns
