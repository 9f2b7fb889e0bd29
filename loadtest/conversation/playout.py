"""The playout buffer: when a real-time player, fed the chunks as they arrive, would play each sample of a reply.

Pure: arrival times are parameters. A chunk plays on arrival, or behind what is already playing. Starvation between
the chunks of one reply is an underrun. All of this needs only the lengths of the chunks: they are kept as they came,
and scanned for what is audible later.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from loadtest.audio import g711
from loadtest.audio.containers import container_of, may_become_container
from loadtest.audio.deferred_span import DeferredSpan
from loadtest.audio.onset import AudibleSpan
from loadtest.audio.pcm import whole_samples
from loadtest.audio.wav_stream import PCM, WavStream
from loadtest.conversation.prepared_clip import HeardAudioTap

_ALAW, _ULAW = 6, 7
_LOOKED_AT: Final = 16_384  # bytes, more than two frames of MP3 or AAC
_Octets = Callable[[bytes], bytes]


def _from_ulaw(pcm: bytes) -> bytes:
    return g711.ulaw_encode(np.frombuffer(pcm, "<i2"))


def _from_alaw(pcm: bytes) -> bytes:
    return g711.alaw_encode(np.frombuffer(pcm, "<i2"))


# What the wire carried, PCM or G.711, is not known here. Of each: its bytes, the code of such samples in a WAV header,
# and the bytes of a sample.
_AS_PCM: Final[tuple[_Octets, int, int]] = (lambda pcm: pcm, PCM, 2)
_AS_G711: Final[tuple[tuple[_Octets, int, int], ...]] = ((_from_ulaw, _ULAW, 1), (_from_alaw, _ALAW, 1))


class ReplyOpening:
    """The audio of one reply from its first byte on, PCM s16le at the declared rate: a file's header is no sound.

    Endpoints send a whole file where raw PCM or G.711 was agreed. The header of a WAV file, and chunks after its
    samples, are heard as clicks: they count as silence here, and the samples of a WAV file in the agreed format as what
    they are. Samples in another format, and all of a compressed file, are noise, so that nothing of the reply counts as
    audible.
    """

    __slots__ = ("_bytes_of", "_half", "_held", "_kind", "_rate_hz", "_sample_bytes", "_wav", "container", "fault")

    def __init__(self, rate_hz: int) -> None:
        self.container: str | None = None  # the file that the reply begins as
        self.fault: str | None = None  # why its samples are not those that were agreed
        self._rate_hz = rate_hz
        self._held = b""  # not yet known to be sound or not
        self._half = b""  # of a sample, behind a header of an odd number of bytes
        self._wav: WavStream | None = None
        self._bytes_of, self._kind, self._sample_bytes = _AS_PCM

    @property
    def is_settled(self) -> bool:
        """Whether it is known that the reply begins with samples: nothing of it need be looked at any more."""
        return self.container is None and not self._held

    def feed(self, audio: bytes) -> bytes:
        """Return the audio with silence for what is no sound; bytes that cannot be classified yet are held back."""
        if self.container is not None:
            return self._sounding(audio)
        audio, self._held = self._held + audio, b""
        for form in (_AS_PCM, *(_AS_G711 if self._rate_hz == g711.RATE_HZ else ())):
            start = form[0](audio[:_LOOKED_AT])
            self.container = container_of(start, by_frames=form is _AS_PCM)
            if self.container is not None:
                self._bytes_of, self._kind, self._sample_bytes = form
                if self.container == "WAV":
                    self._wav = WavStream()
                else:
                    self.fault = f"a file of {self.container}"
                return self._sounding(audio)
            if may_become_container(start, by_frames=form is _AS_PCM):
                self._held = audio
                return b""
        return audio

    @property
    def header(self) -> str | None:
        """The header that the audio begins with, for people; None where it begins with samples."""
        if self.container is None:
            return None
        stated = None if self._wav is None else self._wav.format
        other_rate = stated is not None and stated.rate_hz != self._rate_hz
        rates = f" (of {stated.rate_hz} Hz, where {self._rate_hz} Hz were agreed)" if stated and other_rate else ""
        return f"a {self.container} header{rates}"

    def _sounding(self, audio: bytes) -> bytes:
        wav = self._wav
        if wav is None or self.fault is not None:
            return bytes(len(audio))
        self._held += audio
        sounding = bytearray(self._half)
        for is_samples, run in wav.feed(self._bytes_of(audio)):
            size = len(run) * 2 // self._sample_bytes
            self._judge(wav)
            sounding += self._held[:size] if is_samples and self.fault is None else bytes(size)
            self._held = self._held[size:]
        self.fault = wav.fault or self.fault
        whole = len(sounding) - len(sounding) % 2
        self._half = bytes(sounding[whole:])
        return bytes(sounding[:whole])

    def _judge(self, wav: WavStream) -> None:
        stated = wav.format
        if stated is None or self.fault is not None:
            return
        if (stated.kind, stated.channels, stated.bits) != (self._kind, 1, 8 * self._sample_bytes):
            self.fault = f"{stated}, which is not the agreed format"


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
        """The gaps in playback that came before audible audio."""
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
        """The time at which the first audible sample plays; None while nothing audible has arrived."""
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
        """The time at which the last audible sample that has arrived plays. If playback was stopped before it: the stop
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
        begins as much sooner as that does. Where the player was stopped, no chunk determines it: the worst of all
        holds.
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
        """Each chunk's first sample, the one after its last, and when the first is played."""
        ends = [*self.first_samples[1:], self.samples]  # one too many where nothing has been played
        return zip(self.first_samples, ends, self.starts_perf_ns, strict=False)

    @property
    def leading_silence_ns(self) -> int | None:
        """The time from the beginning of the playback to its first audible sample."""
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

    __slots__ = ("_count", "_onset_preset", "latest", "playing_until_perf_ns", "tap")

    def __init__(self, onset_preset: str) -> None:
        self._onset_preset = onset_preset
        self.latest: Playback | None = None  # that was fed last
        self.playing_until_perf_ns = 0
        self.tap: HeardAudioTap | None = None  # gets what is played, where a call's audio is kept
        self._count = 0

    @property
    def audible_until_perf_ns(self) -> int:
        """The time at which the last audible sample of the latest reply plays; 0 if there is none."""
        return 0 if self.latest is None else self.latest.last_audio_perf_ns or 0

    def begin(self, rate_hz: int) -> Playback:
        """Begin the playback of a reply."""
        self._count += 1
        span = DeferredSpan(AudibleSpan(self._onset_preset, rate_hz))
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
