"""One call: handles the caller's messages, runs turns and replies, and sends their events back."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from websockets.exceptions import ConnectionClosed

from loadtest.distributions import random_source
from loadtest.protocols.openai_realtime import service as commands
from loadtest.protocols.openai_realtime.service import ServiceSession
from loadtest.protocols.openai_realtime.service_session import Reason, ServiceReply, Usage
from loadtest.targets.assistant.endpointing import Endpointer, SpeechStarted, SpeechStopped
from loadtest.targets.assistant.faults import FaultySender
from loadtest.targets.assistant.interfaces import Pcm, Question, TtsFailed
from loadtest.targets.assistant.llm import SpeculativeStart
from loadtest.targets.assistant.reply import ReplySink, reply, transcribe
from loadtest.targets.assistant.turn import ServedTurn, ServedVariant, TurnRecord, merge_metadata
from telemetry.model import semconv

if TYPE_CHECKING:  # without an OTLP endpoint, not loading the SDK makes the assistant start faster
    from telemetry.export.instrumentation import CallTrace

_logger = logging.getLogger(__name__)
_NS_PER_MS: Final = 1_000_000
_SHORTEST_PARTIAL_GAP_NS: Final = 20 * _NS_PER_MS
# Silence from which on the caller pauses: sounds within a word are shorter.
_PAUSE_NS: Final = 120 * _NS_PER_MS
HISTORY_TURNS: Final = 8
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class CallParts:
    """The parts of one call. `key` seeds its draws; `on_fault` is called with an internal error of its session."""

    key: str
    service: ServiceSession
    sender: FaultySender
    trace: CallTrace | None
    on_fault: Callable[[BaseException], None]
    cohort: str | None = None


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


def make_id(prefix: str) -> str:
    """Create a new id in the style of this protocol."""
    return f"{prefix}_{secrets.token_hex(8)}"


async def without_transcript(moment_ns: int) -> int:
    """Return the time that a reply's delays count from if it waits for no transcript."""
    return moment_ns


class UtteranceRecognition:
    """One utterance in recognition. `show` is called with new words; None if no transcripts were requested."""

    def __init__(
        self, variant: ServedVariant, rate_hz: int, show: Callable[[str], Awaitable[None]] | None, item_id: str
    ) -> None:
        self.item_id = item_id
        self.rate_hz = rate_hz
        self.samples = 0
        self._silent_samples = 0
        self._asked_samples = 0  # where the speech ended for whose pause a transcript was asked
        self.first_partial_perf_ns: int | None = None
        self.start: SpeculativeStart | None = None  # begins answers on the partial transcripts
        self._variant = variant
        self._stream = variant.asr.open(rate_hz)
        self._show = show
        self._partials: asyncio.Task[None] | None = None

    def feed(self, pcm: Pcm, silent_samples: int) -> None:
        """Add the next samples (int16 mono); the last `silent_samples` of all contain no speech."""
        self.samples += len(pcm)
        self._silent_samples = silent_samples
        self._stream.feed(pcm)

    def watch(self, speech_start_perf_ns: int, source: random.Random) -> None:
        """Start requesting partial transcripts."""
        if self._show is not None or self.start is not None or self._variant.config.asr_early:
            self._partials = asyncio.create_task(self._show_partials(speech_start_perf_ns, source))

    def finish(self, silent_samples: int) -> asyncio.Task[str]:
        """End the utterance and its partial transcripts; the task returns the final transcript."""
        self._stop_partials()
        return asyncio.create_task(self._stream.finish(silent_samples))

    def abandon(self) -> None:
        """Discard the utterance."""
        self._stop_partials()
        if self.start is not None:
            self.start.abandon()
        self._stream.abandon()

    def _stop_partials(self) -> None:
        if self._partials is not None:
            self._partials.cancel()

    async def _show_partials(self, speech_start_perf_ns: int, source: random.Random) -> None:
        config, clock, shown_words = self._variant.config, self._variant.clock, 0
        due_ns = speech_start_perf_ns + config.asr_partial_delay.draw_ns(source)
        while True:
            await self._until_due(due_ns)
            text = await self._stream.partial(self._silent_samples)
            words = text.split()
            if self.start is not None and words:
                await self.start.partial(text)
            # In this protocol partials only add words; the final transcript corrects what the recognizer revises.
            if len(words) > shown_words:
                new = " ".join(words[shown_words:])
                self.first_partial_perf_ns = self.first_partial_perf_ns or clock.perf_ns()
                if self._show is not None:
                    await self._show(new if shown_words == 0 else " " + new)
                shown_words = len(words)
            every_ns = config.asr_partial_every.draw_ns(source)
            due_ns = max(due_ns, clock.perf_ns()) + max(_SHORTEST_PARTIAL_GAP_NS, every_ns)

    async def _until_due(self, due_ns: int) -> None:
        """Wait until then, or until the caller pauses where that is when a transcript is made."""
        clock = self._variant.clock
        if not self._variant.config.asr_early:
            await clock.until(due_ns)
            return
        pause_samples = _PAUSE_NS * self.rate_hz // 1_000_000_000
        while (now_ns := clock.perf_ns()) < due_ns:
            end = self.samples - self._silent_samples
            if self._silent_samples >= pause_samples and end != self._asked_samples:
                self._asked_samples = end
                return
            await clock.until(min(due_ns, now_ns + _SHORTEST_PARTIAL_GAP_NS))


class Session:
    """One connection's session. `receive` handles a message; `close` must be called when the connection is gone."""

    def __init__(self, variant: ServedVariant, call: CallParts) -> None:
        self._variant = variant
        self._call = call
        self._clock = variant.clock
        self._service = call.service
        self._sender = call.sender
        rate_hz = call.service.config.input_format.rate_hz
        self._endpointer = Endpointer(variant.open_vad(rate_hz), rate_hz)
        self._utterance: UtteranceRecognition | None = None
        self._asked: AskedTurn | None = None
        self._answering: PendingReply | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns = 0
        self._last_item_id: str | None = None
        self._last_response_id: str | None = None
        self._typed: commands.AddUserText | None = None
        self._history: deque[tuple[str | None, str, str]] = deque(maxlen=2 * HISTORY_TURNS)  # (item, role, text)
        self._reply_ms: dict[str, int] = {}
        self._spoke_first = False

    async def begin(self) -> None:
        """Send the first message, once the connection is open."""
        await self._sender.send(self._service.created())

    async def receive(self, message: str | bytes, arrival_perf_ns: int) -> None:
        """Handle one message from the caller."""
        for command in self._service.receive(message):
            await self._obey(command, arrival_perf_ns)

    async def _obey(self, command: commands.Command, arrival_perf_ns: int) -> None:
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
            case commands.Truncate():
                await self._truncate(command)
            case commands.Delete():
                await self._delete(command)
            case commands.AddUserText():
                await self._send(*self._service.user_text_item(command.item_id, self._last_item_id, command.text))
                self._last_item_id, self._typed, self._asked = command.item_id, command, None
            case commands.Retrieve() | commands.Refused():
                await self._send(command.reply)

    async def close(self) -> None:
        """End the session because the connection is gone; a reply in progress counts as abandoned or interrupted."""
        self._discard_utterance()
        self._endpointer.end()
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
            self._report(answering.record, "interrupted" if audible else "abandoned")
        if self._call.trace is not None:
            self._call.trace.end(self._clock.perf_ns(), {})

    # The caller's speech.

    async def _update(self) -> None:
        rate_hz = self._service.config.input_format.rate_hz
        if rate_hz != self._endpointer.rate_hz:
            self._discard_utterance()
            self._endpointer.end()
            self._endpointer = Endpointer(self._variant.open_vad(rate_hz), rate_hz, self._endpointer.audio_ns)
        await self._sender.send(self._service.updated())
        if self._sender.fault == "answer-before-question" and not self._spoke_first:
            self._spoke_first = True
            now_ns = self._clock.perf_ns()
            await self._answer(self._new_record(now_ns), without_transcript(now_ns), commands.CreateResponse())

    async def _feed_audio(self, audio: commands.AppendAudio, arrival_perf_ns: int) -> None:
        detection = self._service.config.turn_detection
        events = await self._endpointer.feed(
            audio.pcm,
            arrival_perf_ns,
            prefix_padding_ms=300 if detection is None else detection.prefix_padding_ms,
            silence_duration_ms=None if detection is None else detection.silence_duration_ms,
        )
        if self._utterance is not None:
            self._utterance.feed(audio.pcm, self._endpointer.silent_samples)
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
        utterance.watch(started.speech_start_perf_ns, self._source("partials"))

    def _begin_recognition(self, audio: Pcm) -> UtteranceRecognition:
        item_id = make_id("item")

        async def show(words: str) -> None:
            await self._send(self._service.transcription_delta(item_id, words))

        wanted = self._service.config.transcription_model is not None
        utterance = UtteranceRecognition(self._variant, self._endpointer.rate_hz, show if wanted else None, item_id)
        if self._variant.config.llm_speculate:
            utterance.start = SpeculativeStart(self._variant.llm, self._speculative_question)
        utterance.feed(audio, self._endpointer.silent_samples)
        self._utterance = utterance
        return utterance

    def _speculative_question(self, words: str) -> Question:
        """A question as the model gets it, for an answer that is begun before the turn has ended."""
        return self._question(words, self._clock.perf_ns(), self._source("speculative"), None)

    def _question(self, text: str, asked_ns: int, source: random.Random, instructions: str | None) -> Question:
        history = tuple((role, entry) for _, role, entry in self._history)
        return Question(text, asked_ns, source, instructions or self._service.config.instructions or None, history)

    def _source(self, stage: str) -> random.Random:
        """Return the seeded source of the next turn's draws for one stage."""
        return random_source(self._variant.config.seed, self._call.key, self._turns, stage)

    async def _speech_stopped(self, stopped: SpeechStopped, silence_ms: int, create_response: bool) -> None:
        utterance, self._utterance = self._utterance, None
        if utterance is None:
            return
        record = self._new_record(stopped.speech_start_perf_ns)
        record.mark_speech(stopped, utterance.first_partial_perf_ns)
        record.start = utterance.start
        source = self._served(record).source("endpoint")
        delay_ns = self._variant.config.endpoint_delay.draw_ns(source)
        record.injected_endpointing_ns = silence_ms * _NS_PER_MS + delay_ns
        end_ns = stopped.speech_end_perf_ns + record.injected_endpointing_ns
        transcript = utterance.finish(stopped.silent_samples)

        async def end_turn() -> None:
            await self._clock.until(end_ns)
            await self._send(self._service.speech_stopped(utterance.item_id, stopped.audio_end_ns // _NS_PER_MS))
            asked = await self._commit_item(record, utterance, transcript, end_ns)
            if create_response and self._utterance is None and self._answering is None:
                await self._answer(record, asked.transcribing, commands.CreateResponse())
            elif create_response:
                record.outcome_reason = "the caller continued to speak, or a response was in progress"
                self._report(record, "interrupted")

        self._spawn(end_turn())

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
        await self._commit_item(record, utterance, transcript, arrival_perf_ns)

    async def _commit_item(
        self, record: TurnRecord, utterance: UtteranceRecognition, transcript: asyncio.Task[str], end_perf_ns: int
    ) -> AskedTurn:
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

        transcribing = self._spawn(transcribe(self._served(record), transcript, end_perf_ns, show))
        self._asked = AskedTurn(record, transcribing)
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
        text = record.transcript or ""

        async def show(delta: str) -> None:
            await self._send(*wire.text_delta(delta))

        def prepare(pcm: Pcm) -> list[bytes]:
            distorted = self._sender.distort(pcm, wire.rate_hz)
            return [message.encode() for message in wire.audio_delta(distorted)]

        async def play(messages: list[bytes]) -> None:
            for message in messages:
                await self._sender.send_audio(message)

        turn = self._served(record)
        question = self._question(text, asked_ns, turn.source("llm"), command.instructions)
        try:
            rate_hz = wire.rate_hz if wire.modality == "audio" else None
            answer = await reply(turn, question, ReplySink(show, prepare, play, rate_hz))
        except TtsFailed as failed:
            _logger.warning("A reply failed: %s.", failed)
            record.outcome_reason = str(failed)
            await self._end_answer(record, wire, error=str(failed))
            return
        if record.item_id is None or self._service.has_item(record.item_id):
            self._history.append((record.item_id, "user", text))
        self._history.append((wire.item_id, "assistant", answer))
        await self._end_answer(record, wire)

    async def _end_answer(
        self, record: TurnRecord, wire: ServiceReply, *, reason: Reason | None = None, error: str | None = None
    ) -> None:
        self._answering = None
        self._last_item_id = wire.item_id
        self._reply_ms[wire.item_id] = (record.reply_audio_ns or 0) // _NS_PER_MS
        status = "cancelled" if reason else "failed" if error else "completed"
        self._report(record, "interrupted" if reason else "error" if error else "ok")
        wire.metadata = merge_metadata(wire.metadata, record.metadata())
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
        kept = [entry for entry in self._history if entry[0] != item_id]
        self._history = deque(kept, maxlen=self._history.maxlen)
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
            cohort=self._call.cohort,
            fault=self._sender.fault,
        )
        self._turns += 1
        return record

    def _served(self, record: TurnRecord) -> ServedTurn:
        return ServedTurn(self._variant, self._call.key, record)

    def _report(self, record: TurnRecord, outcome: semconv.Outcome) -> None:
        """Emit a turn that is over, if there is somebody to emit it to."""
        if self._call.trace is not None:
            run_id, call_id = self._variant.config.run_id, self._service.session_id
            self._call.trace.emit(record.as_turn(run_id=run_id, call_id=call_id, outcome=outcome))

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
        if error is not None and not isinstance(error, ConnectionClosed):
            self._call.on_fault(error)
