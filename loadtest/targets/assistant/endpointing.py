"""Detects when the caller's turn begins and ends, on the session's audio clock and on the assistant's clock.

The time of a sample follows the microphone convention: a frame is sent when its last sample has been spoken, so a
sample was spoken at the frame's arrival, minus the frame's duration, plus the sample's offset in the frame.
Pure: frames with their arrival times in, beginnings and ends of turns out.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.targets.assistant.vad import EnergyVad

_KEEP_BEFORE_SPEECH_MS: Final = 1500
_LONGEST_TURN_S: Final = 120  # a turn ends here even without silence
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller began to speak. `audio_start_ns` (session audio clock) precedes speech by the prefix padding."""

    audio_start_ns: int
    speech_start_perf_ns: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller's turn ended. `audio_end_ns` includes the silence that ended it."""

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


class Endpointer:
    """Detects the turns of one session at one input rate.

    `audio_offset_ns` is the duration of the audio that the session received before, at another rate.
    """

    def __init__(self, rate_hz: int, audio_offset_ns: int = 0) -> None:
        self.rate_hz = rate_hz
        self._offset_ns = audio_offset_ns
        self._vad = EnergyVad(rate_hz)
        self._frames: deque[_Frame] = deque()
        self._fed = 0
        self._turn_from = 0  # first sample that belongs to the current turn
        self._started: SpeechStarted | None = None

    @property
    def audio_ns(self) -> int:
        """How much audio the session has received."""
        return self._offset_ns + self._to_ns(self._fed)

    @property
    def started(self) -> SpeechStarted | None:
        """The beginning of the current turn, if speech was detected."""
        return self._started

    def feed(
        self, pcm: NDArray[np.int16], arrival_perf_ns: int, *, prefix_padding_ms: int, silence_duration_ms: int | None
    ) -> list[SpeechStarted | SpeechStopped]:
        """Add one frame (int16 mono). With `silence_duration_ms` None, only `close()` ends the turn."""
        self._frames.append(_Frame(self._fed, pcm, arrival_perf_ns))
        self._fed += len(pcm)
        detection = self._vad.feed(pcm)
        events: list[SpeechStarted | SpeechStopped] = []
        if detection.speaking and self._started is None and detection.speech_start_sample is not None:
            padded = max(self._turn_from, detection.speech_start_sample - prefix_padding_ms * self.rate_hz // 1000)
            self._started = SpeechStarted(
                self._offset_ns + self._to_ns(padded),
                self.moment_of(detection.speech_start_sample),
            )
            self._turn_from = padded
            events.append(self._started)
        if self._started is not None and silence_duration_ms is not None and detection.last_speech_sample is not None:
            silent = self._fed - 1 - detection.last_speech_sample
            too_long = self._fed - self._turn_from > _LONGEST_TURN_S * self.rate_hz
            if silent * 1000 >= silence_duration_ms * self.rate_hz or too_long:
                events.append(self.close())
        if self._started is None and silence_duration_ms is not None:
            self._drop_before(self._fed - _KEEP_BEFORE_SPEECH_MS * self.rate_hz // 1000)
        self._drop_before(self._fed - _LONGEST_TURN_S * self.rate_hz)
        return events

    def close(self) -> SpeechStopped:
        """End the turn here. If no speech was detected, all of the turn's audio counts as speech."""
        detection = self._vad.state()
        start, last = detection.speech_start_sample, detection.last_speech_sample
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
        """Discard the current turn and its audio."""
        self._vad.close()
        self._started = None
        self._turn_from = self._fed
        self._drop_before(self._fed)

    def turn_audio(self) -> NDArray[np.int16]:
        """Return the audio of the current turn (int16 mono), including the prefix padding."""
        pieces = [
            frame.pcm[max(0, self._turn_from - frame.start_sample) :]
            for frame in self._frames
            if frame.start_sample + len(frame.pcm) > self._turn_from
        ]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int16)

    def moment_of(self, sample: int) -> int:
        """Return when a sample that is still stored was spoken, in ns of the clock of the arrival times."""
        for frame in reversed(self._frames):
            if frame.start_sample <= sample:
                offset = sample - frame.start_sample - len(frame.pcm)
                return frame.arrival_perf_ns + self._to_ns(offset)
        first = self._frames[0] if self._frames else _Frame(sample, np.zeros(0, np.int16), 0)
        return first.arrival_perf_ns + self._to_ns(sample - first.start_sample - len(first.pcm))

    def _to_ns(self, samples: int) -> int:
        return samples * _NS // self.rate_hz

    def _drop_before(self, sample: int) -> None:
        # The last frame is always kept: it relates samples to the clock.
        while len(self._frames) > 1 and self._frames[0].start_sample + len(self._frames[0].pcm) <= sample:
            self._frames.popleft()
        self._turn_from = max(self._turn_from, self._frames[0].start_sample) if self._frames else self._turn_from
