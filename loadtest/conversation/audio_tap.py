"""Receivers of a call's audio where it is kept: of the playout and of the outgoing track. Pure."""

from typing import Protocol

from loadtest.conversation.prepared_clip import PreparedClip


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
