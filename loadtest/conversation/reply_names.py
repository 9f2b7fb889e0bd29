"""Names for replies on a wire that gives none: which pieces are one reply. Pure."""

from typing import Final

from msgspec.structs import replace

from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.timeline import REPLY_KINDS, UNNAMED
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
    """

    __slots__ = ("_asked_perf_ns", "_count", "_playout", "_silence_ns", "_spoke", "current", "last_perf_ns")

    def __init__(self, playout: PlayoutBuffer, silence_ns: int | None) -> None:
        self._playout = playout
        self._silence_ns = silence_ns
        self._count = 0
        self.current: str | None = None
        self._spoke = False  # audio of the current reply has come
        self.last_perf_ns = 0  # when its last piece came
        self._asked_perf_ns: int | None = None

    def note_question_end(self, moment_perf_ns: int) -> None:
        """The last speech sample of a question was sent."""
        self._asked_perf_ns = moment_perf_ns

    def end(self, response_id: str) -> None:
        """What comes next is no part of this reply."""
        if self.current == response_id:
            self.current = None

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
            self.current = None
        if event.kind not in REPLY_KINDS or event.response_id is not None:
            return event
        if self.current is None or event.kind is EventKind.RESPONSE_STARTED or self._is_over(arrival_perf_ns):
            self._count += 1
            self.current, self._spoke = f"{UNNAMED}{self._count}", False
        name = self.current
        self._spoke = self._spoke or event.kind is EventKind.AUDIO
        self.last_perf_ns = arrival_perf_ns
        if event.kind is EventKind.RESPONSE_DONE:
            self.current = None
        return replace(event, response_id=name)

    def _is_over(self, arrival_perf_ns: int) -> bool:
        """Whether the current reply had ended before a piece that arrives now."""
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
