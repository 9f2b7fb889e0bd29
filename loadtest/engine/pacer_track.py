"""The outgoing audio of a call whose frames the pacer thread sends: what is to be said, and what has been sent.

Has the methods of `AudioTrack` that a call uses. The thread notes when the frames with the first and the last sample of
speech went, and how late every frame was; a call takes that when it needs it, in the order in which things happened.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtest.conversation.evidence import Evidence
from loadtest.conversation.prepared_clip import PreparedClip, SentAudioTap
from loadtest.engine.pacer import OfferedFrame, PacedSocket
from loadtest.engine.sent_frames import Sent

KIND: Final = "thread"


@dataclass(frozen=True, slots=True)
class SpeechMark:
    """The frame with the first sample of speech, or with the last one, has been offered to the socket."""

    clip: PreparedClip
    is_start: bool
    frame: OfferedFrame

    @property
    def sent(self) -> Sent:
        """The frame as a frame of its utterance."""
        clip, frame = self.clip, self.frame
        index = clip.speech_start_frame if self.is_start else clip.speech_end_frame
        return Sent(index, frame.offered_perf_ns, frame.gone_perf_ns, frame.unsent_bytes, len(clip.frames[index]))


class PacerTrack:
    """One caller's outgoing audio. `awaits_marks` says whether `take_marks` can have something."""

    __slots__ = (
        "_clip",
        "_evidence",
        "_held_up",
        "_next",
        "_start_taken",
        "awaits_marks",
        "clip_started_frame",
        "socket",
        "tap",
    )

    def __init__(self, paced: PacedSocket, tap: SentAudioTap | None) -> None:
        self.socket = paced
        self.tap = tap
        self._clip: PreparedClip | None = None
        self.clip_started_frame = 0  # how many frames of the call had gone out when the utterance began
        self.awaits_marks = self._start_taken = False
        self._evidence: Evidence | None = None  # of the turn for which the frames count now
        self._next = 0  # the number of the first frame that it has not been given yet
        self._held_up = 0

    @property
    def in_speech(self) -> bool:
        """Whether the utterance is being said, from the first frame with speech on."""
        return self._start_taken and self.socket.is_saying

    def say(self, clip: PreparedClip, after: int = 0) -> None:
        """Begin an utterance after so many more frames of the background. Raises RuntimeError while another one is
        being spoken."""
        if self.socket.is_saying:
            raise RuntimeError("the caller is already speaking")
        self._clip, self.awaits_marks, self._start_taken = clip, True, False
        self.clip_started_frame = self.socket.say(clip, after)
        if self.tap is not None:
            self.tap.spoke(self.clip_started_frame, clip)

    def mute(self) -> None:
        """Stop speaking and return to the background."""
        was_saying, sent = self.socket.is_saying, self.socket.mute()
        if self.tap is not None and was_saying:
            self.tap.muted(max(sent, self.clip_started_frame))
        self.awaits_marks = False

    def clear_ahead(self) -> None:
        """Do nothing: no frame is scheduled that something new would have to replace."""

    def stop(self) -> int:
        """Send no more frames; return the number of the socket."""
        self.socket.stop()
        return self.socket.index

    # What has been sent.

    def take_marks(self, until_perf_ns: int) -> list[SpeechMark]:
        """Take what is known of the first and last speech that was offered by a moment, each once."""
        clip, marks = self._clip, list[SpeechMark]()
        if clip is None:
            return marks
        start, end = self.socket.speech()
        if not self._start_taken and start is not None and start.offered_perf_ns <= until_perf_ns:
            self._start_taken = True
            marks.append(SpeechMark(clip, True, start))
        if self._start_taken and end is not None and end.offered_perf_ns <= until_perf_ns:
            self.awaits_marks = False
            marks.append(SpeechMark(clip, False, end))
        return marks

    def count(self, evidence: Evidence | None, first_frame: int | None = None) -> None:
        """Give the evidence of a turn the lateness of the frames that are sent from now on, or from one of them on."""
        if evidence is self._evidence and first_frame is None:
            return
        self.give_evidence()
        self._evidence = evidence
        self._next = self.socket.count_from(first_frame, counts=evidence is not None)

    def give_evidence(self, end_frame: int | None = None, now_perf_ns: int | None = None) -> None:
        """Give the turn the lateness of what was sent before a frame, and how long frames waited for the socket."""
        evidence = self._evidence
        if evidence is None:
            return
        end = self.socket.sent if end_frame is None else end_frame
        late = self.socket.lateness_ns(self._next, end)
        lost = max(0, end - self._next - len(late))
        evidence.pacing.lateness_ns += [max(late, default=0)] * lost + late
        self._next = max(end, self._next)
        evidence.note_blocked(self.socket.blocked_ns(now_perf_ns))

    def counts_for(self, evidence: Evidence) -> bool:
        """Return whether frames count for this turn now."""
        return evidence is self._evidence

    def note_held_up(self, note: Callable[[int], None]) -> None:
        """Call `note` with what waits, once for each frame that had to wait since the last call."""
        held_up = self.socket.held_up
        for _ in range(held_up - self._held_up):
            note(self.socket.waiting_bytes)
        self._held_up = held_up
