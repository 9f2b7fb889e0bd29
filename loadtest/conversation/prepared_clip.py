"""A clip made ready for the wire, and where its speech lies in its frames. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from loadtest.protocols.base import SpokenText

if TYPE_CHECKING:
    # It reads and filters audio with libraries that a command's help does not need.
    from corpora.rendering.render import Rendered


@runtime_checkable
class FrameTable(Protocol):
    """Frames that lie one behind the other in memory: all their bytes, and where each ends (unsigned 32 bits)."""

    @property
    def data(self) -> memoryview:
        """The bytes of all frames."""
        ...

    @property
    def ends(self) -> memoryview:
        """Where each frame ends, from the beginning of `data`."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedClip:
    """An utterance as this wire carries it: one ready-made message a frame."""

    rendered: "Rendered"
    frames: Sequence[bytes]  # in memory or mapped: a frame is asked for when it is due
    frame_samples: int
    speech_start_frame: int  # the frame that holds the first speech sample
    speech_end_frame: int  # the frame that holds the last speech sample

    @property
    def words(self) -> SpokenText:
        """Its words, for a wire that carries them; empty where they were not written down."""
        utterance = self.rendered.utterance
        return SpokenText(utterance.text or "", utterance.language, self.lead_ns, utterance.id)

    @property
    def duration_ns(self) -> int:
        """The time its frames take."""
        return len(self.frames) * self.frame_samples * 1_000_000_000 // self.rendered.rate_hz

    @property
    def lead_ns(self) -> int:
        """From its beginning to its first speech sample."""
        return self.rendered.speech_start_sample * 1_000_000_000 // self.rendered.rate_hz

    def moment_perf_ns(self, sample: int, frame: int, frame_sent_perf_ns: int) -> int:
        """Return when a sample was spoken, given when its frame was sent: send time - frame duration + offset in the
        frame."""
        offset = sample - frame * self.frame_samples
        return frame_sent_perf_ns - (self.frame_samples - offset) * 1_000_000_000 // self.rendered.rate_hz


def prepare_positions(rendered: "Rendered", frame_samples: int) -> tuple[int, int]:
    """The frames that hold the first and the last speech sample of a rendered utterance."""
    return rendered.speech_start_sample // frame_samples, rendered.speech_end_sample // frame_samples
