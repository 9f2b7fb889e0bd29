"""One exchange of a conversation, and the actions that the engine carries out for it: pure data."""

from dataclasses import dataclass, field
from typing import Final

from loadtest.conversation.evidence import Evidence
from loadtest.conversation.plan import PlannedTurn
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.timeline import Reply, Timeline
from loadtest.protocols.base import EventKind, SpokenText, VoiceEvent
from loadtest.protocols.failure import Failure
from telemetry.model.semconv import Outcome


@dataclass(frozen=True, slots=True)
class Say:
    """Begin a clip with the next frame; what is left of the last one's silent tail is not sent."""

    clip: PreparedClip


@dataclass(frozen=True, slots=True)
class BeginTurn:
    """Send what precedes the first frame of the caller's turn; a `Say` follows."""

    words: SpokenText


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Send the end of the caller's turn to the endpoint (manual turns)."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Send the endpoint how much of its reply was heard before the caller's speech stopped it."""

    played_ms: int


@dataclass(frozen=True, slots=True)
class Played:
    """Send the endpoint that everything before one of its marks has been played, or never will be."""

    mark: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call."""

    reason: str


@dataclass(slots=True)
class SpokenBackchannel:
    """A backchannel that is being sent, or was: the moments of its first and its last speech sample."""

    start_perf_ns: int | None = None
    end_perf_ns: int | None = None


# An endpoint may invent as many names as it likes; the record keeps the first few.
MAX_NAMED_EVENTS: Final = 8
MAX_REPORTED_LATENCIES: Final = 32


@dataclass(slots=True)
class WireNotes:
    """Messages outside the conversation that arrived between the ends of two successive turns."""

    unknown_events: int = 0
    unknown_names: list[str] = field(default_factory=list[str])
    duplicate_events: int = 0
    service_latency_reports: int = 0  # responses with which the service states latencies of its own

    def note(self, event: VoiceEvent) -> bool:
        """Count an event; whether it is no part of the conversation."""
        if event.reports_latency or event.service_ns:
            self.service_latency_reports += 1
        if event.kind is EventKind.DUPLICATE:
            self.duplicate_events += 1
            return True
        if event.kind is not EventKind.UNKNOWN:
            return False
        self.unknown_events += 1
        if event.raw_type not in self.unknown_names and len(self.unknown_names) < MAX_NAMED_EVENTS:
            self.unknown_names.append(event.raw_type)
        return True


@dataclass(slots=True)
class ServiceReports:
    """The service's reports on itself in one turn: never measured here, and never mixed with what is.

    Of several values for one latency the first is kept, as the first token and the first audio are the ones measured.
    """

    latencies_ns: dict[str, int] = field(default_factory=dict[str, int])  # by the service's names for them
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    usage: dict[str, int] = field(default_factory=dict[str, int])

    def note(self, event: VoiceEvent) -> None:
        """Keep what an event reports."""
        for name, value_ns in event.service_ns.items():
            if len(self.latencies_ns) < MAX_REPORTED_LATENCIES:
                self.latencies_ns.setdefault(name, value_ns)
        if event.kind is EventKind.SERVICE_REPORT:
            self.metadata.update(event.metadata)
            self.usage.update(event.usage)


@dataclass(slots=True)
class Exchange:
    """One finished or running turn, with all that its record needs."""

    index: int
    planned: PlannedTurn
    timeline: Timeline
    began_perf_ns: int
    evidence: Evidence = field(default_factory=Evidence)
    notes: WireNotes = field(default_factory=WireNotes)
    service: ServiceReports = field(default_factory=ServiceReports)
    spoke_into: Reply | None = None  # the reply of the exchange before, which the caller spoke into on purpose
    shows_cuts: bool = True  # a message of the wire says that the endpoint breaks a reply off
    barge_in_missed: str | None = None  # why the caller was to speak into a reply and did not
    stopped_by_client: bool = False  # of that reply: manual turns, where no detector of the endpoint stops it
    cut_by: str | None = None  # what of ours ended it before its end
    reply_interrupted: bool = False  # the caller's next turn began before the reply to this one had ended
    backchannel: SpokenBackchannel | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    failure: Failure | None = None  # what broke the call off; other causes are found by `failure_of`
    ended_perf_ns: int | None = None
    hangup_perf_ns: int | None = None
    awaits_more: bool = False  # it is over, and its transcript or its answer's text may still come, until the call ends

    @property
    def silent_since_perf_ns(self) -> int | None:
        """Since when the caller, who has spoken, hears nothing: also the old reply must have ended."""
        end, old = self.timeline.speech_end_perf_ns, self.spoke_into
        if end is None or old is None or old.playback is None or old.playback.stopped_perf_ns is not None:
            return end
        return max(end, old.playback.until_perf_ns)


Action = BeginTurn | Say | EndTurn | Interrupt | Played | HangUp | Exchange
