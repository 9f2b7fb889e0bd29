"""The audio that a caller sent, rebuilt from its utterances and the background between them. Pure."""

from dataclasses import dataclass

import numpy as np

from loadtest.audio.pcm import Pcm16


@dataclass(frozen=True, slots=True)
class SentFormat:
    """The frames of a call, and the background of its line from the frame with which the call's begins."""

    rate_hz: int
    frame_samples: int
    background: Pcm16  # a loop of whole frames
    background_first: int


@dataclass(slots=True)
class _Spoken:
    first_frame: int
    end_frame: int
    pcm: Pcm16


class SentAudio:
    """The first channel of a call. Frames are numbered from the first one of the call."""

    def __init__(self, sent: SentFormat) -> None:
        self._sent = sent
        self._spoken: list[_Spoken] = []
        self._background_frames = 0  # that were sent before the first of `_spoken`

    def spoke(self, frame: int, pcm: Pcm16) -> None:
        """An utterance begins."""
        size = self._sent.frame_samples
        self._spoken.append(_Spoken(frame, frame + -(-len(pcm) // size), pcm))

    def muted(self, frame: int) -> None:
        """The utterance is broken off."""
        if self._spoken and frame < self._spoken[-1].end_frame:
            last = self._spoken[-1]
            last.end_frame = max(last.first_frame, frame)
            last.pcm = last.pcm[: (last.end_frame - last.first_frame) * self._sent.frame_samples]

    def taken(self, first_frame: int, end_frame: int) -> Pcm16:
        """The samples of these frames, at the caller's own rate; frames are taken once, in their order."""
        size = self._sent.frame_samples
        out = np.zeros((end_frame - first_frame) * size, np.int16)
        at = first_frame
        while at < end_frame:
            while self._spoken and self._spoken[0].end_frame <= at:
                del self._spoken[0]
            spoken = self._spoken[0] if self._spoken else None
            if spoken is not None and spoken.first_frame <= at:
                until = min(end_frame, spoken.end_frame)
                piece = spoken.pcm[(at - spoken.first_frame) * size : (until - spoken.first_frame) * size]
                # The last frame of an utterance is padded with the beginning of the background.
                piece = _padded(piece, (until - at) * size, self._sent.background)
            else:
                until = end_frame if spoken is None else min(end_frame, spoken.first_frame)
                piece = self._background(until - at)
            out[(at - first_frame) * size : (until - first_frame) * size] = piece
            at = until
        return out

    def _background(self, frames: int) -> Pcm16:
        loop, size = self._sent.background, self._sent.frame_samples
        if not len(loop):
            return np.zeros(frames * size, np.int16)
        first = (self._sent.background_first + self._background_frames) * size
        self._background_frames += frames
        return np.take(loop, np.arange(first, first + frames * size), mode="wrap")


def _padded(piece: Pcm16, samples: int, background: Pcm16) -> Pcm16:
    missing = samples - len(piece)
    if missing <= 0:
        return piece
    rest = background[:missing]
    return np.concatenate([piece, rest, np.zeros(missing - len(rest), np.int16)])
