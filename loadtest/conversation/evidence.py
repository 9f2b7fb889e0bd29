"""Evidence of how well one turn was measured, and the limits beyond which a turn is invalid."""

from dataclasses import dataclass, field
from typing import Final

from loadtest.protocols.webrtc_items import PeerAudio, PeerReport
from telemetry.model.generator_health import DRIFT, FRAME_LATENESS, FRAME_LATENESS_LIMIT_NS

# Drift is the change of the smallest lateness between the first and the last so many ns of the utterance.
DRIFT_SPAN_NS: Final = 200_000_000


@dataclass(slots=True)
class Pacing:
    """The frames of a turn that count: from the one with the first speech sample on, until the answer is heard.

    Three things follow from their lateness (docs/explanation/validity.md). A frame that is very late, or drift, means
    that the turn was not said as recorded. Lateness after the end of speech can only have held the service up: it hears
    the silence after the speech that much later. Lateness before that moves no figure, since figures count from when a
    frame really went.

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
        worst_ns = max([self.worst_elsewhere_ns, *self.lateness_ns[: self.spoken]])
        if max(self.lateness_ns[self.spoken :], default=0) > worst_ns:
            for index in range(self.spoken, len(self.lateness_ns)):
                missing_ns = answer_perf_ns - self.first_due_perf_ns - index * self.frame_ns
                worst_ns = max(worst_ns, min(self.lateness_ns[index], missing_ns))
        return worst_ns

    @property
    def drift_ns(self) -> int | None:
        """Time by which the utterance was stretched (positive) or squeezed; None before its end.

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
        return uncertainty_ns + max(abs(late_ns - self.lateness_ns[holding]) for late_ns in nearby_ns)

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


MS: Final = 1_000_000
# Of a turn with more stamps in doubt than this, the worst doubt holds for the others.
MOST_IN_DOUBT: Final = 10_000


@dataclass(frozen=True, slots=True)
class ValidityLimits:
    """Beyond the first two the turn was not said as recorded: a jitter buffer does not absorb it. Beyond the others the
    endpoint, or the network, did not read. Nothing else of the measuring makes a turn invalid: it widens the bounds of
    its figures (telemetry.model.bounds)."""

    frame_lateness_ns: int = FRAME_LATENESS_LIMIT_NS
    drift_ns: int = 20 * MS
    blocked_ns: int = 10 * MS  # a full socket did not take a frame for so long
    # Audio that lies unsent when the caller falls silent, in frames. One may be on its way to the wire; a second says
    # that the endpoint did not read, and cannot have heard what it is timed against.
    unsent_frames: float = 1.5


@dataclass(slots=True)
class RtpFigures:
    """The network's effect on the audio of one turn. Unknown is None: RTCP reports come about once a second."""

    packets_received: int = 0  # of the endpoint's audio
    packets_lost: int = 0  # missing when a later one came
    jitter_worst_ns: int = 0
    reported_lost: int | None = None  # of the caller's audio in the whole call, as the endpoint reports
    reported_jitter_ns: int | None = None

    def note(self, item: PeerAudio | PeerReport) -> None:
        """Account for a packet, or for a report."""
        if isinstance(item, PeerReport):
            self.reported_lost, self.reported_jitter_ns = item.packets_lost, item.jitter_ns
            return
        self.packets_received += 1
        self.packets_lost += item.lost_before
        self.jitter_worst_ns = max(self.jitter_worst_ns, item.jitter_ns)


@dataclass(slots=True)
class Evidence:
    """Gathered while a turn goes on.

    A frame has three moments: when it is due, when it is offered to the socket (or put behind what already waits for
    it), and when the socket has taken its last byte. What lies between the first two is our own lateness, and judges
    the turn. What lies between the last two is the endpoint's doing, or the network's: it did not read. Points of the
    turn count from when a frame was offered, so that an endpoint which does not read makes nothing look shorter.
    The frames that count are those whose lateness can change how the turn goes: from the first speech sample until
    the answer is heard. Later ones are silence under a reply that is already playing.
    """

    pacing: Pacing = field(default_factory=Pacing)
    # How much later than its moment the frame with the first speech sample can have gone, and that with the last one.
    start_later_ns: int | None = None
    end_later_ns: int | None = None
    unsent_bytes_at_speech_end: int | None = None
    frame_bytes_at_speech_end: int | None = None  # how long the frame with the last speech sample is on the wire
    blocked_worst_ns: int = 0  # taken - offered
    receive_lag_worst_ns: int | None = None  # measured: None where user space stamps
    receive_lag_bound_ns: int | None = None  # where user space stamps: no chunk can have waited longer than this
    shared_stamp_bound_ns: int | None = None  # where several messages have one stamp: none came longer before it
    # By stamp: how long before it a message can have come.
    unsure_ns: dict[int, int] = field(default_factory=dict[int, int])
    stamp_error_ns: int = 0  # of converting the kernel's stamps to the monotonic clock
    loop_lag_worst_ns: int | None = None
    clock_steps: int | None = None  # that the engine's clocks had seen when the caller began to say this turn
    faults: list[str] = field(default_factory=list[str])
    rtp: RtpFigures | None = None  # None on wires without RTP, and in turns in which no packet came

    def note_rtp(self, item: PeerAudio | PeerReport) -> None:
        """A packet of the endpoint's audio came, or a report about the caller's."""
        if self.rtp is None:
            self.rtp = RtpFigures()
        self.rtp.note(item)

    def note_blocked(self, blocked_ns: int) -> None:
        """The socket took the rest of a frame this long after it was offered."""
        if blocked_ns > self.blocked_worst_ns:
            self.blocked_worst_ns = blocked_ns

    def note_receive_lag(self, lag_ns: int) -> None:
        """The kernel had a chunk this long before the program saw it."""
        if self.receive_lag_worst_ns is None or lag_ns > self.receive_lag_worst_ns:
            self.receive_lag_worst_ns = lag_ns

    def note_receive_lag_bound(self, stamp_perf_ns: int, bound_ns: int) -> None:
        """The kernel had a chunk for an unknown time before the program saw it, at most this long."""
        if self.receive_lag_bound_ns is None or bound_ns > self.receive_lag_bound_ns:
            self.receive_lag_bound_ns = bound_ns
        self._keep_doubt(stamp_perf_ns, bound_ns)

    def note_doubt(self, stamp_perf_ns: int, doubt_ns: int) -> None:
        """Several messages were read together and have one stamp; the first may have come so long before it."""
        if self.shared_stamp_bound_ns is None or doubt_ns > self.shared_stamp_bound_ns:
            self.shared_stamp_bound_ns = doubt_ns
        self._keep_doubt(stamp_perf_ns, doubt_ns)

    def _keep_doubt(self, stamp_perf_ns: int, doubt_ns: int) -> None:
        known = self.unsure_ns
        if stamp_perf_ns in known or len(known) < MOST_IN_DOUBT:
            known[stamp_perf_ns] = max(doubt_ns, known.get(stamp_perf_ns, 0))

    def doubt_ns(self, stamp_perf_ns: int) -> int:
        """Return how much earlier than its stamp something can have arrived at the most."""
        if stamp_perf_ns in self.unsure_ns:
            return self.unsure_ns[stamp_perf_ns]
        return (self.arrival_uncertainty_worst_ns or 0) if len(self.unsure_ns) >= MOST_IN_DOUBT else 0

    def note_fault(self, reason: str) -> None:
        """Record a fault that makes the turn invalid whatever its size."""
        if reason not in self.faults:
            self.faults.append(reason)

    @property
    def sent(self) -> bool:
        """Whether any frame that counts went out."""
        return self.pacing.worst_ns is not None

    @property
    def arrival_uncertainty_worst_ns(self) -> int | None:
        """The longest time before its stamp that a chunk can have arrived; None if each chunk had its own stamp."""
        known = [
            bound_ns for bound_ns in (self.receive_lag_bound_ns, self.shared_stamp_bound_ns) if bound_ns is not None
        ]
        return max(known, default=None)

    def reasons(self, limits: ValidityLimits, answer_perf_ns: int | None = None) -> tuple[str, ...]:
        """Return why the turn, whose answer began then, cannot be trusted, one short phrase each; empty for a valid
        turn."""
        reasons = list(self.faults)
        if (self.pacing.worst_before_ns(answer_perf_ns) or 0) > limits.frame_lateness_ns:
            reasons.append(FRAME_LATENESS)
        if abs(self.pacing.drift_ns or 0) > limits.drift_ns:
            reasons.append(DRIFT)
        return tuple(reasons)

    def endpoint_did_not_read(self, limits: ValidityLimits) -> bool | None:
        """Return whether the endpoint, or the network, left the caller's audio unread for longer than we may be late
        ourselves; None where no audio was sent. The turn is valid all the same."""
        if not self.sent:
            return None
        unsent, frame_bytes = self.unsent_bytes_at_speech_end, self.frame_bytes_at_speech_end
        schedule = unsent is not None and frame_bytes is not None and unsent > limits.unsent_frames * frame_bytes
        return schedule or self.blocked_worst_ns > limits.blocked_ns
