"""A caller's reception: which audio is which reply, when a reply stops or ends, and which marks are due. Pure."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from loadtest.conversation.exchange import Action, Interrupt, Played
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.reply_names import ReplyNames
from loadtest.conversation.timeline import Reply, Timeline
from loadtest.protocols.base import EventKind, VoiceEvent


class EarlierReplies:
    """Which replies can answer no later turn, and what of them the caller still hears.

    Audio that answers no question is played like any other. As far as is known, each piece of it is over when it has
    been played. What arrives of a reply that was stopped is not played.
    """

    __slots__ = ("_playout", "_stopped", "_unasked", "known")

    def __init__(self, playout: PlayoutBuffer) -> None:
        self._playout = playout
        self._unasked: dict[str, Reply] = {}
        self._stopped: set[str] = set()
        self.known: frozenset[str] = frozenset()  # ids of the replies that began before the next question

    @property
    def heard(self) -> Collection[Reply]:
        """Replies that answer no question and of which audio was played."""
        return self._unasked.values()

    def remember(self, response_ids: Iterable[str]) -> None:
        """Note replies that can answer no later question."""
        self.known |= frozenset(response_ids)

    def mute(self, response_id: str) -> None:
        """Play nothing more of a reply, however late it comes."""
        self._stopped.add(response_id)

    def hear(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Play a piece of audio that answers no question, unless its reply was stopped."""
        key = event.response_id or ""
        self.remember((key,))
        if key in self._stopped:
            return
        reply = self._unasked.setdefault(key, Reply(key, arrival_perf_ns, done_perf_ns=arrival_perf_ns))
        reply.hear(self._playout, event, arrival_perf_ns)
        reply.done_perf_ns = arrival_perf_ns

    def heard_until(self, now_perf_ns: int) -> int:
        """Return when the last audible sample that has arrived is played; now, where nothing more is to be heard."""
        until_perf_ns = now_perf_ns
        for reply in self.heard:
            if reply.playback is not None and reply.has_more_speech(now_perf_ns):
                until_perf_ns = max(until_perf_ns, reply.playback.last_audio_perf_ns or 0)
        return until_perf_ns


class PendingMarks:
    """The marks that are not answered yet, in the order in which they came.

    A mark is due when the audio that came before it has been played out, in whichever reply that was. Where that audio
    is not played to its end, it is due when playback stops.
    """

    __slots__ = ("_pending", "_playout")

    def __init__(self, playout: PlayoutBuffer) -> None:
        self._playout = playout
        self._pending: deque[tuple[int, str]] = deque()  # when it is due, and its name

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def due_perf_ns(self) -> int | None:
        """When the next one is due; None where none is pending."""
        return self._pending[0][0] if self._pending else None

    def add(self, name: str, arrival_perf_ns: int) -> None:
        """A mark arrived."""
        self._pending.append((max(arrival_perf_ns, self._playout.playing_until_perf_ns), name))

    def note_stop(self, now_perf_ns: int) -> None:
        """Playback was stopped: what waits for audio that is no longer played is due when the rest has been."""
        latest = max(now_perf_ns, self._playout.playing_until_perf_ns)
        self._pending = deque((min(due_perf_ns, latest), name) for due_perf_ns, name in self._pending)

    def take_due(self, now_perf_ns: int) -> list[str]:
        """The names of those that are due by now; they are pending no longer."""
        names: list[str] = []
        while self._pending and self._pending[0][0] <= now_perf_ns:
            names.append(self._pending.popleft()[1])
        return names

    def take_all(self) -> list[str]:
        """The names of all; none is pending any longer."""
        names = [name for _, name in self._pending]
        self._pending.clear()
        return names


_FOR_EVER: Final = 2**63
_AUDIO: Final = EventKind.AUDIO


class Hearing:
    """The playback of one caller's call. `silence_ns` is None where the wire says when a reply ends.

    Where it does not, a reply ends when nothing of it has arrived or played for `silence_ns`. Its end is dated at the
    last of its audio, so that it is measured like one that the wire closes.
    """

    __slots__ = (
        "_heard",
        "_heard_id",
        "_heard_until_perf_ns",
        "_playout",
        "_silence_ns",
        "earlier",
        "last_sign_perf_ns",
        "marks",
        "names",
    )

    def __init__(self, playout: PlayoutBuffer, silence_ns: int | None) -> None:
        self._playout = playout
        self._silence_ns = silence_ns
        self._heard: Reply | None = None  # the reply that is being heard, and what its audio calls it
        self._heard_id: str | None = None
        self._heard_until_perf_ns = 0
        self.last_sign_perf_ns = 0  # when anything of the turn came last
        self.earlier = EarlierReplies(playout)
        self.names = ReplyNames(playout, silence_ns)
        self.marks = PendingMarks(playout)

    def hear_more(self, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Fast path of nearly every event: return whether an event is only more audio of the reply that is
        being heard; if so, it is accounted for.

        False does not say that it is not: whatever needs another look goes to `Conversation.on_event`, which does the
        same with an event that it takes for more audio of that reply.
        """
        reply = self._heard
        if reply is None or event.response_id != self._heard_id or arrival_perf_ns >= self._heard_until_perf_ns:
            return False
        playback, audio = reply.playback, event.audio  # which only an AUDIO event has
        if playback is None or audio is None or event.rate_hz is None:
            return False
        if event.metadata or event.service_ns or event.reports_latency:
            return False
        playout, silence_ns = self._playout, self._silence_ns
        if playout.latest is not playback or playback.stopped_perf_ns is not None or reply.done_perf_ns is not None:
            return False
        if silence_ns is not None and arrival_perf_ns - playout.playing_until_perf_ns >= silence_ns:
            return False
        if not self._heard_id:
            names = self.names
            if names.current != reply.response_id or (silence_ns is not None and names.may_end_by_question):
                return False
            names.last_perf_ns = arrival_perf_ns
        if event.item_id:
            reply.item_id = event.item_id
        self.note_sign(arrival_perf_ns)
        playout.feed(playback, audio, arrival_perf_ns)
        return True

    def hear_continued(self, timeline: Timeline, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Play a piece of audio if it is more of a reply of the turn, more of which may then take the fast path."""
        reply = self._continued(timeline, event, arrival_perf_ns)
        if reply is None:
            return False
        self._play(reply, event, arrival_perf_ns)
        self._heard, self._heard_id, self._heard_until_perf_ns = reply, event.response_id, _FOR_EVER
        return True

    def hear_awaited(self, timeline: Timeline, event: VoiceEvent, arrival_perf_ns: int, until_perf_ns: int) -> bool:
        """Play a piece of audio if it is only more of a reply of the turn, while nothing audible has come.

        So the silence comes that leads a reply, often in many pieces. Before the deadline, it changes nothing.
        """
        if event.kind is not _AUDIO or arrival_perf_ns >= until_perf_ns:
            return False
        if event.metadata or event.service_ns or event.reports_latency:
            return False
        reply = None if timeline.answer is not None else self._continued(timeline, event, arrival_perf_ns)
        if reply is None or reply.is_over:
            return False
        self._play(reply, event, arrival_perf_ns)
        return True

    def _play(self, reply: Reply, event: VoiceEvent, arrival_perf_ns: int) -> None:
        reply.item_id = event.item_id or reply.item_id
        self.note_sign(arrival_perf_ns)
        reply.hear(self._playout, event, arrival_perf_ns)

    def await_more(
        self, answer: Reply | None, response_id: str | None, id_on_the_wire: str | None, until_perf_ns: int
    ) -> None:
        """Let more of the answer, which is not heard yet, take the fast path before a moment if this reply is it.

        Before the deadline, what else of it comes does not change what the caller waits for. `id_on_the_wire` is what
        its audio calls it.
        """
        if answer is not None and answer.response_id == response_id:
            self._heard, self._heard_id, self._heard_until_perf_ns = answer, id_on_the_wire, until_perf_ns

    def forget_heard(self) -> None:
        """Turn the fast path off: what arrives next may belong to another reply, or to none."""
        self._heard = None

    @property
    def quiet_since_perf_ns(self) -> int:
        """Since when nothing of the turn has come and nothing plays; later than now while something does."""
        return max(self.last_sign_perf_ns, self._playout.playing_until_perf_ns)

    def note_sign(self, arrival_perf_ns: int) -> None:
        """Something of the turn came."""
        if arrival_perf_ns > self.last_sign_perf_ns:
            self.last_sign_perf_ns = arrival_perf_ns

    def silence_over_perf_ns(self, replies: Iterable[Reply]) -> int | None:
        """Return when the next of these replies ends by silence; None where none does."""
        if self._silence_ns is None:
            return None
        open_replies = (reply.quiet_since_perf_ns for reply in replies if not reply.is_over)
        quiet_since = min(open_replies, default=None)
        return None if quiet_since is None else quiet_since + self._silence_ns

    def is_silence_over(self, replies: Iterable[Reply], now_perf_ns: int) -> bool:
        """Return whether one of these replies is to end by silence now."""
        over_perf_ns = self.silence_over_perf_ns(replies)
        return over_perf_ns is not None and over_perf_ns <= now_perf_ns

    def _continued(self, timeline: Timeline, event: VoiceEvent, arrival_perf_ns: int) -> Reply | None:
        """The reply of a turn that a piece of audio is more of; None where it may be of another, or the first of it."""
        wire_id = event.response_id
        response_id = self.names.name_of(wire_id) if wire_id else self.names.continued(arrival_perf_ns)
        reply = None if response_id is None else timeline.replies.get(response_id)
        if reply is None or self._silence_ns is None:
            return reply
        silent = reply.ended_by_silence or reply.quiet_since_perf_ns + self._silence_ns <= arrival_perf_ns
        return None if silent else reply

    def end_silent(self, replies: Iterable[Reply], now_perf_ns: int) -> None:
        """End the replies of which nothing has arrived or played for long enough."""
        if self._silence_ns is None:
            return
        for reply in replies:
            if not reply.is_over and reply.quiet_since_perf_ns + self._silence_ns <= now_perf_ns:
                reply.end_by_silence()
                if reply.playback is not None:
                    self.names.end(reply.response_id)

    def stop(self, replies: Sequence[Reply], now_perf_ns: int) -> list[Action]:
        """Stop whatever plays of these replies, or starves and would go on."""
        played_ms: int | None = None
        for reply in replies:
            if reply.playback is not None and reply.goes_on(now_perf_ns):
                played_ms = reply.playback.played_ms(now_perf_ns)
                self._playout.stop(reply.playback, now_perf_ns)
            if reply.playback is not None and reply.stopped:
                self.earlier.mute(reply.response_id)
                self.names.note_over(reply.response_id, now_perf_ns)
        self.marks.note_stop(now_perf_ns)
        return [] if played_ms is None else [Interrupt(played_ms)]

    def stop_all(self, replies: Sequence[Reply], now_perf_ns: int) -> list[Action]:
        """Stop these replies, and whatever plays besides: the caller speaks."""
        return self.stop([*self.earlier.heard, *replies], now_perf_ns)

    def on_control(
        self, event: VoiceEvent, replies: Sequence[Reply], arrival_perf_ns: int, *, caller_speaks: bool
    ) -> list[Action]:
        """A MARK or a CLEAR arrived."""
        if event.kind is EventKind.CLEAR:
            return self._clear([*self.earlier.heard, *replies], arrival_perf_ns, caller_speaks=caller_speaks)
        self.marks.add(event.text or "", arrival_perf_ns)
        return self.played(arrival_perf_ns)

    def _clear(self, replies: Sequence[Reply], now_perf_ns: int, *, caller_speaks: bool) -> list[Action]:
        """The endpoint asks to play nothing more of what it has sent: it cancels the replies that are not over.

        One that has been heard to its end, as far as is known, while the caller does not speak is only ended by it.
        Many endpoints send this at the beginning of each of the caller's turns: with nothing playing it is nothing.
        """
        cancelled = [
            reply
            for reply in replies
            if reply.playback is not None
            and reply.goes_on(now_perf_ns)
            and (caller_speaks or reply.playback.is_playing(now_perf_ns))
        ]
        for reply in cancelled:
            reply.cleared = True
        for reply in replies:
            reply.stop_asked = reply.stop_asked or reply.dropped_until_perf_ns > now_perf_ns
        actions = self.stop(cancelled, now_perf_ns)
        for reply in replies:
            if self._silence_ns is not None and reply.playback is not None and not reply.is_over:
                reply.end_by_silence()
                self.names.end(reply.response_id)
        return [*actions, *(Played(name) for name in self.marks.take_all())]

    def played(self, now_perf_ns: int) -> list[Action]:
        """The answers to the marks that are due."""
        return [Played(name) for name in self.marks.take_due(now_perf_ns)] if self.marks else []
