"""The outgoing audio of a call, frame by frame: the prepared utterance, or the background between utterances.

Audio is sent continuously: between utterances it is silence or the profile's noise. Pure; frames are ready for the wire
and shared by all callers.
"""

from typing import Any, Final

from loadtest.conversation.prepared_clip import PreparedClip, SentAudioTap
from loadtest.engine.timing_wheel import WheelEntry

# How many frames are scheduled ahead. Each of an utterance is a copy that its caller keeps; the background is shared.
SPEECH_AHEAD: Final = 16
BACKGROUND_AHEAD: Final = 128


class AudioTrack:
    """One caller's outgoing audio.

    Most frames need no special handling and are scheduled ahead in the caller's wheel entry. The others (the first and
    the last frame with speech) are taken one by one, with `take`.
    """

    __slots__ = (
        "_background",
        "_background_next",
        "_clip",
        "_clip_frame",
        "_entry",
        "_sent",
        "clip_started_frame",
        "tap",
    )

    def __init__(self, background: tuple[bytes, ...], entry: WheelEntry[Any]) -> None:
        if not background:
            raise ValueError("an audio track needs at least one background frame")
        self._background = background
        self._background_next = 0
        self._clip: PreparedClip | None = None
        self._clip_frame = 0
        self.clip_started_frame = 0  # how many frames of the call had gone out when the utterance began
        self._sent = 0
        self._entry = entry
        self.tap: SentAudioTap | None = None  # gets what is sent, where a call's audio is kept

    @property
    def clip(self) -> PreparedClip | None:
        """The utterance that is being spoken, if any."""
        self._sync()
        return self._clip

    @property
    def in_speech(self) -> bool:
        """Whether the first frame with speech of the current utterance has been sent."""
        self._sync()
        return self._clip is not None and self._clip_frame > self._clip.speech_start_frame

    def say(self, clip: PreparedClip, after: int = 0) -> None:
        """Begin an utterance after so many more frames of the background. Raises RuntimeError while another one is
        being spoken."""
        self.clear_ahead()
        if self._clip is not None:
            raise RuntimeError("the caller is already speaking")
        self._clip = clip
        self._clip_frame = -after
        self.clip_started_frame = self._sent + after
        if self.tap is not None:
            self.tap.spoke(self.clip_started_frame, clip)

    def mute(self) -> None:
        """Stop speaking and return to the background."""
        self.clear_ahead()
        if self.tap is not None and self._clip is not None:
            self.tap.muted(max(self._sent, self.clip_started_frame))
        self._clip = None

    def take(self) -> tuple[bytes, PreparedClip | None, int]:
        """Take the next frame: its message, its utterance and its index there (None and -1 for background)."""
        self.clear_ahead()
        clip = self._clip
        if clip is None or self._clip_frame < 0:
            clip, frame, index = None, self._background[self._background_next], -1
        else:
            frame, index = clip.frames[self._clip_frame], self._clip_frame
        self._advance(1)
        return frame, clip, index

    def schedule_ahead(self, most: int = BACKGROUND_AHEAD) -> None:
        """Schedule up to `most` next frames that need no special handling, if the next one needs none."""
        self._sync()
        if self._entry.ahead or most < 1:
            return
        if self._clip is None:
            self._entry.schedule(self._coming_background(min(most, BACKGROUND_AHEAD)))
        elif self._clip_frame < 0:
            self._entry.schedule(self._coming_background(min(most, -self._clip_frame)))
        else:
            begin, clip = self._clip_frame, self._clip
            stops = [at for at in (clip.speech_start_frame, clip.speech_end_frame, len(clip.frames)) if at >= begin]
            self._entry.schedule(clip.frames[begin : min(begin + most, begin + SPEECH_AHEAD, *stops)])

    def _coming_background(self, count: int) -> tuple[bytes, ...]:
        """The next frames of the background, which begins again where it ends."""
        loop = self._background
        first = loop[self._background_next : self._background_next + count]
        missing = count - len(first)
        return first + (loop * -(-missing // len(loop)))[:missing]

    def clear_ahead(self) -> None:
        """Remove the scheduled frames, because what comes next has changed."""
        self._sync()
        self._entry.clear()

    def _sync(self) -> None:
        if taken := self._entry.taken():
            self._advance(taken)

    def _advance(self, frames: int) -> None:
        """Move on by `frames` sent frames. Scheduled frames never extend beyond either end of an utterance."""
        self._sent += frames
        if self._clip is None or self._clip_frame < 0:
            self._background_next = (self._background_next + frames) % len(self._background)
        if self._clip is None:
            return
        self._clip_frame += frames
        if self._clip_frame == len(self._clip.frames):
            self._clip = None
