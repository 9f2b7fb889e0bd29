"""Detects when the caller speaks and when the caller's turn begins and ends. Pure.

Frames with their arrival times in; beginnings and ends of turns out, on the session's audio clock and on the
assistant's clock. The time of a sample follows the microphone convention: a frame is sent when its last sample has
been spoken, so a sample was spoken at the frame's arrival, minus the frame's duration, plus its offset in the frame.

Voice activity is precise to the hop. Energy is measured in 10 ms windows, 2 ms apart, in two views of the signal:
unchanged, and pre-emphasized (as for the annotation of corpora). The first view masks hiss, the second one shows soft
final consonants; a window is speech if it is above the threshold in either view. Each view's threshold follows from the
level without speech, the quietest parts of the last two seconds, and the level of the current utterance: in digital
silence it is 40 dB below the speech, in babble it is between the noise and the speech. Only runs of at least 30 ms
count, so a click neither begins nor prolongs speech.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

HOP_MS: Final = 2
WINDOW_MS: Final = 32  # of which a network gives the probability of speech
_SPEECH_BEGINS: Final = 0.5
_SPEECH_GOES_ON: Final = 0.35
_ONSET_WINDOWS: Final = 2
_WINDOW_HOPS: Final = 5  # 10 ms
_RUN_HOPS: Final = 15  # 30 ms without a gap count as speech
_ONSET_HOPS: Final = 30  # 60 ms of speech within the last 120 ms begin an utterance
_ONSET_SPAN_HOPS: Final = 60
_WARM_UP_HOPS: Final = 150  # nothing counts as speech in the first 300 ms
_RING_HOPS: Final = 1000  # 2 s
_LEARN_EVERY_HOPS: Final = 50  # 100 ms
_UNCERTAIN_HOPS: Final = 75  # the 150 ms before an onset may already be speech: they do not count as background
_PRE_EMPHASIS: Final = 0.97
_QUIETEST_DB: Final = -90.0
_ABOVE_QUIETEST_DB: Final = 9.0
_ABOVE_IDLE_DB: Final = 5.0
_BELOW_SPEECH_DB: Final = 40.0
_MIN_DEPTH_DB: Final = 15.0  # the threshold of continuous speech stays at least this far below the speech
_STEADY_DB: Final = 13.0  # two seconds within this range are not speech, however loud
_KEEP_BEFORE_SPEECH_MS: Final = 1500
_LONGEST_TURN_S: Final = 120  # a turn ends here even without silence
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SpeechDetection:
    """The detector's result after feeding samples. Positions are sample indices since the first sample fed."""

    speaking: bool  # an utterance is in progress
    speech_start_sample: int | None  # first speech sample of the current utterance
    last_speech_sample: int | None  # last speech sample so far of the current utterance


class Vad(Protocol):
    """A detector of speech in one stream."""

    async def feed(self, pcm: NDArray[np.int16]) -> SpeechDetection:
        """Add the next samples (int16, mono, any number of them)."""
        ...

    def state(self) -> SpeechDetection:
        """Return the current result."""
        ...

    def close(self) -> None:
        """End the utterance: forget it, but keep what is known about the background."""
        ...

    def end(self) -> None:
        """End the stream."""
        ...


class _View:
    """One view of the signal: its recent levels and its threshold (dB of full scale, mean square)."""

    def __init__(self, min_threshold_db: float) -> None:
        self._min_threshold_db = min_threshold_db
        self._ring = np.full(_RING_HOPS, _QUIETEST_DB)
        self._windows = 0
        self._idle_since = 0
        self._quietest_db = _QUIETEST_DB
        self._idle_top_db = _QUIETEST_DB
        self._speech_db = _QUIETEST_DB
        self._tail = np.zeros(_WINDOW_HOPS - 1)
        self.hop_energies: list[float] = []
        self.threshold_db = min_threshold_db

    def windows_db(self, energies: NDArray[np.float64]) -> list[float]:
        """Return the window levels, one per hop, from the hop energies that follow the previous ones."""
        joined = np.concatenate((self._tail, energies))
        self._tail = joined[-(_WINDOW_HOPS - 1) :]
        sums = np.convolve(joined, np.full(_WINDOW_HOPS, 1.0 / _WINDOW_HOPS), mode="valid")
        self.hop_energies = joined.tolist()
        levels = np.maximum(10 * np.log10(np.maximum(sums, 1e-12)), _QUIETEST_DB)
        return levels.tolist()

    def add_window(self, window_db: float) -> None:
        self._ring[self._windows % _RING_HOPS] = window_db
        self._windows += 1

    def add_speech(self, window_db: float) -> None:
        if window_db > self._speech_db:
            self._speech_db = window_db
            self._update_threshold()

    def forget_speech(self, silent_hops: int = 0) -> None:
        if silent_hops:
            self._idle_since = self._windows - silent_hops
        self._speech_db = _QUIETEST_DB
        self._update_threshold()

    def learn(self, *, idle: bool) -> bool:
        """Update the threshold. Returns whether the last two seconds were steady: background noise, not speech."""
        known = min(self._windows, _RING_HOPS)
        quietest, loudest = percentiles(self._ring[:known], (5, 95))
        self._quietest_db = quietest
        steady = known == _RING_HOPS and loudest - quietest < _STEADY_DB and quietest > _QUIETEST_DB
        begin = self._windows - known
        end = self._windows
        if not steady:
            begin, end = max(begin, self._idle_since), end - _UNCERTAIN_HOPS
        if (idle or steady) and end - begin >= _LEARN_EVERY_HOPS:
            (self._idle_top_db,) = percentiles(self._ring[np.arange(begin, end) % _RING_HOPS], (95,))
        if steady:
            self._speech_db = _QUIETEST_DB
        self._update_threshold()
        return steady

    def _update_threshold(self) -> None:
        quiet = self._quietest_db + _ABOVE_QUIETEST_DB
        if self._speech_db > _QUIETEST_DB:
            quiet = min(quiet, self._speech_db - _MIN_DEPTH_DB)
        self.threshold_db = max(
            self._min_threshold_db, quiet, self._idle_top_db + _ABOVE_IDLE_DB, self._speech_db - _BELOW_SPEECH_DB
        )


def percentiles(values: NDArray[np.float64], percents: tuple[int, ...]) -> tuple[float, ...]:
    """Return what `np.percentile` returns, sooner: the audio of every call asks ten times a second."""
    last = len(values) - 1
    places = [last * (percent / 100) for percent in percents]
    ordered = np.partition(values, sorted({place for at in places for place in (int(at), min(int(at) + 1, last))}))
    quantiles: list[float] = []
    for at in places:
        low = int(at)
        part, first, second = at - low, float(ordered[low]), float(ordered[min(low + 1, last)])
        # From the nearer of the two, as NumPy does.
        quantiles.append(second - (second - first) * (1 - part) if 2 * part >= 1 else first + (second - first) * part)
    return tuple(quantiles)


class EnergyVad:
    """Detects speech in audio that is fed in frames of any size. `close()` ends the utterance."""

    def __init__(self, rate_hz: int) -> None:
        self._hop = rate_hz * HOP_MS // 1000
        self._rest: NDArray[np.int16] = np.zeros(0, np.int16)
        self._previous_sample = 0.0
        self._hops_done = 0
        self._views = (_View(-56.0), _View(-62.0))
        self._run = 0
        self._run_start_hop = 0
        self._first_run_hop: int | None = None
        self._onset = [False] * _ONSET_SPAN_HOPS
        self._onset_count = 0
        self._speaking = False
        self._start_sample: int | None = None
        self._last_sample: int | None = None

    async def feed(self, pcm: NDArray[np.int16]) -> SpeechDetection:
        """Add the next samples (int16, mono, any number of them)."""
        samples = np.concatenate((self._rest, pcm)) if len(self._rest) else pcm
        hops = len(samples) // self._hop
        self._rest = samples[hops * self._hop :].copy()
        if hops:
            self._take(samples[: hops * self._hop].astype(np.float64) / 32768.0, hops)
        return self.state()

    def state(self) -> SpeechDetection:
        """Return the current result."""
        return SpeechDetection(self._speaking, self._start_sample, self._last_sample)

    def close(self) -> None:
        """End the utterance: forget it, but keep what is known about the background."""
        ended_hop = 0 if self._last_sample is None else self._last_sample // self._hop
        for view in self._views:
            view.forget_speech(self._hops_done - ended_hop - _ONSET_HOPS if self._speaking else 0)
        self._speaking = False
        self._start_sample = self._last_sample = self._first_run_hop = None
        self._onset = [False] * _ONSET_SPAN_HOPS
        self._onset_count = self._run = 0

    def end(self) -> None:
        """End the stream: there is nothing to release."""

    def _take(self, block: NDArray[np.float64], hops: int) -> None:
        emphasized = block - _PRE_EMPHASIS * np.concatenate(([self._previous_sample], block[:-1]))
        self._previous_sample = float(block[-1])
        plain, bright = self._views
        plain_db = plain.windows_db(np.square(block).reshape(hops, self._hop).mean(axis=1))
        bright_db = bright.windows_db(np.square(emphasized).reshape(hops, self._hop).mean(axis=1))
        for offset, levels in enumerate(zip(plain_db, bright_db, strict=True)):
            self._hop_done(offset, levels)

    def _hop_done(self, offset: int, levels_db: tuple[float, float]) -> None:
        index = self._hops_done
        self._hops_done = index + 1
        is_speech = False
        for view, level_db in zip(self._views, levels_db, strict=True):
            view.add_window(level_db)
            is_speech = is_speech or level_db > view.threshold_db
        if index % _LEARN_EVERY_HOPS == _LEARN_EVERY_HOPS - 1:
            for view in self._views:
                view.learn(idle=not self._speaking)
        is_speech = is_speech and index >= _WARM_UP_HOPS
        self._count_onset(index, is_speech)
        if not is_speech:
            self._run = 0
            return
        if self._run == 0:
            self._run_start_hop = index
        self._run += 1
        if self._run >= _RUN_HOPS:
            self._continue_run(index, offset, levels_db)

    def _continue_run(self, index: int, offset: int, levels_db: tuple[float, float]) -> None:
        for view, level_db in zip(self._views, levels_db, strict=True):
            view.add_speech(level_db)
        if self._first_run_hop is None:
            self._first_run_hop = self._run_start_hop
        if not self._speaking and self._onset_count >= _ONSET_HOPS:
            self._speaking = True
            self._start_sample = self._first_run_hop * self._hop
        if self._speaking:
            self._last_sample = (index - self._silent_hops(offset) + 1) * self._hop - 1

    def _silent_hops(self, offset: int) -> int:
        """Return how many of the last hops of a speech window are silent: speech may end inside the window."""
        thresholds = [(view.hop_energies, 10 ** (view.threshold_db / 10)) for view in self._views]
        for back in range(_WINDOW_HOPS):
            at = offset + _WINDOW_HOPS - 1 - back
            if any(energies[at] > threshold for energies, threshold in thresholds):
                return back
        return 0

    def _count_onset(self, index: int, is_speech: bool) -> None:
        slot = index % _ONSET_SPAN_HOPS
        self._onset_count += is_speech - self._onset[slot]
        self._onset[slot] = is_speech
        if self._onset_count == 0 and not self._speaking and self._first_run_hop is not None:
            self._first_run_hop = None
            for view in self._views:
                view.forget_speech()


class ProbabilityVad:
    """Detects speech in the probabilities that a network gives to windows of 32 ms, by two thresholds: one that begins
    speech, and a lower one that ends it. Ends are precise to the window."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._windows = 0
        self._run = 0  # windows of speech without a gap
        self._first_window: int | None = None
        self._last_window: int | None = None

    def add(self, probabilities: list[float]) -> None:
        """Add the windows that follow."""
        for probability in probabilities:
            speaking = self._first_window is not None
            is_speech = probability >= (_SPEECH_GOES_ON if speaking or self._run else _SPEECH_BEGINS)
            self._run = self._run + 1 if is_speech else 0
            if not speaking and self._run >= _ONSET_WINDOWS:
                self._first_window = self._windows - self._run + 1
            if is_speech:
                self._last_window = self._windows
            self._windows += 1

    def state(self) -> SpeechDetection:
        """Return the current result."""
        if self._first_window is None or self._last_window is None:
            return SpeechDetection(False, None, None)
        return SpeechDetection(True, self._sample(self._first_window), self._sample(self._last_window + 1) - 1)

    def close(self) -> None:
        """End the utterance: forget it."""
        self._run, self._first_window, self._last_window = 0, None, None

    def _sample(self, window: int) -> int:
        return window * WINDOW_MS * self._rate_hz // 1000


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

    def __init__(self, vad: Vad, rate_hz: int, audio_offset_ns: int = 0) -> None:
        self.rate_hz = rate_hz
        self._offset_ns = audio_offset_ns
        self._vad = vad
        self._frames: deque[_Frame] = deque()
        self._fed = 0
        self._turn_from = 0  # first sample that belongs to the current turn
        self._started: SpeechStarted | None = None

    @property
    def audio_ns(self) -> int:
        """Duration of the audio that the session has received."""
        return self._offset_ns + self._to_ns(self._fed)

    @property
    def silent_samples(self) -> int:
        """Number of samples fed after the last speech of the current turn; 0 before its first."""
        last = self._vad.state().last_speech_sample
        return 0 if last is None else self._fed - 1 - last

    @property
    def started(self) -> SpeechStarted | None:
        """The beginning of the current turn, if speech was detected."""
        return self._started

    async def feed(
        self, pcm: NDArray[np.int16], arrival_perf_ns: int, *, prefix_padding_ms: int, silence_duration_ms: int | None
    ) -> list[SpeechStarted | SpeechStopped]:
        """Add one frame (int16 mono). With `silence_duration_ms` None, only `close()` ends the turn."""
        self._frames.append(_Frame(self._fed, pcm, arrival_perf_ns))
        self._fed += len(pcm)
        detection = await self._vad.feed(pcm)
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
            silent = self.silent_samples
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

    def end(self) -> None:
        """End the session."""
        self._vad.end()

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
