"""What a caller's line carries, frame by frame: the prepared utterance, or the background between utterances.

The line is never dead: between utterances it sends silence or the profile's noise. Pure; frames come ready for the
wire and are shared by all callers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from corpora.render import Rendered


@dataclass(frozen=True, slots=True)
class PreparedClip:
    """An utterance as this wire carries it: one ready-made message a frame."""

    rendered: Rendered
    frames: Sequence[bytes]  # in memory or mapped: a frame is asked for when it is due
    frame_samples: int
    speech_start_frame: int  # the frame that holds the first voiced sample
    speech_end_frame: int  # the frame that holds the last voiced sample

    @property
    def duration_ns(self) -> int:
        """The time its frames take."""
        return len(self.frames) * self.frame_samples * 1_000_000_000 // self.rendered.rate_hz

    @property
    def lead_ns(self) -> int:
        """From its beginning to its first voiced sample."""
        return self.rendered.speech_start_sample * 1_000_000_000 // self.rendered.rate_hz

    def moment_perf_ns(self, sample: int, frame: int, frame_sent_perf_ns: int) -> int:
        """When a sample left the mouth, given when its frame was sent: send time - frame duration + offset in it."""
        offset = sample - frame * self.frame_samples
        return frame_sent_perf_ns - (self.frame_samples - offset) * 1_000_000_000 // self.rendered.rate_hz


def prepare_positions(rendered: Rendered, frame_samples: int) -> tuple[int, int]:
    """The frames that hold the first and the last voiced sample of a rendered utterance."""
    return rendered.speech_start_sample // frame_samples, rendered.speech_end_sample // frame_samples


class Line:
    """One caller's outgoing audio. `sent_frames` counts all frames of the call, the session's audio clock."""

    __slots__ = ("_background", "_background_next", "clip", "clip_frame", "clip_started_frame", "sent_frames")

    def __init__(self, background: tuple[bytes, ...]) -> None:
        if not background:
            raise ValueError("a line needs at least one background frame")
        self._background = background
        self._background_next = 0
        self.clip: PreparedClip | None = None
        self.clip_frame = 0
        self.clip_started_frame = 0
        self.sent_frames = 0

    def say(self, clip: PreparedClip) -> None:
        """Begin an utterance with the next frame. Raises RuntimeError while another one is being said."""
        if self.clip is not None:
            raise RuntimeError("the caller is already speaking")
        self.clip = clip
        self.clip_frame = 0
        self.clip_started_frame = self.sent_frames

    def hush(self) -> None:
        """Stop speaking: the line goes back to its background."""
        self.clip = None

    def take(self) -> tuple[bytes, PreparedClip | None, int]:
        """The next frame's message, and which frame of which utterance it is (None, -1 for background)."""
        self.sent_frames += 1
        clip = self.clip
        if clip is None:
            frame = self._background[self._background_next]
            self._background_next = (self._background_next + 1) % len(self._background)
            return frame, None, -1
        index = self.clip_frame
        self.clip_frame = index + 1
        if self.clip_frame == len(clip.frames):
            self.clip = None
        return clip.frames[index], clip, index
