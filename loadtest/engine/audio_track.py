"""What a caller's line carries, frame by frame: the prepared utterance, or the background between utterances.

The line is never dead: between utterances it sends silence or the profile's noise. Pure; frames come ready for the
wire and are shared by all callers.
"""

from typing import Any

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.timing_wheel import ROWS_AHEAD, WheelEntry


class AudioTrack:
    """One caller's outgoing audio.

    Most frames are like any other: they are laid out ahead, on the caller's seat. The others (the first and the last
    with voice) are asked for one by one, with `take`.
    """

    __slots__ = ("_background", "_background_next", "_clip", "_clip_frame", "_entry", "_sent", "clip_started_frame")

    def __init__(self, background: tuple[bytes, ...], entry: WheelEntry[Any]) -> None:
        if not background:
            raise ValueError("a line needs at least one background frame")
        self._background = background
        self._background_next = 0
        self._clip: PreparedClip | None = None
        self._clip_frame = 0
        self.clip_started_frame = 0  # how many frames of the call had gone out when the utterance began
        self._sent = 0
        self._entry = entry

    @property
    def clip(self) -> PreparedClip | None:
        """The utterance that is being said."""
        self._count()
        return self._clip

    @property
    def voiced(self) -> bool:
        """Whether the utterance has begun to be heard, and is not over."""
        self._count()
        return self._clip is not None and self._clip_frame > self._clip.speech_start_frame

    def say(self, clip: PreparedClip) -> None:
        """Begin an utterance with the next frame. Raises RuntimeError while another one is being said."""
        self.look_no_further()
        if self._clip is not None:
            raise RuntimeError("the caller is already speaking")
        self._clip = clip
        self._clip_frame = 0
        self.clip_started_frame = self._sent

    def mute(self) -> None:
        """Stop speaking: the line goes back to its background."""
        self.look_no_further()
        self._clip = None

    def take(self) -> tuple[bytes, PreparedClip | None, int]:
        """The next frame's message, and which frame of which utterance it is (None, -1 for background)."""
        self.look_no_further()
        clip = self._clip
        if clip is None:
            frame, index = self._background[self._background_next], -1
        else:
            frame, index = clip.frames[self._clip_frame], self._clip_frame
        self._went(1)
        return frame, clip, index

    def look_ahead(self, most: int = ROWS_AHEAD) -> None:
        """Lay out the next frames that are like any other, if the next one is: no more than `most`."""
        self._count()
        most = min(most, ROWS_AHEAD)
        if self._entry.ahead or most < 1:
            return
        if self._clip is None:
            begin, size = self._background_next, len(self._background)
            self._entry.schedule([self._background[at % size] for at in range(begin, begin + most)])
        else:
            begin, clip = self._clip_frame, self._clip
            stops = [at for at in (clip.speech_start_frame, clip.speech_end_frame, len(clip.frames)) if at >= begin]
            self._entry.schedule(clip.frames[begin : min(begin + most, *stops)])

    def look_no_further(self) -> None:
        """Take back what lies ahead: what comes next is no longer what was thought."""
        self._count()
        self._entry.clear()

    def _count(self) -> None:
        if went := self._entry.taken():
            self._went(went)

    def _went(self, frames: int) -> None:
        """So many frames have gone out. What is laid out never reaches beyond the end of an utterance."""
        self._sent += frames
        if self._clip is None:
            self._background_next = (self._background_next + frames) % len(self._background)
            return
        self._clip_frame += frames
        if self._clip_frame == len(self._clip.frames):
            self._clip = None
