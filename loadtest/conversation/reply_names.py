"""Names for replies on a wire that gives none, or one name to several: which pieces are one reply. Pure."""

from typing import Final

from msgspec.structs import replace

from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.timeline import REPLY_KINDS, UNNAMED, USED_BEFORE
from loadtest.protocols.base import EventKind, VoiceEvent

# A reply that had fallen silent when the caller's question ended, and for at least this long, does not go on after it:
# what comes then is another one. Shorter gaps are jitter within what is still being sent.
PAUSE_NS: Final = 200_000_000


class ReplyNames:
    """Names replies one after the other.

    All that comes from a response's start, or from its first piece, until it is done is one reply. After the caller
    has broken in, the endpoint's closing of the new turn ends the old reply too: what comes then answers it.

    Where a reply ends by silence (`silence_ns` is not None), so does its name. Besides, a reply does not go on after
    the end of a question during which it had fallen silent, or of which nothing had come for `silence_ns`: what
    follows answers the question, however short that was.

    An id of the wire names one reply. It is used again, for another one, if the first is over and a response begins
    with that id; on a wire that announces no responses, if audio of it comes after the next end of a question.
    """

    __slots__ = (
        "_again",
        "_announces",
        "_asked_perf_ns",
        "_before_audio",
        "_broken_into",
        "_count",
        "_over",
        "_playout",
        "_silence_ns",
        "_spoke",
        "current",
        "last_perf_ns",
    )

    def __init__(self, playout: PlayoutBuffer, silence_ns: int | None) -> None:
        self._playout = playout
        self._silence_ns = silence_ns
        self._count = 0
        self.current: str | None = None
        self._spoke = False  # audio of the current reply has come
        self.last_perf_ns = 0  # when its last piece came
        self._asked_perf_ns: int | None = None
        self._broken_into: str | None = None  # the reply that the closing of the caller's interruption has ended
        self._before_audio: list[tuple[VoiceEvent, int]] = []  # texts since the question, of a reply that may begin
        self._announces = False  # the wire says when a reply begins
        self._over: dict[str, int] = {}  # ids on the wire whose reply is over, and since when
        self._again: dict[str, str] = {}  # names of the replies whose ids were used before, by id

    def note_question_end(self, moment_perf_ns: int) -> None:
        """The last speech sample of a question was sent."""
        self._asked_perf_ns = moment_perf_ns
        self._before_audio.clear()

    def end(self, response_id: str) -> None:
        """End the reply: what comes next is not part of it."""
        if self.current == response_id:
            self.current = None

    def note_over(self, response_id: str, moment_perf_ns: int) -> None:
        """A reply is over: its id may be used again."""
        wire_id = response_id.partition(USED_BEFORE)[2] if response_id.startswith(UNNAMED) else response_id
        if wire_id and self._again.get(wire_id, wire_id) == response_id:
            self._over[wire_id] = moment_perf_ns

    def note_unasked(self, response_id: str, moment_perf_ns: int) -> None:
        """A piece of a reply that answers no question came: as far as is known, it is over by then."""
        if self._announces:
            self.note_over(response_id, moment_perf_ns)

    def name_of(self, wire_id: str) -> str:
        """The name of the reply that an id of the wire refers to now."""
        return self._again.get(wire_id, wire_id)

    def continued(self, arrival_perf_ns: int) -> str | None:
        """The name of the current reply, if a piece of audio that arrives now is more of it; then it counts as such."""
        if self.current is None or not self._spoke or self._is_over(arrival_perf_ns):
            return None
        self.last_perf_ns = arrival_perf_ns
        return self.current

    @property
    def may_end_by_question(self) -> bool:
        """Whether nothing of the current reply has come since the end of the question, which may end it."""
        return self._asked_perf_ns is not None and self.last_perf_ns < self._asked_perf_ns

    def named(self, event: VoiceEvent, arrival_perf_ns: int, *, caller_broke_in: bool) -> VoiceEvent:
        """The event as it is, or with a name for the reply that it is a part of."""
        if event.kind is EventKind.SPEECH_STOPPED and caller_broke_in:
            self._broken_into, self.current = self.current or self._broken_into, None
        if event.kind not in REPLY_KINDS:
            return event
        if event.response_id is not None:
            return self._renamed(event, event.response_id, arrival_perf_ns)
        if self.current is None and event.kind is EventKind.RESPONSE_DONE and self._broken_into is not None:
            name, self._broken_into = self._broken_into, None  # nothing else has begun that could be over
            return replace(event, response_id=name)
        if self.current is None or event.kind is EventKind.RESPONSE_STARTED or self._is_over(arrival_perf_ns):
            self._count += 1
            self.current, self._spoke, self._broken_into = f"{UNNAMED}{self._count}", False, None
        name = self.current
        self._spoke = self._spoke or event.kind is EventKind.AUDIO
        self.last_perf_ns = arrival_perf_ns
        if event.kind is EventKind.RESPONSE_DONE:
            self.current = None
        return replace(event, response_id=name)

    def _renamed(self, event: VoiceEvent, wire_id: str, arrival_perf_ns: int) -> VoiceEvent:
        """Return the event with the name of the reply that its id refers to now."""
        over_perf_ns, asked_perf_ns = self._over.get(wire_id), self._asked_perf_ns
        announced = event.kind is EventKind.RESPONSE_STARTED
        self._announces = self._announces or announced
        if over_perf_ns is not None:
            after_question = asked_perf_ns is not None and over_perf_ns < asked_perf_ns <= arrival_perf_ns
            if announced or (event.kind is EventKind.AUDIO and not self._announces and after_question):
                self._count += 1
                self._again[wire_id] = f"{UNNAMED}{self._count}{USED_BEFORE}{wire_id}"
                del self._over[wire_id]
            elif event.kind is EventKind.LLM_TEXT and not self._announces and after_question:
                self._before_audio.append((event, arrival_perf_ns))
        name = self.name_of(wire_id)
        if event.kind is EventKind.RESPONSE_DONE:
            self.note_over(name, arrival_perf_ns)
        return event if name == wire_id else replace(event, response_id=name)

    def take_before_audio(self, name: str | None) -> list[tuple[VoiceEvent, int]]:
        """The texts of a reply that came, with their arrivals, before its first audio said that it is another one."""
        if not self._before_audio or name is None or USED_BEFORE not in name:
            return []
        found = [(each, at) for each, at in self._before_audio if self.name_of(each.response_id or "") == name]
        self._before_audio.clear()
        return [(replace(each, response_id=name), at) for each, at in found]

    def _is_over(self, arrival_perf_ns: int) -> bool:
        """Return whether the current reply had ended before a piece that arrives now."""
        if self._silence_ns is None:
            return False
        last, asked = self.last_perf_ns, self._asked_perf_ns
        plays_until = max(last, self._playout.playing_until_perf_ns)
        if self._spoke and arrival_perf_ns - plays_until >= self._silence_ns:
            return True
        if asked is None or last >= asked or arrival_perf_ns < asked:
            return False
        quiet_since = max(last, self._playout.audible_until_perf_ns)
        fell_silent = quiet_since <= asked and arrival_perf_ns - quiet_since >= PAUSE_NS
        return fell_silent or arrival_perf_ns - last >= self._silence_ns
