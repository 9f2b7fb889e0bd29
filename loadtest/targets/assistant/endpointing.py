"""When the caller's turn begins and ends, on the session's audio clock and on the assistant's own.

The moment of a sample follows the microphone convention: a frame is sent when its last sample has been spoken, so a
sample was spoken at the frame's arrival, minus the frame's duration, plus its offset in the frame.
Pure: frames with their arrival moments in, beginnings and ends out.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.targets.assistant.vad import EnergyVad

_KEEP_BEFORE_SPEECH_MS: Final = 1500
_LONGEST_TURN_S: Final = 120  # a turn is closed here even if the line never falls silent
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller began. `audio_start_ns` (session audio clock) lies before the voice by the prefix padding."""

    audio_start_ns: int
    speech_start_perf_ns: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller's turn is over. `audio_end_ns` includes the silence waited for."""

    audio_end_ns: int
    speech_end_audio_ns: int
    speech_start_perf_ns: int
    speech_end_perf_ns: int
    silent_samples: int  # fed after the last speech sample


@dataclass(frozen=True, slots=True)
class _Frame:
    start_sample: int
    pcm: NDArray[np.int16]
    arrival_perf_ns: int


class Listener:
    """One session's ears, at one input rate. `audio_offset_ns` is what the session heard before at another rate."""

    def __init__(self, rate_hz: int, audio_offset_ns: int = 0) -> None:
        self.rate_hz = rate_hz
        self._offset_ns = audio_offset_ns
        self._vad = EnergyVad(rate_hz)
        self._frames: deque[_Frame] = deque()
        self._fed = 0
        self._turn_from = 0  # first sample that belongs to the turn under way
        self._started: SpeechStarted | None = None

    @property
    def audio_ns(self) -> int:
        """How much the session has heard."""
        return self._offset_ns + self._to_ns(self._fed)

    @property
    def started(self) -> SpeechStarted | None:
        """The beginning of the turn under way, if speech was noticed."""
        return self._started

    def hear(
        self, pcm: NDArray[np.int16], arrival_perf_ns: int, *, prefix_padding_ms: int, silence_duration_ms: int | None
    ) -> list[SpeechStarted | SpeechStopped]:
        """Take one frame (int16 mono). With `silence_duration_ms` None nobody but `close()` ends the turn."""
        self._frames.append(_Frame(self._fed, pcm, arrival_perf_ns))
        self._fed += len(pcm)
        voiced = self._vad.feed(pcm)
        events: list[SpeechStarted | SpeechStopped] = []
        if voiced.speaking and self._started is None and voiced.speech_start_sample is not None:
            padded = max(self._turn_from, voiced.speech_start_sample - prefix_padding_ms * self.rate_hz // 1000)
            self._started = SpeechStarted(
                self._offset_ns + self._to_ns(padded),
                self.moment_of(voiced.speech_start_sample),
            )
            self._turn_from = padded
            events.append(self._started)
        if self._started is not None and silence_duration_ms is not None and voiced.last_speech_sample is not None:
            silent = self._fed - 1 - voiced.last_speech_sample
            too_long = self._fed - self._turn_from > _LONGEST_TURN_S * self.rate_hz
            if silent * 1000 >= silence_duration_ms * self.rate_hz or too_long:
                events.append(self.close())
        if self._started is None and silence_duration_ms is not None:
            self._forget_before(self._fed - _KEEP_BEFORE_SPEECH_MS * self.rate_hz // 1000)
        self._forget_before(self._fed - _LONGEST_TURN_S * self.rate_hz)
        return events

    def close(self) -> SpeechStopped:
        """End the turn here. Where no voice was noticed, the whole of what was heard counts as speech."""
        voiced = self._vad.state()
        start, last = voiced.speech_start_sample, voiced.last_speech_sample
        if start is None or last is None:
            start, last = self._turn_from, max(self._turn_from, self._fed - 1)
        stopped = SpeechStopped(
            audio_end_ns=self.audio_ns,
            speech_end_audio_ns=self._offset_ns + self._to_ns(last),
            speech_start_perf_ns=self.moment_of(start),
            speech_end_perf_ns=self.moment_of(last),
            silent_samples=self._fed - 1 - last,
        )
        self.discard()
        return stopped

    def discard(self) -> None:
        """Forget the turn under way, and what was heard of it."""
        self._vad.close()
        self._started = None
        self._turn_from = self._fed
        self._forget_before(self._fed)

    def turn_audio(self) -> NDArray[np.int16]:
        """What was heard of the turn under way (int16 mono), the prefix padding included."""
        pieces = [
            frame.pcm[max(0, self._turn_from - frame.start_sample) :]
            for frame in self._frames
            if frame.start_sample + len(frame.pcm) > self._turn_from
        ]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int16)

    def moment_of(self, sample: int) -> int:
        """When a sample that is still kept was spoken, in ns of the clock of the arrivals."""
        for frame in reversed(self._frames):
            if frame.start_sample <= sample:
                into = sample - frame.start_sample - len(frame.pcm)
                return frame.arrival_perf_ns + self._to_ns(into)
        first = self._frames[0] if self._frames else _Frame(sample, np.zeros(0, np.int16), 0)
        return first.arrival_perf_ns + self._to_ns(sample - first.start_sample - len(first.pcm))

    def _to_ns(self, samples: int) -> int:
        return samples * _NS // self.rate_hz

    def _forget_before(self, sample: int) -> None:
        # The last frame always stays: it anchors the samples to the clock.
        while len(self._frames) > 1 and self._frames[0].start_sample + len(self._frames[0].pcm) <= sample:
            self._frames.popleft()
        self._turn_from = max(self._turn_from, self._frames[0].start_sample) if self._frames else self._turn_from
