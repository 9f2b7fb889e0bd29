"""Lateness of the frames of a turn, and what it can have changed. Pure.

Three things follow from it (docs/explanation/validity.md). A frame that is very late, or drift, means that the turn was
not said as recorded. Lateness after the end of speech can only have held the service up: it hears the silence after the
speech that much later. Lateness before that moves no figure, since figures count from when a frame really went.
"""

from dataclasses import dataclass, field
from typing import Final

# Drift is the change of the smallest lateness between the first and the last so many ns of the utterance.
DRIFT_SPAN_NS: Final = 200_000_000


@dataclass(slots=True)
class Pacing:
    """The frames of a turn that count: from the one with the first speech sample on, until the answer is heard.

    Each is due one frame after the one before it. `lateness_ns` has of each how long after that it had gone.
    """

    lateness_ns: list[int] = field(default_factory=list[int])
    first_due_perf_ns: int | None = None
    frame_ns: int = 0
    spoken: int | None = None  # how many carry speech: the last of them has the last speech sample
    # Where another process sends: the worst lateness that it reports, while the caller spoke and after that.
    elsewhere_ns: int = 0
    elsewhere_after_ns: int = 0
    # How long after what it answers each message of ours went that the service asked for before it answered, in all.
    reactions_ns: int = 0

    def begin(self, due_perf_ns: int, frame_ns: int) -> None:
        """The frame with the first speech sample is the next one."""
        if self.first_due_perf_ns is None:
            self.first_due_perf_ns, self.frame_ns = due_perf_ns, frame_ns
            self.lateness_ns.clear()

    def end_speech(self) -> None:
        """The frame with the last speech sample was the last one."""
        self.spoken = len(self.lateness_ns)

    def note_elsewhere(self, lateness_ns: int) -> None:
        """A frame went this late from another process."""
        if self.spoken is None:
            self.elsewhere_ns = max(self.elsewhere_ns, lateness_ns)
        else:
            self.elsewhere_after_ns = max(self.elsewhere_after_ns, lateness_ns)

    @property
    def worst_elsewhere_ns(self) -> int:
        """The worst lateness that another process reports."""
        return max(self.elsewhere_ns, self.elsewhere_after_ns)

    @property
    def worst_ns(self) -> int | None:
        """The worst lateness; None where no frame went."""
        if not self.lateness_ns and not self.worst_elsewhere_ns:
            return None
        return max(self.worst_elsewhere_ns, max(self.lateness_ns, default=0))

    def worst_before_ns(self, answer_perf_ns: int | None) -> int | None:
        """The worst lateness of frames with speech, and of the silence after it until the answer began (None: it never
        did). One that was due by then and had not gone was missing for only so long; later ones are under the reply."""
        if answer_perf_ns is None or self.spoken is None or self.first_due_perf_ns is None:
            return self.worst_ns
        after_ns = [
            min(lateness_ns, answer_perf_ns - self.first_due_perf_ns - index * self.frame_ns)
            for index, lateness_ns in enumerate(self.lateness_ns[self.spoken :], self.spoken)
        ]
        return max([self.worst_elsewhere_ns, *self.lateness_ns[: self.spoken], *after_ns])

    @property
    def drift_ns(self) -> int | None:
        """How much the utterance was stretched (positive) or squeezed; None before its end.

        A stall after which the schedule is kept is no drift: the smallest lateness around it stays the same.
        """
        if not self.spoken or not self.frame_ns:
            return None
        frames = max(1, min(self.spoken, DRIFT_SPAN_NS // self.frame_ns))
        return min(self.lateness_ns[self.spoken - frames : self.spoken]) - min(self.lateness_ns[:frames])

    @property
    def drift_worst_ns(self) -> int | None:
        """The size of the drift; None before the utterance's end."""
        return None if self.drift_ns is None else abs(self.drift_ns)

    def widened_ns(self, uncertainty_ns: int | None, *, at_end: bool) -> int | None:
        """Return how uncertain the moment of the first or the last speech sample is whose place in the clip is this
        uncertain.

        The sample may have gone with a frame nearby, which was later or less late than the one that is thought to hold
        it. None where the uncertainty of its place is not known.
        """
        if not uncertainty_ns or not self.frame_ns or not self.lateness_ns:
            return uncertainty_ns
        holding = (self.spoken or 1) - 1 if at_end else 0
        frames = -(-uncertainty_ns // self.frame_ns)
        nearby_ns = self.lateness_ns[max(0, holding - frames) : holding + frames + 1]
        return uncertainty_ns + max(abs(each - self.lateness_ns[holding]) for each in nearby_ns)

    def held_up_ns(self, until_perf_ns: int) -> int:
        """Return how long our own lateness after the end of speech can have held up what came by a moment, beyond the
        lateness of the frame with the last speech sample."""
        own_ns = 0 if not self.spoken else self._beyond(self.spoken - 1, until_perf_ns)
        return max(own_ns, self.elsewhere_after_ns) + self.reactions_ns

    def held_up_speaking_ns(self, until_perf_ns: int) -> int:
        """Likewise, from the frame with the first speech sample on."""
        own_ns = self._beyond(0, until_perf_ns) if self.lateness_ns else 0
        return max(own_ns, self.worst_elsewhere_ns) + self.reactions_ns

    def _beyond(self, base: int, until_perf_ns: int) -> int:
        """Return by how much frames after one of them were later than it. One that was due by the moment and had not
        gone by then was missing for only so long."""
        if self.first_due_perf_ns is None or base >= len(self.lateness_ns):
            return 0
        base_ns = worst_ns = self.lateness_ns[base]
        due_perf_ns = self.first_due_perf_ns + base * self.frame_ns
        for lateness_ns in self.lateness_ns[base + 1 :]:
            due_perf_ns += self.frame_ns
            if due_perf_ns >= until_perf_ns:
                break
            worst_ns = max(worst_ns, min(lateness_ns, until_perf_ns - due_perf_ns))
        return worst_ns - base_ns
