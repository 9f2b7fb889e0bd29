"""One exchange of a conversation, and what a session asks the engine to do: pure data."""

from dataclasses import dataclass, field

from loadtest.caller.evidence import Evidence
from loadtest.caller.line import PreparedClip
from loadtest.caller.plan import PlannedTurn
from loadtest.caller.timeline import Reply, Timeline
from telemetry.semconv import Outcome


@dataclass(frozen=True, slots=True)
class Say:
    """Begin an utterance with the next frame; what is left of the last one's silent tail is not sent."""

    clip: PreparedClip


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Tell the endpoint that the caller has finished (manual turns)."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Tell the endpoint how much of its reply was heard before the caller's speech stopped it."""

    played_ms: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call is over."""

    reason: str


@dataclass(slots=True)
class Aside:
    """A backchannel that is being said, or was: its first and its last voiced sample."""

    start_perf_ns: int | None = None
    end_perf_ns: int | None = None


@dataclass(slots=True)
class Exchange:
    """One finished or running turn, with all that its record needs."""

    index: int
    planned: PlannedTurn
    timeline: Timeline
    began_perf_ns: int
    evidence: Evidence = field(default_factory=Evidence)
    spoke_into: Reply | None = None  # the reply of the exchange before, which the caller spoke into on purpose
    barge_in_missed: str | None = None  # why the caller was to speak into a reply and did not
    stopped_by_client: bool = False  # of that reply: manual turns, where no detector of the endpoint stops it
    cut_short: bool = False  # the caller's next turn began before the reply to this one had ended
    aside: Aside | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    ended_perf_ns: int | None = None
    hangup_perf_ns: int | None = None

    @property
    def speaks_aside(self) -> bool:
        """Whether a backchannel is being said."""
        return self.aside is not None and self.aside.end_perf_ns is None

    @property
    def silent_since_perf_ns(self) -> int | None:
        """Since when the caller, who has spoken, hears nothing: also the old reply must have ended."""
        end, old = self.timeline.speech_end_perf_ns, self.spoke_into
        if end is None or old is None or old.playback is None or old.playback.stopped_perf_ns is not None:
            return end
        return max(end, old.playback.until_perf_ns)


Action = Say | EndTurn | Interrupt | HangUp | Exchange
