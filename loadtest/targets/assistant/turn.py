"""One turn, from the end of the caller's speech to the end of the reply.

Every stage is scheduled against an absolute moment: the end of the turn counts from the last speech sample, the
transcript from the end of the turn, the first token from the transcript, the voice from the sentence. Late wake-ups do
not add up, and what was declared can be compared with what happened.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.distributions import Delay, random_source
from loadtest.targets.assistant.answering import Answering
from loadtest.targets.assistant.asr.base import Transcript
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.llm.base import Question, TextDelta
from loadtest.targets.assistant.llm.sentences import SentenceSplitter
from loadtest.targets.assistant.record import TurnRecord
from loadtest.targets.assistant.tts.speaking import SpeechOutput, VoiceSettings


@dataclass(frozen=True, slots=True)
class TurnParts:
    """What a turn is made of, shared by all sessions. `asr_delay` None: the recognizer takes the time it takes."""

    answering: Answering
    voice: VoiceSettings
    asr_delay: Delay | None
    clock: Clock
    seed: int


@dataclass(frozen=True, slots=True)
class ReplySink:
    """How a reply leaves the session. `prepare` encodes audio beforehand; without `rate_hz` the reply is text."""

    rate_hz: int | None
    text: Callable[[str], Awaitable[None]]
    prepare: Callable[[NDArray[np.int16]], list[bytes]]
    audio: Callable[[list[bytes]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """`stream`: whether the voice starts with the first sentence or waits for the whole answer."""

    call_id: str
    instructions: str | None
    history: tuple[tuple[str, str], ...]
    stream: bool


async def transcribe(
    parts: TurnParts,
    record: TurnRecord,
    call_id: str,
    recognizing: Awaitable[Transcript],
    turn_end_perf_ns: int,
    show: Callable[[Transcript], Awaitable[None]],
) -> int:
    """Show the transcript when it is due, counted from the end of the turn; returns the moment from which the answer
    counts. Recognition is under way already."""
    source = random_source(parts.seed, call_id, record.turn_index, "asr")
    transcript = await recognizing
    due_ns = max(turn_end_perf_ns, parts.clock.perf_ns())
    if parts.asr_delay is not None:
        record.injected_asr_ns = parts.asr_delay.draw_ns(source)
        due_ns = turn_end_perf_ns + record.injected_asr_ns
        await parts.clock.until_exactly(due_ns)
    record.asr_final_perf_ns = parts.clock.perf_ns()
    record.transcript = transcript.text
    await show(transcript)
    return due_ns


async def reply(
    parts: TurnParts, record: TurnRecord, request: ReplyRequest, question: str, asked_perf_ns: int, sink: ReplySink
) -> str:
    """Answer a question: text and audio go to the sink as they are due. Returns the answer. Raises TtsFailed."""
    sentences: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
    asked = Question(
        question,
        asked_perf_ns,
        random_source(parts.seed, call_id := request.call_id, record.turn_index, "llm"),
        request.instructions,
        request.history,
    )
    deltas = parts.answering.deltas(asked, record)
    telling = asyncio.create_task(_tell(parts.clock, record, deltas, asked_perf_ns, request.stream, sink, sentences))
    speaking = asyncio.create_task(_speak(parts, record, call_id, sink, sentences))
    try:
        await asyncio.gather(telling, speaking)
    finally:
        for task in (telling, speaking):
            task.cancel()
        await asyncio.gather(telling, speaking, return_exceptions=True)
    return telling.result()


async def _tell(
    clock: Clock,
    record: TurnRecord,
    deltas: AsyncGenerator[TextDelta],
    asked_perf_ns: int,
    stream: bool,
    sink: ReplySink,
    sentences: asyncio.Queue[tuple[str, int] | None],
) -> str:
    splitter = SentenceSplitter()
    said: list[str] = []
    scripted = True
    due_ns = asked_perf_ns

    def sentence_complete(sentence: str) -> None:
        if record.llm_first_sentence_perf_ns is None:
            record.llm_first_sentence_perf_ns = clock.perf_ns()
            record.injected_llm_ns = due_ns - asked_perf_ns if scripted else None
        sentences.put_nowait((sentence, due_ns))

    async with aclosing(deltas):
        held: list[TextDelta] = []
        async for delta in deltas:
            if delta.reasoning:
                continue
            scripted = scripted and delta.due_perf_ns is not None
            due_ns = clock.perf_ns() if delta.due_perf_ns is None else delta.due_perf_ns
            if not stream:
                held.append(delta)
                continue
            await _show(clock, record, delta, due_ns, asked_perf_ns, sink)
            said.append(delta.text)
            for sentence in splitter.feed(delta.text):
                sentence_complete(sentence)
        for delta in held:
            await _show(clock, record, delta, due_ns, asked_perf_ns, sink)
            said.append(delta.text)
            for sentence in splitter.feed(delta.text):
                sentence_complete(sentence)
    rest = splitter.end()
    if rest is not None:
        sentence_complete(rest)
    sentences.put_nowait(None)
    return "".join(said).strip()


async def _show(
    clock: Clock, record: TurnRecord, delta: TextDelta, due_ns: int, asked_perf_ns: int, sink: ReplySink
) -> None:
    if record.llm_first_token_perf_ns is None:
        record.injected_llm_ttft_ns = None if delta.due_perf_ns is None else due_ns - asked_perf_ns
        await clock.until_exactly(due_ns)
    else:
        await clock.until(due_ns)
    record.token_shown(clock.perf_ns())
    await sink.text(delta.text)


async def _speak(
    parts: TurnParts,
    record: TurnRecord,
    call_id: str,
    sink: ReplySink,
    sentences: asyncio.Queue[tuple[str, int] | None],
) -> None:
    speaker: SpeechOutput | None = None
    if sink.rate_hz is not None:
        source = random_source(parts.seed, call_id, record.turn_index, "tts")
        speaker = SpeechOutput(parts.voice, sink.rate_hz, record, source, sink.prepare, sink.audio)
    while (sentence := await sentences.get()) is not None:
        if speaker is not None:
            await speaker.say(*sentence)
