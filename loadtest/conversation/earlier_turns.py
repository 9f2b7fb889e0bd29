"""The turn that an event is about: the one that its name belongs to, or else the one under way when it arrives. Pure.

A name decides, however late its event comes, until the call ends. A name that the endpoint gives to another utterance
or reply, after the first one was over, is that of the new one.

An event without a name, or with a new one, is about the turn under way. It is about the turn before in two cases:
nothing of the running turn has been said yet, or it is a final transcript of a moment at which the caller was still
speaking. In both, that turn must still await a transcript.
"""

from typing import Final

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.timeline import TRANSCRIPT_KINDS, Timeline
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent

# A turn that is kept is not recorded yet. Of an endpoint that never sends what is awaited, the others must be shown.
MOST_OPEN: Final = 16


class EarlierTurns:
    """The turns that are over for the caller, or interrupted, and about which something may still come.

    A turn is kept while it awaits a transcript, or the text of its answer, and is one of the newest that do. Of all
    others, the names are kept.
    """

    __slots__ = ("_credited", "_last", "_named_by", "_numbers", "_open", "_wire", "transcribed")

    def __init__(self, wire: WireTraits) -> None:
        self._wire = wire
        self._open: dict[int, Exchange] = {}  # by number
        self._numbers: dict[str, int] = {}  # of the turn that a name of what the caller said belongs to
        self._last = -1  # the number of the last turn in which the caller spoke
        self._named_by: EventKind | None = None  # the event that first names what the caller says, if one does
        self.transcribed = False  # the endpoint has sent the transcript of a turn that is over
        self._credited: dict[int, Exchange] = {}  # by number: about which something came since they were last taken

    def interrupted(self, exchange: Exchange) -> None:
        """The caller's next turn has begun during the reply to this one."""
        self._open[exchange.index] = exchange
        self._keep_names(exchange)

    def ended(self, exchange: Exchange) -> None:
        """A turn is over for the caller."""
        for earlier in list(self._open.values()):
            # What has no name is about a later turn from now on.
            if earlier.index < exchange.index and earlier.ended_perf_ns is not None:
                earlier.awaits_more = earlier.awaits_more and self._has_names(earlier)
                if not earlier.awaits_more:
                    del self._open[earlier.index]
        self._keep_names(exchange)
        self.transcribed = self.transcribed or bool(exchange.timeline.finals)
        exchange.awaits_more = self._awaits_more(exchange)
        if exchange.awaits_more:
            self._open[exchange.index] = exchange
        else:
            self._open.pop(exchange.index, None)
        if len(self._open) > MOST_OPEN:
            self._open.pop(min(self._open)).awaits_more = False

    def take_credited(self) -> list[Exchange]:
        """The turns about which something came late since this was last asked."""
        if not self._credited:
            return []
        credited, self._credited = self._credited, {}
        return [*credited.values()]

    def note_question(self, event: VoiceEvent, running: Exchange | None, arrival_perf_ns: int) -> bool:
        """Account for an event about what the caller said, unless it is about the running turn; whether it was not."""
        owner = self._owner(event, running, arrival_perf_ns)
        if owner is running:
            return False
        if owner is None:
            return True
        if running is not None and event.kind is EventKind.ASR_FINAL and event.item_id not in owner.timeline.items:
            # Its partials came while the caller spoke, too.
            for partial, came_perf_ns in running.timeline.give_transcript(event.item_id):
                owner.timeline.note_question(partial, came_perf_ns)
        owner.timeline.note_question(event, arrival_perf_ns)
        self._keep_names(owner)
        self.transcribed = self.transcribed or bool(owner.timeline.finals)
        self._note_credit(owner)
        return True

    def note_text(self, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Account for a part of a reply without audio, if the reply is that of a turn that is over; whether it was."""
        for exchange in self._open.values():
            if exchange.ended_perf_ns is not None and event.response_id in exchange.timeline.replies:
                exchange.timeline.note(event, arrival_perf_ns)
                self._note_credit(exchange)
                return True
        return False

    def _note_credit(self, exchange: Exchange) -> None:
        exchange.awaits_more = self._awaits_more(exchange)
        self._credited[exchange.index] = exchange

    def _awaits_more(self, exchange: Exchange) -> bool:
        timeline = exchange.timeline
        wire = self._wire
        return (wire.transcribes and timeline.awaits_transcript) or (wire.sends_text and timeline.awaits_text)

    def _has_names(self, exchange: Exchange) -> bool:
        timeline = exchange.timeline
        return (self._wire.names_questions and bool(timeline.items)) or timeline.awaits_text

    def _keep_names(self, exchange: Exchange) -> None:
        if exchange.timeline.speech_end_perf_ns is not None:
            self._last = max(self._last, exchange.index)
        for name in exchange.timeline.items if self._wire.names_questions else ():
            self._numbers[name] = exchange.index

    def _owner(self, event: VoiceEvent, running: Exchange | None, arrival_perf_ns: int) -> Exchange | None:
        """The turn that an event is about; None for one that is recorded, and for none."""
        name = event.item_id if self._wire.names_questions else None
        if name is not None and event.kind in _NAMING_KINDS and self._named_by is not EventKind.SPEECH_STARTED:
            self._named_by = event.kind
        timeline = None if running is None else running.timeline
        own = timeline is not None and name in timeline.items
        if not own and name is not None and name in self._numbers:
            owner = self._open.get(self._numbers[name])
            if not self._is_used_again(event, name, owner, running):
                return owner
            del self._numbers[name]
        before = None if running is not None and running.index <= self._last else self._open.get(self._last)
        if before is None or (timeline is not None and name in timeline.announced):
            return running
        if name is not None and before.timeline.announced:
            return running  # what is about the turn before has another name
        return before if _is_of_before(event, before.timeline, timeline, arrival_perf_ns) else running

    def _is_used_again(self, event: VoiceEvent, name: str, owner: Exchange | None, running: Exchange | None) -> bool:
        """Return whether a known name is that of something else now: the first use was over, and another one began."""
        if self._named_by is not None:
            return event.kind is self._named_by and (owner is None or owner.timeline.has_closed(name))
        was_transcribed = owner is None or owner.timeline.has_transcribed(name)
        return was_transcribed and running is not None and running.timeline.speech_start_perf_ns is not None


_NAMING_KINDS: Final = frozenset({EventKind.SPEECH_STARTED, EventKind.QUESTION_NAMED})


def _is_of_before(event: VoiceEvent, before: Timeline, running: Timeline | None, arrival_perf_ns: int) -> bool:
    """Return whether an event whose name is new, or that has none, is about the turn before and not about the running
    one."""
    kind = event.kind
    if running is None or running.speech_start_perf_ns is None:
        if kind in TRANSCRIPT_KINDS:
            return before.awaits_transcript
        return before.heard_open if kind is EventKind.SPEECH_STOPPED else kind is EventKind.QUESTION_NAMED
    if kind is EventKind.QUESTION_NAMED:
        return running.speech_end_perf_ns is None
    if kind not in (EventKind.ASR_FINAL, EventKind.ASR_FAILED):
        return False
    end_perf_ns, moment_perf_ns = running.speech_end_perf_ns, running.moment_of(event, arrival_perf_ns)
    return before.awaits_transcript and (end_perf_ns is None or moment_perf_ns < end_perf_ns)
