"""One turn, from the end of the caller's speech to the end of the reply.

Every stage is scheduled at an absolute time: the end of the turn relative to the last speech sample, the transcript to
the end of the turn, the first token to the transcript, speech to the sentence. Late wake-ups do not add up, and actual
times can be compared with the configured ones.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from loadtest.distributions import Delay, random_source
from loadtest.protocols.sentences import SentenceSplitter
from loadtest.targets.assistant.answering import Answering
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.llm.base import Question, TextDelta
from loadtest.targets.assistant.record import TurnRecord
from loadtest.targets.assistant.tts.speaking import SpeechOutput, SpeechSink, VoiceSettings


@dataclass(frozen=True, slots=True)
class TurnParts:
    """The parts of a turn, shared by all sessions. `asr_delay` None means the recognizer's actual duration. `hop` is
    the declared cost of a call from one host to the next: from the recognizer to the model, and on to the voice."""

    answering: Answering
    voice: VoiceSettings
    asr_delay: Delay | None
    clock: Clock
    seed: int
    hop: Delay | None = None
    lookahead: int = 0  # tokens that the voice waits for after a sentence


@dataclass(frozen=True, slots=True)
class ServedTurn:
    """One turn of one call: the parts that serve it, and the record of what happened in it."""

    parts: TurnParts
    call_id: str
    record: TurnRecord

    def source(self, stage: str) -> random.Random:
        """Return the seeded source of this turn's draws for one stage."""
        return random_source(self.parts.seed, self.call_id, self.record.turn_index, stage)

    def hop_ns(self, name: str) -> int:
        """Draw the declared cost of one call between hosts, and record it; 0 where everything is on one."""
        if self.parts.hop is None:
            return 0
        drawn_ns = self.parts.hop.draw_ns(self.source(name))
        self.record.hop_ns = (self.record.hop_ns or 0) + drawn_ns
        return drawn_ns


@dataclass(frozen=True, slots=True)
class ReplySink:
    """The output of a reply. `speech` None means a text reply."""

    text: Callable[[str], Awaitable[None]]
    speech: SpeechSink | None


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """The inputs of a reply. The answer's delays count from `asked_perf_ns`.

    `stream`: whether speech starts with the first sentence or after the whole answer.
    """

    question: str
    asked_perf_ns: int
    instructions: str | None
    history: tuple[tuple[str, str], ...]
    stream: bool


async def transcribe(
    turn: ServedTurn, recognizing: Awaitable[str], turn_end_perf_ns: int, show: Callable[[str], Awaitable[None]]
) -> int:
    """Send the transcript when it is due, relative to the end of the turn; return when it was due.

    The answer's delays count from that time. Recognition is already in progress.
    """
    parts, record, source = turn.parts, turn.record, turn.source("asr")
    transcript = await recognizing
    due_ns = max(turn_end_perf_ns, parts.clock.perf_ns())
    if parts.asr_delay is not None:
        record.injected_asr_ns = parts.asr_delay.draw_ns(source)
        due_ns = turn_end_perf_ns + record.injected_asr_ns
        await parts.clock.until_exactly(due_ns)
    record.asr_final_perf_ns = parts.clock.perf_ns()
    record.transcript = transcript
    await show(transcript)
    return due_ns


async def reply(turn: ServedTurn, request: ReplyRequest, sink: ReplySink) -> str:
    """Answer a question, sending text and audio to the sink when due; return the answer. Raises TtsFailed."""
    sentences: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
    asked_ns = request.asked_perf_ns + turn.hop_ns("hop to the model")
    if turn.parts.hop is not None:
        await turn.parts.clock.until(asked_ns)
    asked = Question(request.question, asked_ns, turn.source("llm"), request.instructions, request.history)
    deltas = turn.parts.answering.deltas(asked, turn.record, turn.record.start)
    text = asyncio.create_task(_send_text(turn, request, deltas, sink, sentences))
    speech = asyncio.create_task(_speak(turn, sink, sentences))
    try:
        await asyncio.gather(text, speech)
    finally:
        for task in (text, speech):
            task.cancel()
        await asyncio.gather(text, speech, return_exceptions=True)
    return text.result()


async def _send_text(
    turn: ServedTurn,
    request: ReplyRequest,
    deltas: AsyncGenerator[TextDelta],
    sink: ReplySink,
    sentences: asyncio.Queue[tuple[str, int] | None],
) -> str:
    clock, record, asked_perf_ns = turn.parts.clock, turn.record, request.asked_perf_ns
    splitter = SentenceSplitter()
    texts: list[str] = []
    scripted = True
    due_ns = asked_perf_ns
    hop_ns = turn.hop_ns("hop to the voice")
    complete: list[str] = []  # sentences that the voice does not have yet, and after how many tokens it gets each
    releases: list[int] = []

    def sentence_complete(sentence: str) -> None:
        if record.llm_first_sentence_perf_ns is None:
            record.llm_first_sentence_perf_ns = clock.perf_ns()
            record.injected_llm_ns = due_ns - asked_perf_ns if scripted else None
        complete.append(sentence)
        releases.append(record.tokens + turn.parts.lookahead)

    def release(all_of_them: bool = False) -> None:
        while complete and (all_of_them or releases[0] <= record.tokens):
            sentences.put_nowait((complete.pop(0), due_ns + hop_ns))
            releases.pop(0)

    async def send(delta: TextDelta) -> None:
        await _send_delta(turn, delta, due_ns, asked_perf_ns, sink.text)
        texts.append(delta.text)
        for sentence in splitter.feed(delta.text):
            sentence_complete(sentence)
        release()

    async with aclosing(deltas):
        held: list[TextDelta] = []
        async for delta in deltas:
            if delta.reasoning:
                continue
            scripted = scripted and delta.due_perf_ns is not None
            due_ns = clock.perf_ns() if delta.due_perf_ns is None else delta.due_perf_ns
            if not request.stream:
                held.append(delta)
                continue
            await send(delta)
        for delta in held:
            await send(delta)
    rest = splitter.end()
    if rest is not None:
        sentence_complete(rest)
    release(all_of_them=True)
    sentences.put_nowait(None)
    return "".join(texts).strip()


async def _send_delta(
    turn: ServedTurn, delta: TextDelta, due_ns: int, asked_perf_ns: int, text: Callable[[str], Awaitable[None]]
) -> None:
    clock, record = turn.parts.clock, turn.record
    if record.llm_first_token_perf_ns is None:
        record.injected_llm_ttft_ns = None if delta.due_perf_ns is None else due_ns - asked_perf_ns
        await clock.until_exactly(due_ns)
    else:
        await clock.until(due_ns)
    record.token_sent(clock.perf_ns())
    await text(delta.text)


async def _speak(turn: ServedTurn, sink: ReplySink, sentences: asyncio.Queue[tuple[str, int] | None]) -> None:
    output: SpeechOutput | None = None
    if sink.speech is not None:
        output = SpeechOutput(turn.parts.voice, turn.record, turn.source("tts"), sink.speech)
    while (sentence := await sentences.get()) is not None:
        if turn.parts.hop is not None:
            await turn.parts.clock.until(sentence[1])
        if output is not None:
            await output.say(*sentence)
