"""The playout buffer: when a real-time player, fed the chunks as they arrive, would play each sample of a reply.

Pure: arrival times are parameters. A chunk plays on arrival, or behind what is already playing. Starvation between
the chunks of one reply is an underrun. All of this needs only the lengths of the chunks: they are kept as they came,
and scanned for what is audible later.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from loadtest.audio.deferred_span import DeferredSpan, ScanQueue
from loadtest.audio.onset import AudibleSpan
from loadtest.audio.pcm import whole_samples
from loadtest.conversation.audio_tap import HeardAudioTap
from loadtest.conversation.reply_opening import ReplyOpening


@dataclass(slots=True)
class Playback:
    """The playback of one reply."""

    rate_hz: int
    span: DeferredSpan
    # Of each chunk: the index of its first sample in the reply, and when that sample is played.
    first_samples: list[int] = field(default_factory=list[int])
    starts_perf_ns: list[int] = field(default_factory=list[int])
    until_perf_ns: int = 0  # when the last sample queued is played
    samples: int = 0
    first_arrival_perf_ns: int | None = None
    last_arrival_perf_ns: int | None = None
    # (index of the first sample after it, its length in ns)
    starved: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    stopped_perf_ns: int | None = None
    number: int = 0  # of this playback in its call
    opening: ReplyOpening | None = None  # while its audio may be, or is, a file instead of raw samples
    # When the first audible sample is played unless it is stopped before, once nothing can change that any more.
    _settled_perf_ns: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def underruns_ns(self) -> list[int]:
        """How long the player starved, each time that it was before something audible."""
        last = self.span.last_sample
        return [] if last is None else [length_ns for sample, length_ns in self.starved if sample <= last]

    def played_at(self, sample: int) -> int | None:
        """Return when a sample of this reply is played; None if its playback was stopped before it."""
        chunk = bisect_right(self.first_samples, sample) - 1
        if chunk < 0:
            return None
        moment = self.starts_perf_ns[chunk] + (sample - self.first_samples[chunk]) * 1_000_000_000 // self.rate_hz
        return None if self.stopped_perf_ns is not None and moment >= self.stopped_perf_ns else moment

    def chunk_start_perf_ns(self, sample: int | None) -> int:
        """Return when the chunk that holds a sample begins to play; 0 where none does."""
        chunk = -1 if sample is None else bisect_right(self.first_samples, sample) - 1
        return 0 if chunk < 0 else self.starts_perf_ns[chunk]

    @property
    def first_audio_perf_ns(self) -> int | None:
        """When the first audible sample is played, None while nothing audible has arrived."""
        moment_perf_ns = self._settled_perf_ns
        if moment_perf_ns is None:
            first = self.span.first_sample
            if first is None:
                return None
            moment_perf_ns = self.played_at(first)
            if moment_perf_ns is not None and self.span.is_first_settled:
                self._settled_perf_ns = moment_perf_ns
            return moment_perf_ns
        return None if self.stopped_perf_ns is not None and moment_perf_ns >= self.stopped_perf_ns else moment_perf_ns

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

    def earlier_ns(self, sample: int | None, earlier_of: Callable[[int], int]) -> int:
        """Return how much earlier a sample may have been played, given by how much each chunk may have come before its
        stamp.

        A chunk that plays on arrival can have begun no sooner than what played before it allows; one that is queued
        begins as much sooner as that does. Where the player was stopped, no chunk tells: the worst of all holds.
        """
        if not self.starts_perf_ns or sample is None:
            return 0
        if self.stopped_perf_ns is not None and self.played_at(sample) is None:
            return max(earlier_of(start_perf_ns) for start_perf_ns in self.starts_perf_ns)
        earlier_ns, until_perf_ns = 0, None
        for first, end, start_perf_ns in self._chunks():
            if first > sample:
                break
            if until_perf_ns is None or start_perf_ns > until_perf_ns:
                free_ns = None if until_perf_ns is None else start_perf_ns - (until_perf_ns - earlier_ns)
                doubt_ns = earlier_of(start_perf_ns)
                earlier_ns = doubt_ns if free_ns is None else min(doubt_ns, free_ns)
            until_perf_ns = start_perf_ns + (end - first) * 1_000_000_000 // self.rate_hz
        return earlier_ns

    def _sample_at(self, moment_perf_ns: int) -> int:
        """The first sample that is not played before a moment."""
        sample = 0
        for first, end, start_perf_ns in self._chunks():
            if start_perf_ns >= moment_perf_ns:
                break
            sample = min(end, first - (start_perf_ns - moment_perf_ns) * self.rate_hz // 1_000_000_000)
        return sample

    def _chunks(self) -> Iterator[tuple[int, int, int]]:
        """Of each chunk: its first sample, the one after its last, and when the first is played."""
        ends = [*self.first_samples[1:], self.samples]  # one too many where nothing has been played
        return zip(self.first_samples, ends, self.starts_perf_ns, strict=False)

    @property
    def leading_silence_ns(self) -> int | None:
        """From the beginning of the playback to its first audible sample."""
        first = self.first_audio_perf_ns
        return None if first is None else first - self.starts_perf_ns[0]

    @property
    def audio_ns(self) -> int:
        """Length of the audio that arrived."""
        return self.samples * 1_000_000_000 // self.rate_hz

    def is_playing(self, now_perf_ns: int) -> bool:
        """Return whether anything of it is still to be heard."""
        return self.stopped_perf_ns is None and self.until_perf_ns > now_perf_ns

    def played_ms(self, now_perf_ns: int) -> int:
        """Return how much of the reply has been played by now, in media milliseconds."""
        end = now_perf_ns if self.stopped_perf_ns is None else min(now_perf_ns, self.stopped_perf_ns)
        played = 0
        for first, chunk_end, start_perf_ns in self._chunks():
            played += max(0, min(chunk_end - first, (end - start_perf_ns) * self.rate_hz // 1_000_000_000))
        return played * 1000 // self.rate_hz


class PlayoutBuffer:
    """One caller's playout: replies play one after the other."""

    __slots__ = ("_count", "_onset_preset", "_scans", "latest", "playing_until_perf_ns", "tap")

    def __init__(self, onset_preset: str, scans: ScanQueue | None = None) -> None:
        """Whoever shares `scans` has kept audio scanned in idle time; without it, that happens when it is needed."""
        self._onset_preset = onset_preset
        self._scans = ScanQueue() if scans is None else scans
        self.latest: Playback | None = None  # that was fed last
        self.playing_until_perf_ns = 0
        self.tap: HeardAudioTap | None = None  # gets what is played, where a call's audio is kept
        self._count = 0

    @property
    def audible_until_perf_ns(self) -> int:
        """When the last audible sample of the reply that was fed last is played; 0 where there is none."""
        return 0 if self.latest is None else self.latest.last_audio_perf_ns or 0

    def begin(self, rate_hz: int) -> Playback:
        """Begin the playback of a reply."""
        self._count += 1
        span = DeferredSpan(AudibleSpan(self._onset_preset, rate_hz), self._scans)
        return Playback(rate_hz, span, number=self._count, opening=ReplyOpening(rate_hz))

    def feed(self, playback: Playback, audio: bytes, arrival_perf_ns: int) -> None:
        """Queue one chunk of a reply, PCM s16le, that arrived at a moment. Chunks after a stop are not heard.

        Raises ValueError for audio that ends inside a sample.
        """
        samples = whole_samples(audio)
        if not samples:
            return
        if playback.first_arrival_perf_ns is None:
            playback.first_arrival_perf_ns = arrival_perf_ns
        playback.last_arrival_perf_ns = arrival_perf_ns
        self.latest = playback
        if playback.stopped_perf_ns is None:
            start = self.playing_until_perf_ns
            if arrival_perf_ns > start:
                if playback.samples:
                    playback.starved.append((playback.samples, arrival_perf_ns - start))
                start = arrival_perf_ns
            playback.first_samples.append(playback.samples)
            playback.starts_perf_ns.append(start)
            playback.span.add(audio if playback.opening is None else self._opened(playback, playback.opening, audio))
            if self.tap is not None:
                self.tap.played(playback.number, playback.rate_hz, start, audio)
            playback.until_perf_ns = self.playing_until_perf_ns = start + samples * 1_000_000_000 // playback.rate_hz
        playback.samples += samples

    def _opened(self, playback: Playback, opening: ReplyOpening, audio: bytes) -> bytes:
        """Return what can be heard of the beginning of a reply, or of one that is a file."""
        sounding = opening.feed(audio)
        if opening.is_settled:
            playback.opening = None
        return sounding

    def stop(self, playback: Playback, now_perf_ns: int) -> None:
        """Play no more of a reply: neither what is queued of it nor what still arrives. A reply that is queued
        behind it keeps its place."""
        if playback.stopped_perf_ns is None:
            playback.stopped_perf_ns = now_perf_ns
            if self.tap is not None:
                self.tap.stopped(playback.number, now_perf_ns)
            if self.playing_until_perf_ns == playback.until_perf_ns:
                self.playing_until_perf_ns = min(self.playing_until_perf_ns, now_perf_ns)
