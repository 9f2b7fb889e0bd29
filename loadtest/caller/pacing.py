"""When each audio frame is due. Pure: the clock is a parameter, nothing is sent here.

Deadlines are absolute from the start of a stream: a late frame is sent at once and the schedule is kept. Frames are
never sent early, and a stream that fell behind catches up one frame a tick, never in a burst.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

TICK_NS: Final = 1_000_000
P = TypeVar("P", bound="Paced")


class FrameSchedule:
    """The deadlines of one continuous stream of equal frames.

    As from a microphone, frame `i` is due when its last sample has been spoken: at `start + (i + 1) * frame`.
    """

    __slots__ = ("due_perf_ns", "frame_ns", "sent", "start_perf_ns")

    def __init__(self, start_perf_ns: int, frame_ns: int) -> None:
        self.start_perf_ns = start_perf_ns
        self.frame_ns = frame_ns
        self.sent = 0
        self.due_perf_ns = start_perf_ns + frame_ns

    def advance(self, now_perf_ns: int) -> int:
        """Account for one frame sent now; its lateness in ns. Raises ValueError when the frame is not due yet."""
        lateness_ns = now_perf_ns - self.due_perf_ns
        if lateness_ns < 0:
            raise ValueError(f"frame {self.sent} is sent {-lateness_ns} ns early")
        self.sent += 1
        self.due_perf_ns += self.frame_ns
        return lateness_ns


class Paced:
    """What a wheel turns: anything with a schedule. `slot` is the wheel's own."""

    __slots__ = ("schedule", "slot")

    def __init__(self, schedule: FrameSchedule) -> None:
        self.schedule = schedule
        self.slot = -1


class Wheel(Generic[P]):
    """Streams spread over the ticks of one frame, so that each tick serves its share of the callers."""

    def __init__(self, base_perf_ns: int, frame_ns: int) -> None:
        if frame_ns % TICK_NS:
            raise ValueError(f"a frame of {frame_ns} ns is no whole number of {TICK_NS} ns ticks")
        self.base_perf_ns = base_perf_ns
        self.frame_ns = frame_ns
        self._slots: list[list[P]] = [[] for _ in range(frame_ns // TICK_NS)]
        self._behind: dict[P, None] = {}  # in the order in which they fell behind
        self._next_tick = 0

    def __len__(self) -> int:
        return sum(len(slot) for slot in self._slots)

    def start_of_emptiest_slot(self, now_perf_ns: int) -> int:
        """A start for a new stream: the next moment after now whose slot serves the fewest streams."""
        first = (now_perf_ns - self.base_perf_ns) // TICK_NS + 1
        size = len(self._slots)
        tick = min(range(first, first + size), key=lambda t: (len(self._slots[t % size]), t))
        return self.base_perf_ns + tick * TICK_NS

    def add(self, stream: P) -> None:
        """Serve a stream. Its schedule must start on a tick (see start_of_emptiest_slot)."""
        offset_ns = stream.schedule.start_perf_ns - self.base_perf_ns
        if offset_ns % TICK_NS:
            raise ValueError("a stream starts between two ticks")
        stream.slot = (offset_ns // TICK_NS) % len(self._slots)
        self._slots[stream.slot].append(stream)

    def remove(self, stream: P) -> None:
        """Stop serving a stream; unknown streams are ignored."""
        if stream.slot >= 0 and stream in self._slots[stream.slot]:
            self._slots[stream.slot].remove(stream)
        stream.slot = -1
        self._behind.pop(stream, None)

    def due(self, now_perf_ns: int) -> Iterator[P]:
        """The streams that owe a frame now, each at most once. The caller sends one frame for each of them and
        advances its schedule before taking the next."""
        # This runs once a frame: no step of it is a call of its own.
        behind, self._behind = self._behind, {}
        for stream in behind:
            if stream.slot >= 0 and stream.schedule.due_perf_ns <= now_perf_ns:
                yield stream
                if stream.slot >= 0 and stream.schedule.due_perf_ns <= now_perf_ns:
                    self._behind[stream] = None
        last = (now_perf_ns - self.base_perf_ns) // TICK_NS
        size = len(self._slots)
        first = max(self._next_tick, last - size + 1)
        self._next_tick = last + 1
        for tick in range(first, last + 1):
            for stream in tuple(self._slots[tick % size]):
                schedule = stream.schedule
                if schedule.due_perf_ns > now_perf_ns or stream.slot < 0 or (behind and stream in behind):
                    continue
                yield stream
                if schedule.due_perf_ns <= now_perf_ns and stream.slot >= 0:
                    self._behind[stream] = None
