"""A caller's reception: which audio is which reply, when a reply stops or ends, and which marks are due. Pure."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from loadtest.conversation.exchange import Action, Interrupt, Played
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.timeline import REPLY_KINDS, UNNAMED, USED_BEFORE, Reply, Timeline
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
        "_last_perf_ns",
        "_over",
        "_playout",
        "_silence_ns",
        "_spoke",
        "current",
    )

    def __init__(self, playout: PlayoutBuffer, silence_ns: int | None) -> None:
        self._playout = playout
        self._silence_ns = silence_ns
        self._count = 0
        self.current: str | None = None
        self._spoke = False  # audio of the current reply has come
        self._last_perf_ns = 0  # when its last piece came
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
        self._last_perf_ns = arrival_perf_ns
        return self.current

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
        self._last_perf_ns = arrival_perf_ns
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
        matching = [(event, at) for event, at in self._before_audio if self.name_of(event.response_id or "") == name]
        self._before_audio.clear()
        return [(replace(event, response_id=name), at) for event, at in matching]

    def _is_over(self, arrival_perf_ns: int) -> bool:
        """Return whether the current reply had ended before a piece that arrives now."""
        if self._silence_ns is None:
            return False
        last, asked = self._last_perf_ns, self._asked_perf_ns
        plays_until = max(last, self._playout.playing_until_perf_ns)
        if self._spoke and arrival_perf_ns - plays_until >= self._silence_ns:
            return True
        if asked is None or last >= asked or arrival_perf_ns < asked:
            return False
        quiet_since = max(last, self._playout.audible_until_perf_ns)
        fell_silent = quiet_since <= asked and arrival_perf_ns - quiet_since >= PAUSE_NS
        return fell_silent or arrival_perf_ns - last >= self._silence_ns


class EarlierReplies:
    """The replies that can answer no later turn, and what of them the caller still hears.

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
        """The time at which the next mark is due; None if none is pending."""
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


class Hearing:
    """The playback of one caller's call. `silence_ns` is None where the wire says when a reply ends.

    Where it does not, a reply ends when nothing of it has arrived or played for `silence_ns`. Its end is dated at the
    last of its audio, so that it is measured like one that the wire closes.
    """

    __slots__ = (
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
        self.last_sign_perf_ns = 0  # when anything of the turn came last
        self.earlier = EarlierReplies(playout)
        self.names = ReplyNames(playout, silence_ns)
        self.marks = PendingMarks(playout)

    def hear_continued(self, timeline: Timeline, event: VoiceEvent, arrival_perf_ns: int) -> bool:
        """Play a piece of audio if it is more of a reply of the turn; return whether it was."""
        reply = self._continued(timeline, event, arrival_perf_ns)
        if reply is None:
            return False
        reply.item_id = event.item_id or reply.item_id
        self.note_sign(arrival_perf_ns)
        reply.hear(self._playout, event, arrival_perf_ns)
        return True

    @property
    def quiet_since_perf_ns(self) -> int:
        """Since when nothing of the turn has come and nothing plays; later than now while something does."""
        return max(self.last_sign_perf_ns, self._playout.playing_until_perf_ns)

    def note_sign(self, arrival_perf_ns: int) -> None:
        """Note the arrival of an event of the turn."""
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
