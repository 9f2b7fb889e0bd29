"""Sends sentences as audio chunks of one size, on schedule, and records when a listener would hear them.

The first chunk of a reply is encoded in advance and sent at an absolute deadline. The others follow at the configured
pace or, at pace 0, at once.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.audio.onset import DEFAULT_PRESET, AudibleSpan
from loadtest.distributions import Delay
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.record import TurnRecord
from loadtest.targets.assistant.tts.base import TtsEngine

_NS: Final = 1_000_000_000

Pcm = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class VoiceSettings:
    """The synthesizer and its timing. `pace` is a multiple of real time, 0 for at once.

    Delays are None if the engine's actual duration applies.
    """

    tts: TtsEngine
    chunk_ms: int
    pace: float
    delay: Delay | None
    leading_silence: Delay | None
    clock: Clock


@dataclass(frozen=True, slots=True)
class SpeechSink:
    """The output of a reply's speech. `prepare` encodes a chunk in advance, `send` sends the encoded messages."""

    rate_hz: int
    prepare: Callable[[Pcm], list[bytes]]
    send: Callable[[list[bytes]], Awaitable[None]]


class SpeechOutput:
    """Speaks one reply."""

    def __init__(self, settings: VoiceSettings, record: TurnRecord, source: random.Random, sink: SpeechSink) -> None:
        self._settings = settings
        self._rate_hz = sink.rate_hz
        self._record = record
        self._source = source
        self._prepare = sink.prepare
        self._send = sink.send
        self._chunk_samples = settings.chunk_ms * sink.rate_hz // 1000
        self._pending: Pcm = np.zeros(0, np.int16)
        self._sent_samples = 0
        self._first_sent_ns: int | None = None
        self._first_due_ns = 0
        self._play_end_ns = 0
        self._audible = AudibleSpan(DEFAULT_PRESET, sink.rate_hz)
        self._chunks: list[tuple[int, int]] = []  # (first sample, time at which it is played)

    async def say(self, sentence: str, due_perf_ns: int) -> None:
        """Speak a sentence that was complete at `due_perf_ns`. Raises TtsFailed."""
        settings, record = self._settings, self._record
        delay_ns = settings.delay.draw_ns(self._source) if settings.delay is not None else None
        available_ns = due_perf_ns + (delay_ns or 0)
        if self._first_sent_ns is None and record.injected_tts_ns is None:
            record.injected_tts_ns = delay_ns
            self._open_with_silence()
        async with aclosing(settings.tts.speak(sentence, self._rate_hz)) as pieces:
            async for piece in pieces:
                self._pending = np.concatenate((self._pending, piece))
                while len(self._pending) >= self._chunk_samples:
                    await self._send_chunk(self._chunk_samples, available_ns)
        if len(self._pending):
            await self._send_chunk(len(self._pending), available_ns)

    def _open_with_silence(self) -> None:
        settings, record = self._settings, self._record
        if settings.leading_silence is None:
            return
        samples = settings.leading_silence.draw_ns(self._source) * self._rate_hz // _NS
        record.injected_leading_silence_ns = samples * _NS // self._rate_hz
        self._pending = np.zeros(samples, np.int16)

    async def _send_chunk(self, samples: int, available_ns: int) -> None:
        chunk, self._pending = self._pending[:samples], self._pending[samples:]
        messages = self._prepare(chunk)
        clock = self._settings.clock
        if self._first_sent_ns is None:
            self._first_due_ns = available_ns
            await clock.until_exactly(available_ns)
            now_ns = clock.perf_ns()
            self._first_sent_ns = self._record.tts_first_chunk_perf_ns = now_ns
            self._record.first_chunk_due_perf_ns = available_ns
        else:
            await clock.until(max(available_ns, self._paced_ns()))
            now_ns = clock.perf_ns()
        await self._send(messages)
        self._played(chunk, now_ns)

    def _paced_ns(self) -> int:
        if self._settings.pace == 0:
            return 0
        # Relative to the first chunk's deadline, not to when it was really sent, so that lateness does not add up.
        return self._first_due_ns + round(self._sent_samples * _NS / self._rate_hz / self._settings.pace)

    def _played(self, chunk: Pcm, sent_perf_ns: int) -> None:
        """Record when a listener without network delay plays the chunk: after what is already playing."""
        record = self._record
        start_ns = max(sent_perf_ns, self._play_end_ns)
        self._chunks.append((self._sent_samples, start_ns))
        self._sent_samples += len(chunk)
        self._play_end_ns = start_ns + len(chunk) * _NS // self._rate_hz
        record.tts_last_chunk_perf_ns = sent_perf_ns
        record.reply_audio_ns = self._sent_samples * _NS // self._rate_hz
        self._audible.feed(chunk)
        first, last = self._audible.first_sample, self._audible.last_sample
        if first is not None and record.first_audio_perf_ns is None:
            record.first_audio_perf_ns = self._played_at(first)
            record.leading_silence_ns = first * _NS // self._rate_hz
        if last is not None:
            record.reply_end_perf_ns = self._played_at(last)

    def _played_at(self, sample: int) -> int:
        """Return when a sample that was sent is played."""
        first, start_ns = next(chunk for chunk in reversed(self._chunks) if chunk[0] <= sample)
        return start_ns + (sample - first) * _NS // self._rate_hz
