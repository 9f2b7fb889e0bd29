"""How well one turn was measured: the evidence, and the limits beyond which a turn is invalid."""

from dataclasses import dataclass, field
from typing import Final

MS: Final = 1_000_000
# Less than any lateness: no frame that counts has gone out yet.
NO_FRAME_NS: Final = -1


@dataclass(frozen=True, slots=True)
class ValidityLimits:
    """Beyond these the instrument, not the endpoint, made the figure (measurement: defaults 10, 20 and 5 ms)."""

    frame_lateness_ns: int = 10 * MS
    drift_ns: int = 20 * MS
    receive_lag_ns: int = 5 * MS
    # Audio that lies unsent when the caller falls silent, in frames. One may be on its way to the wire; a second says
    # that the line is jammed, and the endpoint cannot have heard what it is timed against.
    unsent_frames: float = 1.5


@dataclass(slots=True)
class Evidence:
    """Gathered while a turn goes on.

    A frame is sent when the socket has taken its last byte: while it is held up, it is late.
    The frames that count are those whose lateness can move a figure of the turn: from the first voiced sample until
    the answer is heard. Later ones are silence under a reply that is already playing.
    """

    frame_lateness_worst_ns: int = NO_FRAME_NS
    start_lateness_ns: int | None = None  # of the frame with the first voiced sample
    end_lateness_ns: int | None = None  # of the frame with the last one
    unsent_bytes_at_speech_end: int | None = None
    frame_bytes_at_speech_end: int | None = None  # how long the frame with the last voiced sample is on the wire
    held_up_worst_ns: int = 0  # the longest that the socket did not take the rest of a frame
    receive_lag_worst_ns: int | None = None
    loop_lag_worst_ns: int | None = None
    clock_steps: int | None = None  # that the engine's clocks had seen when the caller began to say this turn
    faults: list[str] = field(default_factory=list[str])

    def note_frame(self, lateness_ns: int) -> None:
        """One frame went out this late."""
        if lateness_ns > self.frame_lateness_worst_ns:
            self.frame_lateness_worst_ns = lateness_ns

    def note_held_up(self, held_up_ns: int) -> None:
        """The socket took the rest of a frame this long after it was offered."""
        if held_up_ns > self.held_up_worst_ns:
            self.held_up_worst_ns = held_up_ns

    def note_receive_lag(self, lag_ns: int) -> None:
        """The kernel had a chunk this long before the program saw it."""
        if self.receive_lag_worst_ns is None or lag_ns > self.receive_lag_worst_ns:
            self.receive_lag_worst_ns = lag_ns

    def note_fault(self, reason: str) -> None:
        """Something happened that no limit is needed for."""
        if reason not in self.faults:
            self.faults.append(reason)

    @property
    def sent(self) -> bool:
        """Whether any frame that counts went out."""
        return self.frame_lateness_worst_ns > NO_FRAME_NS

    @property
    def drift_ns(self) -> int | None:
        """How much the utterance was stretched or squeezed against the schedule; None before its end."""
        if self.start_lateness_ns is None or self.end_lateness_ns is None:
            return None
        return self.end_lateness_ns - self.start_lateness_ns

    def reasons(self, limits: ValidityLimits) -> tuple[str, ...]:
        """Why the turn cannot be trusted, one short phrase each; empty for a valid turn."""
        found = list(self.faults)
        if self.frame_lateness_worst_ns > limits.frame_lateness_ns:
            found.append("frame lateness")
        if self.held_up_worst_ns > limits.frame_lateness_ns:
            found.append("full socket")
        if self.drift_ns is not None and abs(self.drift_ns) > limits.drift_ns:
            found.append("drift")
        if self.receive_lag_worst_ns is not None and self.receive_lag_worst_ns > limits.receive_lag_ns:
            found.append("receive lag")
        unsent, frame_bytes = self.unsent_bytes_at_speech_end, self.frame_bytes_at_speech_end
        if unsent is not None and frame_bytes is not None and unsent > limits.unsent_frames * frame_bytes:
            found.append("unsent audio")
        return tuple(found)
