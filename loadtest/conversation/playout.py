"""The playout buffer: when a real-time player, fed the chunks as they arrive, would play each sample of a reply.

Pure: arrival times are parameters. A chunk plays on arrival, or behind what is already playing. Starvation between
the chunks of one reply is an underrun.
"""

from dataclasses import dataclass, field

from loadtest.audio.onset import AudibleSpan
from loadtest.protocols.base import Pcm16


@dataclass(slots=True)
class Playback:
    """The playback of one reply."""

    rate_hz: int
    span: AudibleSpan
    # (index of the chunk's first sample in the reply, when that sample is played)
    starts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    until_perf_ns: int = 0  # when the last sample queued is played
    samples: int = 0
    first_arrival_perf_ns: int | None = None
    last_arrival_perf_ns: int | None = None
    # (index of the first sample after it, its length in ns)
    starved: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    stopped_perf_ns: int | None = None

    @property
    def underruns_ns(self) -> list[int]:
        """How long the player starved, each time that it was before something audible."""
        last = self.span.last_sample
        return [] if last is None else [length_ns for sample, length_ns in self.starved if sample <= last]

    def played_at(self, sample: int) -> int | None:
        """When a sample of this reply is played; None if its playback was stopped before it."""
        moment = None
        for first, start_perf_ns in self.starts:
            if first > sample:
                break
            moment = start_perf_ns + (sample - first) * 1_000_000_000 // self.rate_hz
        if moment is None or (self.stopped_perf_ns is not None and moment >= self.stopped_perf_ns):
            return None
        return moment

    @property
    def first_audio_perf_ns(self) -> int | None:
        """When the first audible sample is played, None while nothing audible has arrived."""
        return None if self.span.first_sample is None else self.played_at(self.span.first_sample)

    @property
    def last_audio_perf_ns(self) -> int | None:
        """When the last audible sample that has arrived is played. Where playback was stopped before it: the stop
        itself, or, when that fell into a pause, the last audible sample before the pause."""
        first_audio, last_sample = self.first_audio_perf_ns, self.span.last_sample
        if last_sample is None or first_audio is None:
            return None
        played = self.played_at(last_sample)
        if played is not None or self.stopped_perf_ns is None:
            return played
        stop_sample = self._sample_at(self.stopped_perf_ns)
        last = self.span.last_before(stop_sample)
        if last is not None and last >= stop_sample - 1:
            return self.stopped_perf_ns
        return max(first_audio, (None if last is None else self.played_at(last)) or first_audio)

    def _sample_at(self, moment_perf_ns: int) -> int:
        """The first sample that is not played before a moment."""
        sample = 0
        for position, (first, start_perf_ns) in enumerate(self.starts):
            if start_perf_ns >= moment_perf_ns:
                break
            end = self.starts[position + 1][0] if position + 1 < len(self.starts) else self.samples
            sample = min(end, first - (start_perf_ns - moment_perf_ns) * self.rate_hz // 1_000_000_000)
        return sample

    @property
    def leading_silence_ns(self) -> int | None:
        """From the beginning of the playback to its first audible sample."""
        first = self.first_audio_perf_ns
        return None if first is None else first - self.starts[0][1]

    @property
    def audio_ns(self) -> int:
        """Length of the audio that arrived."""
        return self.samples * 1_000_000_000 // self.rate_hz

    def is_playing(self, now_perf_ns: int) -> bool:
        """Whether anything of it is still to be heard."""
        return self.stopped_perf_ns is None and self.until_perf_ns > now_perf_ns

    def played_ms(self, now_perf_ns: int) -> int:
        """How much of the reply has been played by now, in media milliseconds."""
        end = now_perf_ns if self.stopped_perf_ns is None else min(now_perf_ns, self.stopped_perf_ns)
        played = 0
        for position, (first, start_perf_ns) in enumerate(self.starts):
            length = (self.starts[position + 1][0] if position + 1 < len(self.starts) else self.samples) - first
            played += max(0, min(length, (end - start_perf_ns) * self.rate_hz // 1_000_000_000))
        return played * 1000 // self.rate_hz


class PlayoutBuffer:
    """One caller's playout: replies play one after the other."""

    __slots__ = ("_latest", "_onset_preset", "playing_until_perf_ns")

    def __init__(self, onset_preset: str) -> None:
        self._onset_preset = onset_preset
        self._latest: Playback | None = None  # that was fed last
        self.playing_until_perf_ns = 0

    @property
    def audible_until_perf_ns(self) -> int:
        """When the last audible sample of the reply that was fed last is played; 0 where there is none."""
        return 0 if self._latest is None else self._latest.last_audio_perf_ns or 0

    def begin(self, rate_hz: int) -> Playback:
        """Begin the playback of a reply."""
        return Playback(rate_hz, AudibleSpan(self._onset_preset, rate_hz))

    def feed(self, playback: Playback, pcm: Pcm16, arrival_perf_ns: int) -> None:
        """Queue one chunk of a reply that arrived at a moment. Chunks after a stop are not heard."""
        if not len(pcm):
            return
        if playback.first_arrival_perf_ns is None:
            playback.first_arrival_perf_ns = arrival_perf_ns
        elif playback.stopped_perf_ns is None and arrival_perf_ns > self.playing_until_perf_ns:
            playback.starved.append((playback.samples, arrival_perf_ns - self.playing_until_perf_ns))
        playback.last_arrival_perf_ns = arrival_perf_ns
        self._latest = playback
        if playback.stopped_perf_ns is None:
            start = max(arrival_perf_ns, self.playing_until_perf_ns)
            playback.starts.append((playback.samples, start))
            playback.span.feed(pcm)
            playback.until_perf_ns = start + len(pcm) * 1_000_000_000 // playback.rate_hz
            self.playing_until_perf_ns = playback.until_perf_ns
        playback.samples += len(pcm)

    def stop(self, playback: Playback, now_perf_ns: int) -> None:
        """Play no more of a reply: neither what is queued of it nor what still arrives. A reply that is queued
        behind it keeps its place."""
        if playback.stopped_perf_ns is None:
            playback.stopped_perf_ns = now_perf_ns
            if self.playing_until_perf_ns == playback.until_perf_ns:
                self.playing_until_perf_ns = min(self.playing_until_perf_ns, now_perf_ns)
