"""The outgoing audio of a call: what is to be said, and what has been sent, frame by frame.

Audio is sent continuously: between utterances it is silence or the profile's noise. The frames are sent by the pacer
thread, or by the hub where that cannot; either notes when the frames with the first and the last sample of speech went,
and how late every frame was. A call takes that when it needs it, in the order in which things happened.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtest.conversation.evidence import Evidence
from loadtest.conversation.prepared_clip import PreparedClip, SentAudioTap
from loadtest.engine.hub_sender import HubStream
from loadtest.engine.pacer import OfferedFrame, PacedSocket

FrameStream = PacedSocket | HubStream


@dataclass(frozen=True, slots=True)
class SpeechMark:
    """The frame with the first sample of speech, or with the last one, has been offered to the socket."""

    clip: PreparedClip
    is_start: bool
    frame: OfferedFrame


class AudioTrack:
    """One caller's outgoing audio. `awaits_marks` says whether `take_marks` can have something."""

    __slots__ = (
        "_clip",
        "_evidence",
        "_held_up",
        "_next",
        "_start_taken",
        "awaits_marks",
        "clip_started_frame",
        "numbered",
        "stream",
        "tap",
    )

    def __init__(self) -> None:
        self.stream: FrameStream | None = None  # None until there is a connection
        # What sends the frames, if they are numbered together with messages of the call: to be held while one is made.
        self.numbered: PacedSocket | None = None
        self.tap: SentAudioTap | None = None  # gets what is sent, where a call's audio is kept
        self._clip: PreparedClip | None = None
        self.clip_started_frame = 0  # how many frames of the call had gone out when the utterance began
        self.awaits_marks = self._start_taken = False
        self._evidence: Evidence | None = None  # of the turn for which the frames count now
        self._next = 0  # the number of the first frame that it has not been given yet
        self._held_up = 0

    def begin(self, stream: FrameStream, background: Sequence[bytes], frame_ns: int, now_perf_ns: int) -> None:
        """Begin to send the background."""
        self.stream = stream
        self.numbered = stream if isinstance(stream, PacedSocket) and stream.is_numbered else None
        first_due_perf_ns = stream.begin(background, frame_ns, now_perf_ns)
        if self.tap is not None:
            self.tap.began(first_due_perf_ns - frame_ns)

    @property
    def in_speech(self) -> bool:
        """Whether the utterance is being said, from the first frame with speech on."""
        return self._start_taken and self.stream is not None and self.stream.is_saying

    def say(self, clip: PreparedClip, now_perf_ns: int) -> None:
        """Begin an utterance with the next frame that is not due yet. Raises RuntimeError while another one is being
        spoken."""
        if self.stream is None:
            return
        if self.stream.is_saying:
            raise RuntimeError("the caller is already speaking")
        self._clip, self.awaits_marks, self._start_taken = clip, True, False
        self.clip_started_frame = self.stream.say(clip, self.stream.overdue(now_perf_ns))
        if self.tap is not None:
            self.tap.spoke(self.clip_started_frame, clip)

    def mute(self) -> None:
        """Stop speaking and return to the background."""
        if self.stream is None:
            return
        was_saying, sent = self.stream.is_saying, self.stream.mute()
        if self.tap is not None and was_saying:
            self.tap.muted(max(sent, self.clip_started_frame))
        self.awaits_marks = False

    def stop(self, now_perf_ns: int) -> FrameStream | None:
        """Send no more frames; return the stream."""
        if self.stream is not None:
            self.stream.stop()
        if self.tap is not None:
            self.tap.hung_up(now_perf_ns)
        return self.stream

    # What has been sent.

    def take_marks(self, until_perf_ns: int) -> list[SpeechMark]:
        """Take what is known of the first and last speech that was offered by a moment, each once."""
        clip, marks = self._clip, list[SpeechMark]()
        if clip is None or self.stream is None:
            return marks
        start, end = self.stream.speech()
        if not self._start_taken and start is not None and start.offered_perf_ns <= until_perf_ns:
            self._start_taken = True
            marks.append(SpeechMark(clip, True, start))
        if self._start_taken and end is not None and end.offered_perf_ns <= until_perf_ns:
            self.awaits_marks = False
            marks.append(SpeechMark(clip, False, end))
        return marks

    def count(self, evidence: Evidence | None, first_frame: int | None = None) -> None:
        """Give the evidence of a turn the lateness of the frames that are sent from now on, or from one of them on."""
        if self.stream is None or (evidence is self._evidence and first_frame is None):
            return
        self.give_evidence()
        self._evidence = evidence
        self._next = self.stream.count_from(first_frame, counts=evidence is not None)

    def give_evidence(self, end_frame: int | None = None, now_perf_ns: int | None = None) -> None:
        """Give the turn the lateness of what was sent before a frame, and how long frames waited for the socket."""
        evidence, stream = self._evidence, self.stream
        if evidence is None or stream is None:
            return
        end = stream.sent if end_frame is None else end_frame
        late = stream.lateness_ns(self._next, end)
        lost = max(0, end - self._next - len(late))
        evidence.pacing.lateness_ns += [max(late, default=0)] * lost + late
        self._next = max(end, self._next)
        evidence.note_blocked(stream.blocked_ns(now_perf_ns))

    def counts_for(self, evidence: Evidence) -> bool:
        """Return whether frames count for this turn now."""
        return evidence is self._evidence

    def note_held_up(self, note: Callable[[int], None]) -> None:
        """Call `note` with what waits, once for each frame that had to wait since the last call."""
        if self.stream is not None:
            for _ in range(self.stream.held_up - self._held_up):
                note(self.stream.waiting_bytes)
            self._held_up = self.stream.held_up
