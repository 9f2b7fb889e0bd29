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
        """The end of each frame, from the beginning of `data`."""
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
        """The clip's words, for a wire that carries them; empty if it has no text."""
        utterance = self.rendered.utterance
        return SpokenText(utterance.text or "", utterance.language, self.lead_ns, utterance.id)

    @property
    def duration_ns(self) -> int:
        """The time its frames take."""
        return len(self.frames) * self.frame_samples * 1_000_000_000 // self.rendered.rate_hz

    @property
    def lead_ns(self) -> int:
        """The time from its beginning to its first speech sample."""
        return self.rendered.speech_start_sample * 1_000_000_000 // self.rendered.rate_hz

    def moment_perf_ns(self, sample: int, frame: int, frame_sent_perf_ns: int) -> int:
        """Return when a sample was spoken, given when its frame was sent: send time - frame duration + offset in the
        frame."""
        offset = sample - frame * self.frame_samples
        return frame_sent_perf_ns - (self.frame_samples - offset) * 1_000_000_000 // self.rendered.rate_hz


def prepare_positions(rendered: "Rendered", frame_samples: int) -> tuple[int, int]:
    """The frames that hold the first and the last speech sample of a rendered utterance."""
    return rendered.speech_start_sample // frame_samples, rendered.speech_end_sample // frame_samples


class HeardAudioTap(Protocol):
    """Gets what the caller's player does with the audio of the endpoint."""

    def played(self, playback: int, rate_hz: int, start_perf_ns: int, audio: bytes) -> None:
        """Audio (PCM s16le) of a numbered playback is played from a moment, unless it is stopped before."""
        ...

    def stopped(self, playback: int, now_perf_ns: int) -> None:
        """Nothing of a playback is heard from this moment."""
        ...


class SentAudioTap(Protocol):
    """Gets what the caller sends, by numbers of frames: frame 0 is the first of the call."""

    def began(self, first_sample_perf_ns: int) -> None:
        """The first sample of frame 0 was spoken at this moment; every later frame follows without a gap."""
        ...

    def spoke(self, frame: int, clip: PreparedClip) -> None:
        """An utterance begins with this frame; after its last one, or `muted`, comes the background."""
        ...

    def muted(self, frame: int) -> None:
        """The utterance is broken off before this frame."""
        ...

    def hung_up(self, now_perf_ns: int) -> None:
        """The call has ended, and nothing more is sent."""
        ...
