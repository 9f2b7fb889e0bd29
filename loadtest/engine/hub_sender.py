"""Sends frames from the hub, on each tick: of the calls whose frames the pacer thread cannot send.

A frame is due when its last sample has been spoken. Deadlines are absolute: a late frame is sent at once and the
schedule stays the same; a stream that fell behind catches up one frame a tick, never in a burst.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.pacer import KEPT_FRAMES, PHASE_NS, OfferedFrame, Phases
from loadtest.engine.transports.base import Transport

NEVER: Final = 2**62
# A call takes the lateness of its frames at least every so many.
_REPORT_FRAMES: Final = KEPT_FRAMES // 4
# A tick takes as long as sending two frames: while no more streams than this are due together, they are due at every
# second tick only.
_SPACING_TICKS: Final = 2
_TOGETHER: Final = 15


class HubStream:
    """One call's frames. Has the methods of `pacer.PacedSocket` that an `AudioTrack` uses."""

    def __init__(self, sender: "HubSender", transport: Transport, phase: int) -> None:
        self.phase = phase
        self.due_perf_ns = NEVER
        self.sent = 0  # how many frames have been offered to the transport
        self.held_up = 0  # how many of them had to wait
        self.needs_every_tick = False
        self._sender, self._transport = sender, transport
        self._background: Sequence[bytes] = ()
        self._background_next = 0
        self._clip: PreparedClip | None = None
        self._clip_next = 0  # negative: so many frames of the background come first
        self._frame_ns = 0
        self._deadline_perf_ns = NEVER
        self._start: OfferedFrame | None = None
        self._end: OfferedFrame | None = None
        self._lateness_ns: deque[int] = deque(maxlen=KEPT_FRAMES)
        # Of each frame that waits: its number, when it was offered, and how much is drained once it has gone.
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._counted_from = NEVER
        self._blocked_worst_ns = 0

    # What is to be sent.

    def begin(self, background: Sequence[bytes], frame_ns: int, now_perf_ns: int) -> int:
        """Begin to send the background, one frame after the other; return when the first one is due."""
        self._background, self._frame_ns = background, frame_ns
        self.due_perf_ns = self._sender.schedule(self, frame_ns, now_perf_ns)
        return self.due_perf_ns

    def say(self, clip: PreparedClip, after: int) -> int:
        """Begin an utterance after so many more frames of the background; return its number among the call's frames."""
        self._clip, self._clip_next = clip, -after
        self._start = self._end = None
        return self.sent + after

    def overdue(self, now_perf_ns: int) -> int:
        """Return how many frames were due before now and have not been offered."""
        late_ns = now_perf_ns - self.due_perf_ns
        return -(-late_ns // self._frame_ns) if late_ns > 0 else 0

    def mute(self) -> int:
        """Return to the background; return how many frames have been sent."""
        self._clip = None
        return self.sent

    def stop(self) -> None:
        """Send no more frames; what waits is still sent."""
        if self.due_perf_ns != NEVER:
            self.due_perf_ns, self._clip = NEVER, None
            self._sender.remove(self)

    def set_deadline(self, perf_ns: int) -> None:
        """Report the stream in `HubSender.collect` with the first frame sent at or after a moment."""
        self._deadline_perf_ns = perf_ns

    def send(self, perf_ns: Callable[[], int]) -> tuple[int, bool]:
        """Offer the frame that is due; return how late it was handed over, and whether the call has to hear of it."""
        clip, at, number, due_perf_ns = self._clip, self._clip_next, self.sent, self.due_perf_ns
        self.sent, self.due_perf_ns = number + 1, due_perf_ns + self._frame_ns
        if clip is not None:
            self._clip_next = at + 1
            if self._clip_next == len(clip.frames):
                self._clip = None
        if clip is not None and at >= 0:
            frame = clip.frames[at]
        else:
            frame, clip = self._background[self._background_next], None
            self._background_next = (self._background_next + 1) % len(self._background)
        offered_perf_ns = perf_ns()
        accepted = self._transport.send_frame(frame)
        gone_perf_ns = perf_ns()  # a pause of this process while it sends delays the frame, too
        self._lateness_ns.append(gone_perf_ns - due_perf_ns)
        if not accepted:
            self.held_up += 1
            self._waiting.append((number, offered_perf_ns, self._transport.outbox.queued_bytes))
        is_mark = clip is not None and at in (clip.speech_start_frame, clip.speech_end_frame)
        if clip is not None and is_mark:
            unsent_bytes = self._transport.unsent_bytes() if at == clip.speech_end_frame else None
            sent = OfferedFrame(
                number, due_perf_ns, offered_perf_ns, gone_perf_ns, self._transport.frame_bytes, unsent_bytes
            )
            self._start = sent if at == clip.speech_start_frame else self._start
            self._end = sent if at == clip.speech_end_frame else self._end
        has_news = is_mark or not accepted or gone_perf_ns >= self._deadline_perf_ns or not self.sent % _REPORT_FRAMES
        return gone_perf_ns - due_perf_ns, has_news

    # What has been sent.

    @property
    def is_saying(self) -> bool:
        """Whether frames of an utterance are still to be sent."""
        return self._clip is not None

    def speech(self) -> tuple[OfferedFrame | None, OfferedFrame | None]:
        """Return the frames with the first and the last sample of speech of the utterance, as far as they were sent."""
        return self._start, self._end

    def lateness_ns(self, first: int, end: int) -> list[int]:
        """Return how late each of the frames with these numbers was handed over, as far as it is still known."""
        oldest = self.sent - len(self._lateness_ns)
        return list(islice(self._lateness_ns, max(0, first - oldest), max(0, end - oldest)))

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


class HubSender:
    """The streams that the hub sends, by the moment at which their next frame is due."""

    def __init__(
        self, base_perf_ns: int, perf_ns: Callable[[], int], failed: Callable[[HubStream, Exception], None]
    ) -> None:
        """`base_perf_ns` is the moment of a tick. `failed` is called with an internal error of one stream, which must
        not stop the others."""
        self._base_perf_ns, self._perf_ns, self._failed = base_perf_ns, perf_ns, failed
        self._phases = Phases()
        self._due: list[tuple[int, int, HubStream]] = []  # a heap; the second member only orders equal moments
        self._added = 0
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
        due_perf_ns = self._phases.first_due(stream.phase, frame_ns, now_perf_ns + 1, self._base_perf_ns)
        self._added += 1
        self.streams += 1
        stream.needs_every_tick = bool(stream.phase % _SPACING_TICKS or frame_ns % (_SPACING_TICKS * PHASE_NS))
        self._need_every_tick += stream.needs_every_tick
        heapq.heappush(self._due, (due_perf_ns, self._added, stream))
        return due_perf_ns

    def remove(self, stream: HubStream) -> None:
        """Account for a stream that has stopped."""
        self.streams -= 1
        self._need_every_tick -= stream.needs_every_tick
        self._phases.give_back(stream.phase)

    def collect(self, now_perf_ns: int) -> tuple[list[HubStream], list[int]]:
        """Send the frames that are due, one of each stream; return the streams with news, and how late each frame
        was."""
        streams: list[HubStream] = []
        lateness_ns: list[int] = []
        due = self._due
        reached: list[tuple[int, int, HubStream]] = []
        while due and due[0][0] <= now_perf_ns:
            reached.append(heapq.heappop(due))
        for _, order, stream in reached:
            if stream.due_perf_ns == NEVER:
                continue
            try:
                late_ns, has_news = stream.send(self._perf_ns)
            except Exception as error:  # noqa: BLE001 - an internal error in one call must not stop the others' audio
                self._failed(stream, error)
                continue
            lateness_ns.append(late_ns)
            if has_news:
                streams.append(stream)
            if stream.due_perf_ns != NEVER:
                heapq.heappush(due, (stream.due_perf_ns, order, stream))
        self._is_behind = bool(due) and due[0][0] <= now_perf_ns
        return streams, lateness_ns
