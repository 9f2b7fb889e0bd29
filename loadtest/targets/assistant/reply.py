"""One turn, from the end of the caller's speech to the end of the reply.

Every stage is scheduled at an absolute time: the end of the turn relative to the last speech sample, the transcript to
the end of the turn, the first token to the transcript, speech to the sentence. Late wake-ups do not add up, and actual
times can be compared with the configured ones.

Sentences are sent as audio chunks of one size. The first chunk of a reply is encoded in advance and sent at an absolute
deadline. The others follow at the configured pace or, at pace 0, at once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from loadtest.audio.onset import DEFAULT_PRESET, AudibleSpan
from loadtest.protocols.sentences import SentenceSplitter
from loadtest.targets.assistant.answering import Answering
from loadtest.targets.assistant.interfaces import Pcm, Question, TextDelta
from loadtest.targets.assistant.turn import ServedTurn

_NS: Final = 1_000_000_000

Sentences = asyncio.Queue[tuple[str, int] | None]  # a sentence and when it was complete; None at the end


@dataclass(frozen=True, slots=True)
class ReplySink:
    """The output of a reply. `prepare` encodes a chunk of audio in advance, `play` sends the encoded messages.

    `rate_hz` None means a text reply.
    """

    text: Callable[[str], Awaitable[None]]
    prepare: Callable[[Pcm], list[bytes]]
    play: Callable[[list[bytes]], Awaitable[None]]
    rate_hz: int | None


async def transcribe(
    turn: ServedTurn, recognizing: Awaitable[str], turn_end_perf_ns: int, show: Callable[[str], Awaitable[None]]
) -> int:
    """Send the transcript when it is due, relative to the end of the turn; return when it was due.

    The answer's delays count from that time. Recognition is already in progress.
    """
    clock, record, delay = turn.variant.clock, turn.record, turn.variant.config.asr_delay
    transcript = await recognizing
    due_ns = max(turn_end_perf_ns, clock.perf_ns())
    if delay is not None:
        record.injected_asr_ns = delay.draw_ns(turn.source("asr"))
        due_ns = turn_end_perf_ns + record.injected_asr_ns
        await clock.until_exactly(due_ns)
    record.asr_final_perf_ns = clock.perf_ns()
    record.transcript = transcript
    await show(transcript)
    return due_ns


async def reply(turn: ServedTurn, question: Question, sink: ReplySink) -> str:
    """Answer a question, sending text and audio to the sink when due; return the answer. Raises TtsFailed."""
    sentences: Sentences = asyncio.Queue()
    asked = replace(question, asked_perf_ns=question.asked_perf_ns + turn.hop_ns("hop to the model"))
    if turn.variant.config.hop is not None:
        await turn.variant.clock.until(asked.asked_perf_ns)
    deltas = Answering(turn.variant).deltas(asked, turn.record, turn.record.start)
    writing = asyncio.create_task(_ReplyText(turn, question.asked_perf_ns, sink, sentences).write(deltas))
    speaking = asyncio.create_task(_speak(turn, sink, sentences))
    try:
        await asyncio.gather(writing, speaking)
    finally:
        for task in (writing, speaking):
            task.cancel()
        await asyncio.gather(writing, speaking, return_exceptions=True)
    return writing.result()


class _ReplyText:
    """The text of one reply: sent as it is due, and its sentences passed on to the voice.

    With `tts_lookahead` the voice gets a sentence so many tokens later.
    """

    def __init__(self, turn: ServedTurn, asked_perf_ns: int, sink: ReplySink, sentences: Sentences) -> None:
        self._config, self._clock, self._record = turn.variant.config, turn.variant.clock, turn.record
        self._asked_ns = asked_perf_ns
        self._sink = sink
        self._sentences = sentences
        self._hop_ns = turn.hop_ns("hop to the voice")
        self._splitter = SentenceSplitter()
        self._due_ns = asked_perf_ns
        self._scripted = True
        self._complete: deque[tuple[str, int]] = deque()  # sentences, and after how many tokens the voice gets each

    async def write(self, deltas: AsyncGenerator[TextDelta]) -> str:
        """Send the answer's deltas; return the answer."""
        sent: list[str] = []
        held: list[TextDelta] = []
        async with aclosing(deltas):
            async for delta in deltas:
                if delta.reasoning:
                    continue
                self._scripted = self._scripted and delta.due_perf_ns is not None
                self._due_ns = self._clock.perf_ns() if delta.due_perf_ns is None else delta.due_perf_ns
                held.append(delta)
                if self._config.llm_stream:
                    await self._send(held.pop())
                sent.append(delta.text)
            for delta in held:
                await self._send(delta)
        if (rest := self._splitter.end()) is not None:
            self._sentence_complete(rest)
        self._release(at_end=True)
        self._sentences.put_nowait(None)
        return "".join(sent).strip()

    async def _send(self, delta: TextDelta) -> None:
        record = self._record
        if record.llm_first_token_perf_ns is None:
            record.injected_llm_ttft_ns = None if delta.due_perf_ns is None else self._due_ns - self._asked_ns
            await self._clock.until_exactly(self._due_ns)
        else:
            await self._clock.until(self._due_ns)
        record.token_sent(self._clock.perf_ns())
        await self._sink.text(delta.text)
        for sentence in self._splitter.feed(delta.text):
            self._sentence_complete(sentence)
        self._release()

    def _sentence_complete(self, sentence: str) -> None:
        if self._record.llm_first_sentence_perf_ns is None:
            self._record.llm_first_sentence_perf_ns = self._clock.perf_ns()
            self._record.injected_llm_ns = self._due_ns - self._asked_ns if self._scripted else None
        self._complete.append((sentence, self._record.tokens + self._config.tts_lookahead))

    def _release(self, *, at_end: bool = False) -> None:
        while self._complete and (at_end or self._complete[0][1] <= self._record.tokens):
            self._sentences.put_nowait((self._complete.popleft()[0], self._due_ns + self._hop_ns))


async def _speak(turn: ServedTurn, sink: ReplySink, sentences: Sentences) -> None:
    output = None if sink.rate_hz is None else SpeechOutput(turn, sink, sink.rate_hz)
    while (sentence := await sentences.get()) is not None:
        if turn.variant.config.hop is not None:
            await turn.variant.clock.until(sentence[1])
        if output is not None:
            await output.say(*sentence)


class SpeechOutput:
    """Speaks one reply, and records when a listener would hear it."""

    def __init__(self, turn: ServedTurn, sink: ReplySink, rate_hz: int) -> None:
        self._config, self._clock, self._tts = turn.variant.config, turn.variant.clock, turn.variant.tts
        self._record = turn.record
        self._source = turn.source("tts")
        self._sink = sink
        self._rate_hz = rate_hz
        self._chunk_samples = self._config.tts_chunk.ns * rate_hz // _NS
        self._pending: Pcm = np.zeros(0, np.int16)
        self._sent_samples = 0
        self._first_due_ns: int | None = None
        self._play_end_ns = 0
        self._audible = AudibleSpan(DEFAULT_PRESET, rate_hz)
        self._chunks: list[tuple[int, int]] = []  # (first sample, time at which it is played)

    async def say(self, sentence: str, due_perf_ns: int) -> None:
        """Speak a sentence that was complete at `due_perf_ns`. Raises TtsFailed."""
        config, record = self._config, self._record
        delay_ns = None if config.tts_delay is None else config.tts_delay.draw_ns(self._source)
        available_ns = due_perf_ns + (delay_ns or 0)
        if self._first_due_ns is None and record.injected_tts_ns is None:
            record.injected_tts_ns = delay_ns
            if config.tts_leading_silence is not None:
                samples = config.tts_leading_silence.draw_ns(self._source) * self._rate_hz // _NS
                record.injected_leading_silence_ns = self._duration_ns(samples)
                self._pending = np.zeros(samples, np.int16)
        async with aclosing(self._tts.speak(sentence, self._rate_hz)) as pieces:
            async for piece in pieces:
                self._pending = np.concatenate((self._pending, piece))
                while len(self._pending) >= self._chunk_samples:
                    await self._send_chunk(self._chunk_samples, available_ns)
        if len(self._pending):
            await self._send_chunk(len(self._pending), available_ns)

    async def _send_chunk(self, samples: int, available_ns: int) -> None:
        chunk, self._pending = self._pending[:samples], self._pending[samples:]
        messages = self._sink.prepare(chunk)
        if self._first_due_ns is None:
            self._first_due_ns = self._record.first_chunk_due_perf_ns = available_ns
            await self._clock.until_exactly(available_ns)
            now_ns = self._record.tts_first_chunk_perf_ns = self._clock.perf_ns()
        else:
            # Relative to the first chunk's deadline, not to when it was really sent, so that lateness does not add up.
            pace = self._config.tts_pace
            paced_ns = self._first_due_ns + round(self._sent_samples * _NS / self._rate_hz / pace) if pace else 0
            await self._clock.until(max(available_ns, paced_ns))
            now_ns = self._clock.perf_ns()
        await self._sink.play(messages)
        self._played(chunk, now_ns)

    def _played(self, chunk: Pcm, sent_perf_ns: int) -> None:
        """Record when a listener without network delay plays the chunk: after what is already playing."""
        record = self._record
        start_ns = max(sent_perf_ns, self._play_end_ns)
        self._chunks.append((self._sent_samples, start_ns))
        self._sent_samples += len(chunk)
        self._play_end_ns = start_ns + self._duration_ns(len(chunk))
        record.tts_last_chunk_perf_ns = sent_perf_ns
        record.reply_audio_ns = self._duration_ns(self._sent_samples)
        self._audible.feed(chunk)
        first, last = self._audible.first_sample, self._audible.last_sample
        if first is not None and record.first_audio_perf_ns is None:
            record.first_audio_perf_ns = self._played_at(first)
            record.leading_silence_ns = self._duration_ns(first)
        if last is not None:
            record.reply_end_perf_ns = self._played_at(last)

    def _played_at(self, sample: int) -> int:
        """Return when a sample that was sent is played."""
        first, start_ns = next(chunk for chunk in reversed(self._chunks) if chunk[0] <= sample)
        return start_ns + self._duration_ns(sample - first)

    def _duration_ns(self, samples: int) -> int:
        return samples * _NS // self._rate_hz
