"""One call: handles the caller's messages, runs turns and replies, and sends their events back."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from loadtest.distributions import Delay, random_source
from loadtest.protocols.openai_realtime import service as commands
from loadtest.protocols.openai_realtime.service import ServiceSession
from loadtest.protocols.openai_realtime.service_session import Reason, ServiceReply, Usage
from loadtest.targets.assistant.asr.base import AsrEngine
from loadtest.targets.assistant.asr.recognition import PartialTiming, UtteranceRecognition
from loadtest.targets.assistant.endpointing import Endpointer, SpeechStarted, SpeechStopped
from loadtest.targets.assistant.faults import CallerGone, FaultySender
from loadtest.targets.assistant.llm.base import Question
from loadtest.targets.assistant.llm.begun import SpeculativeStart
from loadtest.targets.assistant.record import CallReport, TurnRecord, merge_metadata
from loadtest.targets.assistant.tts.base import TtsFailed
from loadtest.targets.assistant.tts.speaking import SpeechSink
from loadtest.targets.assistant.turn import ReplyRequest, ReplySink, ServedTurn, TurnParts, reply, transcribe


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The engines and settings that all sessions of one variant share."""

    turn: TurnParts
    asr: AsrEngine
    partials: PartialTiming
    endpoint_delay: Delay
    llm_stream: bool
    speculates: bool = False  # begin answers on partial transcripts


@dataclass(frozen=True, slots=True)
class CallParts:
    """The parts of one call. `on_fault` is called with an internal error of its session."""

    call_id: str
    service: ServiceSession
    sender: FaultySender
    report: CallReport
    on_fault: Callable[[BaseException], None]
    cohort: str | None = None


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A caller's turn whose speech has stopped. It ends at `end_perf_ns`; `transcript` results in its final words."""

    record: TurnRecord
    utterance: UtteranceRecognition
    transcript: asyncio.Task[str]
    end_perf_ns: int


@dataclass(slots=True)
class AskedTurn:
    """A caller's turn that can be answered. `transcribing` results in the time that the answer's delays count from."""

    record: TurnRecord
    transcribing: asyncio.Task[int]


@dataclass(slots=True)
class PendingReply:
    """The reply in progress."""

    record: TurnRecord
    wire: ServiceReply
    task: asyncio.Task[None]


async def without_transcript(moment_ns: int) -> int:
    """Return the time that a reply's delays count from if it waits for no transcript."""
    return moment_ns


HISTORY_TURNS: Final = 8


class History:
    """The last exchanges of a call. An item that the client deletes is removed."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str | None, str, str]] = deque(maxlen=2 * HISTORY_TURNS)

    def add(self, item_id: str | None, role: str, text: str) -> None:
        """Add one side of an exchange; `item_id` is None if it has no item (the assistant spoke first)."""
        self._entries.append((item_id, role, text))

    def forget(self, item_id: str) -> None:
        """Remove a deleted item."""
        kept = [entry for entry in self._entries if entry[0] != item_id]
        self._entries.clear()
        self._entries.extend(kept)

    def messages(self) -> tuple[tuple[str, str], ...]:
        """Return (role, text) of each entry, oldest first."""
        return tuple((role, text) for _, role, text in self._entries)


_logger = logging.getLogger(__name__)
_NS_PER_MS: Final = 1_000_000
_Result = TypeVar("_Result")


class Session:
    """One connection's session. `receive` handles a message; `close` must be called when the connection is gone."""

    def __init__(self, parts: SessionParts, call: CallParts, make_id: Callable[[str], str]) -> None:
        self._parts = parts
        self._on_fault = call.on_fault
        self._clock = parts.turn.clock
        self._service = call.service
        self._sender = call.sender
        self._report = call.report
        self._call_id = call.call_id
        self._make_id = make_id
        self.cohort = call.cohort
        self._stream = parts.llm_stream
        self._endpointer = Endpointer(call.service.config.input_format.rate_hz)
        self._utterance: UtteranceRecognition | None = None
        self._asked: AskedTurn | None = None
        self._answering: PendingReply | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns = 0
        self._last_item_id: str | None = None
        self._last_response_id: str | None = None
        self._typed: commands.AddUserText | None = None
        self._history = History()
        self._reply_ms: dict[str, int] = {}
        self._spoke_first = False

    async def begin(self) -> None:
        """Send the first message, once the connection is open."""
        await self._sender.send(self._service.created())

    async def receive(self, message: str | bytes, arrival_perf_ns: int) -> None:
        """Handle one message from the caller."""
        for command in self._service.receive(message):
            match command:
                case commands.AppendAudio():
                    await self._feed_audio(command, arrival_perf_ns)
                case commands.UpdateSession():
                    await self._update()
                case commands.Commit():
                    await self._commit(command, arrival_perf_ns)
                case commands.Clear():
                    self._discard_utterance()
                    self._endpointer.discard()
                    await self._send(self._service.cleared())
                case commands.CreateResponse():
                    await self._create(command, arrival_perf_ns)
                case commands.CancelResponse():
                    await self._cancel(command)
                case commands.ClearOutput():
                    await self._clear_output(command)
                case commands.Truncate() | commands.AddUserText() | commands.Delete():
                    await self._change_items(command)
                case commands.Retrieve() | commands.Refused():
                    await self._send(command.reply)

    async def close(self) -> None:
        """End the session because the connection is gone; a reply in progress counts as abandoned or interrupted."""
        self._discard_utterance()
        answering = self._answering
        if answering is not None and answering.record.start is not None:
            answering.record.start.abandon()
        tasks = [*self._tasks, *([answering.task] if answering else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if answering is not None and self._answering is answering:
            audible = answering.record.first_audio_perf_ns is not None
            answering.record.outcome_reason = "the caller's connection ended"
            self._report.turn(answering.record, "interrupted" if audible else "abandoned")
        self._report.end()

    # The caller's speech.

    async def _update(self) -> None:
        rate_hz = self._service.config.input_format.rate_hz
        if rate_hz != self._endpointer.rate_hz:
            self._discard_utterance()
            self._endpointer = Endpointer(rate_hz, self._endpointer.audio_ns)
        await self._sender.send(self._service.updated())
        if self._sender.speaks_first and not self._spoke_first:
            self._spoke_first = True
            now_ns = self._clock.perf_ns()
            await self._answer(self._new_record(now_ns), without_transcript(now_ns), commands.CreateResponse())

    async def _feed_audio(self, audio: commands.AppendAudio, arrival_perf_ns: int) -> None:
        detection = self._service.config.turn_detection
        events = self._endpointer.feed(
            audio.pcm,
            arrival_perf_ns,
            prefix_padding_ms=300 if detection is None else detection.prefix_padding_ms,
            silence_duration_ms=None if detection is None else detection.silence_duration_ms,
        )
        if self._utterance is not None:
            self._utterance.feed(audio.pcm)
        for event in events:
            if isinstance(event, SpeechStarted):
                await self._speech_started(event, announce=detection is not None)
            elif detection is not None:
                await self._speech_stopped(event, detection.silence_duration_ms, detection.create_response)

    async def _speech_started(self, started: SpeechStarted, *, announce: bool) -> None:
        detection = self._service.config.turn_detection
        audio = self._endpointer.turn_audio()
        utterance = self._begin_recognition(audio)
        if announce:
            # Sent first, because it makes the client stop playing what it has buffered.
            start_ms = started.audio_start_ns // _NS_PER_MS
            await self._send(self._service.speech_started(utterance.item_id, start_ms))
        if detection is not None and detection.interrupt_response:
            await self._stop_answering("turn_detected")
        source = random_source(self._parts.turn.seed, self._call_id, self._turns, "partials")
        utterance.watch(started.speech_start_perf_ns, self._parts.partials, source)

    def _begin_recognition(self, audio: NDArray[np.int16]) -> UtteranceRecognition:
        item_id = self._make_id("item")

        async def show(words: str) -> None:
            await self._send(self._service.transcription_delta(item_id, words))

        wanted = self._service.config.transcription_model is not None
        to_show = show if wanted else None
        utterance = UtteranceRecognition(item_id, self._parts.asr, self._endpointer.rate_hz, self._clock, to_show)
        if self._parts.speculates:
            llm = self._parts.turn.answering.llm
            utterance.start = SpeculativeStart(llm, lambda words: self._question(words, "speculative"))
        utterance.feed(audio)
        self._utterance = utterance
        return utterance

    def _question(self, words: str, stage: str) -> Question:
        """A question as the model gets it, for an answer that is begun before the turn has ended."""
        source = random_source(self._parts.turn.seed, self._call_id, self._turns, stage)
        instructions = self._service.config.instructions or None
        return Question(words, self._clock.perf_ns(), source, instructions, self._history.messages())

    async def _speech_stopped(self, stopped: SpeechStopped, silence_ms: int, create_response: bool) -> None:
        utterance, self._utterance = self._utterance, None
        if utterance is None:
            return
        record = self._new_record(stopped.speech_start_perf_ns)
        record.mark_speech(stopped, utterance.first_partial_perf_ns)
        record.start = utterance.start
        source = random_source(self._parts.turn.seed, self._call_id, record.turn_index, "endpoint")
        record.injected_endpointing_ns = silence_ms * _NS_PER_MS + self._parts.endpoint_delay.draw_ns(source)
        end_ns = stopped.speech_end_perf_ns + record.injected_endpointing_ns
        turn = SpokenTurn(record, utterance, utterance.finish(stopped.silent_samples), end_ns)
        self._spawn(self._end_turn(turn, stopped.audio_end_ns, create_response))

    async def _end_turn(self, turn: SpokenTurn, audio_end_ns: int, create_response: bool) -> None:
        await self._clock.until(turn.end_perf_ns)
        await self._send(self._service.speech_stopped(turn.utterance.item_id, audio_end_ns // _NS_PER_MS))
        asked = await self._commit_item(turn)
        if create_response and self._utterance is None and self._answering is None:
            await self._answer(turn.record, asked.transcribing, commands.CreateResponse())
        elif create_response:
            turn.record.outcome_reason = "the caller continued to speak, or a response was in progress"
            self._report.turn(turn.record, "interrupted")

    async def _commit(self, command: commands.Commit, arrival_perf_ns: int) -> None:
        audio = self._endpointer.turn_audio()
        if not len(audio):
            await self._refuse("there is no audio to commit", command.event_id, "input_audio_buffer_commit_empty")
            return
        utterance = self._utterance or self._begin_recognition(audio)
        self._utterance = None
        stopped = self._endpointer.close()
        record = self._new_record(stopped.speech_start_perf_ns)
        record.mark_speech(stopped, utterance.first_partial_perf_ns)
        transcript = utterance.finish(stopped.silent_samples)
        await self._commit_item(SpokenTurn(record, utterance, transcript, arrival_perf_ns))

    async def _commit_item(self, turn: SpokenTurn) -> AskedTurn:
        record, utterance = turn.record, turn.utterance
        record.endpoint_perf_ns = self._clock.perf_ns()
        await self._send(
            self._service.committed(utterance.item_id, self._last_item_id),
            *self._service.user_audio_item(utterance.item_id, self._last_item_id),
        )
        self._last_item_id = record.item_id = utterance.item_id

        async def show(final: str) -> None:
            if self._service.config.transcription_model is not None:
                seconds = utterance.samples / utterance.rate_hz
                await self._send(self._service.transcription_completed(utterance.item_id, final, seconds))

        served = ServedTurn(self._parts.turn, self._call_id, record)
        self._asked = AskedTurn(record, self._spawn(transcribe(served, turn.transcript, turn.end_perf_ns, show)))
        self._typed = None
        return self._asked

    def _discard_utterance(self) -> None:
        if self._utterance is not None:
            self._utterance.abandon()
            self._utterance = None

    # The assistant's replies.

    async def _create(self, command: commands.CreateResponse, arrival_perf_ns: int) -> None:
        if self._answering is not None:
            code = "conversation_already_has_active_response"
            await self._refuse("a response is already in progress; cancel it first", command.event_id, code)
            return
        asked, self._asked = self._asked, None
        if asked is not None:
            await self._answer(asked.record, asked.transcribing, command)
            return
        record = self._new_record(arrival_perf_ns)
        typed, self._typed = self._typed, None
        if typed is not None:
            record.transcript, record.item_id = typed.text, typed.item_id
        await self._answer(record, without_transcript(arrival_perf_ns), command)

    async def _answer(self, record: TurnRecord, asked: Awaitable[int], command: commands.CreateResponse) -> None:
        self._asked = None
        metadata = merge_metadata(dict(command.metadata), record.metadata())
        wire = self._service.reply(previous_item_id=self._last_item_id, metadata=metadata, modality=command.modality)
        record.response_id = self._last_response_id = wire.response_id
        task = asyncio.create_task(self._run_reply(record, wire, asked, command))
        task.add_done_callback(self._watch)
        self._answering = PendingReply(record, wire, task)
        await self._send(wire.created())

    async def _run_reply(
        self, record: TurnRecord, wire: ServiceReply, asked: Awaitable[int], command: commands.CreateResponse
    ) -> None:
        asked_ns = await asyncio.shield(asyncio.ensure_future(asked))
        question = record.transcript or ""

        async def show(text: str) -> None:
            await self._send(*wire.text_delta(text))

        def prepare(pcm: NDArray[np.int16]) -> list[bytes]:
            distorted = self._sender.distort(pcm, wire.rate_hz)
            return [message.encode() for message in wire.audio_delta(distorted)]

        async def play(messages: list[bytes]) -> None:
            for message in messages:
                await self._sender.send_audio(message)

        instructions = command.instructions or self._service.config.instructions or None
        request = ReplyRequest(question, asked_ns, instructions, self._history.messages(), self._stream)
        speech = SpeechSink(wire.rate_hz, prepare, play) if wire.modality == "audio" else None
        try:
            turn = ServedTurn(self._parts.turn, self._call_id, record)
            answer = await reply(turn, request, ReplySink(show, speech))
        except TtsFailed as failed:
            _logger.warning("A reply failed: %s.", failed)
            record.outcome_reason = str(failed)
            await self._end_answer(record, wire, error=str(failed))
            return
        if record.item_id is None or self._service.has_item(record.item_id):
            self._history.add(record.item_id, "user", question)
        self._history.add(wire.item_id, "assistant", answer)
        await self._end_answer(record, wire)

    async def _end_answer(
        self, record: TurnRecord, wire: ServiceReply, *, reason: Reason | None = None, error: str | None = None
    ) -> None:
        self._answering = None
        self._last_item_id = wire.item_id
        self._reply_ms[wire.item_id] = (record.reply_audio_ns or 0) // _NS_PER_MS
        status = "cancelled" if reason else "failed" if error else "completed"
        self._report.turn(record, "interrupted" if reason else "error" if error else "ok")
        metadata = merge_metadata(wire.metadata, record.metadata())
        wire.metadata = metadata
        read, cached = (round(record.work.get(name, 0)) for name in ("input_tokens", "cached_tokens"))
        usage = Usage(input_text_tokens=read, cached_tokens=cached, output_text_tokens=record.tokens)
        await self._send(*wire.done(status, reason=reason, error=error, usage=usage))

    async def _stop_answering(self, reason: Reason) -> None:
        answering = self._answering
        if answering is None:
            return
        self._answering = None
        if answering.record.start is not None:
            answering.record.start.abandon()
        answering.task.cancel()
        await asyncio.gather(answering.task, return_exceptions=True)
        await self._end_answer(answering.record, answering.wire, reason=reason)

    async def _cancel(self, command: commands.CancelResponse) -> None:
        answering = self._answering
        named = command.response_id
        if answering is None or (named is not None and named != answering.wire.response_id):
            await self._refuse("no such response is in progress", command.event_id, "response_cancel_not_active")
            return
        await self._stop_answering("client_cancelled")

    async def _clear_output(self, command: commands.ClearOutput) -> None:
        if self._last_response_id is None:
            await self._refuse("there is no response whose audio can be cleared", command.event_id, "no_response")
        else:
            await self._stop_answering("client_cancelled")
            await self._send(self._service.output_cleared(self._last_response_id))

    async def _change_items(self, command: commands.Truncate | commands.AddUserText | commands.Delete) -> None:
        match command:
            case commands.Truncate():
                await self._truncate(command)
            case commands.Delete():
                await self._delete(command)
            case commands.AddUserText():
                await self._send(*self._service.user_text_item(command.item_id, self._last_item_id, command.text))
                self._last_item_id, self._typed, self._asked = command.item_id, command, None

    async def _truncate(self, command: commands.Truncate) -> None:
        reply_ms = self._reply_ms.get(command.item_id)
        if self._answering is not None and self._answering.wire.item_id == command.item_id:
            reply_ms = (self._answering.record.reply_audio_ns or 0) // _NS_PER_MS
        if reply_ms is None:
            await self._refuse(f"there is no reply {command.item_id}", command.event_id, "item_not_found")
        elif command.audio_end_ms > reply_ms:
            message = f"the reply has {reply_ms} ms of audio, it cannot end at {command.audio_end_ms} ms"
            await self._refuse(message, command.event_id, "invalid_value")
        else:
            await self._send(self._service.truncated(command.item_id, command.content_index, command.audio_end_ms))

    async def _delete(self, command: commands.Delete) -> None:
        item_id = command.item_id
        if self._answering is not None and self._answering.wire.item_id == item_id:
            await self._refuse("the item is being generated; cancel its response", command.event_id, "item_in_progress")
            return
        deleted = self._service.deleted(item_id)
        self._history.forget(item_id)
        self._reply_ms.pop(item_id, None)
        if self._last_item_id == item_id:
            self._last_item_id = self._service.last_item_id
        typed, asked = self._typed, self._asked
        self._typed = None if typed is not None and typed.item_id == item_id else typed
        self._asked = None if asked is not None and asked.record.item_id == item_id else asked
        await self._send(deleted)

    def _new_record(self, started_perf_ns: int) -> TurnRecord:
        now_ns = self._clock.perf_ns()
        record = TurnRecord(
            turn_index=self._turns,
            started_perf_ns=started_perf_ns,
            started_unix_ns=self._clock.unix_ns() - (now_ns - started_perf_ns),
            cohort=self.cohort,
            fault=self._sender.fault,
        )
        self._turns += 1
        return record

    async def _send(self, *messages: str) -> None:
        for message in messages:
            await self._sender.send_in_turn(message)

    async def _refuse(self, message: str, event_id: str | None, code: str) -> None:
        await self._send(self._service.error(message, event_id=event_id, code=code))

    def _spawn(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._watch)
        return task

    def _watch(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, CallerGone):
            self._on_fault(error)
