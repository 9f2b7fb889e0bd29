"""How well one turn was measured: the evidence, and the limits beyond which a turn is invalid."""

from dataclasses import dataclass, field
from typing import Final

MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ValidityLimits:
    """Beyond these the instrument, not the endpoint, made the figure (measurement: defaults 10, 20 and 5 ms)."""

    frame_lateness_ns: int = 10 * MS
    drift_ns: int = 20 * MS
    receive_lag_ns: int = 5 * MS


@dataclass(slots=True)
class Evidence:
    """Gathered while a turn goes on.

    The frames that count are those whose lateness can move a figure of the turn: from the first voiced sample until
    the answer is heard. Later ones are silence under a reply that is already playing.
    """

    frame_lateness_worst_ns: int = 0
    frames: int = 0
    start_lateness_ns: int | None = None  # of the frame with the first voiced sample
    end_lateness_ns: int | None = None  # of the frame with the last one
    unsent_bytes_at_speech_end: int | None = None
    receive_lag_worst_ns: int | None = None
    loop_lag_worst_ns: int | None = None
    faults: list[str] = field(default_factory=list[str])

    def note_frame(self, lateness_ns: int) -> None:
        """One frame went out this late."""
        self.frames += 1
        if lateness_ns > self.frame_lateness_worst_ns:
            self.frame_lateness_worst_ns = lateness_ns

    def note_receive_lag(self, lag_ns: int) -> None:
        """The kernel had a chunk this long before the program saw it."""
        if self.receive_lag_worst_ns is None or lag_ns > self.receive_lag_worst_ns:
            self.receive_lag_worst_ns = lag_ns

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
        if self.drift_ns is not None and abs(self.drift_ns) > limits.drift_ns:
            found.append("drift")
        if self.receive_lag_worst_ns is not None and self.receive_lag_worst_ns > limits.receive_lag_ns:
            found.append("receive lag")
        return tuple(found)
