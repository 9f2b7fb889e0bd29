"""Sends frames from the hub, on each tick: of the calls whose frames the pacer thread cannot send.

A frame is due when its last sample has been spoken. Deadlines are absolute: a late frame is sent at once and the
schedule stays the same; a stream that fell behind catches up one frame a tick, never in a burst.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle, islice
from operator import attrgetter
from typing import Final

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.pacer import KEPT_FRAMES, PHASE_NS, OfferedFrame, Phases
from loadtest.engine.transports.base import Transport

NEVER: Final = 2**62
_NO_SPEECH: Final = (-1, -1)
# A call takes the lateness of its frames at least every so many frames.
_REPORT_FRAMES: Final = KEPT_FRAMES // 4
# A tick takes as long as sending two frames: while no more streams than this are due together, they are due at every
# second tick only.
_SPACING_TICKS: Final = 2
_TOGETHER: Final = 15


class HubStream:
    """One call's frames. Has the methods of `pacer.PacedSocket` that an `AudioTrack` uses."""

    __slots__ = (
        "_background",
        "_blocked_worst_ns",
        "_clip_end",
        "_counted_from",
        "_deadline_perf_ns",
        "_end",
        "_frame_ns",
        "_frames",
        "_lateness_ns",
        "_news_at",
        "_sender",
        "_speech",
        "_start",
        "_transport",
        "_waiting",
        "due_perf_ns",
        "held_up",
        "needs_every_tick",
        "phase",
        "sent",
    )

    def __init__(self, sender: "HubSender", transport: Transport, phase: int) -> None:
        self.phase = phase
        self.due_perf_ns = NEVER
        self.sent = 0  # how many frames have been offered to the transport
        self.held_up = 0  # how many of them had to wait
        self.needs_every_tick = False
        self._sender, self._transport = sender, transport
        self._background: Iterator[bytes] = iter(())
        self._frames = self._background  # those that are sent next
        self._clip_end = 0  # the number of the frame after an utterance's last one
        self._speech = _NO_SPEECH  # the numbers of its frames with the first and the last sample of speech
        self._news_at = _REPORT_FRAMES - 1  # the number of the next frame of which the call has to hear
        self._frame_ns = 0
        self._deadline_perf_ns = NEVER
        self._start: OfferedFrame | None = None
        self._end: OfferedFrame | None = None
        self._lateness_ns: list[int] = []  # of at least the newest KEPT_FRAMES frames
        # Of each frame that waits: its number, when it was offered, and how much is drained once it has gone.
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._counted_from = NEVER
        self._blocked_worst_ns = 0

    # What is to be sent.

    def begin(self, background: Sequence[bytes], frame_ns: int, now_perf_ns: int) -> int:
        """Begin to send the background, one frame after the other; return when the first one is due."""
        self._background, self._frame_ns = cycle(background), frame_ns
        self._frames = self._background
        self.due_perf_ns = self._sender.schedule(self, frame_ns, now_perf_ns)
        return self.due_perf_ns

    def say(self, clip: PreparedClip, after: int) -> int:
        """Begin an utterance after so many more frames of the background; return its number among the call's frames."""
        first = self.sent + after
        self._clip_end = first + len(clip.frames)
        self._speech = first + clip.speech_start_frame, first + clip.speech_end_frame
        self._frames = chain(islice(self._background, after), clip.frames, self._background)
        self._start = self._end = None
        self._expect_news()
        return first

    def overdue(self, now_perf_ns: int) -> int:
        """Return how many frames were due before now and have not been offered."""
        late_ns = now_perf_ns - self.due_perf_ns
        return -(-late_ns // self._frame_ns) if late_ns > 0 else 0

    def mute(self) -> int:
        """Return to the background; return how many frames have been sent."""
        self._speech, self._clip_end, self._frames = _NO_SPEECH, self.sent, self._background
        return self.sent

    def stop(self) -> None:
        """Send no more frames; what waits is still sent."""
        if self.due_perf_ns != NEVER:
            self.due_perf_ns, self._clip_end = NEVER, 0
            self._sender.remove(self, self._frame_ns)

    def set_deadline(self, perf_ns: int) -> None:
        """Report the stream in `HubSender.collect` with the first frame sent at or after a moment."""
        self._deadline_perf_ns = perf_ns

    def send(self, perf_ns: Callable[[], int], news: list["HubStream"]) -> int:
        """Offer the frame that is due; return how late it was handed over. Add the stream to `news` if the call has to
        hear of it."""
        number, due_perf_ns = self.sent, self.due_perf_ns
        self.sent, self.due_perf_ns = number + 1, due_perf_ns + self._frame_ns
        frame = next(self._frames)
        offered_perf_ns = perf_ns()
        accepted = self._transport.send_frame(frame)
        gone_perf_ns = perf_ns()  # a pause of this process while it sends delays the frame, too
        late_ns = gone_perf_ns - due_perf_ns
        self._lateness_ns.append(late_ns)
        if not accepted:
            self.held_up += 1
            self._waiting.append((number, offered_perf_ns, self._transport.outbox.queued_bytes))
        if number >= self._news_at:
            self._note_news(number, due_perf_ns, offered_perf_ns, gone_perf_ns)
            news.append(self)
        elif not accepted or gone_perf_ns >= self._deadline_perf_ns:
            news.append(self)
        return late_ns

    def _expect_news(self) -> None:
        """Find the next frame of which the call has to hear: one of speech, or one long before lateness is lost."""
        report_at = self.sent + _REPORT_FRAMES - 1
        self._news_at = min([report_at, *(at for at in self._speech if at >= self.sent)])

    def _note_news(self, number: int, due_perf_ns: int, offered_perf_ns: int, gone_perf_ns: int) -> None:
        start, end = self._speech
        if number in (start, end):
            unsent_bytes = self._transport.unsent_bytes() if number == end else None
            sent = OfferedFrame(
                number, due_perf_ns, offered_perf_ns, gone_perf_ns, self._transport.frame_bytes, unsent_bytes
            )
            self._start = sent if number == start else self._start
            self._end = sent if number == end else self._end
        if len(self._lateness_ns) >= 2 * KEPT_FRAMES:
            del self._lateness_ns[:-KEPT_FRAMES]
        self._expect_news()

    # What has been sent.

    @property
    def is_saying(self) -> bool:
        """Whether frames of an utterance are still to be sent."""
        return self.sent < self._clip_end

    def speech(self) -> tuple[OfferedFrame | None, OfferedFrame | None]:
        """Return the frames with the first and the last sample of speech of the utterance, as far as they were sent."""
        return self._start, self._end

    def lateness_ns(self, first: int, end: int) -> list[int]:
        """Return how late each of the frames with these numbers was handed over, as far as it is still known."""
        oldest = self.sent - len(self._lateness_ns)
        return self._lateness_ns[max(0, first - oldest) : max(0, end - oldest)]

    def count_from(self, number: int | None, *, counts: bool) -> int:
        """Note how long frames wait that have this number or a later one; None: those that are sent from now on."""
        first = self.sent if number is None else number
        self._counted_from, self._blocked_worst_ns = first if counts else NEVER, 0
        return first

    def settle(self, now_perf_ns: int) -> None:
        """Record how long the frames waited that the socket has accepted by now."""
        drained_bytes = self._transport.outbox.drained_bytes
        while self._waiting and self._waiting[0][2] <= drained_bytes:
            number, offered_perf_ns, _ = self._waiting.popleft()
            if number >= self._counted_from:
                self._blocked_worst_ns = max(self._blocked_worst_ns, now_perf_ns - offered_perf_ns)

    def blocked_ns(self, now_perf_ns: int | None) -> int:
        """Return how long a frame that counts waited at the most; with a moment, those that still wait count until
        then."""
        waiting = [offered for number, offered, _ in self._waiting if number >= self._counted_from]
        if now_perf_ns is None or not waiting:
            return self._blocked_worst_ns
        return max(self._blocked_worst_ns, now_perf_ns - waiting[0])

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the socket has not accepted."""
        return self._transport.outbox.waiting_bytes

    @property
    def waits_since_perf_ns(self) -> int | None:
        """The time at which the first waiting frame was offered; None if none waits."""
        return self._waiting[0][1] if self._waiting else None


class _Row:
    """The streams whose frames are due at the same moments. The list is replaced when it changes, since a stream may
    be added or removed while the row is being sent."""

    __slots__ = ("due_perf_ns", "frame_ns", "streams")

    def __init__(self, due_perf_ns: int, frame_ns: int) -> None:
        self.due_perf_ns, self.frame_ns = due_perf_ns, frame_ns
        self.streams: list[HubStream] = []


class HubSender:
    """The streams that the hub sends, by the moment at which their next frame is due."""

    def __init__(
        self, base_perf_ns: int, perf_ns: Callable[[], int], failed: Callable[[HubStream, Exception], None]
    ) -> None:
        """`base_perf_ns` is the moment of a tick. `failed` is called with an internal error of one stream, which must
        not stop the others."""
        self._base_perf_ns, self._perf_ns, self._failed = base_perf_ns, perf_ns, failed
        self._phases = Phases()
        self._rows: dict[tuple[int, int], _Row] = {}  # by phase and length of a frame
        self.streams = 0  # how many are being sent
        self._need_every_tick = 0  # how many of them
        self._is_behind = False

    @property
    def spacing_ticks(self) -> int:
        """Ticks between two at which frames may be due: 1 while the sender is behind or a stream needs every tick."""
        return 1 if self._need_every_tick or self._is_behind else _SPACING_TICKS

    def add(self, transport: Transport, frame_ns: int) -> HubStream:
        """Return a stream of frames over an open transport."""
        return HubStream(self, transport, self._phases.take(frame_ns, spacing=_SPACING_TICKS, together=_TOGETHER))

    def schedule(self, stream: HubStream, frame_ns: int, now_perf_ns: int) -> int:
        """Send a stream's frames from its next phase after a moment on; return when that is."""
        row = self._rows.setdefault((stream.phase, frame_ns), _Row(now_perf_ns + 1, frame_ns))
        earliest_perf_ns = max(row.due_perf_ns, now_perf_ns + 1)
        due_perf_ns = self._phases.first_due(stream.phase, frame_ns, earliest_perf_ns, self._base_perf_ns)
        if not row.streams:
            row.due_perf_ns = due_perf_ns
        row.streams = [*row.streams, stream]
        self.streams += 1
        stream.needs_every_tick = bool(stream.phase % _SPACING_TICKS or frame_ns % (_SPACING_TICKS * PHASE_NS))
        self._need_every_tick += stream.needs_every_tick
        return due_perf_ns

    def remove(self, stream: HubStream, frame_ns: int) -> None:
        """Account for a stream that has stopped."""
        self.streams -= 1
        self._need_every_tick -= stream.needs_every_tick
        self._phases.give_back(stream.phase)
        row = self._rows[stream.phase, frame_ns]
        row.streams = [other for other in row.streams if other is not stream]
        if not row.streams:
            del self._rows[stream.phase, frame_ns]

    def collect(self, now_perf_ns: int) -> tuple[list[HubStream], list[int]]:
        """Send the frames that are due, one of each stream; return the streams with news, and how late each frame
        was."""
        streams: list[HubStream] = []
        lateness_ns: list[int] = []
        self._is_behind, perf_ns = False, self._perf_ns
        reached = [row for row in self._rows.values() if row.due_perf_ns <= now_perf_ns]
        for row in sorted(reached, key=attrgetter("due_perf_ns")):
            due_perf_ns = row.due_perf_ns
            row.due_perf_ns += row.frame_ns
            self._is_behind = self._is_behind or row.due_perf_ns <= now_perf_ns
            for stream in row.streams:
                if stream.due_perf_ns != due_perf_ns:
                    continue  # it joined a row that is behind, or has ended
                try:
                    lateness_ns.append(stream.send(perf_ns, streams))
                except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
                    self._failed(stream, error)
        return streams, lateness_ns
